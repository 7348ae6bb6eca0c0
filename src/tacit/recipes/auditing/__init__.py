"""Audits of runs and recipes: attacks by the same code that trained, and the verdict on the claim.

>>> from tacit.recipes import auditing
>>> auditing.names()
('mnist-memorised', 'shakespeare-secret', 'language-secret')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy
from tacit.recipes.auditing.experiment import find, names

if TYPE_CHECKING:
    from tacit.recipes.auditing.audit_file import Audited
    from tacit.recipes.auditing.experiment import Conditions, Experiment
    from tacit.recipes.auditing.recipe_audit import audit_recipe
    from tacit.recipes.auditing.run_audit import audit_run
    from tacit.recipes.auditing.trial import AttackChoice, Execution

__all__ = [
    "AttackChoice",
    "Audited",
    "Conditions",
    "Execution",
    "Experiment",
    "audit_recipe",
    "audit_run",
    "find",
    "names",
]

# Imported when first used: listing experiments must not cost the import of PyTorch.
__getattr__, __dir__ = lazy(__name__)
