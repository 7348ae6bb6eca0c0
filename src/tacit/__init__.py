"""tacit: deep learning with differential privacy, and the proof of what it gave away."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit import (
        accounting,
        auditing,
        convex,
        data,
        ledger,
        losses,
        mechanisms,
        models,
        recipes,
        runs,
        selection,
        training,
        transfer,
    )
    from tacit.ledger.ledger import Ledger
    from tacit.recipes.named import load
    from tacit.runs.fit import fit
    from tacit.statement import Statement
    from tacit.training.fit import Prepared, Schedule
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan
    from tacit.training.session import private

__version__ = "0.1.0"

# Imported when first used: accounting must not cost the import of PyTorch.
_HOME = {
    "Ledger": "tacit.ledger.ledger",
    "Performance": "tacit.training.performance",
    "Plan": "tacit.training.plan",
    "Prepared": "tacit.training.fit",
    "Schedule": "tacit.training.fit",
    "Statement": "tacit.statement",
    "fit": "tacit.runs.fit",
    "load": "tacit.recipes.named",
    "private": "tacit.training.session",
}
_ROOMS = (
    "accounting",
    "auditing",
    "convex",
    "data",
    "ledger",
    "losses",
    "mechanisms",
    "models",
    "recipes",
    "runs",
    "selection",
    "training",
    "transfer",
)

__all__ = [
    "Ledger",
    "Performance",
    "Plan",
    "Prepared",
    "Schedule",
    "Statement",
    "__version__",
    "accounting",
    "auditing",
    "convex",
    "data",
    "fit",
    "ledger",
    "load",
    "losses",
    "mechanisms",
    "models",
    "private",
    "recipes",
    "runs",
    "selection",
    "training",
    "transfer",
]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"tacit.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
