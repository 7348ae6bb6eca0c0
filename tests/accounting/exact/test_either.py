"""Truncated samples: the transform against integrals of 20 digits, the ends by their own law."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tacit.accounting import Gaussian, PoissonSampled, Repeated, bounds, delta, epsilon
from tacit.accounting.exact.either import EitherLoss
from tacit.accounting.exact.enclosure import Resolution
from tacit.accounting.exact.mixture import MixturePair, MixtureSide
from tacit.accounting.failures import least_rate

ROOM = MixturePair(1.0, MixtureSide((0.9, 0.1), (0.0, 1.0)), MixtureSide())
FULL = MixturePair(0.5, MixtureSide((0.92, 0.08), (0.0, 1.0)), MixtureSide())


def _transform(z: mpmath.mpc, *, reverse: bool) -> mpmath.mpc:
    total = mpmath.mpc(0)
    for weight, pair in ((mpmath.mpf("0.75"), ROOM), (mpmath.mpf("0.25"), FULL)):
        sigma, rate = mpmath.mpf(pair.sigma), mpmath.mpf(pair.numerator.weights[1])

        def integrand(
            x: mpmath.mpf, sigma: mpmath.mpf = sigma, rate: mpmath.mpf = rate
        ) -> mpmath.mpc:
            ratio = 1 - rate + rate * mpmath.exp((x - mpmath.mpf("0.5")) / sigma**2)
            return mpmath.npdf(x, 0, sigma) * ratio ** (-z if reverse else z + 1)

        total += weight * mpmath.quad(integrand, [-8, -2, 2, 6, 11], maxdegree=6)
    return total


@pytest.mark.parametrize("reverse", [False, True])
def test_the_transform_is_the_mean_of_both(reverse: bool) -> None:
    pairs = [
        MixturePair(one.sigma, one.denominator, one.numerator) if reverse else one
        for one in (ROOM, FULL)
    ]
    found = EitherLoss((0.75, 0.25), tuple(pairs)).tilted(1.5, 20.0, 30.0, Resolution())
    frequencies = 0.5 * np.arange(41)
    real, imaginary = found.ratio(frequencies)
    errors = found.ratio_error(frequencies)
    with mpmath.workdps(20):
        base = _transform(mpmath.mpc(1.5), reverse=reverse)
        assert found.log_mgf == pytest.approx(float(mpmath.log(base.real)), abs=1e-13)
        for k in (3, 40):
            u = frequencies[k]
            truth = _transform(mpmath.mpc(1.5, u), reverse=reverse) / base
            truth = truth * mpmath.exp(-1j * u * found.centre) - 1
            off = abs(complex(truth) - complex(real[k], imaginary[k]))
            causes = (errors.truncation, errors.quadrature, errors.rounding)
            assert off <= float(sum(np.asarray(one)[k] for one in causes)) < 1e-10
            assert abs(complex(truth) + 1.0) <= np.exp(found.log_decay(float(u), True)) + 1e-12


def test_the_lower_end_is_that_of_records_that_add_nothing() -> None:
    # 3 of 6 at most, q = ½: given k of 5 others, a record takes part with ½·min(1, 3/(k+1)).
    event = PoissonSampled(0.5, Gaussian(2.0), cap=3, population=6)
    truth = sum(float(mpmath.binomial(5, k)) / 32 * 0.5 * min(1.0, 3.0 / (k + 1)) for k in range(6))
    assert least_rate(event) == pytest.approx(truth, rel=1e-8)
    assert least_rate(event) <= truth
    found = bounds(Repeated(event, 4), 1e-5)
    alone = bounds(Repeated(PoissonSampled(truth, Gaussian(2.0)), 4), 1e-5)
    assert found.two_sided
    assert found.lower == pytest.approx(alone.lower, rel=1e-6)
    assert found.upper == epsilon(Repeated(event, 4), 1e-5)
    assert found.lower < alone.upper < found.upper
    assert delta(Repeated(event, 4), found.upper) == pytest.approx(1e-5, rel=1e-5)
