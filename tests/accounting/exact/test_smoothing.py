"""Samples of discrete and Laplace noise against sums and integrals of 30 digits that share no code.

Truths: all multisets of draws where steps are few; the recurrence by which δ of two steps is the
mean of δ of one at ε - L; and for many steps the contour integral in high precision, to where
nothing is left of it.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest

from tacit.accounting import (
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    bounds,
    calibrate,
    delta,
    epsilon,
    profile,
)
from tacit.accounting.exact.atoms import sampled_atoms, tilt_atoms
from tacit.accounting.exact.lattice import LatticeLoss
from tacit.accounting.exact.pairs import base_pair
from tacit.accounting.exact.sampled_laplace import SampledLaplaceLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.accounting import Event

    Truth = Callable[[float], mpmath.mpf]

DIGITS = 30
Law = tuple[tuple[mpmath.mpf, mpmath.mpf], ...]  # losses and P's probabilities


@lru_cache
def discrete_gaussian(sigma: float, rate: float, *, reverse: bool) -> Law:
    with mpmath.workdps(DIGITS):
        s, q = mpmath.mpf(sigma), mpmath.mpf(rate)
        reach = math.ceil(12 * sigma) + 3
        weights = {x: mpmath.exp(-mpmath.mpf(x) ** 2 / (2 * s * s))
                   for x in range(-reach - 1, reach + 2)}  # fmt: skip
        total = mpmath.fsum(weights.values())
        return tuple(
            _sampled(weights[x - 1] / total, weights[x] / total, q, reverse=reverse)
            for x in range(-reach, reach + 2)
        )


def _sampled(
    p: mpmath.mpf, q: mpmath.mpf, rate: mpmath.mpf, *, reverse: bool
) -> tuple[mpmath.mpf, mpmath.mpf]:
    mixed = (1 - rate) * q + rate * p
    loss = mpmath.log(mixed / q)
    return (-loss, q) if reverse else (loss, mixed)


def by_multisets(law: Law, count: int, at: float) -> mpmath.mpf:
    with mpmath.workdps(DIGITS):
        level, found = mpmath.mpf(at), mpmath.mpf(0)
        ways = math.factorial(count)
        for draws in combinations_with_replacement([one for one in law if one[1] > 1e-24], count):
            loss = mpmath.fsum(one[0] for one in draws)
            if loss > level:
                p = mpmath.mpf(ways)
                for one in set(draws):
                    times = draws.count(one)
                    p *= one[1] ** times / math.factorial(times)
                found += p * -mpmath.expm1(level - loss)
        return found


def by_contour(law: Law, count: int, at: float) -> mpmath.mpf:
    """The trapezoid rule through the saddle, with copies and an end that are 25 digits away."""
    loss, p = (np.array([float(one[k]) for one in law]) for k in (0, 1))

    def log_m(z: float) -> float:
        exponent = np.log(p) + z * loss
        return count * float(exponent.max() + np.log(np.exp(exponent - exponent.max()).sum()))

    tilts = np.geomspace(1e-3, 1e3, 600)
    best = int(np.argmin([log_m(z) - z * at for z in tilts]))
    tilt, apart = float(tilts[best]), float(tilts[best + 1] - tilts[best - 1]) / 2
    curved = (log_m(tilt + apart) - 2 * log_m(tilt) + log_m(tilt - apart)) / apart**2
    with mpmath.workdps(DIGITS):
        z0, level = mpmath.mpf(tilt), mpmath.mpf(at)
        step = 2 * mpmath.pi / (70 / z0 + 15 * math.sqrt(curved))
        total, k, peak = mpmath.mpf(0), 0, None
        while True:
            z = z0 + 1j * k * step
            m = mpmath.fsum(one * mpmath.exp(z * value) for value, one in law)
            term = m**count * mpmath.exp(-z * level) / (z * (z + 1))
            peak = peak or abs(term)
            total += term.real / (2 if k == 0 else 1)
            k += 1
            if abs(term) < 1e-25 * peak:
                return total * step / mpmath.pi


def _check(event: Event, target: float, truths: Sequence[Truth], rough: float = 1e-6) -> None:
    """Both ends, by the larger of the two directions."""
    found = bounds(event, target)
    assert found.two_sided
    assert found.width <= 1.2e-8 * max(1.0, found.upper), found
    above = [truth(found.upper) for truth in truths]
    below = [truth(found.lower) for truth in truths]
    assert max(above) <= target <= max(below), (found, above, below)
    assert max(below) <= delta(event, found.lower) <= (1.0 + rough) * float(max(below))


@pytest.mark.parametrize(
    ("sigma", "rate", "count", "target"),
    [
        (0.3, 1e-4, 2, 1e-5),
        (0.5, 0.3, 3, 1e-7),
        (1.0, 0.01, 2, 1e-9),
        (2.0, 0.1, 2, 1e-5),
        (0.6, 0.02, 4, 1e-6),
    ],
)
def test_few_steps_of_discrete_noise(sigma: float, rate: float, count: int, target: float) -> None:
    laws = [discrete_gaussian(sigma, rate, reverse=reverse) for reverse in (False, True)]
    event = Repeated(PoissonSampled(rate, DiscreteGaussian(sigma)), count)
    _check(event, target, [partial(by_multisets, law, count) for law in laws])


@pytest.mark.parametrize(
    ("sigma", "rate", "count", "target"),
    [(4.0, 0.01, 10_000, 1e-5), (1.0, 0.1, 300, 1e-8), (1.5, 0.1, 1000, 1e-6)],
)
def test_many_steps_of_discrete_noise(sigma: float, rate: float, count: int, target: float) -> None:
    law = discrete_gaussian(sigma, rate, reverse=False)
    event = Repeated(PoissonSampled(rate, DiscreteGaussian(sigma)), count)
    _check(event, target, [partial(by_contour, law, count)])


def _laplace_alone(d: mpmath.mpf, rate: mpmath.mpf, at: mpmath.mpf, *, reverse: bool) -> mpmath.mpf:
    """δ of one sample at any level, by the two laws of the base's loss above or below a cut."""
    # P₀(l > t) = 1 - ½·e^{-(d-t)/2} and Q(l > t) = ½·e^{-(d+t)/2} on [-d, d).
    grown = mpmath.exp(-at if reverse else at)
    odds = (grown - (1 - rate)) / rate
    cut = mpmath.log(odds) if odds > 0 else -mpmath.inf
    if reverse:  # Q(l < t) - e^at·P(l < t), over losses below the cut
        if cut <= -d:
            return mpmath.mpf(0)
        if cut > d:
            q = p = mpmath.mpf(1)
        else:
            q, p = 1 - mpmath.exp(-(d + cut) / 2) / 2, mpmath.exp(-(d - cut) / 2) / 2
        return q - mpmath.exp(at) * ((1 - rate) * q + rate * p)
    if cut >= d:
        return mpmath.mpf(0)
    if cut < -d:
        p = q = mpmath.mpf(1)
    else:
        p, q = 1 - mpmath.exp(-(d - cut) / 2) / 2, mpmath.exp(-(d + cut) / 2) / 2
    return (1 - rate) * q + rate * p - grown * q


@pytest.mark.parametrize(
    ("scale", "rate", "target"),
    [(1.0, 0.01, 1e-5), (0.5, 0.3, 1e-9), (7.0, 1e-4, 1e-6), (1e-2, 0.5, 1e-3), (5.0, 0.9, 0.01)],
)
def test_one_sample_of_laplace_noise(scale: float, rate: float, target: float) -> None:
    event = PoissonSampled(rate, Laplace(scale))
    found = bounds(event, target)
    assert found.width <= 1e-12 * max(1.0, found.upper)
    with mpmath.workdps(DIGITS):
        d, q = 1 / mpmath.mpf(scale), mpmath.mpf(rate)
        truths = [
            max(_laplace_alone(d, q, mpmath.mpf(at), reverse=reverse) for reverse in (False, True))
            for at in (found.lower, found.upper, 0.7 * found.upper)
        ]
    assert truths[1] <= target <= truths[0]
    assert delta(event, 0.7 * found.upper) == pytest.approx(float(truths[2]), rel=1e-12)
    for way in ("add-only", "remove-only"):
        most = bounds(event, 0.0, way).upper
        assert delta(event, 1.001 * most, adjacency=way) == 0.0


def laplace_twice(scale: float, rate: float, at: float, *, reverse: bool) -> mpmath.mpf:
    with mpmath.workdps(DIGITS):
        d, q, level = 1 / mpmath.mpf(scale), mpmath.mpf(rate), mpmath.mpf(at)

        def loss(one: mpmath.mpf) -> mpmath.mpf:
            found = mpmath.log(1 - q + q * mpmath.exp(one))
            return -found if reverse else found

        def inner(one: mpmath.mpf) -> mpmath.mpf:
            weight = 1 if reverse else mpmath.exp(loss(one))
            return weight * _laplace_alone(d, q, level - loss(one), reverse=reverse)

        ends = {-d, d}
        for other in (loss(-d), loss(d)):  # corners of the inner one
            odds = (mpmath.exp((level - other) * (-1 if reverse else 1)) - (1 - q)) / q
            if odds > 0 and -d < mpmath.log(odds) < d:
                ends.add(mpmath.log(odds))
        between = mpmath.quad(lambda one: mpmath.exp(-(d + one) / 2) / 4 * inner(one), sorted(ends))
        return inner(-d) / 2 + inner(d) * mpmath.exp(-d) / 2 + between


@pytest.mark.parametrize(
    ("scale", "rate", "target"), [(1.0, 0.01, 1e-5), (0.5, 0.3, 1e-6), (5.0, 0.1, 1e-7)]
)
def test_two_samples_of_laplace_noise(scale: float, rate: float, target: float) -> None:
    truths = [partial(laplace_twice, scale, rate, reverse=reverse) for reverse in (False, True)]
    # Next to the largest loss δ falls to 0: half an ulp of ε moves it.
    _check(Repeated(PoissonSampled(rate, Laplace(scale)), 2), target, truths, rough=0.05)


def laplace_transform(scale: float, rate: float, z: mpmath.mpc) -> mpmath.mpc:
    d, q = 1 / mpmath.mpf(scale), mpmath.mpf(rate)

    def power(one: mpmath.mpf) -> mpmath.mpc:
        return (1 - q + q * mpmath.exp(one)) ** (z + 1)

    between = mpmath.quad(lambda one: mpmath.exp(-(d + one) / 2) / 4 * power(one), [-d, 0, d])
    return power(-d) / 2 + power(d) * mpmath.exp(-d) / 2 + between


def test_the_transform_of_sampled_laplace_noise() -> None:
    found = SampledLaplaceLoss(2.0, 0.1).tilted(3.0, 400.0, 30.0, None)  # type: ignore[arg-type]
    frequencies = 4.0 * np.arange(101)
    real, imaginary = found.ratio(frequencies)
    errors = found.ratio_error(frequencies)
    with mpmath.workdps(DIGITS):
        base = laplace_transform(0.5, 0.1, mpmath.mpc(3))
        assert found.log_mgf == pytest.approx(float(mpmath.log(base.real)), abs=1e-14)
        for k in (1, 17, 100):
            z = mpmath.mpc(3, 4 * k)
            truth = laplace_transform(0.5, 0.1, z) / base * mpmath.exp(-4j * k * found.centre) - 1
            off = abs(complex(truth) - complex(real[k], imaginary[k]))
            most = float(errors.quadrature + np.asarray(errors.rounding)[k] + errors.truncation)
            assert off <= most < 1e-11


def test_splines_sum_as_sums_do() -> None:
    base = base_pair(DiscreteGaussian(40.0), 1.0)
    assert base is not None
    assert isinstance(base.loss, LatticeLoss)
    loss = sampled_atoms(base.loss, 0.2, reverse=False)
    assert loss is not None
    tilted = tilt_atoms(loss, 30.0)
    frequencies = 50.0 * np.arange(20_001)
    real, imaginary = tilted.ratio(frequencies)
    errors = np.asarray(tilted.ratio_error(frequencies).rounding)
    few = tilted._few(frequencies)
    assert few < 10_000  # else splines are not used at all
    for k in (few, few + 1, 12_345, 20_000):
        turns = np.exp(1j * frequencies[k] * tilted.spread)
        truth = complex((tilted.mass * turns).sum()) - 1.0
        off = abs(truth - complex(real[k], imaginary[k]))
        assert off <= errors[k] < 1e-4
        assert off > 0.0
    assert errors[few] < 1e-9


def test_losses_on_no_common_lattice() -> None:
    pair = Composed(DiscreteGaussian(1.0), DiscreteGaussian(1.5))
    laws = [discrete_gaussian(sigma, 1.0, reverse=False) for sigma in (1.0, 1.5)]

    def truth(at: float) -> mpmath.mpf:
        with mpmath.workdps(DIGITS):
            return mpmath.fsum(
                p * q * -mpmath.expm1(at - one - other)
                for one, p in laws[0]
                for other, q in laws[1]
                if one + other > at
            )

    _check(pair, 1e-6, [truth])


def test_laplace_noise_of_several_scales_meets_its_own_transform() -> None:
    event = Composed(Repeated(Laplace(2.0), 20), Repeated(Laplace(3.0), 20), Gaussian(4.0))
    found = bounds(event, 1e-6)
    assert found.width <= 1e-8 * found.upper

    def transform(z: mpmath.mpc, d: mpmath.mpf) -> mpmath.mpc:
        return (mpmath.exp(z * d) * (z + 1) + z * mpmath.exp(-(z + 1) * d)) / (2 * z + 1)

    with mpmath.workdps(DIGITS):
        z0, step, total = mpmath.mpf(1), mpmath.pi / 60, mpmath.mpf(0)
        for k in range(900):
            z = z0 + 1j * k * step
            m = transform(z, 1 / mpmath.mpf(2)) * transform(z, 1 / mpmath.mpf(3))
            m = m**20 * mpmath.exp(z * (z + 1) / 32)
            term = m * mpmath.exp(-z * mpmath.mpf(found.upper)) / (z * (z + 1))
            total += term.real / (2 if k == 0 else 1)
        at_upper = float(total * step / mpmath.pi)
    assert at_upper == pytest.approx(1e-6, rel=1e-6)
    assert at_upper <= 1e-6 * (1 + 1e-9)


def test_a_wrong_rate_is_rejected() -> None:
    right = epsilon(Repeated(PoissonSampled(0.01, DiscreteGaussian(1.0)), 100), 1e-6)
    law = discrete_gaussian(1.0, 0.0101, reverse=False)
    assert by_contour(law, 100, right) > 1.005e-6


def test_one_curve_and_one_calibration_serve_samples_of_discrete_noise() -> None:
    event = Repeated(PoissonSampled(0.05, DiscreteGaussian(1.0)), 50)
    curve = profile(event)
    assert curve.epsilon(1e-6) == pytest.approx(epsilon(event, 1e-6), rel=1e-6)
    assert curve.delta(1.0) == pytest.approx(delta(event, 1.0), rel=1e-4)
    sigma = calibrate(
        lambda one: Repeated(PoissonSampled(0.05, DiscreteGaussian(one)), 50), 1.0, 1e-6
    )
    assert epsilon(Repeated(PoissonSampled(0.05, DiscreteGaussian(sigma)), 50), 1e-6) <= 1.0
    assert epsilon(Repeated(PoissonSampled(0.05, DiscreteGaussian(0.999 * sigma)), 50), 1e-6) > 1.0


def test_other_discrete_samples() -> None:
    for inner in (DiscreteLaplace(1.5, 2), RandomizedResponse(1.0, categories=4)):
        found = bounds(Repeated(PoissonSampled(0.1, inner), 200), 1e-6)
        assert found.width <= 1e-8 * max(1.0, found.upper)
        assert found.two_sided


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_random_samples_of_discrete_noise(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 5))
    sigma = float(draw.uniform(0.3, {2: 4.0, 3: 1.5, 4: 0.8}[count]))
    rate = float(10 ** draw.uniform(-4, -0.3))
    target = float(10 ** draw.uniform(-10, -2))
    laws = [discrete_gaussian(sigma, rate, reverse=reverse) for reverse in (False, True)]
    event = Repeated(PoissonSampled(rate, DiscreteGaussian(sigma)), count)
    found = bounds(event, target)
    truths = [partial(by_multisets, law, count) for law in laws]
    assert max(truth(found.upper) for truth in truths) <= target
    if found.lower > 0.0:
        assert max(truth(found.lower) for truth in truths) >= target
    assert found.width <= 1e-6 * max(1.0, found.upper)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_samples_of_laplace_noise(seed: int) -> None:
    draw = np.random.default_rng(seed)
    scale, rate = float(10 ** draw.uniform(-0.5, 1.0)), float(10 ** draw.uniform(-4, -0.3))
    target = float(10 ** draw.uniform(-10, -3))
    found = bounds(Repeated(PoissonSampled(rate, Laplace(scale)), 2), target)
    truths = [partial(laplace_twice, scale, rate, reverse=reverse) for reverse in (False, True)]
    assert max(truth(found.upper) for truth in truths) <= target
    if found.lower > 0.0:
        assert max(truth(found.lower) for truth in truths) >= target
    assert found.width <= 1e-6 * max(1.0, found.upper)


@pytest.mark.slow
def test_samples_of_discrete_noise_are_monotone() -> None:
    draw = np.random.default_rng(7)
    for _ in range(150):
        sigma, rate = float(10 ** draw.uniform(-0.5, 2.5)), float(10 ** draw.uniform(-4, -0.6))
        count, target = int(10 ** draw.uniform(0.4, 3.5)), float(10 ** draw.uniform(-9, -3))
        here = bounds(Repeated(PoissonSampled(rate, DiscreteGaussian(sigma)), count), target)
        grown = 1.0 + float(10 ** draw.uniform(-4, -1))
        more = [
            (sigma, min(1.0, grown * rate), count, target),
            (sigma, rate, count + 1, target),
            (sigma, rate, count, target / grown),
        ]
        for s, q, t, d in more:
            other = bounds(Repeated(PoissonSampled(q, DiscreteGaussian(s)), t), d)
            assert here.lower <= other.upper, (sigma, rate, count, target, grown)
