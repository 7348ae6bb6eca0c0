"""Replay: from the entries of a ledger, one after the other, to where every budget stands.

Nothing is decided here; an entry says what was granted, and the books only add it up. Sums are
exact fractions, so that they do not depend on the order, and what was added can be taken away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

from tacit.errors import LedgerError, TamperedLedger
from tacit.ledger.entries import Head, canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tacit.accounting.events import Adjacency
    from tacit.ledger.entries import Entry

_ZERO = Fraction(0)


@final
@dataclass(frozen=True, slots=True)
class Charge:
    """What one reservation costs.

    ``epsilon`` and ``delta`` are the guarantee of the event by itself. The rest is what a Rényi
    budget adds up: the divergence at each of its orders, failures, and samples that were cut.
    """

    epsilon: float
    delta: float
    divergences: tuple[float, ...] = ()
    failures: float = 0.0
    truncation: float = 0.0


@final
@dataclass(frozen=True, slots=True)
class Totals:
    """The exact sums over all charges of one budget, and how many there are."""

    epsilon: Fraction = _ZERO
    delta: Fraction = _ZERO
    divergences: tuple[Fraction, ...] = ()
    failures: Fraction = _ZERO
    truncation: Fraction = _ZERO
    charges: int = 0

    def plus(self, charge: Charge, sign: int = 1) -> Totals:
        """The sums with ``charge`` as well, or without it if ``sign`` is -1."""
        before = self.divergences or (_ZERO,) * len(charge.divergences)
        return Totals(
            # A reservation without a finite ε of its own belongs to a rule that does not add ε's.
            self.epsilon + sign * _finite(charge.epsilon),
            self.delta + sign * Fraction(charge.delta),
            tuple(
                sum_ + sign * Fraction(one)
                for sum_, one in zip(before, charge.divergences, strict=True)
            ),
            self.failures + sign * Fraction(charge.failures),
            self.truncation + sign * Fraction(charge.truncation),
            self.charges + sign,
        )


@final
@dataclass(frozen=True, slots=True)
class ReservationState:
    """Where one reservation stands; ``number`` is that of the entry that made it.

    ``granted`` of its ``steps`` may have been released. One that was ``declared`` only is ``taken``
    by the first ``reserve`` of the same event.
    """

    number: int
    budget: str
    at: str
    event: dict[str, Any] = field(hash=False)
    charge: Charge
    steps: int
    granted: int
    label: str
    detail: dict[str, Any] | None = field(hash=False)
    declared: bool = False
    taken: bool = True
    ended: bool = False

    @property
    def left(self) -> int:
        """How many steps can still be granted."""
        return 0 if self.ended else self.steps - self.granted

    @property
    def void(self) -> bool:
        """Whether it ended without a single step: nothing was released, so nothing is charged."""
        return self.ended and self.granted == 0


@final
@dataclass(frozen=True, slots=True)
class BudgetState:
    """Where one budget stands: its limits as last amended, and what was charged.

    ``declared`` maps reservations of a ``"declared"`` budget to their events. ``granted`` counts
    the steps of all reservations that may have been released.
    """

    name: str
    epsilon: float
    delta: float
    unit: str
    adjacency: Adjacency
    composition: str
    orders: tuple[float, ...]
    opened: str
    totals: Totals = Totals()
    granted: int = 0
    declared: dict[int, dict[str, Any]] = field(default_factory=dict, hash=False)
    amended: int = 0


@final
class Books:
    """All budgets and reservations of a ledger, as of its last entry read."""

    def __init__(self) -> None:
        self.ledger_id = ""
        self.head: Head | None = None
        self.hashes: list[str] = []
        self.budgets: dict[str, BudgetState] = {}
        self.reservations: dict[int, ReservationState] = {}
        self.adopted: list[int] = []

    def take(self, entry: Entry) -> None:
        """Enters ``entry``, which follows the last one."""
        try:
            take = _TAKERS[entry.kind]
        except KeyError:
            raise LedgerError(
                f"entry {entry.number} is of the kind {entry.kind!r}, which this tacit does not "
                "know; upgrade tacit"
            ) from None
        try:
            take(self, entry, entry.data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise TamperedLedger(
                f"entry {entry.number} cannot be read ({type(error).__name__}: {error}); it was "
                "not written by tacit"
            ) from None
        self.head = entry.head
        self.hashes.append(entry.hash)

    def contains(self, head: Head) -> bool:
        """Whether the entry of this number has this hash."""
        return 0 < head.number <= len(self.hashes) and self.hashes[head.number - 1] == head.hash

    def of(self, budget: str) -> list[ReservationState]:
        """The reservations of ``budget``, oldest first."""
        return [one for one in self.reservations.values() if one.budget == budget]


def replay(entries: Iterable[Entry]) -> Books:
    """The books after all of ``entries``."""
    books = Books()
    for entry in entries:
        books.take(entry)
    return books


def _take_ledger(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    if entry.number != 1:
        raise ValueError("only the first entry begins a ledger")
    books.ledger_id = str(data["id"])


def _take_adopt(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    del data
    books.adopted.append(entry.number)


def _take_open(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    if entry.budget in books.budgets:
        raise ValueError(f"the budget {entry.budget!r} is open already")
    books.budgets[entry.budget] = BudgetState(
        name=entry.budget,
        epsilon=float(data["epsilon"]),
        delta=float(data["delta"]),
        unit=data["unit"],
        adjacency=data["adjacency"],
        composition=data["composition"],
        orders=tuple(map(float, data["orders"])),
        opened=entry.at,
    )


def _take_amend(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    state = books.budgets[entry.budget]
    books.budgets[entry.budget] = replace(
        state,
        epsilon=float(data["epsilon"]),
        delta=float(data["delta"]),
        amended=state.amended + 1,
    )


def _take_reserve(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    declared = entry.kind == "declare"
    made = ReservationState(
        number=entry.number,
        budget=entry.budget,
        at=entry.at,
        event=data["event"],
        charge=_charge(data["charge"]),
        steps=int(data["steps"]),
        granted=int(data["granted"]),
        label=data["label"],
        detail=data["detail"],
        declared=declared,
        taken=not declared,
    )
    state = books.budgets[entry.budget]
    books.reservations[entry.number] = made
    books.budgets[entry.budget] = replace(
        state,
        totals=state.totals.plus(made.charge),
        granted=state.granted + made.granted,
        declared=_with(state, made),
    )


def _take_claim(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    known = _reservation(books, entry, data)
    taken = replace(
        known,
        taken=True,
        steps=int(data["steps"]),
        label=data["label"] or known.label,
        detail=data["detail"],
    )
    _regrant(books, taken, int(data["granted"]))


def _take_lease(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    known = _reservation(books, entry, data)
    _regrant(books, replace(known, taken=True), known.granted + int(data["steps"]))


def _take_give_back(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    known = _reservation(books, entry, data)
    _regrant(books, known, known.granted - int(data["steps"]))


def _take_end(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    known = _reservation(books, entry, data)
    ended = replace(known, ended=True, taken=True)
    books.reservations[known.number] = ended
    state = books.budgets[entry.budget]
    if not ended.void or (state.composition == "declared" and state.granted > 0):
        # Declared plans were fixed together: once one has released something, all stay charged.
        return
    books.budgets[entry.budget] = replace(
        state,
        totals=state.totals.plus(known.charge, -1),
        declared={at: one for at, one in state.declared.items() if at != known.number},
    )


def _reservation(books: Books, entry: Entry, data: dict[str, Any]) -> ReservationState:
    known = books.reservations[data["reservation"]]
    if known.budget != entry.budget or known.ended:
        raise ValueError(f"entry {known.number} is no open reservation of {entry.budget!r}")
    return known


def _regrant(books: Books, known: ReservationState, granted: int) -> None:
    if not 0 <= granted <= known.steps:
        raise ValueError(f"{granted} of {known.steps} steps would be granted")
    before = books.reservations[known.number].granted
    state = books.budgets[known.budget]
    books.reservations[known.number] = replace(known, granted=granted)
    books.budgets[known.budget] = replace(state, granted=state.granted + granted - before)


def _with(state: BudgetState, made: ReservationState) -> dict[int, dict[str, Any]]:
    if state.composition != "declared":
        return state.declared
    return state.declared | {made.number: made.event}


def charge_as_plain(charge: Charge) -> dict[str, Any]:
    """``charge`` in JSON's types; an infinite ε is null."""
    plain: dict[str, Any] = {
        "epsilon": charge.epsilon if math.isfinite(charge.epsilon) else None,
        "delta": charge.delta,
    }
    if charge.divergences:
        plain["divergences"] = list(charge.divergences)
        plain["failures"] = charge.failures
        plain["truncation"] = charge.truncation
    return plain


def _charge(plain: dict[str, Any]) -> Charge:
    return Charge(
        math.inf if plain["epsilon"] is None else float(plain["epsilon"]),
        float(plain["delta"]),
        tuple(map(float, plain.get("divergences", ()))),
        float(plain.get("failures", 0.0)),
        float(plain.get("truncation", 0.0)),
    )


def same_event(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether both are the same event, to the last bit of every number."""
    return canonical(one) == canonical(other)


def _finite(epsilon: float) -> Fraction:
    return Fraction(epsilon) if math.isfinite(epsilon) else _ZERO


_TAKERS = {
    "ledger": _take_ledger,
    "adopt": _take_adopt,
    "open": _take_open,
    "amend": _take_amend,
    "declare": _take_reserve,
    "reserve": _take_reserve,
    "claim": _take_claim,
    "lease": _take_lease,
    "give-back": _take_give_back,
    "end": _take_end,
}
