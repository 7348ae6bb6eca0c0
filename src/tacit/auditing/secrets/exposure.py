"""Exposure: how far a secret's rank among all possible ones lies from that of a random one.

Carlini et al. 2019, "The Secret Sharer" (https://arxiv.org/abs/1802.08232), section 4.2: exposure
is log2 |R| - log2 rank, where R is the space of secrets, ordered by log-perplexity. A secret that
has nothing to do with the model has a uniform rank, so that P(exposure ≥ x) ≤ 2^-x: its exposure is
exponential with mean 1/ln 2 = 1.44 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import chdtrc, kolmogorov, log_ndtr, ndtr, owens_t

from tacit._validation import positive, probability, whole
from tacit.auditing.statistics.bound import LowerBound, delta_of, failure_rate
from tacit.auditing.statistics.scores import nan_where_masked
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray


Method = Literal["rank", "sample", "skew-normal"]
_LEVEL = 1e-3  # at this p-value the fit of the skew normal law is rejected


@final
@dataclass(frozen=True, slots=True)
class Exposure:
    """The exposure of one secret.

    Attributes:
        bits: The exposure.
        most: The largest that this method could have found.
        p_value: How likely a secret that the model never saw is to have this exposure or more.
            Exact for ``"rank"`` and ``"sample"``; for ``"skew-normal"`` only if the law fits.
        method: ``"rank"``: the rank among all possible secrets. ``"sample"``: the rank among a
            random sample of them. ``"skew-normal"``: extrapolated from a sample.
        candidates: How many other secrets it was compared with.
        fit_p_value: Of the skew normal law's fit, by Kolmogorov and Smirnov; None without a fit.
        law: The law that was fitted.
    """

    bits: float
    most: float
    p_value: float
    method: Method
    candidates: int
    fit_p_value: float | None = None
    law: SkewNormal | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the number: a law that was fitted does fit.

        That is no proof of its tail, where the sample has no points.
        """
        return self.fit_p_value is None or self.fit_p_value > _LEVEL


def exposure_by_rank(secret: float, candidates: ArrayLike) -> Exposure:
    """The exposure by the rank among all possible secrets.

    Ties count against the exposure: the rank is the last of those with the secret's log-perplexity.

    Args:
        secret: Its log-perplexity.
        candidates: Those of all possible secrets, itself among them.

    >>> exposure_by_rank(2.0, [5.0, 2.0, 1.0, 8.0]).bits
    1.0
    """
    values = _values("candidates", candidates)
    rank = int(np.count_nonzero(values <= secret))
    if not rank:
        raise InvalidArgument(
            f"candidates must hold the secret's own log-perplexity {secret!r}; none is as low"
        )
    return exposure_of_rank(rank, len(values))


def exposure_of_rank(rank: int, size: int) -> Exposure:
    """The exposure of a known rank, counted from 1, among ``size`` possible secrets.

    >>> round(exposure_of_rank(1, 10**9).bits, 2)
    29.9
    """
    place, most = whole("rank", rank), math.log2(whole("size", size, at_least=2))
    if place > size:
        raise InvalidArgument(f"rank must be at most the size {size}, got {rank!r}")
    return Exposure(most - math.log2(place), most, place / size, "rank", size - 1)


def exposure_by_sampling(secret: float, sample: ArrayLike) -> Exposure:
    """The exposure by the rank among a random sample of the possible secrets.

    With n of them the p-value is (1 + those that are as likely)/(n + 1): whoever the secret is, its
    place among n + 1 equals is uniform. Exposures above log2(n + 1) cannot be seen.

    Args:
        secret: Its log-perplexity.
        sample: Those of secrets that were drawn at random, independently of it.

    >>> exposure_by_sampling(0.5, [1.0, 2.0, 3.0]).bits
    2.0
    """
    values = _values("sample", sample)
    count = len(values) + 1
    share = (1 + int(np.count_nonzero(values <= _own(secret)))) / count
    return Exposure(-math.log2(share), math.log2(count), share, "sample", len(values))


def exposure_by_extrapolation(secret: float, sample: ArrayLike, *, size: int) -> Exposure:
    """The exposure by a skew normal law, fitted to a sample (Carlini et al. 2019, section 4.3).

    Args:
        secret: Its log-perplexity.
        sample: Those of secrets that were drawn at random; 100 at least.
        size: How many secrets are possible; exposure cannot be above its log2.

    The fit is judged by the Kolmogorov–Smirnov distance from the sample it was fitted to. Its
    p-value is too large for that reason: a small one rejects, a large one is no proof.

    >>> draw = np.random.default_rng(1)
    >>> found = exposure_by_extrapolation(20.0, 50.0 + 5.0 * draw.normal(size=10_000), size=10**9)
    >>> found.holds, 26 < found.bits < 32  # the law itself: 29.9
    (True, True)
    """
    values = _values("sample", sample)
    most = math.log2(whole("size", size, at_least=2))
    law = fit_skew_normal(values)
    bits = min(-law.log_cdf(_own(secret)) / math.log(2.0), most)
    fit = gap_p_value(largest_gap(values, law), len(values))
    return Exposure(bits, most, 2.0**-bits, "skew-normal", len(values), fit, law)


def random_exposure(share: float) -> float:
    """The exposure that a secret which the model never saw exceeds with this probability.

    >>> random_exposure(0.25)
    2.0
    """
    tail = probability("share", share)
    return math.inf if tail == 0.0 else -math.log2(tail)


def combined_p_value(p_values: Iterable[float]) -> float:
    """How likely several secrets, all unknown to the model, are to be so exposed together.

    Fisher's method: minus twice the sum of n logarithms has at most the tail of χ² with 2n degrees
    of freedom if all are independent and P(p ≤ x) ≤ x for each.

    >>> round(combined_p_value([0.01]), 12), round(combined_p_value([0.1, 0.1]), 4)
    (0.01, 0.0561)
    """
    values = [probability("p_values", value) for value in p_values]
    if not values:
        raise InvalidArgument("p_values must hold at least one, got none")
    if min(values) == 0.0:
        return 0.0
    return float(chdtrc(2 * len(values), -2.0 * math.fsum(map(math.log, values))))


def _own(secret: float) -> float:
    """A secret's log-perplexity: NaN, of which nothing is as low, would pass for an exposed one."""
    if math.isnan(secret):
        raise InvalidArgument("secret must be a log-perplexity, got NaN; the model came to nothing")
    return float(secret)


def _values(name: str, given: ArrayLike) -> NDArray[np.float64]:
    values = nan_where_masked(given)
    if values.ndim != 1 or not len(values) or np.isnan(values).any():
        raise InvalidArgument(
            f"{name} must be a list of log-perplexities without NaN or anything masked, got an "
            f"array of shape {values.shape}"
        )
    return values


# ---- the skew normal law: density, distribution with its far tail, fit, and a check of the fit
#
# Azzalini 1985: with shape α the density is 2 φ(z) Φ(αz), z = (x - location)/scale; its
# distribution function is Φ(z) - 2 T(z, α) with Owen's T.

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


# ---- what exposed secrets say of ε

RANDOM_SECRETS = (
    "each secret was drawn at random from all possible ones, and all its copies were in one unit"
)


def exposure_bound(p_values: Iterable[float], delta: float, confidence: float = 0.95) -> LowerBound:
    """The least ε under which secrets can be as exposed as these.

    A model that was trained without a secret's unit knows nothing of the secret, whose p-value is
    then at most t with probability t at most. So with the unit that has a probability of at most
    e^ε t + δ, and one of m secrets is there with probability m (e^ε t + δ) at most. Set to the
    failure rate α and solved at the least p-value, that is ε ≥ ln((α/m - δ)/t). The secrets need
    not be independent, and may be in one model.

    Args:
        p_values: Of all secrets that were planted, also of those that were not found.
        delta: The δ that the bound is meant for.
        confidence: Of the bound.

    Guarantee:
        As for ``LowerBound``, under add-remove, where a unit is left out.

    >>> round(exposure_bound([1e-9], 1e-5).epsilon, 2)
    17.73
    >>> exposure_bound([0.2, 0.7, 0.4], 1e-5).epsilon
    0.0
    """
    values = [probability("p_values", value) for value in p_values]
    if not values or min(values) == 0.0:
        raise InvalidArgument("p_values must hold at least one, and none may be 0")
    failed, least = delta_of(delta), min(values)
    spare = failure_rate(confidence) / len(values) - failed
    return LowerBound(
        max(0.0, math.log(spare / least)) if spare > 0.0 else 0.0,
        failed,
        confidence,
        "the most exposed secret",
        RANDOM_SECRETS,
        (("secrets", len(values)), ("least_p_value", least)),
    )
