"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """What a package assigns to ``__getattr__``: a name's module is imported with its first use.

    ``homes`` has the module of each name, in full.

    >>> find = lazily("tacit", {"Plan": "tacit.training.plan"})
    >>> find("Plan").__name__
    'Plan'
    >>> find("Plam")
    Traceback (most recent call last):
    AttributeError: module 'tacit' has no attribute 'Plam'
    """

    def found(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return found
