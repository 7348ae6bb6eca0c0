"""Approval: a plan is asked for, allowed or refused by another key, and drawn on by one run.

An approval that nobody draws on lapses after its last day; until then an officer can revoke it, and
whoever asked can withdraw the request. The functions write what ``tacit.ledger.requests`` reads;
each is one transaction.

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
    check_chargeable,
    check_detail,
    check_label,
    check_reason,
    check_steps,
    plain_event,
)
from tacit.ledger.entries import Draft
from tacit.ledger.requests import APPROVAL_DAYS, check_days, closing, day_of, lapse, until_after
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
    check_chargeable(what)
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


def approve(
    ledger: Ledger, number: int, *, by: Person, reason: str, days: int = APPROVAL_DAYS
) -> RequestState:
    """Approves a request: all of it is charged, and one run may use it within ``days`` days.

    Days are those of UTC, as entries are dated; today is not counted. An approval that no run has
    drawn on by then lapses: what it charged goes back.

    Guarantee:
        Approval and charge are one transaction, and a request is decided once, however many try at
        the same time. Who asked cannot approve: the keys differ.

    Raises:
        BudgetExceeded: if the budget does not hold it; the request is pending still.
    """
    why, last = check_reason(reason), check_days(days)
    lapse(ledger)

    def decide(books: Books) -> list[Draft]:
        known = _undecided(books, number, by)
        budget = Budget(ledger, known.budget)
        until = until_after(books, last)
        body = {"request": number, "by": by.as_plain(), "reason": why, "until": until}
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

    The run that drew on it before, and was interrupted, is given it again, also after the last day.
    """
    label = check_label(run)
    if not label:
        raise InvalidArgument("run must be the label of a run, got ''")
    lapse(ledger)

    def decide(books: Books) -> list[Draft]:
        known = request_of(books, number)
        if known.standing == "drawn" and known.run == label:
            return []
        if known.standing == "drawn":
            raise _undrawable(known, "another run has drawn on it")
        check_drawable(books, number)
        return [Draft(known.budget, "draw", {"request": number, "run": label})]

    ledger.append(decide)
    return Reservation(ledger, ledger.books.requests[number].reservation or 0)


def undraw(ledger: Ledger, number: int) -> None:
    """Gives back a reservation of which a run took no step, so that another run may use it."""

    def decide(books: Books) -> list[Draft]:
        known = request_of(books, number)
        held = books.reservations.get(known.reservation or 0)
        if known.standing != "drawn" or held is None or held.used or held.ended:
            return []
        return [Draft(known.budget, "undraw", {"request": number})]

    ledger.append(decide)


def revoke(ledger: Ledger, number: int, *, by: Person, reason: str) -> RequestState:
    """Revokes an approval that no run has used, and frees what it charged.

    Guarantee: of a revocation and a run that draws at the same time, one counts.
    """
    why = check_reason(reason)

    def decide(books: Books) -> list[Draft]:
        known = request_of(books, number)
        if by.role != "officer":
            raise InvalidArgument(f"only an officer revokes approvals, got the role {by.role!r}")
        if known.standing != "approved":
            raise InvalidArgument(
                f"request {number} cannot be revoked: {_said(known)}; nothing was changed"
            )
        return closing(books, known, "revoke", by, why)

    ledger.append(decide)
    return ledger.books.requests[number]


def withdraw(ledger: Ledger, number: int, *, by: Person, reason: str) -> RequestState:
    """Withdraws your own request, if no run has used it, and frees what its approval charged."""
    why = check_reason(reason)
    if by.role == "viewer":
        raise InvalidArgument(f"a viewer cannot withdraw anything, got {by.name!a}")

    def decide(books: Books) -> list[Draft]:
        known = request_of(books, number)
        if by.key != known.by.key:
            raise InvalidArgument(
                f"request {number} was filed with another key; only its holder withdraws it"
            )
        if known.standing not in ("pending", "approved"):
            raise InvalidArgument(
                f"request {number} cannot be withdrawn: {_said(known)}; nothing was changed"
            )
        return closing(books, known, "withdraw", by, why)

    ledger.append(decide)
    return ledger.books.requests[number]


def request_of(books: Books, number: int) -> RequestState:
    """The request with this number."""
    found = books.requests.get(number) if type(number) is int else None
    if found is None:
        raise InvalidArgument(
            f"request must be the number of a request in the ledger, got {number!r:.40}; "
            "tacit ledger list names them"
        )
    return found


def check_drawable(books: Books, number: int) -> None:
    """Refuses a request that no run can draw on, before anything is begun."""
    known = request_of(books, number)
    if known.standing == "drawn":  # by whom is for the run that draws to find out
        return
    if known.standing != "approved" or known.overdue(day_of(books)):
        raise _undrawable(known, _said(known))
    if books.reservations[known.reservation or 0].ended:
        raise _undrawable(known, "its reservation was ended")


def _undrawable(known: RequestState, why: str) -> InvalidArgument:
    remedy = "have it approved" if known.standing == "pending" else "file another one"
    return InvalidArgument(f"request {known.number} cannot be drawn on: {why}; {remedy}")


def _said(known: RequestState) -> str:
    """Where a request stands, in words."""
    return {
        "pending": "nobody has approved it yet",
        "refused": "it was refused",
        "drawn": "a run has drawn on it",
        "approved": f"its approval ended on {known.until}",
        "lapsed": f"its approval lapsed: no run drew on it by {known.until}",
        "revoked": "its approval was revoked",
        "withdrawn": "it was withdrawn",
    }[known.standing]


def _undecided(books: Books, number: int, by: Person) -> RequestState:
    known = request_of(books, number)
    if by.role != "officer":
        raise InvalidArgument(f"only an officer decides about requests, got the role {by.role!r}")
    if by.key == known.by.key:
        raise InvalidArgument(
            f"request {number} was filed with this key; somebody with another one must decide"
        )
    if known.closing is not None:
        raise InvalidArgument(f"request {number} is closed: {_said(known)}; nothing was changed")
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
