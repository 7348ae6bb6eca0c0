"""The walk of a stranger: README and quick start, by the text alone, in an empty folder.

Every command and every block of Python is executed as it is printed, top to bottom. What would
install something is only compared with the package, since a test has no network.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tacit.cli import main

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SETTINGS = "FILE = "  # the quick start's block that a reader is asked to change
OWN = """
FILE = "shop.csv"
NUMBERS = {"basket": (0, 500), "years": (0, 30)}
CHOICES = {"region": ["north", "south", "west"]}
TARGET, CLASSES = "returns", ["0", "1", "2"]
HELD_OUT = 100
"""


def follow(page: Path, own: str | None = None) -> dict[str, object]:
    """Does what the page says, with a reader's own settings in place of the page's if given."""
    names: dict[str, object] = {}
    for language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            text = own if own is not None and code.startswith(SETTINGS) else code
            exec(compile(text, page.name, "exec"), names)
        elif language == "bash":
            for line in code.splitlines():
                carry_out(line)
    return names


def carry_out(line: str) -> None:
    program, *given = shlex.split(line, comments=True) or [""]
    if program == "tacit":
        assert main(given) == 0, line
    elif program == "pip":
        installs(given)
    elif program == "make":
        rules = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{given[0]}:", rules, re.MULTILINE), line
    else:
        assert not program, f"{line}: a stranger may not have this program"


def installs(given: list[str]) -> None:
    """``pip install tacit`` brings the command: name, script and extras are the package's."""
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert given[0] == "install"
    assert package["name"] in {name.partition("[")[0] for name in given[1:]}
    assert package["scripts"]["tacit"] == "tacit.cli:main"


def test_extras_that_pages_name_are_the_packages():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    texts = " ".join(page.read_text(encoding="utf-8") for page in pages)
    named = {extra for many in re.findall(r"tacit\[([\w,]+)\]", texts) for extra in many.split(",")}
    assert {"hf", "plots", "sklearn", "ui"} <= named <= set(package["optional-dependencies"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_ends_in_a_report_and_says_what_is_printed(folder: Path, capsys):
    follow(ROOT / "README.md")
    assert {"first", "digits"} == {run.parent.name for run in folder.glob("runs/*/report.html")}
    output = capsys.readouterr()
    shown = re.search(r"^epoch 5  step 100  held-out ([\d.]+)%  ε 3$", output.out, re.MULTILINE)
    assert shown
    assert float(shown[1]) > 85
    assert "Traceback" not in output.err


def test_the_quick_start_ends_in_a_report_and_a_budget(folder: Path, capsys):
    names = follow(ROOT / "docs" / "quickstart.md")
    assert (folder / "runs" / "people" / "report.html").is_file()
    assert len(names["answers"]) == 3  # type: ignore[arg-type]
    printed = capsys.readouterr().out
    plan = BLOCK.findall((ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8"))
    described = next(text for kind, text in plan if kind == "text" and "Poisson sample" in text)
    assert described in printed
    shown = re.search(r"^epoch 10  step 100  held-out ([\d.]+)%  ε 2$", printed, re.MULTILINE)
    assert shown
    assert float(shown[1]) > 80


def test_the_quick_start_takes_a_csv_of_ones_own(folder: Path):
    """Other columns, three classes, values that are missing, out of range and no numbers."""
    lines = ["basket,years,region,returns,ignored"]
    odd = ["", "n/a", "-3", "1e9"]
    for at in range(1_400):
        basket = odd[at % 4] if at % 50 == 0 else str(at % 490)
        region = ("north", "south", "west", "elsewhere", "")[at % 5]
        lines.append(f"{basket},{at % 29},{region},{(at % 490) // 170},x{at}")
    (folder / "shop.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    names = follow(ROOT / "docs" / "quickstart.md", OWN)
    assert names["x"].shape == (1_400, 5)  # type: ignore[attr-defined]
    assert bool(names["x"].isfinite().all())  # type: ignore[attr-defined]
    assert (folder / "runs" / "people" / "report.html").is_file()
