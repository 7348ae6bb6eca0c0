"""What a white-box run found: canaries' scores and coins, bounds from them, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tacit.auditing.canaries.guessing import guess, one_run_audit
from tacit.auditing.canaries.plan_noises import plan_noise
from tacit.auditing.statistics.gaussian_scores import gaussian_scores
from tacit.auditing.statistics.one_run import one_run
from tacit.auditing.statistics.one_run_curves import one_run_curve_p_value
from tacit.auditing.statistics.scores import Scores
from tacit.auditing.statistics.verdict import judge

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.auditing.statistics.one_run import Guesses
    from tacit.auditing.statistics.verdict import Estimate, Verdict
    from tacit.training.plan import Plan


@dataclass(frozen=True, eq=False)
class Found:
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
        """How likely so many right guesses are, at most, under the plan's own trade-off curve.

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
            "bounds": [estimate(0.95).to_plain() for estimate in self.estimates()],
        }
