"""Inverting ε(δ): the answer satisfies what it claims."""

from __future__ import annotations

import math

import pytest

from tacit.accounting.accountants.composition import smallest_delta


def falling(delta: float) -> float:
    return -math.log(delta) if delta > 0.0 else math.inf


@pytest.mark.parametrize("epsilon", [0.1, 5.0, 300.0])
def test_it_inverts_and_never_understates(epsilon: float) -> None:
    found = smallest_delta(falling, epsilon, 0.0)
    assert falling(found) <= epsilon
    assert found == pytest.approx(math.exp(-epsilon), rel=1e-8)


def test_the_least_delta_serves_if_it_can() -> None:
    assert smallest_delta(lambda _: 2.0, 2.0, 1e-7) == 1e-7


def test_one_if_no_delta_will_do() -> None:
    assert smallest_delta(lambda _: 2.0, 1.9, 1e-7) == 1.0
    assert smallest_delta(lambda _: math.inf, 1.9, 0.0) == 1.0
