"""The value that an audit ends in."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from tacit.auditing import LowerBound
from tacit.auditing.statistics.bound import failure_rate
from tacit.errors import InvalidArgument

BOUND = LowerBound(1.5, 1e-5, 0.95, "by hand", "nothing", (("mu", 0.4), ("n_in", 10)))


def test_it_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(BOUND)) == BOUND
    assert len({BOUND, dataclasses.replace(BOUND)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        BOUND.epsilon = 2.0  # type: ignore[misc]


def test_it_says_what_it_is() -> None:
    assert BOUND.number("mu") == 0.4
    for part in ("1.5", "1e-05", "95%", "by hand", "nothing"):
        assert part in BOUND.describe()


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, float("nan")])
def test_a_confidence_is_a_probability(confidence: float) -> None:
    with pytest.raises(InvalidArgument, match="confidence"):
        failure_rate(confidence)
