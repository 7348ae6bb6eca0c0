"""A run by an approved request: of the plan that was approved, charged once, resumed as itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tacit.cli import main
from tacit.errors import InvalidArgument
from tacit.ledger import Ledger, Person, Release, approve, ask
from tacit.runs import Interrupted, Interruption
from tacit.runs.recipe import Task
from tacit.runs.run import Place, carried_out

from . import small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tacit.ledger import Budget, RequestState
    from tacit.training.plan import Plan

ENGINEER, OFFICER = Person("Ada", "engineer", "a" * 32), Person("Bo", "officer", "b" * 32)


def task(**settings: Any) -> Task:
    return Task(
        settings=replace(small.Settings(), **settings), data=small.split(), epsilon=3.0, delta=1e-5,
        device=torch.device("cpu"), seed=0,
    )  # fmt: skip


def approved(ledger: Ledger, plan: Plan, **asked: Any) -> RequestState:
    made = ask(
        ledger, "small", Release(plan.event, plan.adjacency, plan.unit), steps=plan.steps,
        by=ENGINEER, reason="a model",
        detail={"plan": plan.as_dict(), "last_step": plan.steps}, asked=asked,
    )  # fmt: skip
    return approve(ledger, made.number, by=OFFICER, reason="fine")


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as made:
        made.open("small", 8.0, 1e-4)
        yield made


def place(ledger: Ledger, folder: Path, request: int, **given: Any) -> Place:
    opening: Callable[[], Budget] = lambda: ledger.budget("small")  # noqa: E731
    return Place(**{"folder": folder, "opening": opening, "request": request,
                    "stop": Interruption(), **given})  # fmt: skip


def test_a_run_draws_on_what_was_approved_and_charges_nothing_else(
    ledger: Ledger, tmp_path: Path
) -> None:
    plan = small.recipe(also=False).outline(task()).plan  # type: ignore[misc]
    made = approved(ledger, plan)
    before = ledger.budget("small").spent()
    done = carried_out(
        small.recipe(also=False), task(), place(ledger, tmp_path / "run", made.number)
    )
    assert ledger.budget("small").spent() == before
    known = ledger.refresh().requests[made.number]
    assert known.standing == "drawn"
    held = ledger.books.reservations[known.reservation or 0]
    assert (held.granted, held.steps) == (10, 10)
    assert done.statement.charge is not None
    assert done.statement.charge.reservation == known.reservation
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["budget"]["request"] == str(made.number)
    with pytest.raises(InvalidArgument, match="another run has drawn"):
        carried_out(small.recipe(also=False), task(), place(ledger, tmp_path / "two", made.number))
    assert not (tmp_path / "two").exists()


def test_another_plan_than_the_approved_one_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    plan = small.recipe(also=False).outline(task()).plan  # type: ignore[misc]
    made = approved(ledger, plan)
    head = ledger.head
    for settings, name in (({"lot": 30}, "lot_size"), ({"clip": 2.0}, "clip"),
                           ({"steps": 9}, "steps")):  # fmt: skip
        with pytest.raises(InvalidArgument, match=f"{name} must be .* as request"):
            carried_out(
                small.recipe(also=False), task(**settings),
                place(ledger, tmp_path / "run", made.number),
            )  # fmt: skip
    with pytest.raises(InvalidArgument, match="also releases something"):
        carried_out(small.recipe(), task(), place(ledger, tmp_path / "run", made.number))
    ledger.refresh()
    assert ledger.head == head
    assert not (tmp_path / "run").exists()


def test_a_stopped_run_goes_on_with_its_own_request(ledger: Ledger, tmp_path: Path) -> None:
    plan = small.recipe(also=False).outline(task()).plan  # type: ignore[misc]
    made = approved(ledger, plan)

    stop = Interruption()
    seen: list[int] = []

    def on_epoch(record: Any) -> None:
        seen.append(record.steps)
        shown = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
        assert [json.loads(line)["steps"] for line in shown] == seen  # whoever watches sees it
        stop.request()

    there = place(ledger, tmp_path / "run", made.number, stop=stop, on_epoch=on_epoch)
    with pytest.raises(Interrupted):
        carried_out(small.recipe(also=False), task(), there)
    assert seen == [5]
    again = replace(there, resume=True, stop=Interruption(), on_epoch=None)
    with pytest.raises(InvalidArgument, match="budget must be the one"):
        carried_out(small.recipe(also=False), task(), replace(again, request=None))
    carried_out(small.recipe(also=False), task(), again)
    assert ledger.refresh().reservations[made.reservation or 0].granted == 10


def test_the_command_takes_all_of_it_from_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tacit.training.plan import Plan  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    plan = Plan.for_budget(
        epsilon=2.0, delta=1e-5, examples=1437, lot_size=1437, epochs=12, clip=0.5
    )
    with Ledger("sqlite:///budget.db") as ledger:
        ledger.open("small", 8.0, 1e-4)
        made = approved(ledger, plan, epsilon=2.0, delta=1e-5, lot=1437.0, epochs=12.0, clip=0.5)
    line = ["train", "digits", "--ledger", "budget.db", "--request", str(made.number)]
    assert main([*line, "--budget", "other"]) == 2
    assert main([*line[:2], "--request", "3"]) == 2
    assert main([*line[:-1], "99"]) == 2
    assert main([*line, "--clip", "3", "--out", "run"]) == 2
    said = capsys.readouterr().err
    for part in (
        "contradicts request",
        "needs --ledger",
        "number of a request",
        "clip must be 0.5",
    ):
        assert part in said
    assert main([*line, "--out", "run", "--json"]) == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["plan"] == plan.as_dict()
    assert (record["epsilon"], record["settings"]["epochs"]) == (2.0, 12.0)


def test_a_run_by_a_lapsed_request_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = small.recipe(also=False).outline(task()).plan  # type: ignore[misc]
    with monkeypatch.context() as then:
        then.setattr("tacit.ledger.entries.today", lambda: "2026-01-01")
        with Ledger("sqlite:///budget.db") as ledger:
            ledger.open("small", 8.0, 1e-4)
            made = approved(ledger, plan)
    line = ["train", "digits", "--ledger", "budget.db", "--request", str(made.number)]
    assert main([*line, "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "its approval lapsed: no run drew on it by 2026-01-31; file another one" in said
    assert not (tmp_path / "run").exists()
    with Ledger("sqlite:///budget.db") as ledger:
        assert ledger.books.requests[made.number].standing == "lapsed"
        assert ledger.budget("small").spent().epsilon == 0.0
    assert main(["ledger", "history", "--ledger", "budget.db"]) == 0
    said = capsys.readouterr().out
    assert "to be drawn on by 2026-01-31" in " ".join(said.split())
    assert f"request {made.number}" in said


def test_a_model_of_ones_own_draws_on_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    from tacit.training.plan import Plan  # noqa: PLC0415

    plan = Plan.for_budget(epsilon=3, delta=1e-4, examples=200, lot_size=20, epochs=1, clip=1.0)
    with Ledger("sqlite:///budget.db") as ledger:
        ledger.open("small", 8.0, 1e-3)
        made = approved(ledger, plan)
    line = ["train", "--model", "mine.py:prepare", "--ledger", "budget.db", "--out", "run"]
    assert main([*line, "--request", str(made.number), "--json"]) == 0
    with Ledger("sqlite:///budget.db") as ledger:
        assert ledger.books.requests[made.number].standing == "drawn"
        assert ledger.books.budgets["small"].totals.charges == 1
    capsys.readouterr()


OWN = """
import torch, tacit

def prepare():
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    model = torch.nn.Linear(4, 2)
    plan = tacit.Plan.for_budget(
        epsilon=3, delta=1e-4, examples=200, lot_size=20, epochs=1, clip=1.0
    )
    return tacit.Prepared(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), plan=plan, dataset=data
    )
"""
