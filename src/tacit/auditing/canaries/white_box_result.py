"""What a white-box run found: canaries' scores and coins, bounds from them, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._validation import open_probability
from tacit.auditing.canaries.guesses import guess, one_run_audit
from tacit.auditing.statistics.bound import LowerBound, failure_rate, judge, last_refuted
from tacit.auditing.statistics.gaussian_scores import gaussian_scores, noncentral_t_tail
from tacit.auditing.statistics.one_run import one_run, one_run_curve_p_value
from tacit.auditing.statistics.scores import Scores
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.statistics.bound import Estimate, Verdict
    from tacit.auditing.statistics.one_run import Guesses
    from tacit.training.plan import Plan


@dataclass(frozen=True, eq=False)
class WhiteBoxResult:
    """One white-box run.

    Attributes:
        plan: What was run: the user's plan, with the canaries among its examples.
        delta: The δ of claim and bounds.
        claimed: The plan's ε at δ, by the exact accountant.
        included: Each canary's coin.
        scores: Each canary's score: the sum over steps of ln of the ratio of densities, with the
            canary and without, under the plan.
        totals: Each canary's coordinate of the released gradients, added up over the steps, in
            clips.
        changes: How many records' changes a canary's two cases are apart: 2 where one that is not
            in is in with the opposite gradient, under add-remove.
    """

    plan: Plan
    delta: float
    claimed: float
    included: NDArray[np.bool_]
    scores: NDArray[np.float64]
    totals: NDArray[np.float64]
    changes: int = 1

    @property
    def trials(self) -> Scores:
        """The scores of canaries that were in, and of those that were out.

        They are independent if the engine is right: each canary has a coordinate, a coin, a sample
        and noise of its own.
        """
        return Scores(self.scores[self.included], self.scores[~self.included])

    def guesses(self, made: int) -> Guesses:
        """Guesses by the highest and the lowest scores."""
        return guess(self.scores, self.included, made)

    def estimates(self) -> tuple[Estimate, ...]:
        """The bounds that ``verdict`` chooses the strongest of.

        ``gaussian_scores`` is exact for full batches, where scores are Gaussian. Where lots are
        sampled they are so only about, and in the limit of many steps; a sampled Gaussian is less
        private at small δ than the Gaussian that it looks like, so that the bound errs on the low
        side. There ``plan_noise`` joins, which finds more. ``one_run_audit`` assumes the coins
        alone.
        """
        totals = Scores(self.totals[self.included], self.totals[~self.included])
        found: tuple[Estimate, ...] = (
            lambda confidence: gaussian_scores(
                self.trials, self.delta, confidence, changes=self.changes
            ),
            partial(
                one_run_audit,
                self.scores,
                self.included,
                self.delta,
                bound=partial(one_run, changes=self.changes),
            ),
        )
        if self.plan.sample_rate < 1.0:
            found += (lambda confidence: plan_noise(totals, self.plan, self.delta, confidence),)
        return found

    def verdict(self, *, shown: float = 0.95, decisive: float = 0.9999) -> Verdict:
        """Holds the plan's ε against the strongest of the bounds.

        Guarantee:
            As for ``judge``.
        """
        return judge(self.claimed, self.estimates(), shown=shown, decisive=decisive)

    def curve_p_value(self, made: int | None = None) -> float:
        """How likely as many right guesses are, at most, under the plan's own trade-off curve.

        ``made`` guesses, or a fifth of the canaries. It assumes the coins alone, and tests all of
        the plan's curve, not its ε at one δ (Mahloujifar, Melis & Chaudhuri 2024).
        """
        from tacit.accounting import group, profile  # noqa: PLC0415 - SciPy only when it is asked

        guesses = self.guesses(made if made is not None else max(1, len(self.scores) // 5))
        event = group(self.plan.event, self.changes) if self.changes > 1 else self.plan.event
        return one_run_curve_p_value(guesses, profile(event, self.plan.adjacency))

    def as_dict(self) -> dict[str, Any]:
        """What was found, in JSON's types; no canary's own score."""
        verdict = self.verdict()
        return {
            "claimed": self.claimed,
            "delta": self.delta,
            "canaries": len(self.scores),
            "included": int(self.included.sum()),
            "contradicted": verdict.contradicted,
            "words": verdict.describe(),
            "bounds": [estimate(0.95).as_dict() for estimate in self.estimates()],
        }


# ---- how much noise a run had, over what its canaries added: a bound within the plan's family
#
# Let a canary that is sampled add a, and let the noise of a step have the deviation s, so that the
# plan says a/s = 1/σ. Over T steps at the rate q, a canary that is out has totals N(0, T·s²), one
# that is in T·q·a more on average, with T·q·(1-q)·a² more variance. With D the difference of the
# two samples' means and S the deviation of those that are out, D/S has for each λ = a/s the law of
#
#     (√T·q·λ + e·Z)/√(χ²(ν)/ν),   e² = (1 + λ²·q·(1-q))/n_in + 1/n_out,   ν = n_out - 1,
#
# which is e times a noncentral t. The bound is the least λ at which a ratio as large as the one
# seen has the failure rate as its probability, expressed as the ε of the plan with σ = 1/λ.

PLAN_NOISE = (
    "the run sampled by its plan, and differs from it in the ratio of noise to clip at most; the "
    "mean over all canaries is Gaussian"
)
_LOUDEST, _QUIETEST = 1e6, 1e-6


def plan_noise(totals: Scores, plan: Plan, delta: float, confidence: float = 0.95) -> LowerBound:
    """The ε at δ of ``plan`` with the largest noise that the canaries' totals leave possible.

    Where the plan samples, it finds far more than ``gaussian_scores``: a sampled Gaussian's
    trade-off curve is not that of a Gaussian, and at small δ it is worse. In return it takes the
    sampling for granted.

    Guarantee:
        As for ``LowerBound``.

    Args:
        totals: Of each canary, the sum over all steps of its coordinate of the released gradients,
            in clips (that is, times lot size over clip).
        plan: What was to be run.
        delta: The δ of the bound.
        confidence: How often it holds.
    """
    failed, failure = open_probability("delta", delta), failure_rate(confidence)
    if len(totals.outside) < 2 or not np.var(totals.outside) > 0.0:
        raise InvalidArgument(
            f"totals.outside must hold two different ones or more, got {len(totals.outside)}"
        )
    most = 1.0 / _QUIETEST
    ratio = last_refuted(lambda one: ratio_p_value(totals, plan, one) <= failure, most)
    noise = 1.0 / max(ratio, 1.0 / _LOUDEST)
    found = replace(plan, noise_multiplier=noise).epsilon(failed) if ratio > 0.0 else 0.0
    return LowerBound(
        found,
        failed,
        confidence,
        "noise of the plan, by Student's statistic of totals",
        PLAN_NOISE,
        (
            ("n_in", len(totals.inside)),
            ("n_out", len(totals.outside)),
            ("noise_multiplier", noise),
        ),
    )


def ratio_p_value(totals: Scores, plan: Plan, ratio: float) -> float:
    """How likely a D/S at least as large is, if a sampled canary adds ``ratio`` times the noise.

    Under replace-one, those that are out were replaced by their opposites: the means lie twice as
    far apart, and S holds their sampling, too.
    """
    n_in, n_out = len(totals.inside), len(totals.outside)
    seen = float(totals.inside.mean() - totals.outside.mean()) / float(totals.outside.std(ddof=1))
    if seen <= 0.0:
        return 1.0
    wide = 1.0 + ratio**2 * plan.sample_rate * (1.0 - plan.sample_rate)
    away = math.sqrt(plan.steps) * plan.sample_rate * ratio
    if plan.adjacency == "replace-one":
        away, wide = 2.0 * away / math.sqrt(wide), 1.0
    error = math.sqrt(wide / n_in + 1.0 / n_out)
    return noncentral_t_tail(seen / error, n_out - 1, away / error)
