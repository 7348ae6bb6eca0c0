"""Every script in ``examples`` runs, and the pages show the scripts as they are.

Those of language models run in ``hf/test_examples.py``.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.cli import main

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ELSEWHERE = {"lora.py", "trainer.py", "opacus_before.py"}  # hf/test_examples.py; needs Opacus
SAYS = {  # what each one prints, as a pattern
    "audit.py": r"epoch 2  step 20  held-out [\d.]+%  ε 2",
    "clipping.py": r"",
    "images.py": r"(7|8|9)[\d.]+% of the held-out digits are right, ε = 3.00",
    "opacus_after.py": r"ε = 3.00",
    "pate.py": r"the student is right on (8|9|10)\d%, ε = [\d.]+ whatever the votes",
    "private_statistics.py": r"spent: ε = 1.5 of 2",
    "several_gpus.py": r"20 steps, ε = 3.00 at δ = 1e-05",
    "table.py": r"epoch 6  step 60  held-out (8|9)[\d.]+%  ε 1\n",
    "team_budget.py": r"2.00 of 4 is spent\n.*is 2.50\nCem is refused: the budget 'patients-2026'",
    "users.py": r"ε = 4.00 at δ = 0.0001 for every user",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, name: str, *given: str) -> None:
    monkeypatch.setattr("sys.argv", [name, *given])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_each_example_is_run_and_on_the_page_of_tutorials():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS) | ELSEWHERE
    page = (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8")
    taught = (set(SAYS) | ELSEWHERE) - {"clipping.py", "opacus_after.py", "opacus_before.py"}
    assert all(f"](../examples/{name})" in page for name in taught)


@pytest.mark.parametrize("name", [name for name in SAYS if name not in ("audit.py", "clipping.py")])
def test_an_example_runs(name: str, monkeypatch, capsys):
    run(monkeypatch, name)
    assert re.search(SAYS[name], capsys.readouterr().out)


def test_the_picture_of_clipping_is_drawn(folder: Path, monkeypatch):
    pytest.importorskip("matplotlib")
    run(monkeypatch, "clipping.py", "picture.png")
    assert (folder / "picture.png").stat().st_size > 10_000


def test_the_table_takes_a_file(folder: Path, monkeypatch, capsys):
    lines = ["age,hours,years_of_school,job,region,owns_home"]
    lines += [
        f"{20 + at % 60},{at % 80},,office,north,{'no' if at % 3 else 'yes'}" for at in range(400)
    ]
    Path("mine.csv").write_text("\n".join(lines), encoding="utf-8")
    run(monkeypatch, "table.py", "mine.csv", "runs/mine")
    assert (folder / "runs" / "mine" / "statement.json").is_file()
    assert "tacit report runs/mine" in capsys.readouterr().out
    Path("mine.csv").write_text("\n".join(lines).replace(",yes", ",Yes"), encoding="utf-8")
    with pytest.raises(AssertionError, match="a label is none of CLASSES"):
        run(monkeypatch, "table.py", "mine.csv", "runs/other")
    Path("mine.csv").write_text("age;owns_home\n1;yes\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"no column \{.*\} among \['age;owns_home'\]"):
        run(monkeypatch, "table.py", "mine.csv", "runs/other")


def test_ones_own_model_is_audited(monkeypatch, capsys):
    run(monkeypatch, "audit.py")
    assert re.search(SAYS["audit.py"], capsys.readouterr().out)
    own = f"{EXAMPLES / 'audit.py'}:prepare"
    asked = ["--attack", "lira", "--shadows", "4", "--records", "60", "--model", own]
    assert main(["audit", "runs/audited", *asked]) == 0
    assert "no evidence against the claim" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_the_engine_is_tested_on_ones_own_model(capsys):
    assert main(["audit", "engine", "--quick", "--model", f"{EXAMPLES / 'audit.py'}:setting"]) == 0
    assert re.fullmatch(r"\S+:setting: \d+ checks begin\n", capsys.readouterr().err)  # progress


@pytest.mark.slow
def test_several_processes_run_the_same_script():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*torchrun, "--master-port", "29617", str(EXAMPLES / "several_gpus.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("20 steps, ε = 3.00 at δ = 1e-05") == 1


def code(name: str) -> list[str]:
    """A script without its docstring."""
    return (EXAMPLES / name).read_text(encoding="utf-8").partition('"""\n\n')[2].splitlines()


def test_a_typical_opacus_script_is_ported_in_ten_lines():
    before, after = code("opacus_before.py"), code("opacus_after.py")
    difference = list(difflib.unified_diff(before, after, lineterm="", n=99))[3:]
    assert sum(line.startswith("+") and line.strip() != "+" for line in difference) <= 10
    shown = "\n".join(["```diff", *(line.rstrip() for line in difference), "```"])
    assert shown in (ROOT / "docs" / "from_opacus.md").read_text(encoding="utf-8")


def test_the_opacus_script_is_one():
    """It parses and imports what Opacus has; where Opacus is installed, it runs."""
    source = (EXAMPLES / "opacus_before.py").read_text(encoding="utf-8")
    imported = {
        f"{node.module}.{name.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert "opacus.PrivacyEngine" in imported
    assert not any(name.startswith("tacit") for name in imported)


@pytest.mark.slow
def test_both_scripts_run_and_spend_the_same(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    peer = importlib.import_module("environments").python_for("opacus")  # built when missing
    spent = []
    for python, script in ((peer, "opacus_before.py"), (Path(sys.executable), "opacus_after.py")):
        command = [str(python), "-W", "ignore", str(EXAMPLES / script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr  # each asserts that its model has learned
        spent.append(float(re.fullmatch(r"ε = ([\d.]+)\n", done.stdout)[1]))
    assert spent[1] == 3.0
    assert 2.9 <= spent[0] <= 3.0
