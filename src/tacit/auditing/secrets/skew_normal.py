"""The skew normal law: density, distribution with its far tail, fit, and a check of the fit.

Azzalini 1985: with shape α the density is 2 φ(z) Φ(αz), z = (x - location)/scale; its distribution
function is Φ(z) - 2 T(z, α) with Owen's T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import kolmogorov, log_ndtr, ndtr, owens_t

from tacit._validation import positive
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FEWEST = 100
_LARGEST_SHAPE = 30.0
_LOG_2_OVER_ROOT = math.log(2.0) - 0.5 * math.log(2.0 * math.pi)


@final
@dataclass(frozen=True, slots=True)
class SkewNormal:
    """A skew normal law; with ``shape`` 0 it is the normal one.

    >>> law = SkewNormal(location=0.0, scale=1.0, shape=0.0)
    >>> round(law.log_cdf(-6.0), 4)
    -20.7368
    """

    location: float
    scale: float
    shape: float

    def cdf(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The distribution function, to about 1e-15 of 1: too coarse for the far tail."""
        z = (x - self.location) / self.scale
        return np.asarray(np.clip(ndtr(z) - 2.0 * owens_t(z, self.shape), 0.0, 1.0))

    def log_cdf(self, x: float) -> float:
        """The logarithm of the distribution function, also where that is 1e-300.

        The tail is summed over the stretch in which the density, which is log-concave, is above
        e^-42 of its largest value there.
        """
        end = (x - self.location) / self.scale
        if math.isinf(end):
            return -math.inf if end < 0 else 0.0
        share = float(self.cdf(np.array([x]))[0])
        return math.log(share) if share > 0.1 else _log_tail(end, self.shape)


def fit_skew_normal(sample: NDArray[np.float64]) -> SkewNormal:
    """The law of the greatest likelihood, with a shape between -30 and 30.

    >>> draw = np.random.default_rng(0)
    >>> law = fit_skew_normal(3.0 + 2.0 * np.abs(draw.normal(size=1000)))
    >>> law.shape > 10
    True
    """
    values = np.asarray(sample, np.float64)
    if len(values) < _FEWEST or not np.isfinite(values).all():
        raise InvalidArgument(
            f"sample must hold at least {_FEWEST} finite numbers for a fit, got {len(values)} of "
            f"which {int(np.isfinite(values).sum())} are finite"
        )
    mean, spread = float(values.mean()), float(values.std())
    if spread <= 1e-12 * max(1.0, abs(mean)):
        raise InvalidArgument("sample must not be constant: no law can be fitted to it")
    standard = (values - mean) / spread
    first = _by_moments(standard)
    begins = [first, np.array([0.0, 0.0, 0.0])]
    bounds = [(-10.0, 10.0), (-5.0, 3.0), (-_LARGEST_SHAPE, _LARGEST_SHAPE)]
    tries = [
        minimize(_minus_log_likelihood, begin, (standard,), "L-BFGS-B", True, bounds=bounds)
        for begin in begins
    ]
    location, log_scale, shape = min(tries, key=lambda one: float(one.fun)).x
    return SkewNormal(mean + spread * float(location), spread * math.exp(log_scale), float(shape))


def largest_gap(sample: NDArray[np.float64], law: SkewNormal) -> float:
    """Kolmogorov and Smirnov's statistic: the largest distance of the two distributions."""
    steps = np.arange(len(sample) + 1) / len(sample)
    heights = law.cdf(np.sort(sample))
    return float(max(np.max(steps[1:] - heights), np.max(heights - steps[:-1])))


def gap_p_value(gap: float, count: int) -> float:
    """How likely a sample of the law itself is to lie as far from it (Kolmogorov's limit law).

    >>> round(gap_p_value(0.0136, 10_000), 3)
    0.049
    """
    root = math.sqrt(positive("count", count))
    return float(kolmogorov((root + 0.12 + 0.11 / root) * gap))  # Stephens 1970, for small samples


def _by_moments(standard: NDArray[np.float64]) -> NDArray[np.float64]:
    """Location, log of scale and shape of the law with the sample's mean, variance, skewness."""
    skew = float(np.clip(np.mean(standard**3), -0.95, 0.95))  # a skew normal's is below 0.9953
    power = abs(skew) ** (2.0 / 3.0)
    lean = math.copysign(
        math.sqrt(0.5 * math.pi * power / (power + (2.0 - 0.5 * math.pi) ** (2.0 / 3.0))), skew
    )
    scale = 1.0 / math.sqrt(1.0 - 2.0 * lean * lean / math.pi)
    location = -scale * lean * math.sqrt(2.0 / math.pi)
    shape = float(np.clip(lean / math.sqrt(1.0 - lean * lean), -_LARGEST_SHAPE, _LARGEST_SHAPE))
    return np.array([location, math.log(scale), shape])


def _minus_log_likelihood(
    place: NDArray[np.float64], standard: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Of location, log of scale and shape, over the number of points; with its gradient."""
    location, log_scale, shape = (float(value) for value in place)
    z = (standard - location) * math.exp(-log_scale)
    logs = log_ndtr(shape * z)
    mills = np.exp(-0.5 * (shape * z) ** 2 - 0.5 * math.log(2.0 * math.pi) - logs)  # φ/Φ at αz
    value = log_scale - _LOG_2_OVER_ROOT + float(np.mean(0.5 * z * z - logs))
    slope = z - shape * mills
    gradient = np.array([
        -float(np.mean(slope)) * math.exp(-log_scale),
        1.0 - float(np.mean(slope * z)),
        -float(np.mean(z * mills)),
    ])  # fmt: skip
    return value, gradient


def _log_tail(end: float, shape: float) -> float:
    """The logarithm of ∫ 2φ(z)Φ(αz) dz from -∞ to ``end``: a Gauss rule where it matters."""

    def log_density(z: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(_LOG_2_OVER_ROOT - 0.5 * z * z + log_ndtr(shape * z))

    distances = np.geomspace(1e-8, 1e4, 150)
    heights = log_density(end - distances)
    seen = int(np.argmax(heights))
    reach = distances[seen:][heights[seen:] < heights[seen] - 42.0][0]
    nodes, weights = np.polynomial.legendre.leggauss(200)
    logs = log_density(end + 0.5 * reach * (nodes - 1.0))
    peak = float(logs.max())
    return peak + math.log(0.5 * float(reach) * float(weights @ np.exp(logs - peak)))
