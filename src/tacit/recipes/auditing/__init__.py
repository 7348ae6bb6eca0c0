"""Audits of runs and recipes: attacks by the same code that trained, and the verdict on the claim.

>>> from tacit.recipes import auditing
>>> auditing.names()
('mnist-memorised', 'shakespeare-secret')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazily
from tacit.recipes.auditing.experiment import find, names

if TYPE_CHECKING:
    from tacit.recipes.auditing.audit_file import Audited
    from tacit.recipes.auditing.experiment import Conditions, Experiment
    from tacit.recipes.auditing.recipe_audit import audit_recipe
    from tacit.recipes.auditing.run_audit import audit_run

# Imported when first used: listing experiments must not cost the import of PyTorch.
_HOME = {
    "Audited": "tacit.recipes.auditing.audit_file",
    "Conditions": "tacit.recipes.auditing.experiment",
    "Experiment": "tacit.recipes.auditing.experiment",
    "audit_recipe": "tacit.recipes.auditing.recipe_audit",
    "audit_run": "tacit.recipes.auditing.run_audit",
}

__all__ = [
    "Audited",
    "Conditions",
    "Experiment",
    "audit_recipe",
    "audit_run",
    "find",
    "names",
]


__getattr__ = lazily(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
