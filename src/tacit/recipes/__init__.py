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

from tacit._lazy import lazily
from tacit.recipes.catalogue import find, names
from tacit.recipes.recipe import Anchor, Recipe

if TYPE_CHECKING:
    from tacit.recipes.running.interruption import Interrupted, Interruption
    from tacit.recipes.running.job import Job
    from tacit.recipes.running.runner import run
    from tacit.recipes.running.trained import Trained

# Imported when first used: listing recipes must not cost the import of PyTorch.
_HOME = {
    "Interrupted": "tacit.recipes.running.interruption",
    "Interruption": "tacit.recipes.running.interruption",
    "Job": "tacit.recipes.running.job",
    "Trained": "tacit.recipes.running.trained",
    "run": "tacit.recipes.running.runner",
}

__all__ = [
    "Anchor",
    "Interrupted",
    "Interruption",
    "Job",
    "Recipe",
    "Trained",
    "find",
    "names",
    "run",
]


__getattr__ = lazily(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
