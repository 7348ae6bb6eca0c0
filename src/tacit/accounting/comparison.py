"""Every accountant's answer to one question, side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.accounting.accountants import NAMES
from tacit.accounting.questions import epsilon
from tacit.accounting.results import Approximation
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event


@dataclass(frozen=True)
class Row:
    """One accountant's answer.

    Attributes:
        accountant: Its name.
        epsilon: Its ε, or None if it refused the event.
        seconds: How long it took.
        is_bound: False if the answer is an approximation.
        note: Why it refused, or "".
    """

    accountant: str
    epsilon: float | None
    seconds: float
    is_bound: bool
    note: str


def compare(event: Event, delta: float, adjacency: Adjacency = "add-remove") -> tuple[Row, ...]:
    """Asks every accountant for its ε at this total δ.

    >>> from tacit.accounting import Gaussian, Repeated
    >>> rows = compare(Repeated(Gaussian(20.0), 1000), delta=1e-6)
    >>> [(row.accountant, round(row.epsilon, 3)) for row in rows[:2]]
    [('exact', 8.306), ('rdp', 8.846)]
    """
    return tuple(_ask(name, event, delta, adjacency) for name in NAMES)


def _ask(name: str, event: Event, delta: float, adjacency: Adjacency) -> Row:
    start = time.perf_counter()
    try:
        found = epsilon(event, delta, name, adjacency)
    except UnsupportedEvent as refusal:
        return Row(name, None, time.perf_counter() - start, is_bound=False, note=str(refusal))
    seconds = time.perf_counter() - start
    return Row(name, float(found), seconds, not isinstance(found, Approximation), "")
