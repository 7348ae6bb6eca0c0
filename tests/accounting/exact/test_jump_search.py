"""The quick search for σ where sampling is rare: close to the certified answer, and never one."""

import math

import pytest

from tacit.accounting import Gaussian, PoissonSampled, Repeated, bounds, noise_multiplier
from tacit.accounting.exact.jump_curves import Step
from tacit.accounting.exact.jump_scout import Scout
from tacit.accounting.exact.jump_search import _places, _sketch, delta_with_jumps, near_sigma
from tacit.accounting.exact.jumps import Contour


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps"),
    [(1.69, 1.1e-10, 4e-5, 10**5), (0.5, 1e-6, 1e-5, 10**4), (3.0, 1e-8, 1e-2, 10)],
)
def test_the_noise_found_is_the_least_to_a_millionth(
    epsilon: float, delta: float, rate: float, steps: int
) -> None:
    found = noise_multiplier(epsilon, delta, rate, steps)
    assert near_sigma(rate, steps, epsilon, delta, 1.0) == pytest.approx(found, rel=1e-6)
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
    step = Step(rate, sigma, steps)
    found = delta_with_jumps(step, epsilon)
    assert found is not None
    sketch = _sketch(step, _places(Scout(step), epsilon), epsilon)
    assert sketch.log_delta(epsilon)[0] == pytest.approx(math.log(found.estimate), abs=3e-8)


def test_a_sum_without_bounds_encloses_nothing() -> None:
    scout = Scout(Step(1e-4, 0.8, 1000))
    saddle = scout.saddle(scout.best_cuts(0.1)[0][0], 0.1, jumps=True)
    sketch = Contour(scout.step, scout.cuts[0], saddle, 0.1, "jumps", certain=False)
    assert sketch.enclose(0.1).upper == 1.0
    assert sketch.enclose(0.1).lower == 0.0
