"""The quick search for σ where sampling is rare: close to the certified answer, and never one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from tacit.accounting import Gaussian, PoissonSampled, Repeated, bounds, noise_multiplier
from tacit.accounting.accountants import exact
from tacit.accounting.exact.jump_curves import Step
from tacit.accounting.exact.jump_scout import Scout
from tacit.accounting.exact.jump_search import delta_with_jumps, near_sigma
from tacit.accounting.exact.jump_sketch import ALL, Sketch

if TYPE_CHECKING:
    from tacit.accounting.exact.enclosure import Interval


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps"),
    [(1.69, 1.1e-10, 4e-5, 10**5), (0.5, 1e-6, 1e-5, 10**4), (3.0, 1e-8, 1e-2, 10)],
)
def test_the_noise_found_is_the_least_to_a_millionth(
    epsilon: float, delta: float, rate: float, steps: int
) -> None:
    found = noise_multiplier(epsilon, delta, rate, steps)
    close = near_sigma(rate, steps, epsilon, delta, 1.0)
    assert close is not None
    assert close.sigma == pytest.approx(found, rel=1e-6)
    enough = Repeated(PoissonSampled(rate, Gaussian(found)), steps)
    assert bounds(enough, delta).upper <= epsilon
    less = Repeated(PoissonSampled(rate, Gaussian(found * (1.0 - 1e-6))), steps)
    assert bounds(less, delta).lower > epsilon


def test_noise_that_is_not_moderate_is_not_looked_for() -> None:
    assert near_sigma(1e-4, 100, 40.0, 1e-5, 0.3) is None
    assert near_sigma(0.05, 1000, 0.01, 1e-9, 9.0) is None


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "epsilon"),
    [(4e-5, 0.614, 10**5, 1.69), (1e-6, 5.0, 10**5, 3.3e-4), (1e-2, 0.8, 10, 3.0)],
)
def test_a_sketch_has_the_digits_that_a_search_needs(
    rate: float, sigma: float, steps: int, epsilon: float
) -> None:
    """At the σ that it was laid for, and for another one near it, too."""
    sketch = Sketch(Scout(Step(rate, sigma, steps)), epsilon, ALL)
    for near, error in ((1.0, 5e-7), (0.95, 1e-5), (1.05, 1e-5)):
        found = delta_with_jumps(Step(rate, near * sigma, steps), epsilon)
        assert found is not None
        log_delta, slope = sketch.log_delta(epsilon, near * sigma)
        assert log_delta == pytest.approx(math.log(found.estimate), abs=error)
        assert slope == pytest.approx(found.slope / found.estimate, rel=1e-5)


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta"),
    [(1e-7, 1.8, 10, 1e-12), (1.17e-6, 2.118, 24, 5.06e-11), (1.67e-7, 2.53, 162, 1.44e-12)],
)
def test_jumps_whose_height_falls_slowly_and_then_explodes_are_integrated(
    rate: float, sigma: float, steps: int, delta: float
) -> None:
    """Their saddle once ended at the cliff itself: the bracket was as wide as ε, after a second."""
    found = bounds(Repeated(PoissonSampled(rate, Gaussian(sigma)), steps), delta)
    assert found.method == "jumps"
    assert found.width <= 1e-6 * found.upper


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps", "sigma"),
    [
        (3.7509883015545544e-07, 1e-5, 4e-5, 10, 5.0),  # δ(0) is near: ε falls fifty times as fast
        (9.026663000988977e-06, 1e-8, 1e-7, 10, 0.614),  # the first look leaps
        (26.491910872265866, 1e-12, 0.1, 10, 0.5),
    ],
)
def test_noise_is_found_by_one_certificate(
    monkeypatch: pytest.MonkeyPatch,
    epsilon: float,
    delta: float,
    rate: float,
    steps: int,
    sigma: float,
) -> None:
    asked = []
    enclose = exact.epsilon_interval

    def counted(*arguments: Any) -> Interval:
        asked.append(arguments)
        return enclose(*arguments)

    monkeypatch.setattr(exact, "epsilon_interval", counted)
    found = noise_multiplier(epsilon, delta, rate, steps)
    assert len(asked) == 1
    assert found == pytest.approx(sigma, rel=1e-6)
