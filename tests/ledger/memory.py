"""A ledger without a database: the same budgets and decisions, for laws that need many runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.ledger.budget import Budget, opening
from tacit.ledger.entries import entry_after
from tacit.ledger.replay import Books

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.ledger.entries import Draft, Entry


class InMemory:
    """What ``Budget`` and ``Reservation`` need of a ledger."""

    def __init__(self) -> None:
        self.books = Books()
        self.location = "memory"
        self.entries: list[Entry] = []

    def refresh(self) -> Books:
        return self.books

    def check(self, name: str) -> None:
        """Nobody else writes here."""

    def append(
        self, decide: Callable[[Books], Sequence[Draft]], *, prepared: bool = False
    ) -> tuple[Entry, ...]:
        del prepared
        made = []
        for draft in decide(self.books):
            self.entries.append(entry_after(self.books.head, draft))
            self.books.take(self.entries[-1])
            made.append(self.entries[-1])
        return tuple(made)

    def open(
        self,
        epsilon: float,
        delta: float,
        composition: str = "basic",
        *,
        name: str = "data",
        adjacency: str = "add-remove",
        unit: str = "example",
    ) -> Budget:
        draft = opening(name, epsilon, delta, unit, adjacency, composition)
        self.append(lambda _: [draft])
        return Budget(self, name)
