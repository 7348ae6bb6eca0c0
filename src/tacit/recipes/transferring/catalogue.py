"""The methods by name; a method's file, and PyTorch, are imported when it is asked for."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tacit.errors import InvalidArgument
from tacit.recipes.transferring.splits import DATASETS

if TYPE_CHECKING:
    from tacit.recipes.transferring.method import Method

METHODS: Final = ("pate", "knn", "rknn")


def find(name: str) -> Method:
    """The method of this name.

    >>> find("knn").summary
    'the private neighbours of each public image vote on it (Private-kNN)'
    """
    _known("method", name, METHODS)
    found: Method = import_module(f"tacit.recipes.transferring.{name}").METHOD
    return found


def check_dataset(name: str) -> str:
    """``name``, if there is such a data set to transfer knowledge of."""
    return _known("dataset", name, DATASETS)


def title(method: str, dataset: str) -> str:
    """What a run is called in its record.

    >>> title("pate", "mnist"), named("pate-mnist")
    ('pate-mnist', ('pate', 'mnist'))
    """
    return f"{method}-{dataset}"


def named(recipe: str) -> tuple[str, str]:
    """The method and the data set of a record."""
    method, _, dataset = recipe.partition("-")
    if method not in METHODS or dataset not in DATASETS:
        raise InvalidArgument(
            f"{recipe!r} is no transfer; a run that tacit train began goes on with tacit train"
        )
    return method, dataset


def _known(what: str, name: str, known: tuple[str, ...]) -> str:
    if name in known:
        return name
    close = get_close_matches(str(name), known, 1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    raise InvalidArgument(f"there is no {what} {name!r}; {meant}there are {', '.join(known)}")
