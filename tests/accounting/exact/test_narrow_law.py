"""The law of a narrow S: moments by other ways, and every bound against what it bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from tacit.accounting import Gaussian, RandomAllocation, bounds, epsilon
from tacit.accounting.exact import narrow_law
from tacit.accounting.exact.allocation import AllocationLoss, TiltedAllocation
from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.mean_ratio import log_damped, log_moment_bound, log_moments
from tacit.accounting.exact.narrow_law import NarrowTransform, deviation, law_of, right_of

SETTINGS = [(1.3, 3_000), (2.0, 1_000), (8.0, 10_000)]


def transform(
    sigma: float, steps: int, order: float, reach: float = 5.0, digits: float = 37.0
) -> NarrowTransform:
    """Up to a frequency of ``reach`` standard deviations."""
    frequency = reach / deviation(sigma, steps)
    return NarrowTransform(sigma, steps, order, 1.0, frequency, digits)


@pytest.mark.parametrize(("sigma", "steps"), SETTINGS)
@pytest.mark.parametrize("order", [1, 2, 6])
def test_whole_moments_are_met(sigma: float, steps: int, order: int) -> None:
    found = transform(sigma, steps, float(order))
    error = found.log_mgf_error
    bound = error.quadrature + error.rounding
    assert bound < 2e-11
    assert abs(found.log_mgf - log_moments(sigma, steps)[order]) <= bound + 1e-14


@pytest.mark.parametrize(("sigma", "steps"), [(1.3, 3_000), (2.0, 1_000)])
@pytest.mark.parametrize("removed", [True, False])
def test_complex_orders_are_those_of_the_rays(sigma: float, steps: int, removed: bool) -> None:
    loss, tilt = AllocationLoss(sigma, steps, removed), 2.65
    reach = 6.0 / loss.spread
    rays = TiltedAllocation(loss, tilt, reach)
    order, sign = (1.0 + tilt, 1.0) if removed else (-tilt, -1.0)
    found = NarrowTransform(sigma, steps, order, sign, reach, 37.0)
    frequencies = np.linspace(0.0, reach, 97)
    # Each is over its own M(tilt), as it was computed.
    turns = np.exp(1j * frequencies * (rays.centre - found.centre) + rays.log_mgf - found.log_mgf)
    ours, theirs = (
        one[0] + 1j * one[1] + 1.0 for one in (found.ratio(frequencies), rays.ratio(frequencies))
    )
    errors = [way.ratio_error(frequencies) for way in (found, rays)]
    bound = sum(one.quadrature + one.rounding for one in errors)
    assert (np.abs(ours - theirs * turns) <= bound + 1e-13).all()
    assert float(np.max(errors[0].rounding)) < 1e-12
    assert found.log_mgf == pytest.approx(rays.log_mgf, abs=1e-10)


def moment_of(given: NarrowTransform, window: narrow_law._Window) -> float:
    law = law_of(given.sigma, given.steps, window)
    return float(law.masses @ np.exp(given.order * np.log1p(window.offsets)))


@pytest.mark.parametrize("order", [-40.0, 3.0])
def test_each_error_is_below_its_bound(order: float) -> None:
    """A window that is too coarse, too short or too early at an end errs, but within its bound."""
    sigma, steps = 2.0, 4_000
    fine = transform(sigma, steps, order)
    whole, truth = fine._window, moment_of(fine, fine._window)
    weight = float(np.exp(order * np.log1p(whole.offsets)).max())
    short = replace(whole, last=whole.last // 2)
    wide = narrow_law._Window(3 * whole.step, whole.first // 3, whole.size // 3 + 2, whole.last)
    early = replace(whole, size=2 * -whole.first)
    late = replace(whole, first=whole.first // 3, size=whole.size + 2 * (whole.first // 3))
    bounded = [
        (short, weight * law_of(sigma, steps, short).cut),
        (wide, of(fine, wide)._folded(0.0)),
        *((one, (1.0 + weight) * of(fine, one)._outside) for one in (early, late)),
    ]
    for window, bound in bounded:
        assert abs(moment_of(fine, window) - truth) <= bound
    assert abs(moment_of(fine, wide) - truth) > 1e-9  # it does err


def of(given: NarrowTransform, window: narrow_law._Window) -> NarrowTransform:
    """The same with another window."""
    other = replace(given)
    other.__dict__["_window"] = window
    return other


@pytest.mark.parametrize("order", [0.0, 2.0, 8.0])
@pytest.mark.parametrize(("sigma", "steps"), [(1.3, 3_000), (4.0, 1_000)])
def test_nodes_on_the_right_are_bounded(sigma: float, steps: int, order: float) -> None:
    """With few digits the level is so near that what lies beyond can be seen."""
    fine = transform(sigma, steps, order)
    x = 1.0 + fine._window.offsets
    masses = law_of(sigma, steps, fine._window).masses
    for digits in (0.5, 2.0, 5.0):
        right = right_of(sigma, steps, order, digits)
        beyond = x > right.end
        left = float((masses * x**order)[beyond].sum())
        assert 0.0 < left <= right.bound(float(x[beyond][0]), fine._window.step)


@pytest.mark.parametrize(("sigma", "steps"), [(0.4, 10), (0.7, 300), (1.3, 3_000)])
@pytest.mark.parametrize("order", [-0.1, -2.0, -9.0])
def test_negative_moments_are_bounded_closely(sigma: float, steps: int, order: float) -> None:
    truth = TiltedAllocation(AllocationLoss(sigma, steps, removed=False), -order, 1.0).log_mgf
    found = log_moment_bound(sigma, steps, order)
    assert truth - 1e-12 <= found <= truth + 0.02 + 0.2 * abs(truth)
    assert found <= 0.5 * sigma**-2 * -order * (1.0 - order / steps) * (1.0 + 1e-12)


# ---- an oracle that knows neither powers of S nor its density


def put(sigma: float, steps: int, strike: float) -> float:
    """E[(K - S)₊]: the inverse Laplace transform of exp(sK)·E[exp(-sS)]/s² (Raible 2000)."""
    z = np.arange(-9.5, 11.0, 0.02)
    weights = 0.02 / math.sqrt(2.0 * math.pi) * np.exp(-0.5 * z * z)
    x = np.exp(z / sigma - 0.5 / sigma**2)
    spread = deviation(sigma, steps)
    s = 0.8 / spread + 1j * np.arange(0.0, 9.0 * sigma * math.sqrt(steps), 0.1 / spread)
    logs = np.log1p(np.expm1(-np.multiply.outer(s / steps, x)) @ weights)
    terms = np.exp(s * strike + steps * logs) / s**2
    terms[0] *= 0.5
    return float(0.1 / spread / math.pi * terms.real.sum())


@pytest.mark.parametrize(("sigma", "steps"), [*SETTINGS, (1.5, 10_000), (30.0, 100)])
@pytest.mark.parametrize("total", [1e-4, 1e-6])
def test_one_epoch_is_a_price(sigma: float, steps: int, total: float) -> None:
    """Removed, δ(ε) = E[(S - e^ε)₊] = 1 - e^ε + E[(e^ε - S)₊]; added, e^ε·E[(e^-ε - S)₊]."""
    event = RandomAllocation(steps, Gaussian(sigma))
    for way in ("remove-only", "add-only"):
        found = bounds(event, total, way)
        assert found.two_sided
        assert found.width < 1e-8
        grown = math.exp(found.upper)
        if way == "remove-only":
            price = 1.0 - grown + put(sigma, steps, grown)
        else:
            price = grown * put(sigma, steps, 1.0 / grown)
        assert price == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize(("sigma", "steps"), [(0.4, 3), (3.0, 2), (50.0, 10), (1000.0, 10)])
def test_damped_means_are_bounded_closely(sigma: float, steps: int) -> None:
    dampings = steps * np.geomspace(0.5, 6.0 * sigma, 5)

    def mean(power: int, v: float) -> mpmath.mpf:
        """By so fine a trapezoid rule that its own error is far below."""
        total, variance = mpmath.mpf(0), mpmath.mpf(sigma) ** 2
        for z in (mpmath.mpf(at) / 16 for at in range(-480, 225)):
            x = mpmath.exp(z / sigma - 1 / (2 * variance))
            total += x**power * mpmath.exp(-v * x - z * z / 2)
        return total / (16 * mpmath.sqrt(2 * mpmath.pi))

    for order in (0, 1):
        found = log_damped(sigma, steps, order, np.log(dampings))
        for at, damping in enumerate(dampings):
            with mpmath.workdps(30):
                rest = (steps - 1 if order else steps) * mpmath.log(mean(0, damping / steps))
                own = mpmath.log(mean(1, damping / steps)) if order else 0
                truth = float(rest + own)
            # Of powers the sums are plain numbers, which end at Φ(-25).
            sharp = order == 0 or truth > -300.0 * steps
            assert truth <= found[at] <= (truth + 0.7 * steps if sharp else math.inf), (order, at)


@pytest.mark.parametrize(("sigma", "steps"), [(50.0, 10), (200.0, 10), (1000.0, 100)])
@pytest.mark.parametrize("epochs", [1, 100])
def test_loud_noise_over_few_steps_has_both_ends(sigma: float, steps: int, epochs: int) -> None:
    found = bounds(RandomAllocation(steps, Gaussian(sigma), epochs), delta=1e-6)
    assert found.two_sided
    assert found.width <= 1e-4 * found.upper
    # X varies so little that its mean is next to log-normal.
    assert found.upper == pytest.approx(
        epsilon(Gaussian(sigma * math.sqrt(steps / epochs)), delta=1e-6), rel=1e-3
    )


def test_a_law_too_wide_for_its_nodes_is_refused() -> None:
    with pytest.raises(TooSlow):
        transform(0.6, 10_000, 20.0)._window  # noqa: B018


def test_phases_near_zero_keep_their_digits() -> None:
    found = narrow_law._turned(np.array([1e-9, 0.5]))
    assert found[0].real == pytest.approx(-0.5e-18, rel=1e-14)
    assert found[1] == pytest.approx(complex(math.cos(0.5) - 1.0, math.sin(0.5)), abs=1e-16)
