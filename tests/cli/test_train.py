"""``tacit train``: what it writes, what it refuses, and how it goes on after any end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from tacit.accounting import epsilon
from tacit.accounting.serialization import from_dict
from tacit.cli import main
from tacit.cli.runs import command_line, opening
from tacit.data import load
from tacit.errors import DataError
from tacit.ledger import Ledger
from tacit.recipes import digits, names
from tacit.recipes.digits import rows
from tacit.runs import record as records
from tacit.runs.folder import Folder
from tacit.statement import Statement

from ..forked import Forked
from . import train_child

if TYPE_CHECKING:
    from collections.abc import Callable

CHILD = Path(__file__).with_name("train_child.py")
FILES = {"model.safetensors", "history.jsonl", "statement.json", "run.json", "report.html",
         "report.md"}  # fmt: skip
STEPS = 20


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo in a process of its own: its folder and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "run"
    process = Forked(lambda: main(["train", "digits", "--epsilon", "3", "--out", str(out)]), env={})
    printed, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return out, printed


def lines_of(out: Path) -> list[str]:
    return (out / "history.jsonl").read_text().splitlines()


# ---- what comes out


def test_the_demo_leaves_its_files_and_ends_with_the_report(finished: tuple[Path, str]) -> None:
    out, printed = finished
    assert {one.name for one in out.iterdir()} == FILES
    assert "<svg" in (out / "report.html").read_text()
    assert printed.splitlines()[-1] == f"The report is at {out / 'report.html'}"


def test_the_demo_is_accurate_and_keeps_within_epsilon(finished: tuple[Path, str]) -> None:
    out, _ = finished
    record = json.loads((out / "run.json").read_text())
    statement = Statement.from_json((out / "statement.json").read_text())
    assert record["test_accuracy"] >= 0.85
    assert 2.9 < statement.epsilon <= 3.0
    assert epsilon(from_dict(statement.event), 1e-5) <= 3.0
    assert statement.configuration == record["configuration"]
    assert record["settings"]["lot"] == 1437
    assert record["finished"] is True
    (checksum,) = record["data"]["files"].values()
    assert checksum.startswith("sha256:")


def test_history_holds_held_out_metrics_only(finished: tuple[Path, str]) -> None:
    lines = [json.loads(line) for line in lines_of(finished[0])]
    assert len(lines) == 40
    for line in lines:
        assert set(line) == {"epoch", "steps", "held_out_accuracy", "epsilon"}
    spent = [line["epsilon"] for line in lines]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(3.0, abs=1e-6)


def test_the_model_is_the_one_whose_accuracy_is_told(finished: tuple[Path, str]) -> None:
    record = json.loads((finished[0] / "run.json").read_text())
    (weight,) = load_file(finished[0] / "model.safetensors").values()
    x, y = rows(load("digits").test, torch.device("cpu")).tensors
    assert float(((x @ weight.T).argmax(1) == y).double().mean()) == record["test_accuracy"]


def test_json_is_all_of_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert (
        main(["train", "digits", "--out", str(out), "--json", "--epochs", "2", "--seed", "1"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["recipe"] == "digits"
    assert told["settings"]["epochs"] == 2.0
    assert 0.0 <= told["accuracy"] <= 1.0
    assert set(told["files"]) == FILES


def test_the_command_is_kept_without_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    line = [
        "tacit",
        "train",
        "digits",
        "--ledger",
        "postgresql://me:s3:cr@t@host:5432/db",
        "--lot=3",
    ]
    monkeypatch.setattr(sys, "argv", line)
    kept = command_line()
    assert "s3:cr@t" not in " ".join(kept)
    assert kept == ("tacit", *line[1:4], "postgresql://me:***@host:5432/db", "--lot=3")


def test_settings_have_three_spellings(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--lot", "500"], ["--set", "lot=5e2"], ["--lot=500"], ["--set=lot=500"]):
        assert main(["train", "digits", "--settings", "--json", *given]) == 0
        shown = json.loads(capsys.readouterr().out)["settings"]
        assert shown["lot"]["value"] == 500
    assert main(["train", "--averaged", "0.25", "digits", "--settings", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["averaged"]["value"] == 0.25


def test_settings_follow_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    rates = []
    for given in ("0.5", "3"):
        assert main(["train", "digits", "--settings", "--epsilon", given, "--json"]) == 0
        rates.append(json.loads(capsys.readouterr().out)["settings"]["lr"]["value"])
    assert rates[0] < rates[1]
    assert main(["train", "digits", "--settings"]) == 0
    assert "--averaged" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["train"], ["train", "--list"]])
def test_all_recipes_are_listed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names())


# ---- refusals


REFUSED = {
    "unknown recipe": (["digit"], "did you mean 'digits'?"),
    "unknown option": (["digits", "--epsilonn", "3"], "did you mean --epsilon?"),
    "unknown setting": (["digits", "--set", "lott=3"], "did you mean --lot?"),
    "no value": (["digits", "--epsilon"], "requires an argument"),
    "setting without value": (["digits", "--lott"], "needs a value"),
    "no pair": (["digits", "--set", "lot"], "NAME=VALUE"),
    "contradiction": (["digits", "--lot", "5", "--set", "lot=6"], "contradict"),
    "epsilon 0": (["digits", "--epsilon", "0"], "--epsilon must be a positive"),
    "epsilon below 0": (["digits", "--epsilon", "-1"], "--epsilon must be a positive"),
    "epsilon nan": (["digits", "--epsilon", "nan"], "--epsilon must be a positive"),
    "epsilon tiny": (["digits", "--epsilon", "1e-9"], "--epsilon must lie between"),
    "epsilon huge": (["digits", "--epsilon", "1e300"], "--epsilon must lie between"),
    "epsilon word": (["digits", "--epsilon", "three"], "--epsilon must be a number"),
    "delta 1": (["digits", "--delta", "1"], "--delta must lie strictly"),
    "lot word": (["digits", "--lot", "many"], "lot must be a whole number"),
    "lot half": (["digits", "--lot", "2.5"], "lot must be a whole number"),
    "clip 0": (["digits", "--clip", "0"], "clip must be a positive"),
    "lr nan": (["digits", "--lr", "nan"], "lr must be a number from -1e30 to 1e30"),
    "lr below 0": (["digits", "--lr", "-1"], "digits refuses its settings"),
    "lr huge": (["digits", "--lr", "1e300"], "lr must be a number from -1e30 to 1e30"),
    "epochs 0": (["digits", "--epochs", "0"], "epochs must be a positive"),
    "seed": (["digits", "--seed", "x"], "--seed must be a whole number"),
    "device": (["digits", "--device", "tpu"], "--device must be auto"),
    "device number": (["digits", "--device", "cuda:99"], "--device cuda:99 is not there"),
    "data": (["digits", "--data", "/nowhere/at/all"], "--data must be a folder"),
    "search": (["digits", "--search", "/nowhere.toml"], "--search must be a TOML file"),
    "budget alone": (["digits", "--budget", "x"], "needs --ledger"),
    "ledger nowhere": (["digits", "--ledger", "/nowhere/at/all/b.db"], "does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line_and_leaves_nothing(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, words = REFUSED[case]
    out = tmp_path / "deep" / "run"
    status = main(["train", *arguments, *([] if case == "no value" else ["--out", str(out)])])
    said = capsys.readouterr()
    assert status == 2, said
    assert said.out == ""
    lines = [line for line in said.err.splitlines() if "the budget" not in line]
    assert len(lines) == 1, said.err
    assert words in lines[0]
    assert not out.parent.exists()


def refuse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["train", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_missing_data_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise DataError("mnist is nowhere")

    monkeypatch.setattr("tacit.data.load", missing)
    assert "nowhere" in refuse(["digits", "--out", str(tmp_path / "run")], capsys)
    assert not (tmp_path / "run").exists()


def test_places_that_cannot_hold_a_run_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert "is no folder" in refuse(["digits", "--out", str(file)], capsys)
    assert "cannot be written" in refuse(["digits", "--out", str(file / "below")], capsys)
    assert "cannot be written" in refuse(["digits", "--out", "/proc/tacit"], capsys)
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("mine")
    assert "is not empty" in refuse(["digits", "--out", str(full)], capsys)
    assert file.read_text() == "mine"
    assert [one.name for one in full.iterdir()] == ["thesis.tex"]


def test_a_folder_that_may_not_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.geteuid() == 0:  # whom nothing is forbidden: let the question be answered as for others
        monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != locked)
    assert "cannot be written" in refuse(["digits", "--out", str(locked / "run")], capsys)
    assert not list(locked.iterdir())


def test_a_second_run_is_refused(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = finished
    before = {one.name: one.read_bytes() for one in out.iterdir()}
    line = refuse(["digits", "--out", str(out)], capsys)
    assert "holds a run already" in line
    assert "--resume" in line
    assert {one.name: one.read_bytes() for one in out.iterdir()} == before


def test_a_finished_run_is_shown_again(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, printed = finished
    (out / "search").mkdir()  # as a search that was killed at its very end leaves it
    (out / "search" / "model-3.safetensors").write_bytes(b"that of a loser")
    assert main(["train", "--resume", "--out", str(out)]) == 0
    assert capsys.readouterr().out == printed
    assert not (out / "search").exists()


def test_resuming_needs_a_run_and_no_contradiction(
    tmp_path: Path, finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(finished[0])
    assert "holds no run" in refuse(["--resume", "--out", str(tmp_path / "none")], capsys)
    assert "--resume needs --out" in refuse(["--resume"], capsys)
    again = ["--resume", "--out", out]
    assert "--epsilon 2.0 contradicts" in refuse([*again, "--epsilon", "2"], capsys)
    assert "--lot 100 contradicts" in refuse([*again, "--lot", "100"], capsys)
    assert "RECIPE mnist-abadi contradicts" in refuse(["mnist-abadi", *again], capsys)
    assert "--seed 3 contradicts" in refuse([*again, "--seed", "3"], capsys)
    assert "--ledger x.db contradicts" in refuse([*again, "--ledger", "x.db"], capsys)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"recipe": "os"}, "were changed"),
        ({"epsilon": 30.0}, "were changed"),
        ({"settings": {"lot": 1}}, "were changed"),
        ({"format": "other"}, "another tacit"),
        ({"run": None, "more": 1}, "unexpected keyword"),
    ],
)
def test_an_edited_record_is_refused(
    changed: dict[str, Any],
    words: str,
    tmp_path: Path,
    finished: tuple[Path, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = json.loads((finished[0] / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(plain | changed))
    assert words in refuse(["--resume", "--out", str(tmp_path)], capsys)


@pytest.mark.parametrize("name", ["os", "../../../etc/passwd", "digits/../mnist"])
def test_a_record_cannot_name_what_is_no_recipe(
    name: str, tmp_path: Path, finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    forged = replace(records.read(Folder(finished[0])), recipe=name)  # its hash is right
    forged.write(Folder(tmp_path))
    assert "there is no recipe" in refuse(["--resume", "--out", str(tmp_path)], capsys)


def test_a_transfer_is_not_taken_for_a_recipe(
    tmp_path: Path, finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    forged = replace(records.read(Folder(finished[0])), recipe="pate-digits", kind="transfer")
    forged.write(Folder(tmp_path))
    line = refuse(["--resume", "--out", str(tmp_path)], capsys)
    assert f"tacit transfer --resume --out {tmp_path}" in line


def test_the_default_folder_is_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "digits-2"):
        assert main(["train", "digits", "--epochs", "1"]) == 0
        said = capsys.readouterr().out
        assert said.splitlines()[-1] == f"The report is at {Path('runs') / name / 'report.html'}"
        assert (tmp_path / "runs" / name / "report.html").is_file()


# ---- stopping and going on


class Child:
    """A process of the slow recipe, its standard error read line by line.

    A ``fresh`` one starts as the command does, and imports everything.
    """

    def __init__(
        self, folder: Path, *arguments: str, hold: int | None = None, limit: int | None = None,
        fresh: bool = False,
    ) -> None:  # fmt: skip
        self.log, self._gate = folder / "releases", folder / "gate"
        self.told: list[str] = []
        held = {} if hold is None else {"HOLD": str(hold), "GATE": str(self._gate)}
        env = {"RELEASES": str(self.log), "OMP_NUM_THREADS": "1"} | held
        self.process: subprocess.Popen[str] | Forked
        if fresh:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), "train", *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env,
            )  # fmt: skip
        else:
            self.process = Forked(lambda: train_child.command("train", *arguments), env, limit)

    @property
    def _stderr(self) -> IO[str]:
        assert self.process.stderr is not None
        return self.process.stderr

    def wait_for(self, word: str) -> None:
        """Reads until a line begins with ``word``."""
        for line in self._stderr:
            self.told.append(line.rstrip())
            if line.startswith(word):
                return
        pytest.fail(f"{word!r} never came: {self.told}")

    def end(self) -> int:
        """How it ends; a process that was held is let go."""
        self._gate.touch()
        out, rest = self.process.communicate(timeout=600)
        self.told += [line for line in rest.splitlines() if line.strip()]
        self.out = out
        return self.process.returncode

    @property
    def releases(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


def judge(out: Path, *, steps: int = STEPS) -> dict[str, Any]:
    """The run has come to its end, whole."""
    assert {one.name for one in out.iterdir()} == FILES | {"released-mean.safetensors"}
    statement = Statement.from_json((out / "statement.json").read_text())
    assert statement.steps_taken == steps
    assert statement.steps_planned == STEPS
    assert statement.epsilon <= 3.0
    lines = [json.loads(line) for line in lines_of(out)]
    taken = [line["steps"] for line in lines]
    assert taken == sorted(set(taken))
    assert [line["epoch"] for line in lines] == list(range(1, len(lines) + 1))
    found: dict[str, Any] = json.loads((out / "run.json").read_text())
    return found


class Here:
    """The slow recipe in this process, which is quicker where nobody sends signals."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.told: list[str] = []

    def __call__(self, *arguments: str) -> int:
        self.capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(digits, "RECIPE", train_child.RECIPE)
            patch.setattr(train_child, "linger", lambda _: None)
            patch.setenv("RELEASES", str(self.folder / "releases"))
            status = main(["train", *arguments])
        self.told = self.capsys.readouterr().err.splitlines()
        return status

    def go_on(self, out: Path) -> list[str]:
        """Brings the run in ``out`` to its end."""
        assert self("--resume", "--out", str(out)) == 0, self.told
        return self.told

    def refuse(self, *arguments: str) -> str:
        assert self(*arguments) == 2, self.told
        return self.told[-1]

    @property
    def epochs(self) -> list[int]:
        return [int(line.split()[1]) for line in self.told if line.startswith("epoch")]


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(tmp_path, capsys)


def mean_in(told: list[str]) -> str:
    return next(line for line in told if line.startswith("mean "))


@pytest.mark.parametrize(
    ("number", "fresh"),
    [
        (signal.SIGTERM, False),  # SIGINT: below, at any moment
        pytest.param(signal.SIGINT, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_and_resuming_goes_on(
    tmp_path: Path, here: Here, number: int, fresh: bool
) -> None:
    out = tmp_path / "run"
    child = Child(tmp_path, "digits", "--out", str(out), hold=5, fresh=fresh)
    child.wait_for("epoch 2")
    child.process.send_signal(number)
    assert child.end() == 130, child.told
    assert f"go on with: tacit train --resume --out {out}" in child.told[-1]
    assert "stopped after step" in child.told[-1]
    assert child.out == ""
    before = int(child.told[-1].split("step ")[1].split(" of")[0])
    assert 4 <= before <= 6
    told = here.go_on(out)
    # No step was taken twice: the first epoch to end is the one that was under way.
    assert here.epochs[0] == before // 2 + 1
    assert mean_in(told) == mean_in(child.told)
    assert child.releases == 1
    judge(out)


@pytest.mark.parametrize(
    "stage",
    [
        "preprocessing",
        "releasing",
        pytest.param("mean", marks=pytest.mark.slow),
        pytest.param("epoch 1", marks=pytest.mark.slow),
        "epoch 9",
    ],
)
def test_ctrl_c_at_any_moment_loses_and_repeats_nothing(
    tmp_path: Path, here: Here, stage: str
) -> None:
    out = tmp_path / "deep" / "run"
    child = Child(tmp_path, "digits", "--out", str(out), "--before", "0.3", hold=STEPS - 2)
    child.wait_for(stage)
    time.sleep(random.uniform(0.0, 0.2))
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 130, child.told
    assert not any("Traceback" in line for line in child.told), child.told
    if not out.exists():
        assert child.releases == 0
        assert "nothing is kept" in child.told[-1]
        assert not out.parent.exists()
        return
    assert "go on with" in child.told[-1]
    here.go_on(out)
    assert child.releases == 1
    judge(out)


def test_a_hangup_that_is_ignored_does_not_stop_a_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; children inherit it
    try:
        child = Child(tmp_path, "digits", "--out", str(out), hold=3)
    finally:
        signal.signal(signal.SIGHUP, before)
    child.wait_for("holding")
    child.process.send_signal(signal.SIGHUP)
    assert child.end() == 0, child.told
    judge(out)


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    out = tmp_path / "run"
    child = Child(tmp_path, "digits", "--out", str(out), hold=0)
    child.wait_for("holding")
    child.process.send_signal(signal.SIGINT)
    child.wait_for("tacit: stopping after this step")
    child.process.send_signal(signal.SIGINT)
    child.process.wait(timeout=600)  # nobody lets it go: the step would never end
    assert child.end() == 130, child.told
    assert "go on with" in child.told[-1]


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path: Path, here: Here) -> None:
    out = tmp_path / "run"
    child = Child(tmp_path, "digits", "--out", str(out), hold=9)
    child.wait_for("epoch 4")
    assert "in use" in here.refuse("--resume", "--out", str(out))
    assert "holds a run already" in here.refuse("digits", "--out", str(out))
    child.process.kill()
    child.end()
    told = here.go_on(out)
    assert mean_in(told) == mean_in(child.told)
    assert child.releases == 1
    assert here.epochs == [*range(here.epochs[0], 11)]
    assert here.epochs[0] >= 4
    judge(out)


# ---- ledgers


def ledger_of(folder: Path) -> tuple[str, Callable[[], tuple[float, int]]]:
    url = f"sqlite:///{folder}/budget.db"

    def state() -> tuple[float, int]:
        with Ledger(url, create=False) as ledger:
            assert ledger.verify().ok
            budget = ledger.budget("digits")
            return budget.spent().epsilon, budget.state.granted

    return url, state


def test_a_run_is_charged_once_over_its_interruptions(tmp_path: Path, here: Here) -> None:
    url, state = ledger_of(tmp_path)
    out = tmp_path / "run"
    child = Child(tmp_path, "digits", "--out", str(out), "--ledger", url, hold=7)
    child.wait_for("epoch 3")
    assert any("made the budget 'digits'" in line for line in child.told)
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 130, child.told
    here.go_on(out)
    record = judge(out)
    spent, granted = state()
    assert 2.99 < spent <= 3.0
    assert granted == STEPS + 1  # its steps, and the mean
    assert record["budget"]["name"] == "digits"
    line = here.refuse("digits", "--out", str(tmp_path / "second"), "--ledger", url)
    assert "something was released already" in line
    assert not (tmp_path / "second").exists()
    assert state() == (spent, granted)


# In the rehearsal, before anything is charged; and with a checkpoint of four steps at least, where
# as many are charged as the pace of the steps before asks for.
@pytest.mark.parametrize(("hold", "least", "most"), [(0, STEPS, STEPS), (6, 4, STEPS - 1)])
def test_a_killed_run_is_charged_for_what_it_lost(
    tmp_path: Path, here: Here, hold: int, least: int, most: int
) -> None:
    url, state = ledger_of(tmp_path)
    out = tmp_path / "run"
    child = Child(tmp_path, "digits", "--out", str(out), "--ledger", url, hold=hold)
    child.wait_for("holding")
    child.process.kill()
    child.end()
    here.go_on(out)
    spent, granted = state()
    assert spent <= 3.0
    assert granted == STEPS + 1
    statement = Statement.from_json((out / "statement.json").read_text())
    assert statement.steps_taken is not None
    assert least <= statement.steps_taken <= most


def test_a_budget_that_is_too_small_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, state = ledger_of(tmp_path)
    with Ledger(url) as ledger:
        ledger.open("digits", 1.0, 1e-5, composition="declared")
    out = tmp_path / "run"
    assert main(["train", "digits", "--epsilon", "3", "--ledger", url, "--out", str(out)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "opened the budget" in said[0]
    assert "has no room for" in said[1]
    assert not out.exists()
    assert state() == (0.0, 0)


# ---- disks


# Neither the record, nor the checkpoint.
@pytest.mark.parametrize("limit", [500, 3000])
def test_files_that_cannot_grow_are_one_line(tmp_path: Path, here: Here, limit: int) -> None:
    out = tmp_path / "run"
    child = Child(tmp_path, "digits", "--out", str(out), limit=limit)
    assert child.end() == 2, child.told
    assert "cannot" in child.told[-1]
    assert not any("Traceback" in line for line in child.told)
    left = list(out.iterdir()) if out.exists() else []
    assert not [one for one in left if one.name.endswith(".tmp")]
    if left:
        here.go_on(out)
        judge(out)


# ---- searches


def test_a_search_releases_its_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "search.toml", tmp_path / "run"
    file.write_text(
        'runs = 2\nscore = "training"\nscore_epsilon = 0.5\n[candidates]\nlr = [130.0, 120.0]\n'
    )
    arguments = ["digits", "--epochs", "4", "--search", str(file), "--out", str(out)]
    assert main(["train", *arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    statement = Statement.from_json((out / "statement.json").read_text())
    assert {one.name for one in out.iterdir()} == FILES
    assert told["epsilon"] <= 3.0
    assert statement.event["kind"] == "PrivateSelection"
    assert statement.tuning is not None
    assert statement.tuning.startswith("covered for lr")
    record = json.loads((out / "run.json").read_text())
    assert record["winner"]["lr"] in (130.0, 120.0)
    # Neither how many runs there were nor what the losers scored is told anywhere.
    assert "journal" not in json.dumps(told)


@pytest.mark.slow
def test_a_search_that_was_stopped_goes_on(tmp_path: Path, here: Here) -> None:
    file, out = tmp_path / "search.toml", tmp_path / "run"
    file.write_text("runs = 3\n[candidates]\nlr = [130.0, 120.0]\n")
    child = Child(tmp_path, "digits", "--out", str(out), "--search", str(file), "--before", "0",
                  hold=0)  # fmt: skip
    child.wait_for("holding")
    child.process.send_signal(signal.SIGINT)
    assert child.end() == 130, child.told
    assert "go on with" in child.told[-1]
    here.go_on(out)
    assert {one.name for one in out.iterdir()} == FILES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("runs = [", "no TOML file"),
        ("runs = 3", "candidates must list"),
        ("runs = 0\n[candidates]\nlr = [1]", "runs must be a positive"),
        ("[candidates]\nlr = []", "lr must be a list"),
        ("[candidates]\nlrr = [1]", "did you mean lr?"),
        ("[candidates]\nlot = ['many']", "lot must be a whole number"),
        ("score = 'test'\n[candidates]\nlr = [1]", "score must be"),
        ("score_epsilon = 1\n[candidates]\nlr = [1]", "score_epsilon goes with"),
        ("tries = 1\n[candidates]\nlr = [1]", "a search has"),
    ],
)
def test_bad_searches_are_one_line(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "search.toml"
    file.write_text(text)
    line = refuse(["digits", "--search", str(file), "--out", str(tmp_path / "run")], capsys)
    assert words in line
    assert not (tmp_path / "run").exists()


# ---- a model and data of one's own that cannot be trained

OWN = """
import torch, tacit

def prepared(width=4, rows=None):
    x = torch.randn(200, 4)
    data = rows or torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    model = torch.nn.Linear(width, 2)
    plan = tacit.Plan.for_budget(
        epsilon=3, delta=1e-4, examples=200, lot_size=20, epochs=1, clip=1.0
    )
    return tacit.Prepared(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), plan=plan, dataset=data
    )

class Rows:
    def __len__(self):
        return 200

    def __getitem__(self, at):
        raise KeyError("age")

def wide():
    return prepared(5)

def unread():
    return prepared(rows=Rows())
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wide", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4 and 5x2)"),
        ("unread", "KeyError: 'age' (line 20 of "),
    ],
)
def test_what_a_users_own_model_raises_is_answered_by_one_line(
    name: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    assert main(["train", "--model", f"{file}:{name}", "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"tacit: --model {file}:{name} cannot be trained: {words}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["--epsilon", "--lr", "--epochs"])
def test_what_a_users_own_function_says_is_refused_by_the_option_that_was_given(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    assert main(["train", "--model", f"{file}:wide", option, "3"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"tacit: {option} has no place beside --model, whose function says it all"


def test_an_option_that_a_recipe_has_no_use_for_is_not_suggested_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "digits", "--model", "mine.py:f", "--out", str(out)]) == 2
    assert main(["train", "digits", "--set", "epsilon=3", "--out", str(out)]) == 2
    model, epsilon_ = capsys.readouterr().err.splitlines()[-2:]
    assert model == (
        "tacit: model is no setting of digits, whose settings are epochs, lot, clip, lr, averaged; "
        "to train a model of your own, leave out the recipe"
    )
    assert epsilon_.startswith("tacit: epsilon is no setting of digits, whose settings are")
    assert not out.exists()


def test_a_learning_rate_of_nothing_spends_no_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, budget = tmp_path / "run", tmp_path / "budget.db"
    line = ["train", "digits", "--lr", "0", "--out", str(out), "--ledger", str(budget)]
    assert main(line) == 2
    assert "lr of the optimizer must be above 0, got 0" in capsys.readouterr().err
    assert not out.exists()
    with Ledger(f"sqlite:///{budget}") as ledger:
        assert ledger.budget("digits").spent().epsilon == 0


def test_a_budget_that_is_made_is_shown_beside_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a mistyped address is seen: it would be charged in place of the right one."""
    url = f"sqlite:///{tmp_path / 'budget.db'}"
    for name, beside in (("digits", "which held no budget before"),
                         ("mnist", "which already holds 'digits'")):  # fmt: skip
        opened = opening(url, None, name, epsilon=3.0, delta=1e-5, resume=False)
        assert opened is not None
        opened()
        said = capsys.readouterr().err
        assert said.startswith(f"tacit: made the budget '{name}' (ε = 3, δ = 1e-5, declared) in ")
        assert said.endswith(f", {beside}\n")


def test_a_budget_that_is_named_must_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped name would be a budget of its own, which does not count what was given away."""
    url, out = f"sqlite:///{tmp_path / 'budget.db'}", tmp_path / "run"
    line = ["train", "digits", "--out", str(out), "--ledger", url, "--budget", "hospital"]
    assert main(line) == 2
    assert "there is no ledger at" in capsys.readouterr().err
    with Ledger(url) as ledger:
        ledger.open("hospitals", 8.0, 1e-5)
    assert main(line) == 2
    assert "has ('hospitals'), got 'hospital'; to make it: tacit ledger open hospital" in (
        capsys.readouterr().err
    )
    assert not out.exists()
    with Ledger(url) as ledger:
        assert [one.name for one in ledger.budgets()] == ["hospitals"]
