"""Carrying out, keeping, resuming, searching and loading experiments: recipes or your own.

``tacit.fit(..., out="runs/mine")`` and ``tacit train`` leave the same folder, which
``tacit report``, ``tacit audit`` and ``tacit.load`` read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy

if TYPE_CHECKING:
    from tacit.runs.interruption import Interrupted, Interruption, stoppable
    from tacit.runs.job import Job
    from tacit.runs.recipe import Anchor, Outline, Recipe, Releasing, Task
    from tacit.runs.results import Finished, Trained
    from tacit.runs.search import Search

__all__ = [
    "Anchor",
    "Finished",
    "Interrupted",
    "Interruption",
    "Job",
    "Outline",
    "Recipe",
    "Releasing",
    "Search",
    "Task",
    "Trained",
    "stoppable",
]

# Imported when first used: listing recipes must not cost the import of PyTorch.
__getattr__, __dir__ = lazy(__name__)
