"""Requests and approvals: entries of the chain, decided once by another key, drawn on once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tacit.accounting import Gaussian, PureDp, Repeated
from tacit.errors import BudgetExceeded, InvalidArgument, TamperedLedger
from tacit.ledger import Ledger, Person, Release, approve, ask, draw, refuse, undraw
from tacit.ledger.entries import Draft, Entry, canonical, hashed
from tacit.ledger.replay import replay

if TYPE_CHECKING:
    from tacit.ledger import RequestState

    from .conftest import Place

ENGINEER = Person("Ada", "engineer", "a" * 32)
OFFICER = Person("Bo", "officer", "b" * 32)
SECOND = Person("Cy", "officer", "c" * 32)
PLAN = Release(Repeated(Gaussian(40.0), 100))


def asked(ledger: Ledger, what: Release = PLAN, by: Person = ENGINEER) -> RequestState:
    return ask(
        ledger, "data", what, steps=100, by=by, reason="a model", label="model 1", detail={"a": 1}
    )


def opened(place: Place, **given: Any) -> Ledger:
    ledger = place.ledger()
    ledger.open("data", **{"epsilon": 4.0, "delta": 1e-5, **given})
    return ledger


@pytest.mark.parametrize("composition", ["basic", "renyi", "declared"])
def test_a_request_is_asked_approved_and_drawn_on(sqlite: Place, composition: str) -> None:
    ledger = opened(sqlite, composition=composition)
    one = asked(ledger)
    assert (one.standing, ledger.budget("data").spent().epsilon) == ("pending", 0.0)
    done = approve(ledger, one.number, by=OFFICER, reason="fine")
    assert done.standing == "approved"
    assert done.decision is not None
    assert (done.decision.by, done.decision.reason) == (OFFICER, "fine")
    spent = ledger.budget("data").spent().epsilon
    assert spent > 0.5
    with pytest.raises(InvalidArgument, match="--request"):
        ledger.budget("data").reservation(done.reservation or 0).lease(1)
    held = draw(ledger, one.number, run="run 1")
    assert (held.lease(60), held.lease(60)) == (60, 40)
    assert draw(ledger, one.number, run="run 1").number == held.number  # resumed
    with pytest.raises(InvalidArgument, match="another run has drawn"):
        draw(ledger, one.number, run="run 2")
    assert ledger.budget("data").spent().epsilon == spent
    other = sqlite.ledger()  # read again from the database
    assert other.books.requests == ledger.books.requests
    assert other.books.reservations == ledger.books.reservations
    assert other.verify().ok


def test_postgresql_holds_requests_too(postgresql: Place) -> None:
    ledger = opened(postgresql)
    one, two = asked(ledger), asked(ledger)
    approve(ledger, one.number, by=OFFICER, reason="fine")
    refuse(ledger, two.number, by=OFFICER, reason="once is enough")
    draw(ledger, one.number, run="run 1").lease(100)
    other = postgresql.ledger()
    assert [known.standing for known in other.books.requests.values()] == ["drawn", "refused"]
    assert other.verify().ok


def test_the_one_who_asks_cannot_approve(sqlite: Place) -> None:
    ledger = opened(sqlite)
    one = asked(ledger, by=replace(OFFICER, name="the same key"))
    with pytest.raises(InvalidArgument, match="another one must decide"):
        approve(ledger, one.number, by=OFFICER, reason="mine")
    with pytest.raises(InvalidArgument, match="only an officer"):
        approve(ledger, one.number, by=ENGINEER, reason="mine")
    with pytest.raises(InvalidArgument, match="viewer"):
        asked(ledger, by=Person("Vi", "viewer", "d" * 32))
    assert approve(ledger, one.number, by=SECOND, reason="ok").standing == "approved"


def test_a_request_is_decided_once(sqlite: Place) -> None:
    ledger = opened(sqlite)
    one = asked(ledger)
    refuse(ledger, one.number, by=OFFICER, reason="no")
    for decide in (approve, refuse):
        with pytest.raises(InvalidArgument, match="refused already, by 'Bo'"):
            decide(ledger, one.number, by=SECOND, reason="yes")
    with pytest.raises(InvalidArgument, match="it was refused"):
        draw(ledger, one.number, run="run")
    with pytest.raises(InvalidArgument, match="number of a request"):
        approve(ledger, 1, by=SECOND, reason="yes")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_of_two_approvals_at_once_one_counts(kind: str, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(kind)
    ledger = opened(place)
    one = asked(ledger)
    said: list[str] = []

    def go(by: Person, own: Ledger) -> None:
        try:
            said.append(approve(own, one.number, by=by, reason="yes").standing)
        except InvalidArgument as error:
            said.append(str(error))

    people = [(OFFICER, place.ledger()), (SECOND, place.ledger())]
    threads = [threading.Thread(target=go, args=pair) for pair in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(text[:8] for text in said) == ["approved", "request "]
    assert [entry.kind for entry in ledger.history()].count("reserve") == 1
    assert ledger.verify().ok


def test_what_the_budget_does_not_hold_stays_pending(sqlite: Place) -> None:
    ledger = opened(sqlite, epsilon=0.1)
    one = asked(ledger)
    with pytest.raises(BudgetExceeded):
        approve(ledger, one.number, by=OFFICER, reason="yes")
    assert ledger.refresh().requests[one.number].standing == "pending"
    ledger.budget("data").amend(epsilon=4.0, reason="a new year")
    assert approve(ledger, one.number, by=OFFICER, reason="yes").standing == "approved"


def test_a_run_that_never_began_gives_back(sqlite: Place) -> None:
    ledger = opened(sqlite)
    one = asked(ledger)
    approve(ledger, one.number, by=OFFICER, reason="yes")
    draw(ledger, one.number, run="run 1")
    undraw(ledger, one.number)
    held = draw(ledger, one.number, run="run 2")
    held.lease(1)
    undraw(ledger, one.number)  # too late: nothing is written
    assert ledger.refresh().requests[one.number].run == "run 2"


def test_another_reservation_of_the_same_event_does_not_take_the_approved_one(
    sqlite: Place,
) -> None:
    ledger = opened(sqlite, composition="declared")
    one = asked(ledger)
    approve(ledger, one.number, by=OFFICER, reason="yes")
    with pytest.raises(BudgetExceeded):
        ledger.budget("data").reserve(PLAN, steps=100)
    assert draw(ledger, one.number, run="run").lease(1) == 1


def test_an_ended_approval_is_free_again(sqlite: Place) -> None:
    ledger = opened(sqlite)
    one = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes")
    ledger.budget("data").reservation(one.reservation or 0).end()
    assert ledger.budget("data").spent().epsilon == 0.0
    with pytest.raises(InvalidArgument, match="was ended"):
        draw(ledger, one.number, run="run")


FORGERIES = {
    "approved by the key that asked": (
        "approve",
        {"by": ENGINEER.as_plain() | {"role": "officer"}},
    ),
    "approved by an engineer": ("approve", {"by": Person("X", "engineer", "e" * 32).as_plain()}),
    "a role that is none": ("approve", {"by": OFFICER.as_plain() | {"role": "king"}}),
    "no fingerprint": ("approve", {"by": OFFICER.as_plain() | {"key": "short"}}),
    "a name that hides": ("approve", {"by": OFFICER.as_plain() | {"name": "B\u202eo"}}),
    "of no request": ("approve", {"request": 1}),
    "approved twice": ("approve", {}),
    "drawn by nobody": ("draw", {"run": ""}),
    "drawn with more fields": ("draw", {"run": "run", "steps": 3}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_the_rules_do_not_allow_is_refused_though_its_hash_fits(
    name: str, sqlite: Place
) -> None:
    ledger = opened(sqlite)
    one = asked(ledger)
    kind, changes = FORGERIES[name]
    if name == "approved twice" or kind == "draw":
        approve(ledger, one.number, by=OFFICER, reason="yes")
    if kind == "approve":
        ledger.budget("data").reserve(PLAN, steps=100)
    body = {"approve": {"request": one.number, "by": OFFICER.as_plain(), "reason": "yes"},
            "draw": {"request": one.number}}[kind] | changes  # fmt: skip
    entries = [*ledger.history(), forged(ledger, Draft("data", kind, body))]
    with pytest.raises(TamperedLedger, match=f"entry {len(entries)} cannot be read"):
        replay(entries)


def test_an_approval_charges_what_was_asked_and_no_less(sqlite: Place) -> None:
    ledger = opened(sqlite)
    one = asked(ledger)
    ledger.budget("data").reserve(Release(Repeated(Gaussian(400.0), 100)), steps=100)
    body = {"request": one.number, "by": OFFICER.as_plain(), "reason": "yes"}
    with pytest.raises(TamperedLedger, match="does not charge what was requested"):
        replay([*ledger.history(), forged(ledger, Draft("data", "approve", body))])


def test_a_step_of_an_approved_plan_without_its_run_is_refused(sqlite: Place) -> None:
    ledger = opened(sqlite)
    one = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes")
    body = {"reservation": one.reservation, "steps": 1, "holder": "a" * 32}
    with pytest.raises(TamperedLedger, match="no run has drawn"):
        replay([*ledger.history(), forged(ledger, Draft("data", "lease", body))])


def forged(ledger: Ledger, draft: Draft) -> Entry:
    head = ledger.head
    day = ledger.books.day
    return hashed(
        Entry(head.number + 1, draft.budget, draft.kind, day, canonical(draft.body), head.hash, "")
    )


def test_a_person_has_a_name_a_role_and_a_key() -> None:
    for bad in (("", "officer", "a" * 32), ("Ada\n", "officer", "a" * 32),
                ("Ada", "boss", "a" * 32), ("Ada", "officer", "a" * 31)):  # fmt: skip
        with pytest.raises(InvalidArgument):
            Person(*bad)


def test_eight_writers_at_once_lose_nothing_and_overspend_nothing(place: Place) -> None:
    """Each files two requests and approves whatever it finds; the budget holds five of sixteen."""
    ledger = opened(place, epsilon=1.0, delta=1e-4)
    what = Release(PureDp(0.19))
    ledgers = [place.ledger(timeout=60.0) for _ in range(8)]
    refused: list[str] = []

    def go(own: Ledger, at: int) -> None:
        engineer = Person(f"engineer {at}", "engineer", f"{at:032x}")
        officer = Person(f"officer {at}", "officer", f"{at + 100:032x}")
        for _ in range(2):
            ask(own, "data", what, by=engineer, reason="a count")
            for known in list(own.refresh().requests.values()):
                if known.standing == "pending":
                    try:
                        approve(own, known.number, by=officer, reason="yes")
                    except (InvalidArgument, BudgetExceeded) as error:
                        refused.append(type(error).__name__)

    threads = [threading.Thread(target=go, args=(own, at)) for at, own in enumerate(ledgers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    books = ledger.refresh()
    standings = [known.standing for known in books.requests.values()]
    assert (len(standings), standings.count("approved")) == (16, 5)
    assert books.budgets["data"].totals.charges == 5
    assert ledger.verify().ok
    assert "BudgetExceeded" in refused
