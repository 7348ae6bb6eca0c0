"""One run against a whole trade-off curve (Mahloujifar, Melis & Chaudhuri 2024).

Let R_i and H_i be the expected shares of the m canaries that are guessed right and wrong, counting
only runs with at least i right guesses. Telling a canary's coin by "guessed right, with more than i
right" is an attack with TPR R_{i+1}; had the coin fallen otherwise, the same guess would have been
wrong, with at least i right. So H_i is at least FPR(R_{i+1}), the fewest false positives that the
curve allows. In a run with exactly i right guesses the other r - i are wrong, so that
R_i - R_{i+1} = i/(r - i)·(H_i - H_{i+1}). Suppose that v or more are right with probability τ. Then
R_v + H_v = τr/m, with v of every r right at the least; going down to i = 0 by the two rules must
not exceed R_0 + H_0 = r/m. If it does, the probability is below τ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from tacit._validation import open_probability
from tacit.accounting import epsilon as epsilon_of
from tacit.accounting import gaussian_profile, profile
from tacit.auditing.statistics.bound import LowerBound, failure_rate
from tacit.auditing.statistics.one_run import COINS, counted
from tacit.auditing.statistics.searching import last_refuted
from tacit.auditing.statistics.tradeoffs import PairsTradeOff

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting import Adjacency, Event, PrivacyCurve
    from tacit.auditing.statistics.one_run import Guesses

_SMALLEST = 1e-12


def refutes_curve(guesses: Guesses, least_fpr: Callable[[float], float], failure: float) -> bool:
    """Whether so many right guesses have a probability below ``failure`` under a trade-off curve.

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
    """The μ below which μ-GDP contradicts the guesses, told as the Gaussian's ε at δ.

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
        delta: The δ at which the ε is told.
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
