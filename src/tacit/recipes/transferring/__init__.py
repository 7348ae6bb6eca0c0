"""Experiments of knowledge transfer: PATE, Private-kNN and reverse-kNN, from data to a student.

``tacit transfer METHOD --dataset NAME`` runs them, and so does ``run``. Each method is one short
file, written with public names only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazily
from tacit.recipes.transferring.method import METHODS

if TYPE_CHECKING:
    from tacit.recipes.transferring.runner import run
    from tacit.recipes.transferring.splits import Parts
    from tacit.recipes.transferring.student import Transferred

# Imported when first used: listing methods must not cost the import of PyTorch.
_HOME = {
    "Parts": "tacit.recipes.transferring.splits",
    "Transferred": "tacit.recipes.transferring.student",
    "run": "tacit.recipes.transferring.runner",
}

__all__ = ["METHODS", "Parts", "Transferred", "run"]


__getattr__ = lazily(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
