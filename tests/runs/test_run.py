"""``run``: what comes back and what is kept, over interruptions, budgets and wrong arguments."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tacit.accounting import Composed, Gaussian, epsilon
from tacit.accounting.serialization import from_dict
from tacit.errors import BudgetExceeded, CheckpointError, InvalidArgument
from tacit.ledger import Ledger
from tacit.recipes import Interrupted, run
from tacit.statement import Statement
from tacit.training.plan import Plan

from . import small

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.recipes import Trained

RESULTS = {
    "model.safetensors", "history.jsonl", "statement.json", "run.json",
    "released-mean.safetensors",
}  # fmt: skip


def start(**changed: Any) -> Trained:
    calls = changed.pop("calls", None)
    also = changed.pop("also", True)
    given = {"epsilon": 2.0, "data": small.split()} | changed
    return run(small.recipe(calls, also=also), **given)


def test_the_statement_counts_the_release_and_the_plan() -> None:
    done = start()
    plan = Plan.from_dict(done.statement.plan)
    event = from_dict(done.statement.event)
    assert event == Composed(Gaussian(small.MEAN_NOISE), plan.event)
    assert done.statement.epsilon == pytest.approx(epsilon(event, 1e-5))
    assert 1.99 < done.statement.epsilon <= 2.0
    assert plan.epsilon(1e-5) < 2.0  # the mean has its share
    (access,) = done.statement.preprocessing
    assert access.what == "the mean"
    assert done.statement.tuning == "by hand, not charged"


def test_every_epsilon_of_the_history_counts_the_release() -> None:
    done = start()
    plan = Plan.from_dict(done.statement.plan)
    for record in done.history:
        both = Composed(Gaussian(small.MEAN_NOISE), plan.event_after(record.steps))
        assert record.epsilon == pytest.approx(epsilon(both, 1e-5))
    assert done.history[-1].epsilon <= 2.0


def test_without_a_release_the_plan_has_it_all() -> None:
    done = start(also=False)
    plan = Plan.from_dict(done.statement.plan)
    assert plan.epsilon(1e-5) == pytest.approx(2.0)
    assert done.statement.preprocessing == ()


def test_the_accuracy_is_that_of_the_model_that_comes_back() -> None:
    for averaged in (True, False):
        done = start(settings={"averaged": averaged})
        x, y = small.dataset(small.split().test).tensors
        assert isinstance(done.model, torch.nn.Module)
        assert done.accuracy == float((done.model(x).argmax(1) == y).double().mean())


def test_a_seed_fixes_the_first_weights_only() -> None:
    state = torch.get_rng_state()
    weights = []

    def spy(**given: Any) -> None:
        recipe = small.recipe()
        first = torch.nn.Linear.reset_parameters

        def noted(self: torch.nn.Linear) -> None:
            first(self)
            weights.append(self.weight.detach().clone())

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.nn.Linear, "reset_parameters", noted)
            done = run(recipe, epsilon=2.0, data=small.split(), **given)
        assert isinstance(done.model, torch.nn.Linear)
        weights.append(done.model.weight.detach())

    spy(seed=5)
    spy(seed=5)
    assert torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[1], weights[3])  # sampling and noise differ
    assert torch.equal(torch.get_rng_state(), state)


def test_a_folder_holds_the_results(tmp_path: Path) -> None:
    done = start(folder=tmp_path / "run", settings={"note": "hello"}, command=["tacit", "x"])
    out = tmp_path / "run"
    assert {one.name for one in out.iterdir()} == RESULTS
    record = json.loads((out / "run.json").read_text())
    assert record["test_accuracy"] == done.accuracy
    assert record["notes"] == ["hello"]
    assert record["command"] == ["tacit", "x"]
    assert record["data"] == {"name": "small", "files": {"small.csv": "sha256:00"},
                              "train": small.TRAIN, "test": small.TEST}  # fmt: skip
    assert record["plan"] == done.statement.plan
    assert Statement.from_json((out / "statement.json").read_text()) == done.statement


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    calls: list[str] = []
    with pytest.raises(Interrupted, match="after step 4 of 10") as stopped:
        start(calls=calls, folder=tmp_path, stop=small.StopAfter(5))
    assert stopped.value.resumable
    assert (tmp_path / "checkpoint.safetensors").is_file()
    assert (tmp_path / "released-mean.safetensors").is_file()
    done = start(calls=calls, folder=tmp_path, resume=True)
    assert calls == ["drawn"]
    assert [record.steps for record in done.history] == [5, 10]
    assert done.statement.steps_taken == 10
    assert {one.name for one in tmp_path.iterdir()} == RESULTS


def test_an_average_survives_an_interruption(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        start(folder=tmp_path, stop=small.StopAfter(9))
    done = start(folder=tmp_path, resume=True, settings=None)
    x, y = small.dataset(small.split().test).tensors
    assert isinstance(done.model, torch.nn.Module)
    assert done.accuracy == float((done.model(x).argmax(1) == y).double().mean())


def test_a_run_stopped_before_its_release_keeps_nothing(tmp_path: Path) -> None:
    calls: list[str] = []
    with pytest.raises(Interrupted) as stopped:
        start(calls=calls, also=False, folder=tmp_path / "run", stop=lambda: True)
    assert not stopped.value.resumable
    assert not (tmp_path / "run").exists()


def test_without_a_folder_nothing_can_go_on() -> None:
    with pytest.raises(Interrupted) as stopped:
        start(stop=small.StopAfter(5))
    assert not stopped.value.resumable
    with pytest.raises(InvalidArgument, match="resume needs the folder"):
        start(resume=True)


@pytest.mark.parametrize(
    ("changed", "name"),
    [({"epsilon": 3.0}, "epsilon"), ({"delta": 1e-6}, "delta"), ({"seed": 3}, "seed"),
     ({"settings": {"lr": 0.25}}, "settings")],
)  # fmt: skip
def test_another_run_cannot_go_on_with_it(
    changed: dict[str, Any], name: str, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        start(folder=tmp_path, stop=small.StopAfter(5))
    with pytest.raises(InvalidArgument, match=f"{name} must be as when the run began"):
        start(folder=tmp_path, resume=True, **changed)
    start(folder=tmp_path, resume=True)


def test_a_finished_run_and_a_second_one_are_refused(tmp_path: Path) -> None:
    start(folder=tmp_path)
    with pytest.raises(InvalidArgument, match="is finished"):
        start(folder=tmp_path, resume=True)
    with pytest.raises(InvalidArgument, match="holds a run already"):
        start(folder=tmp_path)


def test_what_a_run_killed_at_its_end_left_is_removed_when_it_is_resumed(tmp_path: Path) -> None:
    start(folder=tmp_path)
    results = {one.name for one in tmp_path.iterdir()}
    for folder in ("private", "search"):  # votes and teachers; the losers of a search
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "secret").write_bytes(b"1")
    for name in ("checkpoint.safetensors", "answers.journal", ".lock"):
        (tmp_path / name).write_bytes(b"1")
    with pytest.raises(InvalidArgument, match="is finished"):
        start(folder=tmp_path, resume=True)
    assert {one.name for one in tmp_path.iterdir()} == results


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        start(folder=tmp_path, stop=small.StopAfter(5))
    value = tmp_path / "released-mean.safetensors"
    value.write_bytes(value.read_bytes()[:-1] + b"\x00")
    with pytest.raises(CheckpointError, match="released-mean"):
        start(folder=tmp_path, resume=True)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(CheckpointError, match="not the record of a run"):
        start(folder=tmp_path, resume=True)


@pytest.mark.parametrize(
    "changed",
    [{"epsilon": 0.0}, {"epsilon": math.nan}, {"delta": 0.0}, {"device": "tpu"}, {"seed": -1},
     {"settings": {"lr": "fast"}}, {"settings": 3}, {"settings": {"lot": 1000}},
     {"epsilon": 0.1}],  # the mean alone is dearer
)  # fmt: skip
def test_wrong_arguments_leave_nothing(changed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises((InvalidArgument, ValueError)):
        start(folder=tmp_path / "deep" / "run", **changed)
    assert not (tmp_path / "deep").exists()


# ---- budgets


@pytest.mark.parametrize("kept", [True, False])
def test_a_declared_budget_is_charged_exactly(tmp_path: Path, kept: bool) -> None:
    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.open("small", 2.0, 1e-5, composition="declared")
        done = start(budget=budget, folder=tmp_path / "run" if kept else None)
        assert budget.spent().epsilon == pytest.approx(done.statement.epsilon)
        assert budget.state.granted == 11
        assert done.statement.ledger is not None
        with pytest.raises(InvalidArgument, match="released already"):
            start(budget=budget, folder=tmp_path / "second")
        assert not (tmp_path / "second").exists()


def test_a_renyi_budget_is_charged_too(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.open("small", 8.0, 1e-5, composition="renyi")
        start(budget=budget)
        assert 2.0 < budget.spent().epsilon < 8.0
        assert budget.state.granted == 11


def test_an_interrupted_run_is_charged_once(tmp_path: Path) -> None:
    calls: list[str] = []
    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.open("small", 2.0, 1e-5, composition="declared")
        for asked in (1, 4, 3):  # before the first step, and twice in between
            with pytest.raises(Interrupted):
                start(calls=calls, budget=budget, folder=tmp_path / "run",
                      resume=asked != 1, stop=small.StopAfter(asked))  # fmt: skip
        done = start(calls=calls, budget=budget, folder=tmp_path / "run", resume=True)
        assert done.statement.steps_taken == 10
        assert calls == ["drawn"]
        assert budget.state.granted == 11
        assert budget.spent().epsilon == pytest.approx(done.statement.epsilon)
        assert ledger.verify().ok


def test_a_run_goes_on_with_its_own_budget_only(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.open("small", 2.0, 1e-5, composition="declared")
        other = ledger.open("other", 2.0, 1e-5, composition="declared")
        with pytest.raises(Interrupted):
            start(budget=budget, folder=tmp_path / "run", stop=small.StopAfter(5))
        for wrong in (None, other):
            with pytest.raises(InvalidArgument, match="budget must be the one"):
                start(budget=wrong, folder=tmp_path / "run", resume=True)
        assert other.state.granted == 0
        start(budget=budget, folder=tmp_path / "run", resume=True)


def test_another_ledger_with_the_same_path_is_not_the_runs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without a checkpoint yet went on elsewhere, and was charged to a stranger's budget."""
    heads = {}
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        with Ledger(tmp_path / name / "b.db") as ledger:
            heads[name] = ledger.open("small", 2.0, 1e-5, composition="declared").ledger.head
    monkeypatch.chdir(tmp_path / "own")
    with Ledger("b.db") as ledger, pytest.raises(Interrupted):
        start(budget=ledger.budget("small"), folder=tmp_path / "run", stop=small.StopAfter(5))
    (tmp_path / "run" / "checkpoint.safetensors").unlink()  # as of a crash in the first epoch
    monkeypatch.chdir(tmp_path / "other")
    with Ledger("b.db") as ledger:
        with pytest.raises(InvalidArgument, match="budget must be the one that the run began with"):
            start(budget=ledger.budget("small"), folder=tmp_path / "run", resume=True)
        assert ledger.refresh().head == heads["other"]
    with Ledger("../own/b.db") as ledger:  # its own, by another path
        start(budget=ledger.budget("small"), folder=tmp_path / "run", resume=True)
        assert ledger.verify().ok


def test_a_run_of_an_older_tacit_knows_its_ledger_by_the_path(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.open("small", 2.0, 1e-5, composition="declared")
        with pytest.raises(Interrupted):
            start(budget=budget, folder=tmp_path / "run", stop=small.StopAfter(5))
        path = tmp_path / "run" / "run.json"
        plain = json.loads(path.read_text())
        assert plain["budget"].pop("id") == ledger.identity
        path.write_text(json.dumps(plain))
        start(budget=budget, folder=tmp_path / "run", resume=True)


def test_a_budget_that_does_not_hold_the_run_stays_as_it_was(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        for composition in ("declared", "basic"):
            budget = ledger.open(composition, 1.0, 1e-5, composition=composition)
            with pytest.raises(BudgetExceeded):
                start(budget=budget, folder=tmp_path / "run")
            assert budget.spent().epsilon == 0.0
            assert not (tmp_path / "run").exists()


def test_a_run_that_fails_before_its_first_release_gives_its_charge_back(tmp_path: Path) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("the recipe is wrong")

    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.open("small", 2.0, 1e-5, composition="declared")
        with pytest.raises(RuntimeError, match="is wrong"):
            run(replace(small.recipe(), prepare=broken), epsilon=2.0, data=small.split(),
                budget=budget, folder=tmp_path / "run")  # fmt: skip
        assert budget.spent().epsilon == 0.0
        assert not (tmp_path / "run").exists()
        start(budget=budget)


def test_a_value_lost_after_its_charge_is_told(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.open("small", 2.0, 1e-5, composition="declared")
        with pytest.raises(Interrupted):
            start(budget=budget, folder=tmp_path / "run", stop=small.StopAfter(1))
        (tmp_path / "run" / "released-mean.safetensors").unlink()  # as if killed before it was kept
        with pytest.raises(BudgetExceeded, match="its value is lost"):
            start(budget=budget, folder=tmp_path / "run", resume=True)
