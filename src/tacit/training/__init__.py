"""DP-SGD: the plan, and the session that carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy

if TYPE_CHECKING:
    from tacit.training.correlation import Anticorrelated, Banded, Buffered, InverseBanded
    from tacit.training.fit import Fit, Prepared, Schedule
    from tacit.training.lot import Lot
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan
    from tacit.training.progress import EpochRecord, StepRecord
    from tacit.training.replace_batchnorm import Replacement, fix, fixes
    from tacit.training.sampling import Allocation, Cyclic, FullBatch, Poisson, TruncatedPoisson
    from tacit.training.session import Session, private
    from tacit.training.styles import AdaptiveQuantile, Automatic, Flat, PerGroup, PerLayer
    from tacit.training.verification import SensitivityCheck

__all__ = [
    "AdaptiveQuantile",
    "Allocation",
    "Anticorrelated",
    "Automatic",
    "Banded",
    "Buffered",
    "Cyclic",
    "EpochRecord",
    "Fit",
    "Flat",
    "FullBatch",
    "InverseBanded",
    "Lot",
    "PerGroup",
    "PerLayer",
    "Performance",
    "Plan",
    "Poisson",
    "Prepared",
    "Replacement",
    "Schedule",
    "SensitivityCheck",
    "Session",
    "StepRecord",
    "TruncatedPoisson",
    "fix",
    "fixes",
    "private",
]

# A plan can be made and read without PyTorch: modules are imported when a name is first used.
__getattr__, __dir__ = lazy(__name__)
