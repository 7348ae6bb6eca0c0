"""Scores as they come in."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.auditing import Rates, Scores
from tacit.errors import InvalidArgument


def test_thresholds_include_their_own_value() -> None:
    scores = Scores([1, 2, 3], [2.0, 0.0])
    assert scores.at(2.0) == Rates(tp=2, n_in=3, fp=1, n_out=2)
    assert scores.at(math.inf) == Rates(tp=0, n_in=3, fp=0, n_out=2)


def test_what_they_were_made_from_may_change() -> None:
    values = np.array([1.0, 2.0])
    scores = Scores(values, [0.0])
    values[0] = 9.0
    assert scores.inside.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        scores.inside[0] = 3.0


@pytest.mark.parametrize("wrong", [[], [[1.0]], [math.nan], 3.0])
def test_what_is_no_list_of_scores_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="inside"):
        Scores(wrong, [1.0])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="outside"):
        Scores([1.0], wrong)  # type: ignore[arg-type]
