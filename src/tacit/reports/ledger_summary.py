"""Where the budgets of a ledger stand, and how one got there: entries as values to print or draw.

Everything is derived from entries that the ledger has checked; nothing here reads a database.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from tacit._files import OWNER_ONLY, drafted
from tacit._validation import printable as printable  # noqa: PLC0414 - others take it from here
from tacit.ledger import composition as rules
from tacit.ledger.replay import Books
from tacit.ledger.requests import TAKERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tacit.ledger.composition import Spending
    from tacit.ledger.entries import Entry
    from tacit.ledger.replay import BudgetState, ReservationState


BUDGET_STATES: Final = {
    "fresh": "nothing is charged",
    "open": "something is left",
    "pure only": "no δ is left, so only releases with δ = 0 fit",
    "fixed": "something was released, so nothing more can be declared",
    "spent": "nothing is left",
}
RESERVATION_STATES: Final = {
    "declared": "fixed before the first release, not yet begun",
    "approved": "charged for a request, which no run has drawn on yet",
    "reserved": "charged, no step granted yet",
    "unfinished": "steps were granted, and it is running or has crashed",
    "stopped": "left cleanly, and can be gone on with",
    "granted": "every step was granted",
    "ended": "grants nothing more",
    "void": "ended before its first step, so no longer charged",
}
# Less than this part of a budget is of no use; a plan made for a whole budget leaves about as much.
_NOTHING: Final = 1e-6
_CHARGING: Final = ("open", "amend", "declare", "reserve", "end")


@dataclass(frozen=True)
class BudgetSummary:
    """One budget: its limits, what is spent and left of them, and a word for its ``standing``."""

    state: BudgetState
    spent: Spending
    remaining: Spending
    standing: str

    def as_dict(self) -> dict[str, object]:
        """The summary in JSON's types."""
        state = self.state
        return {
            "name": state.name,
            "epsilon": state.epsilon,
            "delta": state.delta,
            "unit": state.unit,
            "adjacency": state.adjacency,
            "composition": state.composition,
            "opened": state.opened,
            "amended": state.amended,
            "state": self.standing,
            "charges": state.totals.charges,
            "steps_granted": state.granted,
            "spent": asdict(self.spent),
            "remaining": asdict(self.remaining),
        }


@dataclass(frozen=True)
class ReservationSummary:
    """One reservation; ``last`` is the time of its latest entry."""

    state: ReservationState
    standing: str
    last: str

    @property
    def name(self) -> str:
        """Its label, or the kind of its event."""
        return self.state.label or str(self.state.event.get("kind", ""))

    def as_dict(self) -> dict[str, object]:
        """The summary in JSON's types; an infinite ε is None."""
        state = self.state
        epsilon = state.charge.epsilon
        return {
            "number": state.number,
            "label": state.label,
            "at": state.at,
            "last": self.last,
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "delta": state.charge.delta,
            "steps": state.steps,
            "granted": state.granted,
            "state": self.standing,
            "event": state.event,
            "detail": state.detail,
        }


@dataclass(frozen=True)
class Change:
    """An entry that moved what is left of a budget, its limits then, and what was left after it.

    ``share`` and ``delta_share`` are the parts of the limits that were left; the latter is None
    where the rule does not add up δ. ``reservation`` is that which the entry made or ended, if any.
    """

    number: int
    at: str
    kind: str
    reservation: int | None
    limits: tuple[float, float]
    epsilon: float
    delta: float
    share: float
    delta_share: float | None


@dataclass(frozen=True)
class BudgetAccount:
    """One budget with its reservations, and how it was used up; ``last`` is its latest entry's."""

    budget: BudgetSummary
    reservations: tuple[ReservationSummary, ...]
    changes: tuple[Change, ...]
    last: str

    def as_dict(self) -> dict[str, object]:
        """The account in JSON's types."""
        return {
            **self.budget.as_dict(),
            "reservations": [one.as_dict() for one in self.reservations],
            "burn_down": [asdict(one) for one in self.changes],
        }


def summarise(state: BudgetState) -> BudgetSummary:
    """Where a budget stands.

    >>> from tacit.ledger import BudgetState
    >>> fresh = BudgetState("census", 1.0, 0.0, "example", "add-remove", "basic", (), "2026-01-01")
    >>> summarise(fresh).standing
    'fresh'
    """
    left = rules.remaining(state)
    return BudgetSummary(state, rules.spent(state), left, _standing(state, left))


def account(entries: Sequence[Entry]) -> BudgetAccount:
    """The account of the budget whose entries these are, all of them, oldest first."""
    books = Books()
    latest: dict[int, Entry] = {}
    changes: list[Change] = []
    for entry in entries:
        books.take(entry)
        number = _reservation_of(entry)
        if number is not None:
            latest[number] = entry
        if entry.kind in _CHARGING:
            changes += _change(entry, number, books.budgets[entry.budget], changes[-1:])
    (state,) = books.budgets.values()
    reservations = tuple(
        ReservationSummary(one, _progress(one, latest[one.number].kind), latest[one.number].at)
        for one in books.of(state.name)
    )
    return BudgetAccount(summarise(state), reservations, tuple(changes), entries[-1].at)


def unfinished(books: Books) -> tuple[ReservationSummary, ...]:
    """The reservations that could still be granted steps; ``last`` is when each was made."""
    return tuple(
        ReservationSummary(one, _progress(one, ""), one.at)
        for one in books.reservations.values()
        if one.left
    )


def shown_name(name: str) -> str:
    r"""The name of a budget; one with letters that may look like others is also spelt out.

    >>> shown_name("patients"), shown_name("Zürich")
    ('patients', 'Zürich (Z\\xfcrich)')
    """
    return (
        name
        if name.isascii() and name.isprintable()
        else f"{printable(name)} ({ascii(name)[1:-1]})"
    )


def _standing(state: BudgetState, left: Spending) -> str:
    if state.totals.charges == 0 and not state.begun:
        return "fresh"
    if left.share <= _NOTHING:
        return "spent"
    if state.composition == "declared" and state.begun:
        return "fixed"
    if state.composition == "basic" and state.delta > 0.0 and left.delta == 0.0:
        return "pure only"
    return "open"


def _progress(state: ReservationState, latest: str) -> str:
    if state.ended:
        return "void" if state.void else "ended"
    if state.granted == state.steps:
        return "granted"
    if latest == "give-back":
        return "stopped"
    if state.granted:
        return "unfinished"
    if state.taken:
        return "reserved"
    return "declared" if state.request is None else "approved"


def _reservation_of(entry: Entry) -> int | None:
    if entry.kind in ("reserve", "declare"):
        return entry.number
    if entry.kind in TAKERS:
        return None  # of a request; what an approval charged, or gave back, has its own entry
    found = entry.data.get("reservation")
    return None if found is None else int(found)


def _change(
    entry: Entry, reservation: int | None, state: BudgetState, before: Sequence[Change]
) -> list[Change]:
    """The change that ``entry`` made; none if it ended a reservation that stays charged."""
    left = rules.remaining(state)
    added = state.composition == "basic" and state.delta > 0.0
    delta_share = min(1.0, left.delta / state.delta) if added else None
    made = Change(
        entry.number,
        entry.at,
        entry.kind,
        reservation,
        (state.epsilon, state.delta),
        left.epsilon,
        left.delta,
        left.share,
        delta_share,
    )
    kept = [(one.epsilon, one.delta, one.share) for one in before]
    if entry.kind == "end" and kept == [(made.epsilon, made.delta, made.share)]:
        return []
    return [made]


# ---- a ledger as JSON lines, from which anyone can check the chain without the database


def line_of(entry: Entry) -> str:
    """One entry as one line of JSON: all of its columns, ``body`` as the text that is hashed."""
    return json.dumps(asdict(entry), allow_nan=False)


def export(entries: Iterable[Entry], path: Path) -> None:
    """Writes ``entries`` to ``path``, one a line.

    Guarantee:
        The file ends up with all of the entries, on the disk, or as it was before, also after a
        crash of the machine. Only its owner can read it: handing it on is a decision.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with drafted(path, mode=OWNER_ONLY) as draft, draft.open("w", encoding="ascii") as file:
        file.writelines(f"{line_of(entry)}\n" for entry in entries)
