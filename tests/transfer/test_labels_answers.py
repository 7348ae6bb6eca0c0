"""What a run told: which queries have a label, what it costs, and that it can be charged."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.accounting import epsilon
from tacit.ledger import Ledger
from tacit.transfer import Answers, GNMax

EVENT = GNMax(sigma=10.0).declared(queries=3)
TOLD = Answers(
    np.array([4, -1, 0]),
    np.array([True, True, True]),
    np.array([False, True, False]),
    EVENT,
    "replace-one",
    "user",
)


def test_labels_tell_which_queries_were_answered():
    assert TOLD.answered.tolist() == [True, False, True]
    assert repr(TOLD).startswith("Answers(2 of 3 queries answered, Repeated(")


def test_its_cost_is_that_of_the_declared_event():
    assert TOLD.epsilon(1e-5) == epsilon(EVENT, 1e-5, adjacency="replace-one")


def test_a_ledger_can_charge_it(tmp_path):
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("crowd", 2.0, 1e-5, unit="user", adjacency="replace-one")
        assert budget.reserve(TOLD, steps=3).epsilon == pytest.approx(TOLD.epsilon(1e-5), rel=0.1)
