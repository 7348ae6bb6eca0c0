"""Experiments of knowledge transfer: PATE, Private-kNN and reverse-kNN, from data to a student.

``tacit transfer METHOD --dataset NAME`` runs them, and so does ``run``. Each method is one short
file, written with public names only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy
from tacit.recipes.transferring.method import METHODS

if TYPE_CHECKING:
    from tacit.recipes.transferring.runner import run
    from tacit.recipes.transferring.splits import Parts
    from tacit.recipes.transferring.student import Transferred

__all__ = ["METHODS", "Parts", "Transferred", "run"]

# Imported when first used: listing methods must not cost the import of PyTorch.
__getattr__, __dir__ = lazy(__name__)
