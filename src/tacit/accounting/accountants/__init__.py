"""The accountants by name: all answer the same questions and refuse what they do not know.

Each is a pair of functions, ``epsilon(event, delta, adjacency)`` and ``delta(event, epsilon,
adjacency)``, that return an upper bound on the truth; the answers of ``gdp-clt`` are
``Approximation``. An event for which an accountant has no theorem raises ``UnsupportedEvent``.

Accountants that ask each other do it by name: the exact one asks the others where it cannot answer,
and they ask it about the base of a private selection.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import Adjacency, Event

    Answer = Callable[[Event, float, Adjacency], float]


class Accountant(NamedTuple):
    """How an accountant answers.

    Attributes:
        epsilon: The smallest ε that it can prove at a δ; infinite if there is none.
        delta: The smallest δ that it can prove at an ε; 1 if there is none.
    """

    epsilon: Answer
    delta: Answer


class Approximation(float):
    """A number that is not a bound: the truth may lie on either side of it.

    >>> Approximation(0.5)
    Approximation(0.5, not a bound)
    """

    def __repr__(self) -> str:
        return f"Approximation({float(self)!r}, not a bound)"


_HOMES = {
    "exact": "exact",
    "rdp": "rdp",
    "moments": "moments",
    "zcdp": "zcdp",
    "gdp": "gdp",
    "gdp-clt": "gdp",
    "advanced": "composition",
    "basic": "composition",
}
NAMES = tuple(_HOMES)


def accountant_named(name: str) -> Accountant:
    """The accountant of that name.

    >>> from tacit.accounting.events import PureDp, Repeated
    >>> accountant_named("basic").epsilon(Repeated(PureDp(0.5), 4), 1e-5, "add-remove")
    2.0
    """
    if name not in _HOMES:
        raise InvalidArgument(f"accountant must be one of {', '.join(NAMES)}, got {name!r}")
    module = import_module(f"tacit.accounting.accountants.{_HOMES[name]}")
    accountant: Accountant = getattr(module, name.replace("-", "_").upper())
    return accountant
