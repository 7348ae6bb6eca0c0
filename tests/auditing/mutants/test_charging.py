"""Each bug of the charging is there: shown by ε, or by reading the ledger while the run goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import tacit
from tacit.errors import InvalidArgument

from .watching import run, shows

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from tacit.auditing.replay import Setting

    from .mutant import Mutant

DELTA = 1e-5


@shows("factor 2 of replace-one", "charged rate", "wrong delta", "half the count's sensitivity")
def test_less_is_claimed_than_was_spent(mutant: Mutant) -> None:
    setting = mutant.setting()
    session = run(setting).session
    honest = session.spent(DELTA)
    with mutant.patch():
        assert session.spent(DELTA) < 0.9 * honest
        assert session.statement(DELTA).epsilon < 0.9 * honest


@pytest.fixture
def budget(tmp_path: Path) -> tacit.ledger.Budget:
    return tacit.Ledger(f"sqlite:///{tmp_path}/budget.db").open("data", epsilon=99.0, delta=DELTA)


def _granted(setting: Setting, budget: Any) -> tuple[list[int], int]:
    """How many steps the ledger held as granted when each step was computed, and in the end."""
    seen: list[int] = []

    def granted() -> int:
        return sum(one.granted for one in budget.ledger.refresh().reservations.values())

    def loss(model: Any, batch: Any) -> Tensor:
        seen.append(granted())
        return setting.loss(model, batch)

    run(replace(setting, loss=loss), budget=budget)
    return sorted(set(seen)), granted()


@shows("skipped charge")
def test_half_of_the_steps_are_in_the_ledger(mutant: Mutant, budget: Any) -> None:
    with mutant.patch():
        assert _granted(mutant.setting(), budget)[1] == 3
    assert _granted(mutant.setting(), budget)[1] == 3 + 6


@shows("charge after release")
def test_the_ledger_is_empty_to_the_end(mutant: Mutant, budget: Any) -> None:
    with mutant.patch():
        assert _granted(mutant.setting(), budget) == ([0], 6)


@shows("charge one step late")
def test_the_ledger_is_one_step_behind(mutant: Mutant, budget: Any) -> None:
    with mutant.patch():
        assert _granted(mutant.setting(), budget) == ([0, 1, 2, 3, 4, 5], 6)
    # The loop is rehearsed before its first step is charged.
    assert _granted(mutant.setting(), budget) == ([6, 7, 8, 9, 10, 11, 12], 12)


@shows("statement that cannot be checked")
def test_a_statement_without_sense_is_read(mutant: Mutant) -> None:
    plain = json.loads(run(mutant.setting()).session.statement(DELTA).to_json())
    written = json.dumps(plain | {"event": plain["event"] | {"kind": [1]}})
    with mutant.patch():
        tacit.Statement.from_json(written)
    with pytest.raises(InvalidArgument, match="cannot be checked"):
        tacit.Statement.from_json(written)
