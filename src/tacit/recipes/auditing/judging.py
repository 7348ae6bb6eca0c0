"""From an attack's scores to a verdict on the claim: which bound is valid depends on who chose.

Where coins decided who is in, guesses about many records of one model are evidence as they stand
(``one_run_audit``). Where the members are simply the training data, records of one model are no
independent trials, and a bound from them says what it takes for granted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tacit.auditing import every_threshold, judge
from tacit.auditing.canaries import guess, one_run_audit
from tacit.auditing.statistics.one_run_curves import refutes_curve
from tacit.auditing.statistics.searching import last_refuted
from tacit.auditing.statistics.tradeoffs import PairsTradeOff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tacit.accounting import PrivacyCurve
    from tacit.auditing import Guesses, LowerBound, Scores, Verdict

HALF: Final = 0.5e-4  # of the failure rate at which a claim is contradicted
_DEEPEST: Final = -math.log(1e-12)  # below it a p-value is not resolved
EXCHANGEABLE: Final = (
    "that training and held-out records are exchangeable and each an independent trial, which "
    "records of one model are only roughly"
)


def by_thresholds(claimed: float, delta: float, scores: Mapping[str, Scores]) -> Verdict:
    """The verdict on a run: its members were not drawn by coins, and the bound says so."""
    return judge(claimed, [partial(_described, one, delta) for one in scores.values()])


@final
@dataclass(frozen=True, slots=True)
class ByCoins:
    """The verdict where coins decided, by two tests that share the failure rate of 1e-4.

    Attributes:
        verdict: The claimed ε at δ against ``one_run_audit``, at 99.995 %.
        p_value: How likely so many right guesses are, at most, under the whole trade-off curve
            that the claim follows from, over all attacks and numbers of guesses. With δ = 1e-5 the
            first test cannot reach 99.99 % however good the guesses are; this one can.
    """

    verdict: Verdict
    p_value: float

    @property
    def contradicted(self) -> bool:
        """Whether either test contradicts the claim."""
        return self.verdict.contradicted or self.p_value <= HALF

    def describe(self) -> str:
        """Both in words."""
        if self.verdict.contradicted or not self.contradicted:
            return self.verdict.describe()
        shown = self.verdict.shown
        return (
            f"the evidence contradicts the claim epsilon = {self.verdict.claimed:g} at delta = "
            f"{shown.delta:g}: under the trade-off curve that it follows from, so many right "
            f"guesses have a probability of {self.p_value:.2g} at most; the strongest attack shows "
            f"epsilon >= {shown.epsilon:.3g} at {100 * shown.confidence:g}% confidence "
            f"({shown.method}; it assumes {shown.assumption})"
        )


def by_guesses(
    claimed: float,
    delta: float,
    scores: Mapping[str, NDArray[np.float64]],
    members: NDArray[np.bool_],
    curve: PrivacyCurve,
) -> ByCoins:
    """The verdict where a fair coin for each record decided whether it was in.

    ``curve`` is what the claim follows from.

    Guarantee:
        A true claim is contradicted with probability 1e-4 at most, over all attacks and all numbers
        of guesses.
    """
    verdict = judge(
        claimed,
        [partial(one_run_audit, one, members, delta) for one in scores.values()],
        decisive=1.0 - HALF,
    )
    limit = PairsTradeOff.of_curve(curve)  # once: for a sampled mechanism it takes seconds
    every = [
        _p_value(guess(one, members, made), limit)
        for one in scores.values()
        for made in _numbers(len(members))
    ]
    return ByCoins(verdict, min(1.0, len(every) * min(every)))


def _p_value(found: Guesses, limit: PairsTradeOff) -> float:
    """As ``one_run_curve_p_value``, for a curve that is there already."""

    def least_fpr(tpr: float) -> float:
        return float(limit.fpr(np.asarray(tpr)))

    depth = last_refuted(
        lambda value: refutes_curve(found, least_fpr, math.exp(-value)), _DEEPEST, within=1e-3
    )
    return math.exp(-depth)


def _numbers(records: int) -> list[int]:
    """How many records are guessed, fixed beforehand: half of them, and a tenth."""
    return sorted({max(1, records // 2), max(1, records // 10)})


def _described(scores: Scores, delta: float, confidence: float) -> LowerBound:
    return replace(every_threshold(scores, delta, confidence), assumption=EXCHANGEABLE)
