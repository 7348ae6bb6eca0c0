"""Convex learning with differential privacy: linear models as scikit-learn estimators.

`LogisticRegression`, `LinearRegression` and `HuberSvm` learn by perturbing the output or the
objective or by noisy descent; `rates` tells what theory promises of each; `Huberised` is the loss
that clipping optimises. The formulas are in `tacit.convex.objective`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazily

if TYPE_CHECKING:
    from tacit.convex.estimators import HuberSvm, LinearRegression, LogisticRegression
    from tacit.convex.losses import Huberised
    from tacit.convex.objective import (
        cms_noise,
        kifer_ridge,
        kifer_sigma,
        profile_delta,
        profile_sigma,
        redberg_delta,
        redberg_sigma,
    )
    from tacit.convex.problem import Task
    from tacit.convex.theory import Rate, rates

# Imported when first used: only the estimators need scikit-learn.
_HOME = {
    "HuberSvm": "estimators",
    "Huberised": "losses",
    "LinearRegression": "estimators",
    "LogisticRegression": "estimators",
    "Rate": "theory",
    "Task": "problem",
    "cms_noise": "objective",
    "kifer_ridge": "objective",
    "kifer_sigma": "objective",
    "profile_delta": "objective",
    "profile_sigma": "objective",
    "rates": "theory",
    "redberg_delta": "objective",
    "redberg_sigma": "objective",
}

__all__ = [
    "HuberSvm",
    "Huberised",
    "LinearRegression",
    "LogisticRegression",
    "Rate",
    "Task",
    "cms_noise",
    "kifer_ridge",
    "kifer_sigma",
    "profile_delta",
    "profile_sigma",
    "rates",
    "redberg_delta",
    "redberg_sigma",
]


__getattr__ = lazily(__name__, {name: f"tacit.convex.{home}" for name, home in _HOME.items()})


def __dir__() -> list[str]:
    return sorted(__all__)
