"""The strongest statistic where scores are Gaussian: an interval for the distance of their means.

With scores N(m + μs, s²) of members and N(m, s²) of others, the pair of laws is exactly that of a
Gaussian mechanism with μ = distance over standard deviation. Student's statistic of the two samples
is noncentral t with n_in + n_out - 2 degrees of freedom and noncentrality μ/√(1/n_in + 1/n_out);
the bound is the μ at which a statistic as large as the one seen has the failure rate as its
probability.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import fdtr, fdtrc, gammainc, gammainccinv, gammaincinv, gammaln, ndtr

from tacit._validation import open_probability, whole
from tacit.accounting import gaussian_profile
from tacit.auditing.statistics.bound import LowerBound, failure_rate
from tacit.auditing.statistics.thresholds import every_threshold

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.statistics.scores import Scores

GAUSSIAN_SCORES = (
    "scores are Gaussian with one variance for members and others, also where too few were drawn "
    "to see it; the check of that saw nothing against it"
)
_FEWEST = 20  # the check of the shape says nothing of fewer
_LEVEL = 1e-3  # how often the check fails where it should not
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS


def gaussian_scores(
    scores: Scores, delta: float, confidence: float = 0.95, *, changes: int = 1
) -> LowerBound:
    """The ε at δ of the least μ that Gaussian scores allow; ``every_threshold`` if they are not.

    The check (``gaussian_shape_p_value``) fails for about one set of Gaussian scores in 1,000. What
    that can add to the failure rate is taken from the interval's, so that where scores are Gaussian
    the bound fails no more often than is said, whichever of the two it is; ``method`` and
    ``assumption`` name it. The check is equally strict at every confidence.

    Where the inputs of the two sides differ in several ``changes``, μ is the distance over their
    number: what is μ-GDP for one change is kμ-GDP for k (Dong, Roth & Su 2022, Theorem 2.14). The
    same trials then find a μ of k times the precision.

    Guarantee:
        As for ``LowerBound``. The assumption cannot be proved by looking: the check finds skewness,
        heavy or light tails and unequal variances where the trials suffice for it.

    >>> from tacit.auditing import Scores
    >>> draw = np.random.default_rng(1)
    >>> found = gaussian_scores(Scores(1.0 + draw.normal(size=1000), draw.normal(size=1000)), 1e-5)
    >>> round(found.number("mu"), 3), found.method
    (0.835, 'Gaussian scores, noncentral t')
    >>> gaussian_scores(Scores(1.0 + draw.laplace(size=1000), draw.laplace(size=1000)), 1e-5).method
    'every threshold, tested jointly'
    """
    failed, failure = open_probability("delta", delta), failure_rate(confidence)
    # The bound fails if the interval does, or if both the check and the ranks do.
    spare, of_ranks = (_LEVEL, failure) if failure >= 2.0 * _LEVEL else (0.5 * failure,) * 2
    shape = gaussian_shape_p_value(scores)
    if shape <= _LEVEL:
        by_ranks = every_threshold(scores, failed, 1.0 - of_ranks, changes=changes)
        return replace(by_ranks, confidence=confidence)
    mu = least_distance(scores, failure - spare) / whole("changes", changes)
    return LowerBound(
        gaussian_profile.epsilon(mu, failed),
        failed,
        confidence,
        "Gaussian scores, noncentral t",
        GAUSSIAN_SCORES,
        (
            ("n_in", len(scores.inside)),
            ("n_out", len(scores.outside)),
            ("mu", mu),
            ("shape_p_value", shape),
        ),
    )


def gaussian_shape_p_value(scores: Scores) -> float:
    """How likely scores that look as little Gaussian as these are, if they are Gaussian.

    D'Agostino's tests of skewness and Anscombe & Glynn's of kurtosis, for members and others apart,
    and Fisher's of the ratio of variances, by the union bound over the five. The first four are
    approximate: of 2,000 Gaussian sets of 1,000 a side, 4 had a p-value of 1e-3 or less. It is 0,
    so that the check fails, for fewer than 20 scores a side and for infinite or constant ones.
    """
    from scipy.stats import kurtosistest, skewtest  # noqa: PLC0415 - slow to import, and only here

    sides = (scores.inside, scores.outside)
    if min(map(len, sides)) < _FEWEST or not all(np.isfinite(side).all() for side in sides):
        return 0.0
    spreads = [float(np.var(side, ddof=1)) for side in sides]
    if min(spreads) <= 1e-24 * max(float(np.max(np.abs(side))) for side in sides) ** 2:
        return 0.0
    freedom = [len(side) - 1 for side in sides]
    ratio = spreads[0] / spreads[1]
    found = [2.0 * min(float(fdtr(*freedom, ratio)), float(fdtrc(*freedom, ratio)))]
    for side in sides:
        standard = (side - side.mean()) / side.std()
        found += [float(skewtest(standard).pvalue), float(kurtosistest(standard).pvalue)]
    return min(1.0, len(found) * min(found))


def least_distance(scores: Scores, failure: float) -> float:
    """The μ of Gaussian scores is above this with probability 1 - ``failure``."""
    n_in, n_out = len(scores.inside), len(scores.outside)
    freedom = n_in + n_out - 2
    scale = math.sqrt(1.0 / n_in + 1.0 / n_out)
    squares = sum(
        float(np.sum((side - side.mean()) ** 2)) for side in (scores.inside, scores.outside)
    )
    distance = float(scores.inside.mean() - scores.outside.mean())
    statistic = distance / (math.sqrt(squares / freedom) * scale)

    def excess(noncentrality: float) -> float:
        return noncentral_t_tail(statistic, freedom, noncentrality) - failure

    if statistic <= 0.0 or excess(0.0) >= 0.0:
        return 0.0
    return scale * float(brentq(excess, 0.0, statistic, xtol=1e-12, rtol=1e-12))


def noncentral_t_tail(statistic: float, freedom: int, noncentrality: float) -> float:
    """P(T ≥ statistic > 0) for noncentral t: E[Φ(noncentrality - statistic·S)], S² ~ χ²(ν)/ν.

    Φ is 1 to the left of a place and 0 to the right of another; between them, a Gauss rule.

    >>> round(noncentral_t_tail(2.0, 100, 0.0), 6)
    0.024106
    """
    half = 0.5 * freedom
    ends = np.sqrt(np.array([gammaincinv(half, 1e-15), gammainccinv(half, 1e-15)]) / half)
    low, high = np.clip((noncentrality + np.array([-9.0, 9.0])) / statistic, *ends)
    s = low + (high - low) * _NODES
    between = _WEIGHTS @ (_chi_density(s, freedom) * ndtr(noncentrality - statistic * s))
    return float(gammainc(half, half * low * low) + (high - low) * between)


def _chi_density(s: NDArray[np.float64], freedom: int) -> NDArray[np.float64]:
    """The density of √(χ²(ν)/ν), about its peak at 1."""
    half = 0.5 * freedom
    peak = math.log(2.0) + half * math.log(half) - half - float(gammaln(half))
    return np.asarray(np.exp(peak + (freedom - 1.0) * np.log(s) - half * (s - 1.0) * (s + 1.0)))
