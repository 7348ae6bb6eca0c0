"""How far apart neighbouring data sets move an answer, in units of one record's contribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency


def distance(replace_distance: float, adjacency: Adjacency) -> float:
    """The event's ``replace_distance`` if a record is replaced, else 1.

    >>> distance(2.0, "replace-one"), distance(2.0, "zero-out")
    (2.0, 1.0)
    """
    return replace_distance if adjacency == "replace-one" else 1.0
