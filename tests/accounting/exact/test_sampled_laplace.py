"""Samples of Laplace noise against integrals of 30 digits: high frequencies, and two samples."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import mpmath
import numpy as np
import pytest

from tacit.accounting.exact.laplace_twice import MOST_DISTANCE, LaplaceTwiceProfile
from tacit.accounting.exact.sampled_laplace import SampledLaplaceLoss, TiltedLaplace

DIGITS = 24


@lru_cache
def transform(distance: float, rate: float, reverse: bool, z: complex) -> mpmath.mpc:
    with mpmath.workdps(DIGITS):
        d, q = mpmath.mpf(distance), mpmath.mpf(rate)
        power = -mpmath.mpc(z) if reverse else mpmath.mpc(z) + 1

        def term(one: mpmath.mpf) -> mpmath.mpc:
            return (1 - q + q * mpmath.exp(one)) ** power

        pieces = mpmath.linspace(-d, d, 8 + int(abs(z.imag) * rate * distance / 4))
        between = mpmath.quad(lambda one: mpmath.exp(-(d + one) / 2) / 4 * term(one), pieces)
        return term(-d) / 2 + term(d) * mpmath.exp(-d) / 2 + between


def tilted(distance: float, rate: float, tilt: float, *, reverse: bool) -> TiltedLaplace:
    loss = SampledLaplaceLoss(distance, rate, reverse=reverse)
    return loss.tilted(tilt, 1e9, 30.0, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("distance", "rate", "tilt"), [(0.3, 0.5, 2.0), (0.5, 0.2, 6.0)])
def test_the_transform_from_its_ends(
    distance: float, rate: float, tilt: float, reverse: bool
) -> None:
    found = tilted(distance, rate, tilt, reverse=reverse)
    frequencies = found.last * np.array([1.01, 2.5])
    real, imaginary = found.ratio_at(frequencies)
    errors = np.asarray(found.error_at(frequencies).rounding)
    base = transform(distance, rate, reverse, complex(tilt))
    for k, u in enumerate(frequencies.tolist()):
        with mpmath.workdps(DIGITS):
            turn = mpmath.exp(-1j * mpmath.mpf(u) * mpmath.mpf(found.centre))
            truth = complex(transform(distance, rate, reverse, complex(tilt, u)) / base * turn - 1)
        off = abs(truth - complex(real[k], imaginary[k]))
        assert off <= errors[k] < 3e-11
        assert np.log(abs(1 + truth)) <= found.log_decay(u, True)
    # The first terms of the series alone are not enough.
    lower, upper = found.ends
    short = replace(found, ends=(replace(lower, power=lower.power + 0.01), upper))
    assert abs(complex(*(x[0] for x in short.ratio_at(frequencies))) - complex(
        real[0], imaginary[0])) > errors[0]  # fmt: skip


def test_low_and_high_frequencies_meet() -> None:
    found = tilted(1.5, 0.05, 12.0, reverse=False)
    around = found.last * np.array([0.999999, 1.000001])
    direct = found.low.ratio_at(around)
    joined = found.ratio_at(around)
    for one, other in zip(direct, joined, strict=True):
        assert one == pytest.approx(other, abs=1e-12)


def twice(distance: float, rate: float, epsilon: float, *, reverse: bool) -> mpmath.mpf:
    """δ of two samples as a double integral: over the first, of the second's two laws above ε."""
    with mpmath.workdps(DIGITS):
        d, q, level = mpmath.mpf(distance), mpmath.mpf(rate), mpmath.mpf(epsilon)

        def w(one: mpmath.mpf) -> mpmath.mpf:
            return 1 - q + q * mpmath.exp(one)

        def share(cut: mpmath.mpf, tail: mpmath.mpf) -> mpmath.mpf:
            """Q's or P₀'s (tail = d or -d) probability of base losses above a cut."""
            if cut < -d:
                return mpmath.mpf(1)
            if cut >= d:
                return mpmath.mpf(0)
            most = mpmath.exp(-(d + cut) / 2) / 2
            return most if tail > 0 else 1 - mpmath.exp((cut - d) / 2) / 2

        def second(x: mpmath.mpf) -> mpmath.mpf:
            """The other's δ at x, up to the sign of its loss."""
            odds = (mpmath.exp(-x if reverse else x) - (1 - q)) / q
            cut = mpmath.log(odds) if odds > 0 else -mpmath.inf
            plain, moved = share(cut, d), share(cut, -d)
            if reverse:
                plain, moved = 1 - plain, 1 - moved
                return max(mpmath.mpf(0), plain - mpmath.exp(x) * ((1 - q) * plain + q * moved))
            return max(mpmath.mpf(0), (1 - q) * plain + q * moved - mpmath.exp(x) * plain)

        def first(one: mpmath.mpf) -> mpmath.mpf:
            loss = mpmath.log(w(one))
            return second(level + loss) if reverse else w(one) * second(level - loss)

        ends = {-d, d}
        for other in (w(-d), w(d)):
            odds = (mpmath.exp(-level if reverse else level) / other - (1 - q)) / q
            if odds > 0 and -d < mpmath.log(odds) < d:
                ends.add(mpmath.log(odds))
        between = mpmath.quad(lambda one: mpmath.exp(-(d + one) / 2) / 4 * first(one), sorted(ends))
        return first(-d) / 2 + mpmath.exp(-d) * first(d) / 2 + between


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("distance", "rate"), [(1.0, 0.1), (0.05, 1e-4), (2.0, 0.4), (MOST_DISTANCE, 0.01)]
)
def test_two_samples_between_closed_forms(distance: float, rate: float, reverse: bool) -> None:
    loss = SampledLaplaceLoss(distance, rate, reverse=reverse)
    profile = LaplaceTwiceProfile(loss)
    for share in (0.0, 0.3, 0.5, 0.9, 0.999):
        epsilon = 2.0 * share * loss.largest
        truth, at = twice(distance, rate, epsilon, reverse=reverse), profile.enclose(epsilon)
        assert at.lower <= truth <= at.upper, share
        assert at.errors.below <= 1e-9 * float(truth) + 1e-12 * rate
        slightly_wrong = twice(distance, rate * (1 + 1e-6), epsilon, reverse=reverse)
        assert not at.lower <= slightly_wrong <= at.upper or truth < 1e-8 * rate
    assert profile.enclose(2.001 * loss.largest).upper == 0.0
