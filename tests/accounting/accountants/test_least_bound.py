"""Where the certificate is wide, the least bound of any theorem counts, and the type says so."""

from __future__ import annotations

import pytest

from tacit.accounting import (
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
    UnsupportedEvent,
    bounds,
    epsilon,
    noise_multiplier,
)

OTHERS = ("rdp", "zcdp", "advanced", "basic")


def run(rate: float, sigma: float, steps: int) -> Event:
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


def least_of_others(event: Event, delta: float) -> float:
    found = []
    for name in OTHERS:
        try:
            found.append(epsilon(event, delta, name))
        except UnsupportedEvent:
            continue
    return min(found)


# The truths of discrete noise are sums of 40 digits over the integers.
WIDE = [
    (DiscreteGaussian(0.3), 1e-3, 16.365),
    (Repeated(DiscreteGaussian(0.5), 20), 1e-9, 91.86),
    (Repeated(DiscreteGaussian(0.7, sensitivity=2), 5), 1e-9, 57.10),
    (run(1e-6, 2.0, 10**6), 1e-10, 0.002541),
]


@pytest.mark.parametrize(("event", "delta", "truth"), WIDE)
def test_no_other_theorem_says_less(event: Event, delta: float, truth: float) -> None:
    found = bounds(event, delta)
    assert truth * (1 - 1e-3) <= found.upper <= least_of_others(event, delta)
    assert found.lower <= truth * (1 + 1e-3)
    assert epsilon(event, delta) <= found.upper * (1 + 1e-9)


@pytest.mark.parametrize(("event", "delta", "truth"), WIDE)
def test_a_lower_end_of_zero_is_no_end(event: Event, delta: float, truth: float) -> None:
    found = bounds(event, delta)
    assert found.two_sided == (found.lower > 0.0)
    assert found.upper > truth * (1 - 1e-3)


def test_what_no_neighbours_attain_is_asked_elsewhere_too() -> None:
    event = Repeated(PoissonSampled(0.01, Laplace(2.0)), 1000)
    found = bounds(event, 1e-6, "replace-one")
    assert not found.two_sided
    assert found.upper <= epsilon(event, 1e-6, "rdp", "replace-one")


@pytest.mark.slow
def test_more_steps_never_cost_less() -> None:
    found = [epsilon(run(1e-6, 1.0, steps), 1e-10) for steps in (100, 1000, 10_000)]
    assert found == sorted(found)


@pytest.mark.slow
def test_no_other_accountant_asks_for_less_noise() -> None:
    asked = {"epsilon": 0.2, "delta": 1e-8, "sample_rate": 1e-4, "steps": 10_000}
    least = noise_multiplier(**asked)
    assert all(least <= noise_multiplier(**asked, accountant=name) for name in ("rdp", "advanced"))
