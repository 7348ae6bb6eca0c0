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
from scipy.special import chdtrc

from tacit._validation import probability, whole
from tacit.auditing.secrets.skew_normal import SkewNormal, fit_skew_normal, gap_p_value, largest_gap
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
    share = (1 + int(np.count_nonzero(values <= secret))) / count
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
    bits = min(-law.log_cdf(secret) / math.log(2.0), most)
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


def _values(name: str, given: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(given, np.float64)
    if values.ndim != 1 or not len(values) or np.isnan(values).any():
        raise InvalidArgument(
            f"{name} must be a list of log-perplexities without NaN, got an array of shape "
            f"{values.shape}"
        )
    return values
