"""The accountants, one module each: all answer the same questions and refuse what they do not know.

A module has two functions, ``epsilon(event, delta, adjacency)`` and ``delta(event, epsilon,
adjacency)``. Each returns an upper bound on the truth, except for ``gdp-clt``, whose answer is an
``Approximation``. An event for which the module has no theorem raises ``UnsupportedEvent``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event


class Accountant(Protocol):
    """What a module of this folder offers."""

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        """The smallest ε that this accountant can prove at ``delta``; infinite if there is none."""

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        """The smallest δ that this accountant can prove at ``epsilon``; 1 if there is none."""


NAMES = ("exact", "rdp", "moments", "zcdp", "gdp", "gdp-clt", "advanced", "basic")


def accountant_named(name: str) -> Accountant:
    """The accountant of that name.

    >>> accountant_named("basic").__name__
    'tacit.accounting.accountants.basic'
    """
    if name not in NAMES:
        raise InvalidArgument(f"accountant must be one of {NAMES}, got {name!r}")
    module = import_module(f"tacit.accounting.accountants.{name.replace('-', '_')}")
    return cast("Accountant", module)
