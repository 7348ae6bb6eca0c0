"""Requests: what somebody asks a budget for, who allowed it or did not, and which run drew on it.

Eight kinds of entry. A ``request`` holds a plan and charges nothing. An ``approve`` comes right
after the entry that charges the plan, in one transaction, by the holder of another key, and names
the last day on which a run may draw on it; a ``refuse`` ends the request. A ``draw`` gives the
reservation to one run, and an ``undraw`` takes it back from one that never began. What no run has
drawn on is ended by a ``lapse`` after its last day, a ``revoke`` by an officer, or a ``withdraw``
by whoever asked; an ``end`` of the reservation comes before each. What an entry may say, and when,
is checked here whenever a ledger is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final, final

from tacit._validation import printable
from tacit._validation import whole as whole_number
from tacit.errors import InvalidArgument
from tacit.ledger import entries
from tacit.ledger.entries import Draft, canonical
from tacit.ledger.fields import (
    LONGEST_NAME,
    check_event,
    check_fields,
    detail,
    one_of,
    steps_of,
    text,
    whole,
)

if TYPE_CHECKING:
    from tacit.ledger.entries import Entry
    from tacit.ledger.ledger import Ledger
    from tacit.ledger.replay import Books, ReservationState

ROLES = ("viewer", "engineer", "officer")
APPROVAL_DAYS: Final = 30  # for which an approval can be drawn on, unless another number is given
MOST_DAYS: Final = 366
_KEY = re.compile(r"[0-9a-f]{32}")


@final
@dataclass(frozen=True, slots=True)
class Person:
    """Who acts: a name for people, a role, and the fingerprint of the key that they showed.

    >>> Person("Ada", "officer", "ab" * 16).as_plain()["name"]
    'Ada'
    """

    name: str
    role: str
    key: str

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or name != " ".join(
            printable(name).split()
        ):  # fmt: skip
            raise InvalidArgument(f"name must be one line that can be seen, got {name!a:.80}")
        if self.role not in ROLES:
            raise InvalidArgument(f"role must be one of {', '.join(ROLES)}, got {self.role!a:.80}")
        if not isinstance(self.key, str) or not _KEY.fullmatch(self.key):
            raise InvalidArgument(f"key must be 32 hexadecimal digits, got {self.key!a:.80}")

    def as_plain(self) -> dict[str, str]:
        """In JSON's types."""
        return {"name": self.name, "role": self.role, "key": self.key}


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a request, by whom and why; ``number`` is that of the entry.

    ``until`` is the last day on which a run may draw on an approval.
    """

    number: int
    at: str
    approved: bool
    by: Person
    reason: str
    until: str = ""


@final
@dataclass(frozen=True, slots=True)
class Closing:
    """How an unused request ended: ``"lapsed"``, ``"revoked"`` or ``"withdrawn"``.

    ``number`` is that of the entry; nobody's doing has no ``by`` and no ``reason``.
    """

    number: int
    at: str
    kind: str
    by: Person | None = None
    reason: str = ""


@final
@dataclass(frozen=True, slots=True)
class RequestState:
    """Where one request stands; ``number`` is that of the entry that made it.

    ``detail`` is kept with the reservation that an approval makes, and ``asked``, the settings that
    were asked for, with the request alone. ``run`` is the label of the run that drew on it.
    """

    number: int
    budget: str
    at: str
    event: dict[str, Any] = field(hash=False)
    steps: int
    label: str
    detail: dict[str, Any] | None = field(hash=False)
    asked: dict[str, Any] | None = field(hash=False)
    by: Person
    reason: str
    decision: Decision | None = None
    reservation: int | None = None
    run: str = ""
    closing: Closing | None = None

    @property
    def standing(self) -> str:
        """``"pending"``, ``"refused"``, ``"approved"``, ``"drawn"``, or how it was closed."""
        if self.closing is not None:
            return self.closing.kind
        if self.decision is None:
            return "pending"
        if not self.decision.approved:
            return "refused"
        return "drawn" if self.run else "approved"

    @property
    def until(self) -> str:
        """The last day on which a run may draw on it; empty unless it was approved."""
        return "" if self.decision is None else self.decision.until

    def overdue(self, day: str) -> bool:
        """Whether it was approved, and nobody drew on it in time."""
        return self.standing == "approved" and day > self.until


def take_request(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    """Enters a request: it charges nothing."""
    state = books.budgets.get(entry.budget)
    terms = ("unit", "adjacency")
    check_fields(data, "event", "steps", "label", "detail", "asked", "by", "reason", *terms)
    if state is None:
        raise ValueError("there is no such budget")
    for name in terms:
        if data[name] != getattr(state, name):
            raise ValueError(f"its {name} is {data[name]!r}, the budget's another")
    check_event(data["event"])
    books.requests[entry.number] = RequestState(
        number=entry.number,
        budget=entry.budget,
        at=entry.at,
        event=data["event"],
        steps=steps_of(data, data["event"]),
        label=text(data, "label"),
        detail=detail(data),
        asked=detail({"detail": data["asked"]}),
        by=_person(data["by"], "engineer", "officer"),
        reason=text(data, "reason"),
    )


def take_approve(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    """Enters an approval: the entry before it charges what was requested, and nothing else."""
    check_fields(data, "request", "by", "reason", "until")
    known = _pending(books, entry, data)
    decision = replace(_decision(entry, data, known), approved=True, until=_until(entry, data))
    held = books.reservations.get(entry.number - 1)
    if held is None or not _is_for(held, known):
        raise ValueError("the entry before it does not charge what was requested")
    # Nobody may take a step of it before a run has drawn on it.
    books.reservations[held.number] = replace(
        held, request=known.number, taken=False, label=known.label, detail=known.detail
    )
    books.requests[known.number] = replace(known, decision=decision, reservation=held.number)


def take_refuse(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    """Enters a refusal."""
    check_fields(data, "request", "by", "reason")
    known = _pending(books, entry, data)
    decision = _decision(entry, data, known)
    books.requests[known.number] = replace(known, decision=decision)


def take_draw(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    """Enters the run that the approved reservation belongs to from now on."""
    check_fields(data, "request", "run")
    known = _known(books, entry, data)
    run = text(data, "run")
    # Whoever decided right before midnight has written right after it.
    if known.standing != "approved" or not run or entry.at > _days_after(known.until, 1):
        raise ValueError(f"request {known.number} cannot be drawn on")
    held = _untouched(books, known)
    books.requests[known.number] = replace(known, run=run)
    books.reservations[held.number] = replace(held, taken=True, label=run)


def take_undraw(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    """Enters that a run gave its reservation back before the first step."""
    check_fields(data, "request")
    known = _known(books, entry, data)
    if known.standing != "drawn":
        raise ValueError(f"no run has drawn on request {known.number}")
    held = _untouched(books, known)
    books.requests[known.number] = replace(known, run="")
    books.reservations[held.number] = replace(held, taken=False, label=known.label)


def take_lapse(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    """Enters that nobody drew on an approval in time."""
    check_fields(data, "request")
    known = _known(books, entry, data)
    if not known.overdue(entry.at):
        raise ValueError(f"request {known.number} is not overdue")
    _close(books, known, Closing(entry.number, entry.at, "lapsed"))


def take_revoke(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    """Enters that an officer took an approval back before a run drew on it."""
    check_fields(data, "request", "by", "reason")
    known = _known(books, entry, data)
    by = _person(data["by"], "officer")
    if known.standing != "approved":
        raise ValueError(f"request {known.number} is no approval that could be revoked")
    _close(books, known, Closing(entry.number, entry.at, "revoked", by, text(data, "reason")))


def take_withdraw(books: Books, entry: Entry, data: dict[str, Any]) -> None:
    """Enters that whoever asked wants it no longer."""
    check_fields(data, "request", "by", "reason")
    known = _known(books, entry, data)
    by = _person(data["by"], "engineer", "officer")
    if known.standing not in ("pending", "approved") or by.key != known.by.key:
        raise ValueError(f"request {known.number} cannot be withdrawn with this key")
    _close(books, known, Closing(entry.number, entry.at, "withdrawn", by, text(data, "reason")))


def _close(books: Books, known: RequestState, closing: Closing) -> None:
    """The request ends; its reservation, if it has one, did so before, without a step."""
    if known.reservation is not None and not books.reservations[known.reservation].untouched:
        raise ValueError(f"reservation {known.reservation} has not ended, or was used")
    books.requests[known.number] = replace(known, closing=closing)


def closing(
    books: Books, known: RequestState, kind: str, by: Person | None = None, reason: str = ""
) -> list[Draft]:
    """The entries that close a request: one of ``kind``, after the end of its reservation."""
    body = {} if by is None else {"by": by.as_plain(), "reason": reason}
    held = None if known.reservation is None else books.reservations[known.reservation]
    ends = held is not None and not held.ended
    first = [Draft(known.budget, "end", {"reservation": known.reservation})] if ends else []
    return [*first, Draft(known.budget, kind, {"request": known.number, **body})]


def lapse(ledger: Ledger, budget: str | None = None) -> tuple[int, ...]:
    """Ends approvals that nobody used in time, of one budget or of all; returns their numbers.

    Guarantee: what is ended was never begun, and each goes back once, however many call this.
    """
    ended: list[int] = []

    def decide(books: Books) -> list[Draft]:
        late = _late(books, budget)
        ended[:] = [one.number for one in late]
        return [draft for one in late for draft in closing(books, one, "lapse")]

    if _late(ledger.refresh(), budget):
        ledger.append(decide)
    return tuple(ended)


def _late(books: Books, budget: str | None) -> list[RequestState]:
    day = day_of(books)
    return [
        one for one in books.requests.values()
        if one.overdue(day) and budget in (None, one.budget)
    ]  # fmt: skip


def day_of(books: Books) -> str:
    """The day of an entry that is written now."""
    return max(entries.today(), books.day)


def check_days(days: int) -> int:
    """Returns ``days`` if an approval can last as long."""
    if whole_number("days", days) > MOST_DAYS:
        raise InvalidArgument(f"days must be at most {MOST_DAYS}, got {days!r}")
    return int(days)


def until_after(books: Books, days: int) -> str:
    """The last day of an approval that is written now."""
    return _days_after(day_of(books), days)


def _days_after(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def _until(entry: Entry, data: dict[str, Any]) -> str:
    until = text(data, "until")
    if _days_after(until, 0) != until or not entry.at <= until <= _days_after(entry.at, MOST_DAYS):
        raise ValueError(f"until is no day from its own to {MOST_DAYS} days later")
    return until


def _decision(entry: Entry, data: dict[str, Any], known: RequestState) -> Decision:
    by = _person(data["by"], "officer")
    if by.key == known.by.key:
        raise ValueError("the key that asked has also decided")
    return Decision(entry.number, entry.at, False, by, text(data, "reason"))


def _known(books: Books, entry: Entry, data: dict[str, Any]) -> RequestState:
    number = whole(data, "request", 1, entry.number - 1)
    known = books.requests.get(number)
    if known is None or known.budget != entry.budget:
        raise ValueError(f"entry {number} is no request to {entry.budget!r}")
    return known


def _pending(books: Books, entry: Entry, data: dict[str, Any]) -> RequestState:
    known = _known(books, entry, data)
    if known.standing != "pending":
        raise ValueError(f"request {known.number} is decided already")
    return known


def _is_for(held: ReservationState, known: RequestState) -> bool:
    """Whether a reservation is of what was requested, and new."""
    return (
        held.budget == known.budget
        and held.request is None
        and (held.steps, held.granted, held.used, held.ended) == (known.steps, 0, False, False)
        and canonical(held.event) == canonical(known.event)
    )


def _untouched(books: Books, known: RequestState) -> ReservationState:
    held = books.reservations[known.reservation or 0]
    if held.ended or held.used:
        raise ValueError(f"reservation {held.number} is used or ended")
    return held


def _person(plain: Any, *roles: str) -> Person:
    check_fields(plain, "name", "role", "key")
    return Person(text(plain, "name"), one_of(plain, "role", roles), text(plain, "key"))


TAKERS = {
    "request": take_request,
    "approve": take_approve,
    "refuse": take_refuse,
    "draw": take_draw,
    "undraw": take_undraw,
    "lapse": take_lapse,
    "revoke": take_revoke,
    "withdraw": take_withdraw,
}
