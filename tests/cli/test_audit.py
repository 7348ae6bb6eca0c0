"""``tacit audit``: what it says and writes, what it refuses, and how it goes on after Ctrl-C."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tacit import recipes
from tacit.auditing.attacks.shadows import ShadowFolder
from tacit.auditing.replay import Finding, Report
from tacit.cli import main
from tacit.errors import DataError
from tacit.recipes.auditing import engine, run_audit

from ..forked import Forked

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.recipes.auditing import Audited


def held(*arguments: str) -> int:
    """The command, which sleeps when three models are kept."""
    add = ShadowFolder.add

    def then_sleep(folder: ShadowFolder, model: int, logits: Any) -> None:
        add(folder, model, logits)
        if model == 2:
            sys.stderr.write("held\n")
            sys.stderr.flush()
            time.sleep(600.0)

    ShadowFolder.add = then_sleep  # type: ignore[method-assign]
    sys.argv = ["tacit", *arguments]
    return main()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited") / "run"
    recipes.run("digits", epsilon=3, settings={"epochs": 3.0}, folder=folder, seed=1)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def one_line(text: str) -> str:
    """The text as it reads, wherever the terminal's width or a long path broke its lines."""
    return " ".join(text.split())


# ---- what comes out


@pytest.mark.usefixtures("drawn")
def test_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["audit", str(run), "--attack", "lira", "--shadows", "4", "--records", "60",
             "--seed", "1"]  # fmt: skip
    assert main(asked) == 0
    out = one_line(capsys.readouterr().out)
    assert "no evidence against the claim epsilon = 3" in out
    assert "at 95% confidence" in out
    assert "Secret: These figures were computed from private records" in out
    assert f"The report is at {run / 'report.html'}" in out
    page = (run / "report.html").read_text()
    assert "What attacks did reach: the audit" in page
    assert 'id="audit-' in page  # the picture
    plain = json.loads((run / "audit.json").read_text())
    assert plain["settings"]["attacks"] == ["lira"]
    assert plain["settings"]["shadows"] == 4


def test_json_is_all_of_standard_output(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["audit", str(run), "--attack", "loss", "--shadows", "0", "--records", "50",
             "--seed", "7", "--json"]  # fmt: skip
    assert main(asked) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["kind"] == "run"
    assert printed["settings"]["seed"] == 7
    assert printed["verdict"]["claimed"] == pytest.approx(3.0)
    assert [one["fpr"] for one in printed["attacks"][0]["found"]] == [0.01, 0.001, 0.0001]
    assert all(0.0 < one["allowed"] <= 1.0 for one in printed["attacks"][0]["found"])
    assert set(printed["files"]) == {"audit", "report"}


def test_a_recipe_with_canaries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    asked = ["audit", "digits", "--one-run", "--canaries", "100", "--epsilon", "2", "--epochs",
             "3", "--seed", "1", "--out", str(out)]  # fmt: skip
    assert main(asked) == 0
    shown = one_line(capsys.readouterr().out)
    assert "digits: no evidence against the claim epsilon = 2" in shown
    assert {one.name for one in out.iterdir()} == {"audit.json", "audit.png"}
    assert json.loads((out / "audit.json").read_text())["settings"]["settings"]["epochs"] == 3.0
    assert main(asked) == 2
    assert "holds an audit already; name another folder" in capsys.readouterr().err


def test_a_recipe_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["audit", "digits", "--attack", "loss", "--shadows", "0", "--canaries", "20",
             "--epochs", "2", "--seed", "1", "--json"]  # fmt: skip
    for folder in ("runs/audit-digits", "runs/audit-digits-2"):
        assert main(asked) == 0
        assert json.loads(capsys.readouterr().out)["files"]["audit"] == f"{folder}/audit.json"


def test_a_contradiction_is_status_1(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = run_audit._judged

    def broken(*given: Any) -> Audited:
        return replace(honest(*given), contradicted=True, words="the evidence contradicts it")

    monkeypatch.setattr(run_audit, "_judged", broken)
    assert main(["audit", str(run), "--attack", "loss", "--shadows", "0", "--records", "20"]) == 1
    assert "the evidence contradicts it" in one_line(capsys.readouterr().out)


def test_a_mechanism(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["audit", "mechanism", "laplace", "--draws", "5e3", "--epsilon", "2"]
    assert main(asked) == 0
    assert "no evidence against the claim" in one_line(capsys.readouterr().out)
    assert main([*asked, "--json", "--out", str(tmp_path / "out")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["kind"], printed["subject"], printed["secret"]) == (
        "mechanism",
        "laplace",
        None,
    )
    assert (tmp_path / "out" / "audit.json").is_file()


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--list", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert "digits" in printed["recipes"]
    assert set(printed["experiments"]) == {
        "mnist-memorised", "shakespeare-secret", "language-secret",
    }  # fmt: skip
    assert "lira" in printed["attacks"]
    assert "gaussian" in printed["mechanisms"]
    assert main(["audit"]) == 0
    assert "mnist-memorised" in capsys.readouterr().out


# ---- the engine


def finding(passed: bool) -> Report:
    return Report("tacit", (Finding("noise", "scale", passed, "0.95 of it"),), 0.1)


@pytest.mark.parametrize("passed", [True, False])
def test_the_engine(
    passed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "replay", lambda *_, **__: finding(passed))
    assert main(["audit", "engine", "--quick", "--workers", "1"]) == int(not passed)
    out = one_line(capsys.readouterr().out)
    count = len(engine._jobs(quick=True, seconds=1.0))
    assert "Left out, as it was to be quick" in out
    assert "0.0 % were executed" in out  # nothing was, and it says so
    good = f"engine: {count} checks in {count} setting(s) found nothing"
    assert (good if passed else "engine: the engine is at fault: noise") in out
    assert ("FAULT" in out) is not passed
    assert ("0.95 of it" in out) is not passed  # evidence of faults alone; --json has all


MODEL = """
import torch
from torch.utils.data import TensorDataset
from tacit.auditing.replay import Setting
import tacit

DATA = TensorDataset(torch.randn(40, 3), torch.randint(2, (40,)))

def loss(model, batch):
    x, y = batch
    return torch.nn.functional.cross_entropy(model(x), y, reduction="none")

def three():
    return torch.nn.Linear(3, 2), loss, DATA

def four():
    plan = tacit.Plan(examples=40, lot_size=8, steps=9, noise_multiplier=2.0, clip=0.5)
    return (lambda: torch.nn.Linear(3, 2)), loss, DATA, plan

def setting():
    plan = tacit.Plan(examples=40, lot_size=8, steps=9, noise_multiplier=2.0, clip=0.5)
    return Setting(model=four()[0], loss=loss, dataset=DATA, plan=plan)

def nothing():
    return None

def strings():
    return "a", "b", "c"

def no_data():
    return torch.nn.Linear(3, 2), loss, 7

def no_loss():
    return torch.nn.Linear(3, 2), "loss", DATA

def no_plan():
    return torch.nn.Linear(3, 2), loss, DATA, 0.5

def raises():
    raise RuntimeError("no such\\ndata")

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


@pytest.mark.parametrize("name", ["three", "four", "setting"])
def test_a_model_of_ones_own(
    name: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    def watched(setting: Any, **_: Any) -> Report:
        seen.append(setting)
        return finding(passed=True)

    monkeypatch.setattr(engine, "replay", watched)
    assert main(["audit", "engine", "--model", f"{file}:{name}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["secret"] is not None
    (setting,) = seen
    assert setting.plan.examples == 40
    assert setting.plan.noise_multiplier == (1.0 if name == "three" else 2.0)
    assert setting.model() is not setting.model()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "has no function missing"),
        ("number", "has no function number"),
        ("nothing", "must return a tacit.auditing.replay.Setting, or (model, loss, dataset)"),
        ("strings", "must return loss(model, batch) in second place"),
        ("no_data", "must return a map-style dataset in third place, got int"),
        ("no_loss", "must return loss(model, batch) in second place"),
        ("no_plan", "must return a Plan in fourth place, got float"),
        ("raises", "raised RuntimeError: no such data"),
    ],
)
def test_a_model_that_is_none(
    name: str, words: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(["engine", "--model", f"{file}:{name}"], words, capsys)


def test_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text("1 +")
    (tmp_path / "text.txt").write_text("")
    refused(["engine", "--model", "model.py"], "--model must be FILE:function", capsys)
    refused(["engine", "--model", f"{tmp_path / 'no.py'}:f"], "there is no file", capsys)
    refused(["engine", "--model", f"{tmp_path / 'bad.py'}:f"], "raised SyntaxError", capsys)
    refused(["engine", "--model", f"{tmp_path / 'text.txt'}:f"], "is no Python file", capsys)


def test_a_model_that_cannot_be_trained(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> Report:
        raise RuntimeError("mat1 and mat2\nshapes cannot be multiplied")

    monkeypatch.setattr(engine, "replay", fails)
    refused(["engine", "--model", f"{file}:three"], "cannot be trained: mat1 and mat2 sh", capsys)


# ---- what is refused


def refused(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digit"], "did you mean digits?"),
        (["runs/nowhere"], "is neither the folder of a run nor anything else"),
        (["digits", "--attack", "liar"], "did you mean 'lira'?"),
        (["digits", "--shadows", "-1"], "--shadows must be"),
        (["digits", "--shadows", "many"], "--shadows must be a number"),
        (["digits", "--canaries", "2.5", "--one-run"], "--canaries must be"),
        (["digits", "--records", "10"], "--records has no place in an audit of a recipe"),
        (["digits", "--epsilon", "no"], "--epsilon must be a number"),
        (["digits", "--seed", "-1"], "--seed must be"),
        (["digits", "--device", "tpu"], "--device must be"),
        (["digits", "--data", "/nowhere"], "--data must be a folder"),
        (["digits", "--lots", "3"], "is neither an option nor a setting of digits"),
        (["digits", "more"], "more is one argument too many after digits"),
        (["adult-logistic", "--one-run"], "adult"),
        (["mechanism"], "NAME is missing"),
        (["mechanism", "lapace"], "name must be one of laplace"),
        (["mechanism", "laplace", "--attack", "lira"], "--attack has no place in tacit audit mec"),
        (["engine", "--one-run"], "--one-run has no place in tacit audit engine"),
        (["engine", "--epsilon", "1"], "--epsilon has no place"),
        (["engine", "--device", "tpu"], "--device must be"),
        (["mnist-memorised", "--shadows", "3"], "--shadows has no place in an experiment"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    monkeypatch.setattr("tacit.data.sets.get", _no_network)
    refused(arguments, words, capsys)
    assert list(tmp_path.iterdir()) == []


def _no_network(name: str, *_: Any, **__: Any) -> Any:
    raise DataError(f"{name} cannot be downloaded here")


def test_a_folder_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused([str(tmp_path)], "holds no run", capsys)


# ---- Ctrl-C


def test_it_goes_on_after_ctrl_c(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["audit", str(run), "--shadows", "6", "--records", "50", "--json"]
    started = Forked(lambda: held(*asked), env={})
    assert "held\n" in iter(started.stderr.readline, "")  # reads up to that line
    started.send_signal(signal.SIGINT)
    _, printed = started.communicate(timeout=300)
    assert started.returncode == 130
    assert "finished models are kept, and the same command goes on: tacit audit" in printed
    assert "Traceback" not in printed
    assert len(list(run.glob("private/models-*/model-*.npy"))) == 3
    assert not (run / "audit.json").exists()
    capsys.readouterr()
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["shadows"] == 6
    assert not (run / "private").exists()
