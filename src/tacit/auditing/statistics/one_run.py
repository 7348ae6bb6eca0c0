"""Lower bounds from one run with many canaries, each of them in or out by its own fair coin.

An attack guesses for r of m canaries whether they were in, and v guesses are right. It may choose
which r to guess by what it sees, but r itself is fixed beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, expit, gammaln

from tacit._validation import whole
from tacit.auditing.statistics.bound import LowerBound, delta_of, failure_rate
from tacit.auditing.statistics.searching import last_refuted
from tacit.auditing.statistics.several_changes import pair_for
from tacit.errors import InvalidArgument

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
