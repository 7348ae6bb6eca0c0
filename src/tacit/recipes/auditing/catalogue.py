"""The experiments by name; an experiment's file is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from tacit.errors import InvalidArgument
from tacit.recipes.auditing.experiment import Experiment

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES: Final[Mapping[str, str]] = {
    "mnist-memorised": "mnist_memorised",
    "shakespeare-secret": "shakespeare_secret",
}


def names() -> tuple[str, ...]:
    """All experiments."""
    return tuple(MODULES)


def find(name: str) -> Experiment:
    """The experiment of this name.

    >>> find("mnist-memorised").data
    'mnist'
    """
    if name not in MODULES:
        raise InvalidArgument(f"there is no experiment {name!r}; there are {', '.join(MODULES)}")
    found = import_module(f"tacit.recipes.auditing.{MODULES[name]}").EXPERIMENT
    assert isinstance(found, Experiment)
    return found
