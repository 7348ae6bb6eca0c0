"""Noise on a grid: the rounding is paid for, the law is right, the guarantee is the real one's."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from tacit.accounting import Gaussian, Laplace, delta
from tacit.errors import InvalidArgument
from tacit.randomness import (
    SecureStream,
    UnsafeSeededStream,
    granularity,
    grid,
    grid_gaussian,
    grid_laplace,
    on_grid,
)

_LEVEL = 1e-6
_RELEASES = [(grid_laplace, "laplace"), (grid_gaussian, "norm")]

Release = Callable[..., NDArray[np.float64]]
Masses = NDArray[np.float64]


@given(st.floats(min_value=2.0**-1050, max_value=1e300))
def test_the_step_is_the_largest_power_of_two(scale: float) -> None:
    step = Fraction(granularity(scale))
    assert math.frexp(granularity(scale))[0] == 0.5
    assert step <= Fraction(scale) / 2**20 < 2 * step


@given(st.floats(-1e9, 1e9), st.integers(-30, 5))
def test_the_grid_is_reached_by_exact_rounding(value: float, power: int) -> None:
    steps = Fraction(value) / Fraction(2) ** power
    (found,) = on_grid([value], 2.0**power).tolist()
    assert abs(found - steps) <= Fraction(1, 2)
    assert found == round(steps)


@given(
    scale=st.floats(1e-9, 1e9),
    ratio=st.floats(1e-3, 1e3),
    values=st.integers(0, 10**7),
)
def test_the_noise_is_widened_by_all_that_rounding_adds(
    scale: float, ratio: float, values: int
) -> None:
    """In exact fractions: (Δ/step + d)/wide ≤ Δ/scale, and not much below it."""
    moved = scale * ratio
    for spread in (float(values), math.sqrt(values)):
        step, wide = grid._step_and_scale(scale, moved, spread)
        assert math.frexp(step)[0] == 0.5
        distance = Fraction(moved) / Fraction(step) + Fraction(spread)
        assert distance / Fraction(wide) <= Fraction(moved) / Fraction(scale)
        narrow = Fraction(scale) / Fraction(step)
        assert 1 <= Fraction(wide) / narrow < 1 + Fraction(1, 1000) or values > 2**15


def test_what_rounding_costs() -> None:
    for spread, most in ((1.0, 2e-6), (1e3, 1e-3), (2.0**25, 1e-3)):
        step, wide = grid._step_and_scale(1.0, 1.0, spread)
        assert 1.0 < wide * step < 1.0 + most


@given(
    st.lists(st.tuples(st.floats(-100, 100), st.floats(-2, 2)), min_size=1, max_size=20),
    st.integers(-8, 2),
)
def test_neighbours_on_the_grid_are_no_further_apart_than_paid_for(
    pairs: list[tuple[float, float]], power: int
) -> None:
    step = 2.0**power
    one, other = np.array([a for a, _ in pairs]), np.array([a + b for a, b in pairs])
    apart = np.abs(on_grid(one, step) - on_grid(other, step)).astype(float)
    moved = np.abs(one - other)
    assert apart.sum() <= moved.sum() / step + len(pairs) + 1e-9
    assert np.linalg.norm(apart) <= np.linalg.norm(moved) / step + math.sqrt(len(pairs)) + 1e-9


@pytest.mark.parametrize(("release", "law"), _RELEASES)
def test_the_noise_has_its_law(release: Release, law: str) -> None:
    values = np.linspace(-50, 50, 100_000)
    noise = release(values, 3.0, 3.0, UnsafeSeededStream(0, law)) - values
    assert float(kstest(noise / 3.0, law).pvalue) > _LEVEL
    assert float(kstest(noise / 3.15, law).pvalue) < _LEVEL


@pytest.mark.parametrize("release", [one for one, _ in _RELEASES])
def test_what_is_released_lies_on_the_grid(release: Release) -> None:
    released = release(np.full(1_000, math.pi), 1.0, 1.0, SecureStream("release"))
    steps = released / 2.0**-20
    assert np.array_equal(steps, np.rint(steps))
    assert len(np.unique(released)) > 990


@pytest.mark.parametrize("release", [one for one, _ in _RELEASES])
def test_shapes(release: Release) -> None:
    for shape in ((), (0,), (3,), (2, 5)):
        released = release(np.ones(shape), 1.0, 1.0, UnsafeSeededStream(0, "shape"))
        assert isinstance(released, np.ndarray)
        assert released.shape == shape
        assert released.dtype == np.float64
    assert release(7, 1e-6, 1.0, UnsafeSeededStream(0, "number")) == pytest.approx(7, abs=1e-4)


def _divergence(p: Masses, q: Masses, epsilon: float) -> float:
    """The hockey-stick divergence: the δ of a pair of laws."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def _shifted(masses: Callable[[Masses], Masses], by: int) -> tuple[Masses, Masses]:
    k = np.arange(-400, 401)
    return masses(k), masses(k - by)


@pytest.mark.parametrize("distance", [1, 2, 5])
@pytest.mark.parametrize("scale", [0.7, 2.0, 9.0])
def test_rounded_noise_guarantees_what_the_real_one_does(scale: float, distance: int) -> None:
    """For every ε, and so for every accountant; a discrete Laplace would not."""

    def discrete(k: Masses) -> Masses:
        return np.exp(-abs(k) / scale) * math.tanh(0.5 / scale)

    def rounded(k: Masses) -> Masses:
        away = np.exp(-abs(k) / scale) * math.sinh(0.5 / scale)
        return np.where(k == 0, -math.expm1(-0.5 / scale), away)

    def gaussian(k: Masses) -> Masses:
        return norm.cdf((k + 0.5) / scale) - norm.cdf((k - 0.5) / scale)

    worse = False
    for epsilon in np.linspace(0, distance / scale, 20):
        real = delta(Laplace(scale / distance), epsilon=float(epsilon))
        assert _divergence(*_shifted(rounded, distance), epsilon) <= real + 1e-12
        worse |= _divergence(*_shifted(discrete, distance), epsilon) > real + 1e-4
        real = delta(Gaussian(scale / distance), epsilon=float(epsilon))
        assert _divergence(*_shifted(gaussian, distance), epsilon) <= real + 1e-12
    assert worse or distance > 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: granularity(0.0), "scale must be a positive .* got 0.0"),
        (lambda: granularity(5e-324), "scale must be at least .* got 5e-324"),
        (lambda: on_grid([1.0], 0.3), "step must be a power of two, got 0.3"),
        (lambda: on_grid([1.0, math.nan], 0.5), "values must be finite"),
        (lambda: on_grid([math.inf], 0.5), "values must be finite"),
        (lambda: on_grid([1e300], 2.0**-1070), "values must be finite"),
        (lambda: on_grid([2.0**63], 1.0), "at most 2\\*\\*62 steps"),
        (lambda: grid_laplace([1.0], -1.0, 1.0, SecureStream("x")), "scale must be .* got -1.0"),
        (lambda: grid_gaussian([1.0], math.inf, 1.0, SecureStream("x")), "sigma .* got inf"),
        (lambda: grid_gaussian([1.0], 1.0, 0.0, SecureStream("x")), "sensitivity .* got 0.0"),
        (lambda: grid_laplace([1.0], 1.0, 1e-20, SecureStream("x")), "sensitivity .* got 1e-20"),
        (lambda: grid_laplace([1.0], 1.0, 5e-324, SecureStream("x")), "sensitivity .* got 5e-324"),
    ],
)
def test_refusals(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        call()
