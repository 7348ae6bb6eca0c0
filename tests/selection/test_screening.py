"""Sparse-vector selection: its event, its order, its charge, and what it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tacit.accounting import AboveThreshold, epsilon
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.ledger import Ledger
from tacit.randomness import UnsafeSeededStream
from tacit.selection import first_above

if TYPE_CHECKING:
    from pathlib import Path

SCORES = {"a": 10.0, "b": 950.0, "c": 5000.0}


def test_the_first_that_is_good_enough_wins() -> None:
    found = first_above(SCORES, SCORES.__getitem__, 500.0, sensitivity=1, epsilon=1)
    assert found.value == "b"
    assert isinstance(found.event, AboveThreshold)
    assert epsilon(found.event, 1e-12) <= 1.0 + 1e-12
    assert first_above(SCORES, SCORES.__getitem__, 9e4, sensitivity=1, epsilon=1).value is None
    assert first_above([], SCORES.__getitem__, 9e4, sensitivity=1, epsilon=1).value is None


def test_many_candidates_cost_what_few_do() -> None:
    few = first_above(range(3), float, 1e6, sensitivity=1, epsilon=1)
    many = first_above(range(3000), float, 1e6, sensitivity=1, epsilon=1)
    assert few.event == many.event


def test_near_misses_are_found_as_often_as_the_noise_says() -> None:
    """At the threshold half of the scores are above; far below hardly any."""
    stream = UnsafeSeededStream(1, "test")
    hits = [
        first_above(["x"], lambda _: 0.0, 0.0, sensitivity=1, epsilon=1, stream=stream).value
        for _ in range(600)
    ]
    share = np.mean([one == "x" for one in hits])
    assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(600)


def test_gaussian_noise_counts_the_candidates() -> None:
    found = first_above(
        SCORES, SCORES.__getitem__, 500.0, sensitivity=1, epsilon=1, delta=1e-6, noise="gaussian"
    )
    assert isinstance(found.event, AboveThreshold)
    assert found.event.length == 3
    assert epsilon(found.event, 1e-6) <= 1.0
    with pytest.raises(InvalidArgument, match="candidates must be at most length=2"):
        first_above(SCORES, len, 1.0, sensitivity=1, epsilon=1, length=2)


def test_the_budget_is_charged_before_the_first_score(tmp_path: Path) -> None:
    seen = []
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("patients", epsilon=1.5, delta=1e-6)
        found = first_above(
            SCORES,
            lambda one: seen.append(one) or 1e9,
            0.0,
            sensitivity=1,
            epsilon=1,
            budget=budget,
        )
        assert found.entry is not None
        assert budget.spent().epsilon == pytest.approx(1.0)
        assert seen == ["a"]
        with pytest.raises(BudgetExceeded):
            first_above(SCORES, seen.append, 0.0, sensitivity=1, epsilon=1, budget=budget)
        assert seen == ["a"]
