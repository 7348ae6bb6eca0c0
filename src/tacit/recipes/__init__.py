"""Named experiments: from data to a private model, its accuracy and its statement.

A recipe is one short file, written with public names only. ``run`` carries it out:

>>> import tacit.recipes
>>> tacit.recipes.names()[:3]
('digits', 'mnist-abadi', 'mnist-tempered')
>>> done = tacit.recipes.run("digits", epsilon=3)
>>> done.accuracy > 0.7, round(done.statement.epsilon, 3)
(True, 3.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy
from tacit.recipes.catalogue import find, names
from tacit.runs.recipe import Anchor, Recipe

if TYPE_CHECKING:
    from tacit.recipes.named import load, run
    from tacit.runs.interruption import Interrupted, Interruption
    from tacit.runs.job import Job
    from tacit.runs.results import Trained

__all__ = [
    "Anchor",
    "Interrupted",
    "Interruption",
    "Job",
    "Recipe",
    "Trained",
    "find",
    "load",
    "names",
    "run",
]

# Imported when first used: listing recipes must not cost the import of PyTorch.
__getattr__, __dir__ = lazy(__name__)
