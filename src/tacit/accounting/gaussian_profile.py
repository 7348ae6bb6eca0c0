"""The privacy profile of the Gaussian mechanism, to full double precision at any depth.

With μ the distance over the standard deviation, the tight δ at ε ≥ 0 is

    δ(ε) = Φ(μ/2 - ε/μ) - e^ε·Φ(-μ/2 - ε/μ)            (Balle & Wang 2018, Theorem 8).

Its two terms agree in most of their digits when μ or δ is small, so it is computed as
φ(a)·(R(a) - R(b)), where a, b = ε/μ ∓ μ/2 and R(x) = ∫_0^∞ e^{-xt - t²/2} dt is Mills' ratio:
e^ε·φ(b) = φ(a) because b² - a² = 2ε. The difference is either harmless to subtract or equal to
∫_0^∞ e^{-at - t²/2}·(1 - e^{-μt}) dt, whose integrand is positive. All functions take scalars.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx

_SQRT_HALF = math.sqrt(0.5)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)

# The integrand above has fallen below e^-42 at the end of the range; 48 nodes resolve it to 1e-16.
_TAIL = 42.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS

# δ < exp(-5e15) beyond: its logarithm is a plain square, and no double holds it.
_FAR = 1e8


def delta(mu: float, epsilon: float) -> float:
    """The tight δ at ``epsilon`` ≥ 0 of a Gaussian whose distance is ``mu`` standard deviations.

    Accurate to about 1e-14 relative down to 1e-300; it underflows to 0 beyond.

    >>> round(delta(1.0, 1.0), 12)
    0.126936737507
    """
    if mu == 0.0 or math.isinf(epsilon):
        return 0.0
    low, rest, high = _ends(mu, epsilon)
    if low > _FAR:
        return 0.0
    if low < -1.0:
        return 1.0 - _complement(low, high)
    peak, correction = _log_bell(low, rest)
    return math.exp(peak) * (math.exp(correction) * _mills_difference(low, high, mu) / _SQRT_TWO_PI)


def log_delta(mu: float, epsilon: float) -> float:
    """The logarithm of ``delta``, without underflow.

    >>> round(log_delta(0.01, 1.0), 6)
    -5014.234761
    """
    return _log_delta_and_slowness(mu, epsilon)[0]


def epsilon(mu: float, delta: float) -> float:
    """The tight ε ≥ 0 at ``delta`` of a Gaussian whose distance is ``mu`` standard deviations.

    ln δ(ε) is concave (it is a convolution of log-concave functions), so Newton's method started
    right of the root falls towards it and never passes it. The start is ε = μ²/2 + μ·a with
    Q(a) ≤ exp(-a²/2)/2 ≤ δ, since δ(ε) ≤ Q(a).

    >>> round(epsilon(1 / 3.7306316348, 1e-5), 9)
    1.0
    """
    if mu == 0.0 or delta >= math.erf(0.5 * mu * _SQRT_HALF):
        return 0.0
    if delta <= 0.0:
        return math.inf
    target = math.log(delta)
    value = 0.5 * mu * mu + mu * math.sqrt(2.0 * max(0.0, -math.log(2.0) - target))
    if math.isinf(value):
        return math.inf
    for _ in range(100):
        log_value, slowness = _log_delta_and_slowness(mu, value)
        lower = max(0.0, value + (log_value - target) * slowness)
        if not lower < value:
            break
        value = lower
    return value


def _log_delta_and_slowness(mu: float, epsilon: float) -> tuple[float, float]:
    """The pair of ln δ and -dε/d ln δ = (R(a) - R(b))/R(b): dδ/dε is -e^ε·Φ(-b) = -φ(a)·R(b)."""
    if mu == 0.0 or math.isinf(epsilon):
        return -math.inf, 0.0
    low, rest, high = _ends(mu, epsilon)
    if low < -1.0:
        missing = _complement(low, high)
        share = math.exp(-0.5 * low * low) / _SQRT_TWO_PI * _mills_ratio(high)
        return math.log1p(-missing), (1.0 - missing) / share if share > 0.0 else math.inf
    if low > 1e150:
        return -math.inf, 0.0
    difference = _mills_difference(low, high, mu)
    peak, correction = _log_bell(low, rest)
    log_value = peak + (correction + math.log(difference / _SQRT_TWO_PI))
    return log_value, difference / _mills_ratio(high)


def _ends(mu: float, epsilon: float) -> tuple[float, float, float]:
    """The ends a = ε/μ - μ/2 (rounded, and what the rounding left) and b = ε/μ + μ/2."""
    ratio = epsilon / mu
    if not 1e-140 < mu < 1e140 or ratio > _FAR:
        return ratio - 0.5 * mu, 0.0, ratio + 0.5 * mu
    product, error = _two_product(ratio, mu)
    ratio_rest = ((epsilon - product) - error) / mu
    low = ratio - 0.5 * mu
    back = low - ratio
    low_rest = (ratio - (low - back)) + (-0.5 * mu - back)
    return low, low_rest + ratio_rest, ratio + 0.5 * mu


def _log_bell(x: float, rest: float) -> tuple[float, float]:
    """-(x + rest)²/2 as a double and its error, so that no digit is lost when x² is large."""
    if x > _FAR:
        return -0.5 * x * x, 0.0
    square, error = _two_product(x, x)
    return -0.5 * square, -0.5 * error - x * rest


def _two_product(x: float, y: float) -> tuple[float, float]:
    """x·y as its rounded value and the exact error of the rounding (Dekker 1971)."""
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    product = x * y
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, error


def _split(x: float) -> tuple[float, float]:
    scaled = 134217729.0 * x  # 2^27 + 1 parts a double into two halves of 26 bits
    high = scaled - (scaled - x)
    return high, x - high


def _mills_ratio(x: float) -> float:
    return _SQRT_HALF_PI * float(erfcx(x * _SQRT_HALF))


def _mills_difference(low: float, high: float, mu: float) -> float:
    """R(low) - R(high), where high = low + mu and low ≥ -1, to full relative precision."""
    first, second = _mills_ratio(low), _mills_ratio(high)
    if second < 0.5 * first:
        return first - second
    # Here mu is at most about max(1, low), so that the integrand is smooth on the range,
    # which ends where low·t + t²/2 reaches the tail.
    end = 2.0 * _TAIL / (low + math.sqrt(low * low + 2.0 * _TAIL))
    t = end * _NODES
    integrand = np.exp(-t * (low + 0.5 * t)) * -np.expm1(-mu * t)
    return end * float(_WEIGHTS @ integrand)


def _complement(low: float, high: float) -> float:
    """1 - δ = Φ(low) + φ(low)·R(high) for low < -1: both terms positive and below 1/6."""
    bell = math.exp(-0.5 * low * low) / _SQRT_TWO_PI
    return 0.5 * math.erfc(-low * _SQRT_HALF) + bell * _mills_ratio(high)
