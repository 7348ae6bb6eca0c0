"""DP-SGD: the plan, and the session that carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazily

if TYPE_CHECKING:
    from tacit.training.fit import Fit, Prepared, Schedule
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan
    from tacit.training.replace_batchnorm import Replacement, fix, fixes
    from tacit.training.sampling import FullBatch, Poisson, TruncatedPoisson
    from tacit.training.session import Session, private
    from tacit.training.styles import AdaptiveQuantile, Automatic, Flat, PerGroup, PerLayer

# A plan can be made and read without PyTorch: modules are imported when a name is first used.
_HOME = {
    "fit": ("Fit", "Prepared", "Schedule"),
    "replace_batchnorm": ("Replacement", "fix", "fixes"),
    "performance": ("Performance",),
    "plan": ("Plan",),
    "sampling": ("FullBatch", "Poisson", "TruncatedPoisson"),
    "session": ("Session", "private"),
    "styles": ("AdaptiveQuantile", "Automatic", "Flat", "PerGroup", "PerLayer"),
}
_MODULE_OF = {name: f"tacit.training.{home}" for home, names in _HOME.items() for name in names}

__all__ = [
    "AdaptiveQuantile",
    "Automatic",
    "Fit",
    "Flat",
    "FullBatch",
    "PerGroup",
    "PerLayer",
    "Performance",
    "Plan",
    "Poisson",
    "Prepared",
    "Replacement",
    "Schedule",
    "Session",
    "TruncatedPoisson",
    "fix",
    "fixes",
    "private",
]


__getattr__ = lazily(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return sorted(__all__)
