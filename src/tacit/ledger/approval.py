"""Approval: a plan is asked for, allowed or refused by another key, and drawn on by one run.

The four functions write what ``tacit.ledger.requests`` reads; each is one transaction.

>>> import tempfile
>>> from tacit.accounting import Gaussian, Repeated
>>> from tacit.ledger import Ledger, Person, Release
>>> folder = tempfile.TemporaryDirectory()
>>> engineer, officer = Person("Ada", "engineer", "aa" * 16), Person("Bo", "officer", "bb" * 16)
>>> with Ledger(f"sqlite:///{folder.name}/budget.db") as ledger:
...     budget = ledger.open("patients", epsilon=8, delta=1e-5)
...     plan = Release(Repeated(Gaussian(40.0), 100))
...     asked = ask(ledger, "patients", plan, steps=100, by=engineer, reason="a first model")
...     held = approve(ledger, asked.number, by=officer, reason="within this year's plan")
...     draw(ledger, asked.number, run="recipe digits, run 1").lease(10)
10
>>> folder.cleanup()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidArgument
from tacit.ledger.budget import (
    Budget,
    Release,
    check_detail,
    check_label,
    check_reason,
    check_steps,
    plain_event,
)
from tacit.ledger.entries import Draft
from tacit.ledger.reservation import Reservation

if TYPE_CHECKING:
    from tacit.ledger.budget import Chargeable
    from tacit.ledger.ledger import Ledger
    from tacit.ledger.replay import Books
    from tacit.ledger.requests import Person, RequestState


def ask(
    ledger: Ledger,
    budget: str,
    what: Chargeable,
    *,
    steps: int = 1,
    by: Person,
    reason: str,
    label: str = "",
    detail: dict[str, Any] | None = None,
    asked: dict[str, Any] | None = None,
) -> RequestState:
    """Files a request for ``what``; nothing is charged.

    Arguments are as in ``Budget.reserve``; ``by`` is who asks, and ``reason`` what it is for.
    ``asked`` is anything in JSON's types to keep with the request, such as the run's settings.
    """
    count, name, kept = check_steps(steps, what.event), check_label(label), check_detail(detail)
    why, words = check_reason(reason), check_detail(asked)
    if by.role == "viewer":
        raise InvalidArgument(f"a viewer cannot ask for anything, got {by.name!a}")
    ledger.budget(budget)

    def decide(books: Books) -> list[Draft]:
        state = books.budgets[budget]
        body = {
            "event": plain_event(state, what), "steps": count, "label": name, "detail": kept,
            "asked": words, "unit": state.unit, "adjacency": state.adjacency,
            "by": by.as_plain(), "reason": why,
        }  # fmt: skip
        return [Draft(budget, "request", body)]

    (entry,) = ledger.append(decide)
    return ledger.books.requests[entry.number]


def approve(ledger: Ledger, number: int, *, by: Person, reason: str) -> RequestState:
    """Allows a request: the whole of it is charged.

    Guarantee:
        Approval and charge are one transaction, and a request is decided once, however many try at
        the same time. Who asked cannot approve: the keys differ.

    Raises:
        BudgetExceeded: if the budget does not hold it; the request is pending still.
    """
    why = check_reason(reason)

    def decide(books: Books) -> list[Draft]:
        known = _undecided(books, number, by)
        budget = Budget(ledger, known.budget)
        body = {"request": number, "by": by.as_plain(), "reason": why}
        charged = budget.approved(
            books, _release(books, known), known.steps, known.label, known.detail
        )
        return [*charged, Draft(known.budget, "approve", body)]

    ledger.append(decide, prepared=True)
    return ledger.books.requests[number]


def refuse(ledger: Ledger, number: int, *, by: Person, reason: str) -> RequestState:
    """Refuses a request, for good."""
    why = check_reason(reason)

    def decide(books: Books) -> list[Draft]:
        known = _undecided(books, number, by)
        body = {"request": number, "by": by.as_plain(), "reason": why}
        return [Draft(known.budget, "refuse", body)]

    ledger.append(decide)
    return ledger.books.requests[number]


def draw(ledger: Ledger, number: int, *, run: str) -> Reservation:
    """The reservation of an approved request, for the run of this label and no other.

    The run that drew on it before, and was interrupted, is given it again.
    """
    label = check_label(run)
    if not label:
        raise InvalidArgument("run must be the label of a run, got ''")

    def decide(books: Books) -> list[Draft]:
        known = request_of(books, number)
        if known.standing == "drawn" and known.run == label:
            return []
        held = None if known.reservation is None else books.reservations[known.reservation]
        if known.standing != "approved" or held is None or held.ended:
            why = _STANDINGS[known.standing] or "its reservation was ended"
            raise InvalidArgument(f"request {number} cannot be drawn on: {why}; file another one")
        return [Draft(known.budget, "draw", {"request": number, "run": label})]

    ledger.append(decide)
    return Reservation(ledger, ledger.books.requests[number].reservation or 0)


def undraw(ledger: Ledger, number: int) -> None:
    """Gives a reservation back that a run drew and took no step of: another may draw on it."""

    def decide(books: Books) -> list[Draft]:
        known = request_of(books, number)
        held = books.reservations.get(known.reservation or 0)
        if known.standing != "drawn" or held is None or held.used or held.ended:
            return []
        return [Draft(known.budget, "undraw", {"request": number})]

    ledger.append(decide)


def request_of(books: Books, number: int) -> RequestState:
    """The request with this number."""
    found = books.requests.get(number) if type(number) is int else None
    if found is None:
        raise InvalidArgument(
            f"request must be the number of a request in the ledger, got {number!r:.40}; "
            "tacit ledger list names them"
        )
    return found


_STANDINGS = {
    "pending": "nobody has approved it yet",
    "refused": "it was refused",
    "drawn": "another run has drawn on it",
    "approved": "",
}


def _undecided(books: Books, number: int, by: Person) -> RequestState:
    known = request_of(books, number)
    if by.role != "officer":
        raise InvalidArgument(f"only an officer decides about requests, got the role {by.role!r}")
    if by.key == known.by.key:
        raise InvalidArgument(
            f"request {number} was filed with this key; somebody with another one must decide"
        )
    if known.decision is not None:
        done = "approved" if known.decision.approved else "refused"
        raise InvalidArgument(
            f"request {number} was {done} already, by {known.decision.by.name!a}; nothing was "
            "changed"
        )
    return known


def _release(books: Books, known: RequestState) -> Release:
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    state = books.budgets[known.budget]
    return Release(from_dict(known.event), state.adjacency, state.unit)
