"""The recipes by name; a recipe's file is imported when it is asked for."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from tacit.errors import InvalidArgument
from tacit.runs.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES: Mapping[str, str] = {
    "digits": "digits",
    "mnist-abadi": "mnist_abadi",
    "mnist-tempered": "mnist_tempered",
    "fashion-tempered": "fashion_tempered",
    "mnist-scatter": "mnist_scatter",
    "fashion-scatter": "fashion_scatter",
    "cifar10-scatter": "cifar10_scatter",
    "cifar10-abadi": "cifar10_abadi",
    "cifar10-wrn": "cifar10_wrn",
    "cifar10-prior": "cifar10_prior",
    "svhn-prior": "svhn_prior",
    "adult-logistic": "adult_logistic",
    "sms-smollm2": "sms_smollm2",
    "sst2-smollm2": "sst2_smollm2",
    "shakespeare-smollm2": "shakespeare_smollm2",
}


def names() -> tuple[str, ...]:
    """All recipes, the quickest first."""
    return tuple(MODULES)


def find(name: str) -> Recipe:
    """The recipe of this name.

    >>> find("digits").data
    'digits'
    """
    if name not in MODULES:
        close = get_close_matches(str(name), MODULES, 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        if str(name).endswith((".csv", ".parquet", ".json", ".txt")):
            meant = "a file of your own is for tacit.fit in Python (docs/quickstart.md); "
        raise InvalidArgument(f"there is no recipe {name!r}; {meant}there are {', '.join(MODULES)}")
    found = import_module(f"tacit.recipes.{MODULES[name]}").RECIPE
    assert isinstance(found, Recipe)
    return found
