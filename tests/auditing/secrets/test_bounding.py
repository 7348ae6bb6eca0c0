"""The bound on ε from exposed secrets: its arithmetic, and that it is valid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.auditing.secrets import exposure_bound
from tacit.errors import InvalidArgument


def test_the_formula() -> None:
    found = exposure_bound([1e-6, 0.4, 0.1], 1e-5, 0.99)
    assert found.epsilon == pytest.approx(math.log((0.01 / 3 - 1e-5) / 1e-6))
    assert found.number("secrets") == 3


def test_it_says_nothing_where_delta_explains_all() -> None:
    assert exposure_bound([1e-9] * 8, 1e-2, 0.95).epsilon == 0.0
    assert exposure_bound([1.0], 0.0).epsilon == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
def test_it_holds_for_the_worst_mechanism(epsilon: float) -> None:
    # Such a mechanism gives the secret away (p-value 1/1000) as often as ε allows, to each of 5.
    draw = np.random.default_rng(0)
    least = 1e-3
    told = math.exp(epsilon) * least
    wrong = 0
    for _ in range(2000):
        p = np.where(draw.random(5) < told, least, draw.uniform(least, 1.0, size=5))
        wrong += exposure_bound(p, 0.0).epsilon > epsilon + 1e-9
    assert wrong / 2000 < 0.05 + 5.0 * math.sqrt(0.05 * 0.95 / 2000)


def test_bad_p_values_are_refused() -> None:
    for values in ([], [0.0]):
        with pytest.raises(InvalidArgument, match="at least one, and none may be 0"):
            exposure_bound(values, 1e-5)
