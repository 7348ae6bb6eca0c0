"""A pandas table and a user's own module: trained, killed, resumed, reported, audited, loaded."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import TensorDataset

import tacit
from tacit.cli import main
from tacit.data import Examples, Split
from tacit.errors import CheckpointError, InvalidArgument
from tacit.ledger import Ledger
from tacit.recipes.auditing import own_run
from tacit.runs import Recipe, Search
from tacit.training.evaluation import accuracy
from tacit.training.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn

    from tacit.runs import Outline, Releasing, Task

pytest.importorskip("pandas")
from ..forked import Forked
from . import own_data

SCRIPT = Path(own_data.__file__)
MODEL = f"{SCRIPT}:prepare"
LEFT = {"run.json", "model.safetensors", "history.jsonl", "statement.json"}
SECONDS = 600


def fit(out: Path | None, **given: Any) -> Any:
    ready = own_data.prepare()
    return tacit.fit(
        ready.model, ready.optimizer, ready.plan, ready.dataset,
        **{"held_out": ready.held_out, "out": out} | given,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("own") / "run"
    fit(out)
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def script(out: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(out)], stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip


def resumed(out: Path) -> int:
    """The script once more, in a process that has imported everything."""
    sys.argv = [str(SCRIPT), str(out), "resume"]
    runpy.run_path(str(SCRIPT), run_name="__main__")
    return 0


# ---- the folder


def test_it_leaves_the_folder_that_tacit_train_leaves(finished: Path) -> None:
    assert {one.name for one in finished.iterdir()} == LEFT
    record = json.loads((finished / "run.json").read_text())
    assert (record["kind"], record["recipe"], record["finished"]) == ("own", "Network", True)
    assert record["data"] == {"name": "Visits", "files": {}, "train": 240, "test": 120}
    assert record["epsilon"] == 4
    assert 0.6 < record["test_accuracy"] <= 1.0
    history = [json.loads(line) for line in (finished / "history.jsonl").read_text().splitlines()]
    assert [one["epoch"] for one in history] == [1, 2, 3, 4]
    assert set(history[0]) == {"epoch", "steps", "held_out_accuracy", "epsilon"}


def test_tacit_report_reads_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["recipe"] == "Network"
    assert found["summary"]["epsilon"] <= 4
    assert main(["report", str(run)]) == 0
    assert "Network: " in (run / "report.md").read_text()


def brier(model: nn.Module, batches: Iterable[Any]) -> float:
    """The squared error of the probabilities."""
    chances, came = zip(*((model(x).softmax(1)[:, 1], y) for x, y in batches), strict=True)
    return float(((torch.cat(chances) - torch.cat(came)) ** 2).mean())


def test_metrics_are_kept_and_reported_also_without_an_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, held = tmp_path / "run", own_data.Visits(own_data.table(own_data.TEST, 2))
    real = TensorDataset(held.x, held.y.float())  # labels that are no classes
    done = fit(out, held_out=real, metrics={"brier": brier})
    found = tacit.load(out)
    assert found.history == done.history
    assert [one.held_out_accuracy for one in found.history] == [None] * 4
    assert 0.0 < (found.history[-1].metrics["brier"] or 0.0) < 0.25
    assert main(["report", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["accuracy"] is None
    assert main(["report", str(out)]) == 0
    report = (out / "report.md").read_text()
    assert f"| brier | {found.history[-1].metrics['brier']:.4g} |" in report
    assert "Accuracy was not measured: it judged them otherwise" in report


def test_without_held_out_examples_there_is_no_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path / "run", held_out=None)
    assert main(["report", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["accuracy"] is None
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "was not measured" in (tmp_path / "run" / "report.md").read_text()


def test_a_folder_that_holds_something_is_not_written_to(run: Path) -> None:
    with pytest.raises(InvalidArgument, match="holds a run already"):
        fit(run)
    with pytest.raises(InvalidArgument, match="is finished"):
        fit(run, resume=True)
    with pytest.raises(InvalidArgument, match="resume needs the folder"):
        fit(None, resume=True)


# ---- interrupted


def test_it_goes_on_after_kill_9(tmp_path: Path) -> None:
    out = tmp_path / "run"
    child = script(out, HOLD="16")  # after two epochs of six steps and the rehearsal's batches
    assert child.stderr is not None
    try:
        assert any("holding" in line for line in child.stderr)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=SECONDS)
    assert child.returncode == -signal.SIGKILL
    assert (out / "checkpoint.safetensors").exists()
    with pytest.raises(CheckpointError, match=r"has not come to its end; .* resume=True"):
        tacit.load(out)
    again = Forked(lambda: resumed(out), env={})
    told, errors = again.communicate(timeout=SECONDS)
    assert again.returncode == 0, errors
    assert float(told) <= 4.0
    assert {one.name for one in out.iterdir()} == LEFT
    found = tacit.load(out)
    assert [one.steps for one in found.history] == [6, 12, 18, 24]
    assert found.statement.steps_taken == 24


def test_the_command_resumes_it_with_the_users_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with pytest.raises(RuntimeError, match="broken"):
        fit(out, on_epoch=_breaking(3))
    assert main(["train", "--resume", "--out", str(out)]) == 2
    assert "--model FILE:function" in capsys.readouterr().err
    assert main(["train", "--resume", "--out", str(out), "--model", MODEL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 24


def _breaking(at: int) -> Callable[[Any], None]:
    def on_epoch(record: Any) -> None:
        if record.epoch == at:
            raise RuntimeError("broken")

    return on_epoch


def test_an_epoch_that_was_not_saved_was_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    save, saved = Session.save, iter(range(1, 9))

    def full(self: Session, path: Any) -> None:
        if next(saved) == 2:
            raise CheckpointError("no space is left")
        save(self, path)

    monkeypatch.setattr(Session, "save", full)
    with pytest.raises(CheckpointError, match="no space"):
        fit(tmp_path / "run", on_epoch=lambda record: seen.append(record.steps))
    assert seen == [6]
    fit(tmp_path / "run", on_epoch=lambda record: seen.append(record.steps), resume=True)
    assert seen == [6, 12, 18, 24]


def test_another_model_does_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="broken"):
        fit(tmp_path / "run", on_epoch=_breaking(2))
    model, ready = torch.nn.Linear(3, 2), own_data.prepare()
    with pytest.raises(InvalidArgument, match="recipe must be as when the run began"):
        tacit.fit(
            model, torch.optim.SGD(model.parameters(), lr=0.5), ready.plan, ready.dataset,
            held_out=ready.held_out, out=tmp_path / "run", resume=True,
        )  # fmt: skip


def test_another_plan_does_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="broken"):
        fit(tmp_path / "run", on_epoch=_breaking(2))
    ready = own_data.prepare()
    other = replace(ready.plan, clip=0.5)
    with pytest.raises(InvalidArgument, match=r"plan must be as when the run in .* began"):
        tacit.fit(
            ready.model, ready.optimizer, other, ready.dataset, held_out=ready.held_out,
            out=tmp_path / "run", resume=True,
        )  # fmt: skip


def test_an_audit_trains_on_fewer_records_where_groups_leave_no_room_for_more() -> None:
    correlation = tacit.Banded(4, coefficients=(1.0, 0.5, 0.3, 0.2))
    plan = replace(own_data.prepare().plan, lot_size=60, steps=8, correlation=correlation)
    assert plan.group_rate == 1.0

    def prepare() -> Any:
        return replace(own_data.prepare(), plan=plan)

    trial = own_run.own_trial(prepare, prepare(), 20, 0, 1e-5, None)
    nobody = np.zeros(len(trial.rows), dtype=np.bool_)
    assert len(own_run.trained_like_own(trial, nobody, 0)) == 40


def test_a_charged_run_with_groups_goes_on_after_a_crash_in_its_first_epoch(tmp_path: Path) -> None:
    """Nobody else knows which groups have had their turns; all that was reserved would be lost."""
    correlation = tacit.Banded(3, coefficients=(1.0, 0.6, 0.45))

    def crash(record: Any) -> None:
        if record.steps == 4:
            raise RuntimeError("broken")

    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("visits", 50.0, 1e-3)

        def train(**how: Any) -> Any:
            ready = own_data.prepare()
            return tacit.fit(
                ready.model, ready.optimizer, replace(ready.plan, correlation=correlation),
                ready.dataset, held_out=ready.held_out, out=tmp_path / "run", delta=1e-5,
                budget=budget, performance=tacit.Performance(lease=1), **how,
            )  # fmt: skip

        with pytest.raises(RuntimeError, match="broken"):
            train(on_step=crash)
        done = train(resume=True)
    assert (done.statement.steps_taken, done.statement.steps_lost) == (21, 3)


def test_correlated_noise_goes_on_where_another_machine_finds_other_digits(tmp_path: Path) -> None:
    """L-BFGS follows every digit of its processor's sums, and so do the coefficients."""
    given = (1.0, 0.6, 0.45)
    ready = own_data.prepare()
    plan = replace(ready.plan, correlation=tacit.Banded(3, coefficients=given))

    def train(coefficients: tuple[float, ...], **how: Any) -> Any:
        ready = own_data.prepare()
        own = replace(plan, correlation=tacit.Banded(3, coefficients=coefficients))
        return tacit.fit(
            ready.model, ready.optimizer, own, ready.dataset, held_out=ready.held_out,
            out=tmp_path / "run", delta=1e-5, **how,
        )  # fmt: skip

    with pytest.raises(RuntimeError, match="broken"):
        train(given, on_epoch=_breaking(2))
    with pytest.raises(InvalidArgument, match=r"plan must be as when the run in .* began"):
        train((1.0, 0.6, 0.46), resume=True)
    done = train((1.0, 0.6 + 1e-11, 0.45), resume=True)
    assert done.statement.plan["correlation"]["coefficients"] == list(given)


def test_ctrl_c_saves_and_is_raised(tmp_path: Path) -> None:
    def interrupt(record: Any) -> None:
        if record.epoch == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="stopped after step 12 of 24; resume=True goes"):
        fit(tmp_path / "run", on_epoch=interrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    done = fit(tmp_path / "run", resume=True)
    assert [one.steps for one in done.history] == [6, 12, 18, 24]


def test_arguments_in_another_order_are_named(tmp_path: Path) -> None:
    ready = own_data.prepare()
    model, optimizer, plan, data = ready.model, ready.optimizer, ready.plan, ready.dataset
    order = "the order is model, optimizer, plan, dataset"
    for given, wrong in (
        ((optimizer, model, plan, data), "model must be a torch Module, got a "),
        ((model, data, plan, optimizer), "optimizer must be a torch Optimizer, got a "),
        ((model, optimizer, data, plan), "plan must be a tacit Plan, got a "),
    ):
        for call in (tacit.private, partial(tacit.fit, out=tmp_path / "run"), tacit.fit):
            with pytest.raises(InvalidArgument, match=f"{wrong}.*{order}"):
                call(*given)  # type: ignore[arg-type, operator]
    loader = torch.utils.data.DataLoader(data)
    with pytest.raises(InvalidArgument, match=r"held_out is a DataLoader; pass loader\.dataset"):
        tacit.fit(model, optimizer, plan, data, held_out=loader)  # type: ignore[arg-type]


def test_it_is_charged_once(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("visits", epsilon=4.0, delta=1e-4)
        with pytest.raises(RuntimeError, match="broken"):
            fit(tmp_path / "run", budget=budget, on_epoch=_breaking(2))
        done = fit(tmp_path / "run", budget=budget, resume=True)
        assert budget.spent().epsilon <= 4.0
        assert done.statement.charge is not None


def test_the_torchrun_that_began_it_goes_on_with_it_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--max-restarts`` runs an unchanged script again, without ``resume``."""
    monkeypatch.setattr("tacit.runs.run.launch", lambda: "one")
    with pytest.raises(RuntimeError, match="broken"):
        fit(tmp_path / "run", on_epoch=_breaking(2))
    monkeypatch.setattr("tacit.runs.run.launch", lambda: "another")
    with pytest.raises(InvalidArgument, match="holds a run already"):
        fit(tmp_path / "run")
    monkeypatch.setattr("tacit.runs.run.launch", lambda: None)
    with pytest.raises(InvalidArgument, match="holds a run already"):
        fit(tmp_path / "run")
    monkeypatch.setattr("tacit.runs.run.launch", lambda: "one")
    done = fit(tmp_path / "run")
    assert [one.steps for one in done.history] == [6, 12, 18, 24]
    with pytest.raises(InvalidArgument, match="is finished"):
        fit(tmp_path / "run")


# ---- loaded


def test_a_run_is_loaded(finished: Path) -> None:
    found = tacit.load(finished, model=own_data.Network())
    assert found.statement.epsilon <= 4.0
    right = accuracy(found.model, own_data.prepare().held_out)  # type: ignore[arg-type]
    assert right == found.history[-1].held_out_accuracy == found.record.test_accuracy
    bare = tacit.load(finished)
    assert set(bare.weights) == set(own_data.Network().state_dict())
    with pytest.raises(InvalidArgument, match="model must be given"):
        _ = bare.model
    with pytest.raises(CheckpointError, match="does not hold the weights of this model"):
        tacit.load(finished, model=torch.nn.Linear(3, 2))


def test_what_a_hostile_folder_is_refused_for_steers_no_terminal(run: Path) -> None:
    odd = "\x1b[2J\u202e"
    found = replace(tacit.load(run), weights={odd: torch.zeros(1)})
    with pytest.raises(CheckpointError, match="does not hold the weights") as refused:
        found.in_model(own_data.Network())
    assert not set(odd[::4]) & set(str(refused.value))
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {odd: 1}))
    with pytest.raises(CheckpointError, match="is not the record of a run") as refused:
        tacit.load(run)
    assert not set(odd[::4]) & set(str(refused.value))


def test_a_swapped_model_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = load_file(run / "model.safetensors")
    save_file({name: one + 1.0 for name, one in weights.items()}, run / "model.safetensors")
    with pytest.raises(CheckpointError, match="is not the file"):
        tacit.load(run, model=own_data.Network())
    assert main(["report", str(run)]) == 2
    assert "is not the file this statement is about" in capsys.readouterr().err
    assert main(["audit", str(run), "--model", MODEL]) == 2
    assert "is not the file" in capsys.readouterr().err


# ---- audited


def test_tacit_audit_attacks_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--attack", "lira", "--shadows", "4", "--records", "60", "--seed", "1", "--json"]
    assert main(["audit", str(run), *options]) == 2
    assert "prepare must be given" in capsys.readouterr().err
    assert not (run / "private").exists()  # whoever publishes the folder finds nothing new in it
    assert main(["audit", str(run), "--model", MODEL, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["contradicted"]) == ("run", False)
    (attack,) = found["attacks"]
    assert (attack["name"], attack["members"], attack["others"]) == ("lira", 60, 60)
    assert 0.2 < attack["auc"]["value"] < 0.8
    assert "audit.json" in {one.name for one in run.iterdir()}
    assert main(["report", str(run)]) == 0


# ---- searched


@dataclass(frozen=True, kw_only=True)
class Settings:
    lr: float = 0.5
    lot: int = 40


def clinic() -> Recipe:
    """The user's model and table as a recipe, which has settings to choose."""

    def outline(task: Task) -> Outline:
        return task.plan(lot=task.settings.lot, epochs=2, clip=1.0)

    def prepare(task: Task, plan: tacit.Plan, release: Releasing) -> tacit.Prepared:
        del release
        model = own_data.Network()
        return tacit.Prepared(
            model=model, optimizer=torch.optim.SGD(model.parameters(), lr=task.settings.lr),
            plan=plan, dataset=rows(task.data.train), held_out=rows(task.data.test),
        )  # fmt: skip

    return Recipe(
        name="clinic", summary="who comes back", data="visits", settings=lambda _: Settings(),
        outline=outline, prepare=prepare, tuning="none",
    )  # fmt: skip


def rows(examples: Examples) -> TensorDataset:
    return TensorDataset(torch.as_tensor(examples.inputs), torch.as_tensor(examples.labels))


@pytest.mark.slow
def test_settings_of_ones_own_model_are_searched_privately(tmp_path: Path) -> None:
    ready = own_data.prepare()
    parts = [Examples(one.x.numpy(), one.y.numpy()) for one in (ready.dataset, ready.held_out)]
    search = Search(candidates={"lr": (0.2, 0.5)}, runs=2.0)
    done = tacit.recipes.run(
        clinic(), epsilon=4, delta=1e-4, data=Split("visits", *parts, ("stays", "back"), {}),
        search=search, folder=tmp_path / "run",
    )  # fmt: skip
    assert done.statement.epsilon <= 4 * (1 + 1e-9)
    assert "a private search chose among 2 candidates" in (done.statement.tuning or "")
    found = tacit.load(tmp_path / "run", model=own_data.Network())
    assert found.record.winner is not None
    assert found.record.winner["lr"] in (0.2, 0.5)
    with pytest.raises(InvalidArgument, match="search needs the folder"):
        tacit.recipes.run(clinic(), epsilon=4, search=search, data=Split("x", *parts, (), {}))
