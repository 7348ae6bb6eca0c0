"""Replay: from the entries of a ledger, one after the other, to where every budget stands.

An entry says what was granted, and the books add it up. They take nothing on trust: every field has
its type and range, and every entry must be one that the rules allow where it stands, whatever its
hash. (Whether a charge is as large as its event costs is computed in ``verification``.) Sums are
exact fractions, so that they do not depend on the order, and what was added can be taken away.

Entries written before 2026-12 are dated to the microsecond, and their leases have no holder; they
are read by the rules of that time.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import ChainMap
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

from tacit._validation import UNITS
from tacit.accounting.events import check_adjacency
from tacit.errors import LedgerError, TamperedLedger
from tacit.ledger.entries import Head, canonical
from tacit.ledger.fields import (
    ID,
    LONGEST_NAME,
    check_event,
    check_fields,
    detail,
    limits,
    number,
    one_of,
    orders_of,
    steps_of,
    text,
    whole,
)
from tacit.ledger.requests import TAKERS, RequestState

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from tacit.accounting.events import Adjacency
    from tacit.ledger.entries import Entry

COMPOSITIONS = ("basic", "renyi", "declared")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{6})?\+00:00)?", re.ASCII)
_ZERO = Fraction(0)
_LAST_DIGITS = 1e-9  # relative: as verification allows
_UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


@final
@dataclass(frozen=True, slots=True)
class ReservationCost:
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
    unbounded: int = 0  # of them have no finite ε by themselves, and are not in the sum of ε

    def plus(self, charge: ReservationCost, sign: int = 1) -> Totals:
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
            self.unbounded + (0 if math.isfinite(charge.epsilon) else sign),
        )


@final
@dataclass(frozen=True, slots=True)
class ReservationState:
    """Where one reservation stands; ``number`` is that of the entry that made it.

    ``granted`` of its ``steps`` may have been released. One that was ``declared`` only is ``taken``
    by the first ``reserve`` of the same event. ``leases`` are the steps that each holder was
    granted and has not given back; a holder gives back once. ``used`` is set by the first grant for
    good: what was given back can be leased again, but stays charged. So does what is ``bound``: it
    ended after a plan that was declared with it had released something.
    """

    number: int
    budget: str
    at: str
    event: dict[str, Any] = field(hash=False)
    charge: ReservationCost
    steps: int
    granted: int
    label: str
    detail: dict[str, Any] | None = field(hash=False)
    declared: bool = False
    taken: bool = True
    ended: bool = False
    leases: dict[str, int] = field(default_factory=dict, hash=False)
    used: bool = False
    request: int | None = None
    bound: bool = False

    @property
    def left(self) -> int:
        """How many steps can still be granted."""
        return 0 if self.ended else self.steps - self.granted

    @property
    def untouched(self) -> bool:
        """Whether it ended without a single step."""
        return self.ended and self.granted == 0 and not self.used

    @property
    def void(self) -> bool:
        """Whether it ended without a single step, and so is charged nothing."""
        return self.untouched and not self.bound


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
    used: bool = False

    @property
    def begun(self) -> bool:
        """Whether something may have been released, also if its steps were given back."""
        return self.used or self.granted > 0


@final
class Books:
    """All budgets and reservations of a ledger, as of its last entry read."""

    def __init__(self) -> None:
        self.ledger_id = ""
        self.head: Head | None = None
        self.hashes: list[str] = []
        self.budgets: MutableMapping[str, BudgetState] = {}
        self.reservations: MutableMapping[int, ReservationState] = {}
        self.requests: MutableMapping[int, RequestState] = {}
        self.adopted: list[int] = []
        self.day = ""  # of the newest entry
        self.sealed = False  # every entry must carry a seal from now on

    def copy(self) -> Books:
        """Books that begin as these, and go their own way: what they take is not taken here."""
        made = Books()
        made.ledger_id, made.head, made.day = self.ledger_id, self.head, self.day
        made.sealed, made.adopted = self.sealed, [*self.adopted]
        # A ledger may have many: what is not changed is looked up where it is.
        made.budgets = ChainMap({}, self.budgets)
        made.reservations = ChainMap({}, self.reservations)
        made.requests = ChainMap({}, self.requests)
        return made

    def take(self, entry: Entry) -> None:
        """Enters ``entry``, which follows the last one."""
        take = _TAKERS.get(entry.kind)
        if take is None:
            raise LedgerError(
                f"entry {entry.number} is of the kind {entry.kind[:100]!r}, which this tacit does "
                "not know; upgrade tacit"
            )
        try:
            self._date(entry)
            data = entry.data
            self._seal(data.pop("seal", None))
            take(self, entry, data)
        except _UNREADABLE as error:
            raise TamperedLedger(
                f"entry {entry.number} cannot be read ({type(error).__name__}: "
                f"{str(error)[:300]!r}); it was not written by tacit"
            ) from None
        self.head = entry.head
        self.hashes.append(entry.hash)

    def _date(self, entry: Entry) -> None:
        if len(entry.at) > 40 or not _TIME.fullmatch(entry.at):
            raise ValueError("its time is not valid")
        datetime.fromisoformat(entry.at)
        day = entry.at[:10]
        if day == entry.at and day < self.day:
            raise ValueError("it is dated before the entry before it")
        self.day = max(self.day, day)

    def _seal(self, seal: object) -> None:
        if seal is None and self.sealed:
            raise ValueError("it has no seal, though entries before it have")
        if seal is not None and not (isinstance(seal, str) and re.fullmatch("[0-9a-f]{64}", seal)):
            raise ValueError("its seal is not valid")
        self.sealed = seal is not None

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
    check_fields(data, "id", "format")
    if entry.number != 1 or entry.budget:
        raise ValueError("only the first entry begins a ledger")
    if data["format"] != 1 or not (isinstance(data["id"], str) and ID.fullmatch(data["id"])):
        raise ValueError("its id or format is not valid")
    books.ledger_id = data["id"]


def _take_adopt(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    check_fields(data, "reason", "anchored")
    if entry.budget:
        raise ValueError("a ledger is adopted, not a budget")
    text(data, "reason", lines=True)
    text(data, "anchored")
    books.adopted.append(entry.number)


def _take_open(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    check_fields(data, "epsilon", "delta", "unit", "adjacency", "composition", "orders")
    name = entry.budget
    if not (name.strip() and len(name) <= LONGEST_NAME and name.isprintable()):
        raise ValueError(f"{name[:LONGEST_NAME]!r} is no name of a budget")
    if name in books.budgets:
        raise ValueError(f"the budget {name!r} is open already")
    composition = one_of(data, "composition", COMPOSITIONS)
    epsilon, delta = limits(data, composition)
    books.budgets[name] = BudgetState(
        name=name,
        epsilon=epsilon,
        delta=delta,
        unit=one_of(data, "unit", UNITS),
        adjacency=check_adjacency(data["adjacency"]),
        composition=composition,
        orders=orders_of(data, composition),
        opened=entry.at,
    )


def _take_amend(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    check_fields(data, "epsilon", "delta", "reason")
    state = _budget(books, entry)
    epsilon, delta = limits(data, state.composition)
    text(data, "reason", lines=True)
    books.budgets[entry.budget] = _held(
        replace(state, epsilon=epsilon, delta=delta, amended=state.amended + 1)
    )


def _take_reserve(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    state = _budget(books, entry)
    terms = () if _early(entry) else ("unit", "adjacency")
    check_fields(data, "event", "charge", "steps", "granted", "label", "detail", *terms)
    for name in terms:
        if data[name] != getattr(state, name):
            raise ValueError(f"its {name} is {data[name]!r}, the budget's another")
    declared = entry.kind == "declare"
    _check_turn(state, declared)
    check_event(data["event"])
    steps = steps_of(data, data["event"])
    granted = whole(data, "granted", 0, 0 if declared else steps)
    made = ReservationState(
        number=entry.number,
        budget=entry.budget,
        at=entry.at,
        event=data["event"],
        charge=_charge(data["charge"], state),
        steps=steps,
        granted=granted,
        label=text(data, "label"),
        detail=detail(data),
        declared=declared,
        taken=not declared,
        leases=_at_once(entry, granted),
        used=granted > 0 and not _early(entry),
    )
    books.reservations[entry.number] = made
    books.budgets[entry.budget] = _held(
        replace(
            state,
            totals=state.totals.plus(made.charge),
            granted=state.granted + made.granted,
            declared=_with(state, made),
            used=state.used or made.used,
        )
    )


def _check_turn(state: BudgetState, declared: bool) -> None:
    """Plans of a declared budget come before the first release, and each is used once."""
    if declared and state.composition != "declared":
        raise ValueError(f"the budget is {state.composition!r}, and nothing is declared to it")
    if state.composition != "declared":
        return
    if state.begun or (state.declared and not declared):
        raise ValueError("the budget's plans were declared before")


def _take_claim(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    check_fields(data, "reservation", "steps", "granted", "label", "detail")
    known = _reservation(books, entry, data)
    if not known.declared or known.taken or known.request is not None:
        raise ValueError(f"entry {known.number} is no unused declaration")
    steps = steps_of(data, known.event)
    granted = whole(data, "granted", 0, steps)
    taken = replace(
        known,
        taken=True,
        steps=steps,
        label=text(data, "label") or known.label,
        detail=detail(data),
        leases=_at_once(entry, granted),
        used=granted > 0 and not _early(entry),
    )
    _regrant(books, taken, granted)


def _early(entry: Entry) -> bool:
    """Whether ``entry`` is of the time when times were exact and leases had no holder."""
    return "T" in entry.at


def _at_once(entry: Entry, granted: int) -> dict[str, int]:
    """What can be given back of steps that were granted at once: nothing, since they are used."""
    return {"": granted} if granted and _early(entry) else {}


def _take_lease(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    check_fields(data, "reservation", "steps", *(() if _early(entry) else ("holder",)))
    holder = data.get("holder", "")
    if not (_early(entry) or (isinstance(holder, str) and ID.fullmatch(holder))):
        raise ValueError("its holder is not valid")
    known = _reservation(books, entry, data)
    if known.request is not None and not known.taken:
        raise ValueError("no run has drawn on its request")
    if known.leases.get(holder) == 0 and holder:
        raise ValueError("its holder has given back already")
    steps = whole(data, "steps", 1, known.steps - known.granted)
    leases = known.leases | {holder: known.leases.get(holder, 0) + steps}
    leased = replace(known, taken=True, leases=leases, used=known.used or bool(holder))
    _regrant(books, leased, known.granted + steps)


def _take_give_back(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    check_fields(data, "reservation", "steps", *(() if _early(entry) else ("proof",)))
    known = _reservation(books, entry, data)
    holder = "" if _early(entry) else holder_of(text(data, "proof"))
    steps = whole(data, "steps", 1, known.leases.get(holder, 0))
    # A holder has shown its proof now, and anybody could: it gives back once.
    left = 0 if holder else known.leases[holder] - steps
    returned = replace(known, leases=known.leases | {holder: left})
    _regrant(books, returned, known.granted - steps)


def holder_of(proof: str) -> str:
    """The public name of the one that knows ``proof``; only it can give its lease back."""
    return hashlib.sha256(b"tacit lease " + proof.encode("utf-8", "replace")).hexdigest()[:32]


def _take_end(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    check_fields(data, "reservation")
    known = _reservation(books, entry, data)
    state = books.budgets[entry.budget]
    # Declared plans were fixed together: once one has released something, all stay charged.
    bound = state.composition == "declared" and state.begun
    ended = replace(known, ended=True, taken=True, bound=bound)
    books.reservations[known.number] = ended
    if not ended.void:
        return
    books.budgets[entry.budget] = replace(
        state,
        totals=state.totals.plus(known.charge, -1),
        declared={at: one for at, one in state.declared.items() if at != known.number},
    )


def _budget(books: Books, entry: Entry) -> BudgetState:
    if entry.budget not in books.budgets:
        raise ValueError(f"there is no budget {entry.budget[:LONGEST_NAME]!r}")
    return books.budgets[entry.budget]


def _reservation(books: Books, entry: Entry, data: dict[str, Any]) -> ReservationState:
    number = whole(data, "reservation", 1, entry.number - 1)
    known = books.reservations.get(number)
    if known is None or known.budget != entry.budget or known.ended:
        raise ValueError(f"entry {number} is no open reservation of {entry.budget!r}")
    return known


def _regrant(books: Books, known: ReservationState, granted: int) -> None:
    before = books.reservations[known.number].granted
    state = books.budgets[known.budget]
    books.reservations[known.number] = replace(known, granted=granted)
    books.budgets[known.budget] = replace(
        state, granted=state.granted + granted - before, used=state.used or known.used
    )


def _with(state: BudgetState, made: ReservationState) -> dict[int, dict[str, Any]]:
    if state.composition != "declared":
        return state.declared
    return state.declared | {made.number: made.event}


def _held(state: BudgetState) -> BudgetState:
    """``state`` if its sums are within its limits, as far as sums tell: by the basic rule."""
    totals = state.totals
    over = totals.epsilon > Fraction(state.epsilon) or totals.delta > Fraction(state.delta)
    if state.composition == "basic" and over:
        raise ValueError(f"it takes the budget {state.name!r} over its limits")
    return state


# ---- charges


def _charge(plain: dict[str, Any], state: BudgetState) -> ReservationCost:
    renyi = state.composition == "renyi"
    more = ("divergences", "failures", "truncation") if renyi else ()
    check_fields(plain, "epsilon", "delta", *more)
    endless = plain["epsilon"] is None and state.composition != "basic"
    charge = ReservationCost(
        math.inf if endless else number(plain, "epsilon"),
        number(plain, "delta", 1.0),
        tuple(number({"divergence": one}, "divergence") for one in plain.get("divergences", ())),
        number(plain, "failures") if renyi else 0.0,
        number(plain, "truncation") if renyi else 0.0,
    )
    if len(charge.divergences) != len(state.orders):
        raise ValueError("its charge has not one divergence for each order")
    if state.composition != "basic" and charge.delta != state.delta:
        raise ValueError("its charge is not at the δ of the budget")
    return charge


def charge_as_plain(charge: ReservationCost) -> dict[str, Any]:
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


def same_event(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether both are the same event, to the last bit of every number."""
    return canonical(one) == canonical(other)


def alike(one: object, other: object) -> bool:
    """Whether both are the same event but for last digits, which another machine finds otherwise.

    >>> alike({"kind": "Gaussian", "sigma": 4.0}, {"kind": "Gaussian", "sigma": 4.000000000000001})
    True
    """
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(alike(one[at], other[at]) for at in one)
        case list(), list():
            return len(one) == len(other) and all(map(alike, one, other))
        case float(), float():
            return math.isclose(one, other, rel_tol=_LAST_DIGITS)
        case _:
            return type(one) is type(other) and one == other


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
    **TAKERS,
}
