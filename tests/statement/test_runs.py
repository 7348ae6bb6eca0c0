"""What statements claim of real runs, stopped, crashed, rewound, resumed: never less than was.

The oracle counts calls of ``dp.step`` by itself, in every attempt, whatever became of them. Kills
at any moment are in ``tests/training/test_crash.py``, which asks the statement as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

import tacit
from tacit.accounting import Gaussian, PoissonSampled, Repeated, epsilon
from tacit.accounting.serialization import from_dict
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.statement import Statement

STEPS, DELTA = 12, 1e-5
PLAN = tacit.Plan(examples=60, lot_size=6, steps=STEPS, noise_multiplier=2.0, clip=1.0)


class Crashed(Exception):
    """A program that ends in the middle."""


class Runs:
    """Attempts at one run, and how many steps they took together."""

    def __init__(self, folder: Path, *, ledger: bool) -> None:
        self.checkpoint = folder / "checkpoint"
        self.taken = 0
        self._ledger = tacit.Ledger(f"sqlite:///{folder}/budget.db") if ledger else None

    def attempt(
        self, *, steps: int | None = None, crash: bool = False, save: int = 0,
        resume: bool = False, stop_after: int | None = None,
    ) -> Statement:  # fmt: skip
        """Takes ``steps`` more steps, saves after ``save`` of them, and ends or crashes."""
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        data = torch.utils.data.TensorDataset(torch.randn(60, 3), torch.randint(2, (60,)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        budget = None if self._ledger is None else self._ledger.open("data", 50.0, 1e-4).at(DELTA)
        dp = tacit.private(
            model, optimizer, PLAN, data, budget, stop_after=stop_after,
            resume=self.checkpoint if resume else None,
            performance=tacit.Performance(lease=3),
        )  # fmt: skip
        try:
            with dp:
                for number, lot in enumerate(dp.lots(), 1):
                    for x, y in lot:
                        dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
                    dp.step()
                    self.taken += 1
                    if number == save:
                        dp.save(self.checkpoint)
                    if number == steps:
                        break
                if crash:
                    raise Crashed
        except Crashed:
            pass
        return dp.statement(DELTA)


def holds(statement: Statement, taken: int) -> None:
    """The claim covers ``taken`` steps, by a sum of the test's own, and so does what is read."""
    least = epsilon(Repeated(PoissonSampled(0.1, Gaussian(2.0)), taken), DELTA) if taken else 0.0
    assert statement.epsilon >= least * (1 - 1e-9)
    assert statement.steps_taken is not None
    again = tacit.Statement.from_json(statement.to_json())
    assert again == statement
    assert epsilon(from_dict(again.event), DELTA) >= least * (1 - 1e-9)


def test_a_whole_run(tmp_path: Path) -> None:
    runs = Runs(tmp_path, ledger=False)
    claim = runs.attempt()
    holds(claim, runs.taken)
    assert (runs.taken, claim.steps_taken, claim.steps_lost) == (STEPS, STEPS, 0)


@pytest.mark.parametrize("ledger", [False, True])
def test_an_end_that_was_fixed_in_advance(tmp_path: Path, ledger: bool) -> None:
    runs = Runs(tmp_path, ledger=ledger)
    claim = runs.attempt(stop_after=5)
    holds(claim, runs.taken)
    assert (runs.taken, claim.steps_taken) == (5, 5)
    (early,) = (one for one in claim.findings() if one.subject == "early end")
    assert early.standing == "claimed"


@pytest.mark.parametrize("ledger", [False, True])
def test_an_end_that_was_not(tmp_path: Path, ledger: bool) -> None:
    runs = Runs(tmp_path, ledger=ledger)
    claim = runs.attempt(steps=5)
    holds(claim, STEPS)  # the moment may have depended on what was seen
    assert claim.steps_taken == 5


@pytest.mark.parametrize("stop_after", [None, 9])
def test_a_crash_after_a_checkpoint_with_a_ledger(tmp_path: Path, stop_after: int | None) -> None:
    runs = Runs(tmp_path, ledger=True)
    holds(runs.attempt(steps=4, save=2, crash=True, stop_after=stop_after), runs.taken)
    holds(runs.attempt(steps=3, save=1, crash=True, resume=True), runs.taken)
    claim = runs.attempt(resume=True)
    assert claim.steps_taken is not None
    assert claim.steps_lost > 0
    assert claim.steps_taken + claim.steps_lost >= runs.taken
    holds(claim, runs.taken)


def test_a_crash_without_a_ledger_is_named(tmp_path: Path) -> None:
    """Nobody counts the steps of an attempt that is gone: the statement says so, and claims it."""
    runs = Runs(tmp_path, ledger=False)
    holds(runs.attempt(steps=4, save=2, crash=True), runs.taken)
    claim = runs.attempt(resume=True)
    assert runs.taken > STEPS  # two of them twice
    assert claim.steps_taken == STEPS
    assert any("whose steps no ledger counted" in one for one in claim.assumptions)
    charged = Runs(tmp_path, ledger=True).attempt()
    assert not any("whose steps no ledger counted" in one for one in charged.assumptions)


def test_what_a_crash_cost_cannot_be_left_out(tmp_path: Path) -> None:
    """Of a run that was to end early: its event covers what was lost, and no more."""
    runs = Runs(tmp_path, ledger=True)
    runs.attempt(steps=4, save=2, crash=True, stop_after=9)
    claim = runs.attempt(resume=True)
    assert (claim.steps_taken, claim.steps_lost) == (7, 2)
    assert replace(claim, steps_lost=0).epsilon == claim.epsilon  # no smaller for it
    with pytest.raises(InvalidArgument, match="event must cover the 10 steps"):
        replace(claim, steps_taken=8)


def test_a_statement_names_the_entry_that_charged_it(tmp_path: Path) -> None:
    claim = Runs(tmp_path, ledger=True).attempt()
    assert claim.charge is not None
    with tacit.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        assert claim.charge.ledger == ledger.identity
        assert ledger.contains(claim.charge.head)
        assert claim.charge.reservation in {one.number for one in ledger.books.of("data")}
