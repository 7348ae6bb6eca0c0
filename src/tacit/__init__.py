"""tacit: deep learning with differential privacy, and proof of what it gives away."""

from __future__ import annotations

from tacit._lazy import lazy

TYPE_CHECKING = False  # as typing has it, which takes longer to import than the rest together
if TYPE_CHECKING:
    from tacit import (
        accounting,
        auditing,
        convex,
        data,
        hf,
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
    from tacit.runs.search import search
    from tacit.statement import Statement
    from tacit.training.correlation import Anticorrelated, Banded, Buffered, InverseBanded
    from tacit.training.fit import Prepared, Schedule
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan
    from tacit.training.session import private

__version__ = "0.2.0"

__all__ = [
    "Anticorrelated",
    "Banded",
    "Buffered",
    "InverseBanded",
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
    "hf",
    "ledger",
    "load",
    "losses",
    "mechanisms",
    "models",
    "private",
    "recipes",
    "runs",
    "search",
    "selection",
    "training",
    "transfer",
]

# Imported when first used: accounting must not cost the import of PyTorch.
__getattr__, __dir__ = lazy(__name__)
