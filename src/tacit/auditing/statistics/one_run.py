"""Lower bounds from one run with many canaries, each of them in or out by its own fair coin.

An attack guesses for r of m canaries whether they were in, and v guesses are right. It may choose
which r to guess by what it sees, but r itself is fixed beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, expit, gammaln, ndtr, ndtri

from tacit._validation import open_probability, whole
from tacit.accounting import epsilon as epsilon_of
from tacit.accounting import gaussian_profile, profile
from tacit.auditing.statistics.bound import (
    LowerBound,
    delta_of,
    failure_rate,
    last_refuted,
    pair_for,
)
from tacit.auditing.statistics.tradeoffs import PairsTradeOff
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting import Adjacency, Event, PrivacyCurve


COINS = "each canary was in by its own fair coin, and the number of guesses was fixed beforehand"
_MOST = 700.0


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """``right`` of ``made`` guesses about ``canaries`` canaries.

    >>> Guesses(canaries=1000, made=100, right=95)
    Guesses(canaries=1000, made=100, right=95)
    """

    canaries: int
    made: int
    right: int

    def __post_init__(self) -> None:
        if not (
            whole("right", self.right, at_least=0)
            <= whole("made", self.made)
            <= whole("canaries", self.canaries)
        ):
            raise InvalidArgument(f"right must be at most made, and made canaries, got {self!r}")


def one_run(
    guesses: Guesses, delta: float, confidence: float = 0.95, *, changes: int = 1
) -> LowerBound:
    """The ε below which (ε, δ)-differential privacy contradicts the guesses.

    Where a canary's two cases differ in several ``changes``, what group privacy makes of (ε, δ) is
    tested.

    Guarantee:
        As for ``LowerBound``, by Steinke, Nasr & Jagielski (2023), Theorem 5.2.

    >>> round(one_run(Guesses(canaries=1000, made=100, right=95), 1e-5).epsilon, 4)
    2.1652
    """
    failed, failure = delta_of(delta), failure_rate(confidence)
    apart = whole("changes", changes)

    def refutes(value: float) -> bool:
        return one_run_p_value(guesses, *pair_for(value, failed, apart)) <= failure

    epsilon = last_refuted(refutes, _MOST)
    return LowerBound(
        epsilon, failed, confidence, "one run, counts of right guesses", COINS, counted(guesses)
    )


def one_run_p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest chance, under (ε, δ)-differential privacy, of as many right guesses.

    min(1, β + 2mδα*), with p = e^ε/(1 + e^ε), β = P[Bin(r, p) ≥ v] and
    α* = max_{1≤i≤v} P[v - i ≤ Bin(r, p) < v]/i (Steinke et al. 2023, Theorem 5.2 and Appendix D).
    """
    made, right = guesses.made, guesses.right
    if right == 0:
        return 1.0
    p = float(expit(epsilon))
    beta = float(betainc(right, made - right + 1, p))
    if delta == 0.0:
        return beta
    below = np.arange(right - 1, -1, -1)
    chances = np.exp(
        gammaln(made + 1.0)
        - gammaln(below + 1.0)
        - gammaln(made - below + 1.0)
        + below * math.log(p)
        - (made - below) * np.logaddexp(0.0, epsilon)
    )
    worst = float(np.max(np.cumsum(chances) / np.arange(1, right + 1)))
    return min(1.0, beta + 2.0 * guesses.canaries * delta * worst)


def counted(guesses: Guesses) -> tuple[tuple[str, float], ...]:
    """The counts by name, for a bound to carry."""
    return (("canaries", guesses.canaries), ("made", guesses.made), ("right", guesses.right))


# ---- against a whole trade-off curve (Mahloujifar, Melis & Chaudhuri 2024)
#
# Let R_i and H_i be the expected shares of the m canaries that are guessed right and wrong,
# counting only runs with at least i right guesses. Guessing a canary's coin by "guessed right, with
# more than i right" is an attack with TPR R_{i+1}; had the coin fallen otherwise, the same guess
# would have been wrong, with at least i right. So H_i is at least FPR(R_{i+1}), the fewest false
# positives that the curve allows. In a run with exactly i right guesses the other r - i are wrong,
# so that R_i - R_{i+1} = i/(r - i)·(H_i - H_{i+1}). Suppose that v or more are right with
# probability τ. Then R_v + H_v = τr/m, with v of every r right at the least; going down to i = 0 by
# the two rules must not exceed R_0 + H_0 = r/m. If it does, the probability is below τ.

_SMALLEST = 1e-12


def refutes_curve(guesses: Guesses, least_fpr: Callable[[float], float], failure: float) -> bool:
    """Whether as many right guesses have a probability below ``failure`` under a trade-off curve.

    Args:
        guesses: What the attack guessed.
        least_fpr: The fewest false positives at a true-positive rate: the curve's inverse.
        failure: The probability τ.
    """
    made, right = guesses.made, guesses.right
    all_shares = made / guesses.canaries
    hits = failure * right / guesses.canaries
    misses = failure * (made - right) / guesses.canaries
    for i in range(right - 1, -1, -1):
        more = max(misses, least_fpr(hits))
        hits, misses = hits + i / (made - i) * (more - misses), more
        if hits + misses > all_shares:
            return True
    return False


def one_run_gaussian(guesses: Guesses, delta: float, confidence: float = 0.95) -> LowerBound:
    """The μ below which μ-GDP contradicts the guesses, as the Gaussian's ε at δ.

    Guarantee:
        "Not μ'-GDP for any μ' < μ" holds as for ``LowerBound`` by Mahloujifar, Melis & Chaudhuri
        (2024). The ε is that of a Gaussian mechanism: it tests a Gaussian claim, and no other.

    >>> from tacit.auditing import Guesses
    >>> round(one_run_gaussian(Guesses(canaries=1000, made=100, right=95), 1e-5).epsilon, 4)
    3.3233
    """
    failed, failure = open_probability("delta", delta), failure_rate(confidence)

    def refuted(mu: float) -> bool:
        return refutes_curve(guesses, lambda tpr: float(ndtr(ndtri(tpr) - mu)), failure)

    mu = last_refuted(refuted, 37.0)
    return LowerBound(
        gaussian_profile.epsilon(mu, failed),
        failed,
        confidence,
        "one run, Gaussian differential privacy",
        f"the mechanism's trade-off curve is that of a Gaussian; {COINS}",
        (*counted(guesses), ("mu", mu)),
    )


def one_run_family(
    guesses: Guesses,
    family: Callable[[float], Event],
    delta: float,
    confidence: float = 0.95,
    *,
    adjacency: Adjacency = "add-remove",
) -> LowerBound:
    """The ε at δ of the least private member of a family of events that the guesses contradict.

    Args:
        guesses: What the attack guessed.
        family: From noise to the event; more noise is more private. The noise is looked for between
            1e-3 and 1e3.
        delta: The δ at which the ε is given.
        confidence: How often the bound holds.
        adjacency: What being in or out means.

    Guarantee:
        The events with more noise are contradicted by Mahloujifar et al. (2024), with the exact
        accountant's trade-off curve of each. The ε is that of a member of the family.

    The accountant is asked some 1,500 times: half a second for a Gaussian, most of a minute for a
    sampled one. ``one_run_curve_p_value`` tests a single claim in a second.

    >>> from tacit.accounting import Gaussian
    >>> from tacit.auditing import Guesses
    >>> guesses = Guesses(canaries=1000, made=100, right=95)
    >>> round(one_run_family(guesses, Gaussian, 1e-5).epsilon, 2)
    3.32
    """
    failed, failure = open_probability("delta", delta), failure_rate(confidence)

    def refuted(log_quiet: float) -> bool:
        curve = profile(family(1e3 * math.exp(-log_quiet)), adjacency)
        return refutes_curve(guesses, _least_fpr(curve), failure)

    depth = last_refuted(refuted, math.log(1e6), within=2e-4)
    noise = 1e3 * math.exp(-depth)
    found = epsilon_of(family(noise), failed, adjacency=adjacency) if depth > 0.0 else 0.0
    return LowerBound(
        found,
        failed,
        confidence,
        "one run, trade-off curves of a family of events",
        f"the mechanism's trade-off curve is that of one of the family; {COINS}",
        (*counted(guesses), ("noise", noise)),
    )


def one_run_curve_p_value(guesses: Guesses, curve: PrivacyCurve) -> float:
    """The smallest failure rate at which the guesses contradict an event's privacy curve.

    A claim is contradicted at 99.99 % if it is at most 1e-4; below 1e-12 it is not resolved.

    >>> from tacit.accounting import Gaussian
    >>> from tacit.auditing import Guesses
    >>> guesses = Guesses(canaries=1000, made=100, right=95)
    >>> one_run_curve_p_value(guesses, profile(Gaussian(4.0))) < 1e-4
    True
    """
    least_fpr = _least_fpr(curve)
    depth = last_refuted(
        lambda value: refutes_curve(guesses, least_fpr, math.exp(-value)),
        -math.log(_SMALLEST),
        within=1e-6,
    )
    return math.exp(-depth)


def _least_fpr(curve: PrivacyCurve) -> Callable[[float], float]:
    pairs = PairsTradeOff.of_curve(curve)
    return lambda tpr: float(pairs.fpr(np.asarray(tpr)))
