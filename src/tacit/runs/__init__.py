"""Carrying out, keeping, resuming, searching and loading an experiment: a recipe's or one's own.

``tacit.fit(..., out="runs/mine")`` and ``tacit train`` leave the same folder, which ``tacit report``,
``tacit audit`` and ``tacit.load`` read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazily

if TYPE_CHECKING:
    from tacit.runs.interruption import Interrupted, Interruption, stoppable
    from tacit.runs.job import Job
    from tacit.runs.recipe import Anchor, Outline, Recipe, Releasing, Task
    from tacit.runs.results import Finished, Trained
    from tacit.runs.search import Search

# Imported when first used: listing recipes must not cost the import of PyTorch.
_HOME = {
    "Anchor": "tacit.runs.recipe",
    "Finished": "tacit.runs.results",
    "Interrupted": "tacit.runs.interruption",
    "Interruption": "tacit.runs.interruption",
    "Job": "tacit.runs.job",
    "Outline": "tacit.runs.recipe",
    "Recipe": "tacit.runs.recipe",
    "Releasing": "tacit.runs.recipe",
    "Search": "tacit.runs.search",
    "Task": "tacit.runs.recipe",
    "Trained": "tacit.runs.results",
    "stoppable": "tacit.runs.interruption",
}

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

__getattr__ = lazily(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
