"""How much noise a run had, over what its canaries added: a bound within the plan's family.

Let a canary that is sampled add a, and let the noise of a step have the deviation s, so that the
plan says a/s = 1/σ. Over T steps at the rate q, a canary that is out has totals N(0, T·s²), one
that is in T·q·a more on average, with T·q·(1-q)·a² more variance. With D the difference of the two
samples' means and S the deviation of those that are out, D/S has for each λ = a/s the law of

    (√T·q·λ + e·Z)/√(χ²(ν)/ν),   e² = (1 + λ²·q·(1-q))/n_in + 1/n_out,   ν = n_out - 1,

which is e times a noncentral t. The bound is the least λ at which a ratio as large as the one seen
has the failure rate as its probability, told as the ε of the plan with σ = 1/λ.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import open_probability
from tacit.auditing.statistics.bound import LowerBound, failure_rate
from tacit.auditing.statistics.gaussian_scores import noncentral_t_tail
from tacit.auditing.statistics.searching import last_refuted
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.auditing.statistics.scores import Scores
    from tacit.training.plan import Plan

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
