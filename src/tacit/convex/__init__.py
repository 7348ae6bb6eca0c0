"""Convex learning with differential privacy: linear models as scikit-learn estimators.

`LogisticRegression`, `LinearRegression` and `HuberSvm` learn by perturbing the output or the
objective or by noisy descent; `rates` tells what theory promises of each; `Huberised` is the loss
that clipping optimises. The formulas are in `tacit.convex.objective`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy

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
    from tacit.convex.problem import ConvexTask
    from tacit.convex.theory import Rate, rates

__all__ = [
    "ConvexTask",
    "HuberSvm",
    "Huberised",
    "LinearRegression",
    "LogisticRegression",
    "Rate",
    "cms_noise",
    "kifer_ridge",
    "kifer_sigma",
    "profile_delta",
    "profile_sigma",
    "rates",
    "redberg_delta",
    "redberg_sigma",
]

# Imported when first used: only the estimators need scikit-learn.
__getattr__, __dir__ = lazy(__name__)
