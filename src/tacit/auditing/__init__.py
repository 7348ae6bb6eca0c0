"""Checking a claim: lower bounds on ε that are statistically valid, and the verdict.

An attack gives scores or guesses. From them follow lower bounds on the mechanism's ε, each with its
confidence and with what it takes for granted; ``judge`` holds the strongest against what was
claimed. These names are here. Beside them are ``attacks`` (membership inference), ``secrets``
(exposure and extraction), ``canaries`` (audits of one run), ``mechanism_audits`` and ``replay``,
the self-test of an engine.

>>> import numpy as np
>>> draw = np.random.default_rng(1)
>>> scores = Scores(1.0 + draw.laplace(size=1000), draw.laplace(size=1000))
>>> verdict = judge(2.0, lambda confidence: every_threshold(scores, 0.0, confidence))
>>> verdict.contradicted, round(verdict.shown.epsilon, 2)
(False, 0.83)
"""

from __future__ import annotations

from tacit.auditing.statistics.bound import Estimate, LowerBound, Verdict, judge
from tacit.auditing.statistics.gaussian_scores import gaussian_scores
from tacit.auditing.statistics.one_run import (
    Guesses,
    one_run,
    one_run_curve_p_value,
    one_run_family,
    one_run_gaussian,
    one_run_p_value,
)
from tacit.auditing.statistics.scores import (
    Rates,
    Scores,
    clopper_pearson,
    draw_scores,
    gaussian_rates,
)
from tacit.auditing.statistics.thresholds import (
    curve_p_value,
    every_threshold,
    every_threshold_gaussian,
    held_out_threshold,
)

__all__ = [
    "Estimate",
    "Guesses",
    "LowerBound",
    "Rates",
    "Scores",
    "Verdict",
    "clopper_pearson",
    "curve_p_value",
    "draw_scores",
    "every_threshold",
    "every_threshold_gaussian",
    "gaussian_rates",
    "gaussian_scores",
    "held_out_threshold",
    "judge",
    "one_run",
    "one_run_curve_p_value",
    "one_run_family",
    "one_run_gaussian",
    "one_run_p_value",
]
