"""From attacks to evidence: their scores, how well they did, and the verdict on the claim."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tacit.auditing import every_threshold, judge
from tacit.auditing.attacks import ATTACKS, Roc, allowed
from tacit.auditing.canaries import guess, one_run_audit
from tacit.auditing.statistics.bound import last_refuted
from tacit.auditing.statistics.one_run import refutes_curve
from tacit.auditing.statistics.tradeoffs import PairsTradeOff
from tacit.errors import InvalidArgument
from tacit.recipes.auditing.audit_file import AttackFigures, Figure, HitRate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tacit.accounting import PrivacyCurve
    from tacit.auditing import Guesses, LowerBound, Scores, Verdict
    from tacit.auditing.attacks import Measured, Outputs, Shadows


# ---- attacks by name


def attack_names(names: Sequence[str], shadows: int) -> tuple[str, ...]:
    """``names``, each once, if there are such attacks and what they need.

    >>> attack_names(["lira", "lira"], 16)
    ('lira',)
    """
    chosen = tuple(dict.fromkeys(names))
    if not chosen:
        raise InvalidArgument(f"attacks must name at least one; there are {', '.join(ATTACKS)}")
    for name in chosen:
        if name not in ATTACKS:
            close = get_close_matches(str(name), ATTACKS, 1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            raise InvalidArgument(
                f"there is no attack {name!r}; {meant}there are {', '.join(ATTACKS)}"
            )
        if ATTACKS[name].needs_shadows and shadows < 4:
            raise InvalidArgument(
                f"the attack {name!r} needs shadow models, 4 or more, got shadows={shadows}"
            )
    return chosen


def scores_of(name: str, target: Outputs, shadows: Shadows | None) -> NDArray[np.float64]:
    """One score for each example, higher where it was rather a member."""
    return ATTACKS[name](target, shadows)


# ---- how well an attack did, beside what the guarantee allows

RATES: Final = (0.01, 0.001, 0.0001)
POINTS: Final = 200  # of a curve, at most
CONFIDENCE: Final = 0.95


def most_allowed(curve: PrivacyCurve | None) -> tuple[float, ...] | None:
    """What the guarantee allows at ``RATES``, if there is one."""
    return None if curve is None else tuple(allowed(curve, np.array(RATES)).tolist())


def measured(
    name: str, scores: Scores, most: Sequence[float] | None, *, model: str = "the model"
) -> AttackFigures:
    """The numbers of one attack; ``most`` is what ``most_allowed`` gives for what it attacked."""
    roc = Roc(scores)
    bands = roc.bands(CONFIDENCE, points=POINTS)
    rows = np.stack([bands.fpr, bands.tpr, bands.tpr_lower, bands.tpr_upper], axis=1)
    return AttackFigures(
        name=name,
        model=model,
        members=len(scores.inside),
        others=len(scores.outside),
        auc=_figure(roc.auc(CONFIDENCE)),
        advantage=_figure(roc.advantage(CONFIDENCE)),
        found=tuple(
            HitRate(rate, _figure(roc.tpr_at(rate, CONFIDENCE)), limit)
            for rate, limit in zip(RATES, most or (None,) * len(RATES), strict=True)
        ),
        roc=tuple((row[0], row[1], row[2], row[3]) for row in rows.tolist()),
    )


def _figure(found: Measured) -> Figure:
    return Figure(found.value, found.lower, found.upper)


# ---- the verdict: which bound is valid depends on who chose the members
#
# Where coins decided who is in, guesses about many records of one model are evidence as they stand
# (``one_run_audit``). Where the members are simply the training data, records of one model are no
# independent trials, and a bound from them says what it takes for granted.

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
        p_value: How likely as many right guesses are, at most, under the whole trade-off curve
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
            f"{shown.delta:g}: under the trade-off curve that it follows from, as many right "
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
        for made in _guess_numbers(len(members))
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


def _guess_numbers(records: int) -> list[int]:
    """How many records are guessed, fixed beforehand: half of them, and a tenth."""
    return sorted({max(1, records // 2), max(1, records // 10)})


def _described(scores: Scores, delta: float, confidence: float) -> LowerBound:
    return replace(every_threshold(scores, delta, confidence), assumption=EXCHANGEABLE)
