"""Laws that every accountant obeys, whatever the numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import (
    Composed,
    Gaussian,
    PoissonSampled,
    Repeated,
    bounds,
    epsilon,
    group,
)

_rates = st.floats(0.001, 0.5)
_sigmas = st.floats(0.7, 8.0)
_steps = st.integers(200, 5000)
_deltas = st.sampled_from([1e-9, 1e-6, 1e-4])
_more = st.floats(1.05, 2.0)
_few = settings(max_examples=12, deadline=None)


def run(rate: float, sigma: float, steps: int) -> Repeated:
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


@_few
@given(_rates, _sigmas, _steps, _deltas, _more)
def test_monotone(rate: float, sigma: float, steps: int, delta: float, more: float) -> None:
    here = epsilon(run(rate, sigma, steps), delta)
    slack = 1e-9 * (1.0 + here)
    assert epsilon(run(rate, sigma * more, steps), delta) <= here + slack
    assert epsilon(run(rate, sigma, steps), min(delta * more, 0.5)) <= here + slack
    assert epsilon(run(min(1.0, rate * more), sigma, steps), delta) >= here - slack
    assert epsilon(run(rate, sigma, math.ceil(steps * more)), delta) >= here - slack


@_few
@given(_rates, _sigmas, _steps, _deltas)
def test_exact_is_the_tightest(rate: float, sigma: float, steps: int, delta: float) -> None:
    event = run(rate, sigma, steps)
    exact = bounds(event, delta).lower
    rdp = epsilon(event, delta, "rdp")
    assert exact <= rdp <= epsilon(event, delta, "moments") * (1.0 + 1e-9)
    assert exact <= epsilon(event, delta, "advanced")
    assert exact <= epsilon(event, delta, "basic")


@_few
@given(_rates, _sigmas, st.integers(2, 30), _deltas)
def test_repetition_is_composition(rate: float, sigma: float, times: int, delta: float) -> None:
    step = PoissonSampled(rate, Gaussian(sigma))
    other = Gaussian(20.0)
    one = epsilon(Composed(Repeated(step, times), other), delta)
    two = epsilon(Composed(*[step] * (times // 2), other, *[step] * (times - times // 2)), delta)
    assert one == two


def test_a_group_of_one_is_the_event() -> None:
    event = run(0.01, 4.0, 1000)
    assert epsilon(group(event, 1), 1e-6) == epsilon(event, 1e-6)


def test_a_group_of_two_lies_between_one_and_the_black_box() -> None:
    event = run(0.01, 4.0, 1000)
    one = epsilon(event, 1e-6)
    two = epsilon(group(event, 2), 1e-6)
    black_box = 2 * epsilon(event, 1e-6 / (2 * math.exp(2 * one)))
    assert one < two < black_box


@pytest.mark.parametrize("size", [2, 3, 5])
def test_groups_of_gaussians_are_gaussian(size: int) -> None:
    assert epsilon(group(Gaussian(10.0), size), 1e-6) == epsilon(Gaussian(10.0 / size), 1e-6)
