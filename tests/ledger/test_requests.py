"""Requests and approvals: entries of the chain, decided once by another key, drawn on once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tacit.accounting import Gaussian, PureDp, Repeated
from tacit.errors import BudgetExceeded, InvalidArgument, TamperedLedger
from tacit.ledger import (
    Ledger,
    Person,
    Release,
    approve,
    ask,
    draw,
    entries,
    lapse,
    refuse,
    revoke,
    undraw,
    withdraw,
)
from tacit.ledger.entries import Draft, Entry, canonical, hashed
from tacit.ledger.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable

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
    "approved for ever": ("approve", {"until": "2999-01-01"}),
    "approved until yesterday": ("approve", {"until": "2026-01-01"}),
    "approved until no day": ("approve", {"until": "2026-02-30"}),
    "approved until a day of another spelling": ("approve", {"until": "20270101"}),
    "lapsed before its last day": ("lapse", {}),
    "revoked by an engineer": ("revoke", {"by": ENGINEER.as_plain()}),
    "revoked while it is reserved": ("revoke", {}),
    "withdrawn by another key": ("withdraw", {"by": SECOND.as_plain()}),
    "withdrawn while it is reserved": ("withdraw", {"by": ENGINEER.as_plain()}),
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
    if name == "approved twice" or kind != "approve":
        approve(ledger, one.number, by=OFFICER, reason="yes")
    if kind == "approve":
        ledger.budget("data").reserve(PLAN, steps=100)
    by = {"request": one.number, "by": OFFICER.as_plain(), "reason": "yes"}
    body = {"approve": by | {"until": "2027-01-01"}, "revoke": by, "withdraw": by,
            }.get(kind, {"request": one.number}) | changes  # fmt: skip
    entries = [*ledger.history(), forged(ledger, Draft("data", kind, body))]
    with pytest.raises(TamperedLedger, match=f"entry {len(entries)} cannot be read"):
        replay(entries)


def test_an_approval_charges_what_was_asked_and_no_less(sqlite: Place) -> None:
    ledger = opened(sqlite)
    one = asked(ledger)
    ledger.budget("data").reserve(Release(Repeated(Gaussian(400.0), 100)), steps=100)
    by = {"by": OFFICER.as_plain(), "reason": "yes"}
    body = {"request": one.number, "until": "2026-11-30", **by}
    with pytest.raises(TamperedLedger, match="does not charge what was requested"):
        replay([*ledger.history(), forged(ledger, Draft("data", "approve", body))])


def test_a_step_of_an_approved_plan_without_its_run_is_refused(sqlite: Place) -> None:
    ledger = opened(sqlite)
    one = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes")
    body = {"reservation": one.reservation, "steps": 1, "holder": "a" * 32}
    with pytest.raises(TamperedLedger, match="no run has drawn"):
        replay([*ledger.history(), forged(ledger, Draft("data", "lease", body))])


# ---- approvals that nobody draws on


def test_an_approval_lapses_after_its_last_day(sqlite: Place, on: Callable[[str], None]) -> None:
    ledger = opened(sqlite, epsilon=1.0)
    one = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes", days=3)
    assert (one.until, ledger.history()[-1].data["until"]) == ("2026-12-04", "2026-12-04")
    spent, two = ledger.budget("data").spent().epsilon, asked(ledger)
    assert spent > 0.5
    with pytest.raises(BudgetExceeded):
        approve(ledger, two.number, by=OFFICER, reason="both do not fit")
    on("2026-12-04")
    assert lapse(ledger) == ()
    on("2026-12-05")
    other = sqlite.ledger()
    with pytest.raises(InvalidArgument, match=r"lapsed: no run drew on it by 2026-12-04; file an"):
        draw(other, one.number, run="late")
    assert [entry.kind for entry in other.history()][-2:] == ["end", "lapse"]
    assert other.history()[-1].at == "2026-12-05"
    assert (ledger.budget("data").spent().epsilon, lapse(ledger)) == (0.0, ())
    known = ledger.books.requests[one.number]
    assert (known.standing, known.closing and known.closing.by) == ("lapsed", None)
    assert approve(ledger, two.number, by=OFFICER, reason="now it fits").standing == "approved"
    for late in (revoke, withdraw, approve, refuse):
        with pytest.raises(InvalidArgument, match=r"lapsed|another"):
            late(ledger, one.number, by=OFFICER, reason="too late")
    assert replay(ledger.history()).requests == sqlite.ledger().books.requests
    assert ledger.verify().ok


def test_what_was_drawn_in_time_goes_on_after_it(sqlite: Place, on: Callable[[str], None]) -> None:
    ledger = opened(sqlite)
    one = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes", days=3)
    on("2026-12-04")
    draw(ledger, one.number, run="run 1").lease(10)
    on("2027-02-01")
    assert (lapse(ledger), draw(ledger, one.number, run="run 1").lease(10)) == ((), 10)
    two = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes", days=3)
    draw(ledger, two.number, run="run 2")
    on("2027-02-05")
    undraw(ledger, two.number)  # what never began is as if nobody had drawn on it
    assert lapse(ledger) == (two.number,)
    assert ledger.verify().ok


def test_a_reservation_takes_what_an_overdue_approval_holds(
    sqlite: Place, on: Callable[[str], None]
) -> None:
    ledger = opened(sqlite, epsilon=1.0)
    one = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes", days=1)
    with pytest.raises(BudgetExceeded):
        ledger.budget("data").reserve(PLAN, steps=100)
    on("2026-12-03")
    assert ledger.budget("data").reserve(PLAN, steps=100).lease(1) == 1
    assert ledger.books.requests[one.number].standing == "lapsed"


def test_fewer_steps_than_the_event_has_are_approved_by_every_rule(sqlite: Place) -> None:
    """An approval by a declared budget named all steps of the event, and nobody could read it."""
    ledger = sqlite.ledger()
    for name in ("basic", "renyi", "declared"):
        ledger.open(name, 4.0, 1e-5, composition=name)
        one = ask(ledger, name, PLAN, steps=60, by=ENGINEER, reason="a model")
        approve(ledger, one.number, by=OFFICER, reason="fine")
        held = draw(ledger, one.number, run=f"run of {name}")
        assert (held.lease(100), held.lease(100)) == (60, 0)
    assert ledger.verify().ok


def test_of_declared_plans_a_lapsed_one_stays_charged_once_one_has_begun(
    sqlite: Place, on: Callable[[str], None]
) -> None:
    """They were fixed together: what is released must not decide what is charged."""
    ledger = opened(sqlite, composition="declared")
    one, two = (approve(ledger, asked(ledger).number, by=OFFICER, reason="yes") for _ in range(2))
    draw(ledger, one.number, run="run").lease(1)
    spent = ledger.budget("data").spent().epsilon
    on("2027-02-01")
    assert lapse(ledger) == (two.number,)
    assert ledger.budget("data").spent().epsilon == spent
    assert ledger.verify().ok


def test_a_draw_right_before_midnight_may_be_dated_right_after_it(
    sqlite: Place, monkeypatch: pytest.MonkeyPatch, on: Callable[[str], None]
) -> None:
    on("2026-12-01")
    ledger = opened(sqlite)
    one = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes", days=1)
    days = ["2026-12-02"] * 2
    monkeypatch.setattr(entries, "today", lambda: days.pop() if days else "2026-12-03")
    draw(ledger, one.number, run="run").lease(1)
    late = next(entry for entry in ledger.history() if entry.kind == "draw")
    assert late.at == "2026-12-03"
    moved = hashed(replace(late, at="2026-12-04"))
    with pytest.raises(TamperedLedger, match="cannot be drawn on"):
        replay([*ledger.history()[: late.number - 1], moved])


def test_an_approval_lasts_some_days(sqlite: Place) -> None:
    ledger = opened(sqlite)
    one, bad = asked(ledger), (0, -1, 367, 2.5, True, "3")
    for days in bad:
        with pytest.raises(InvalidArgument, match="days must be"):
            approve(ledger, one.number, by=OFFICER, reason="yes", days=days)  # type: ignore[arg-type]
    assert ledger.refresh().requests[one.number].standing == "pending"


def test_an_officer_revokes_and_whoever_asked_withdraws(sqlite: Place) -> None:
    ledger = opened(sqlite)
    for act, by in ((revoke, SECOND), (withdraw, ENGINEER)):
        one = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes")
        for bad, why in ((ENGINEER, "only an officer"), (SECOND, "another key")):
            if bad is not by:
                with pytest.raises(InvalidArgument, match=why):
                    act(ledger, one.number, by=bad, reason="no")
        closed = act(ledger, one.number, by=by, reason="no longer needed").closing
        assert closed is not None
        assert (closed.by, closed.reason) == (by, "no longer needed")
        assert ledger.budget("data").spent().epsilon == 0.0
        for again in (act, approve, refuse):
            with pytest.raises(InvalidArgument, match=r"revoked|withdrawn|key|officer"):
                again(ledger, one.number, by=by, reason="again")
        with pytest.raises(InvalidArgument, match=r"(revoked|withdrawn); file another one"):
            draw(ledger, one.number, run="run")
    pending = asked(ledger)
    viewer = Person("Ada", "viewer", ENGINEER.key)  # whose key lost its role since
    with pytest.raises(InvalidArgument, match="a viewer cannot withdraw"):
        withdraw(ledger, pending.number, by=viewer, reason="no")
    with pytest.raises(InvalidArgument, match="nobody has approved it"):
        revoke(ledger, pending.number, by=OFFICER, reason="no")
    assert withdraw(ledger, pending.number, by=ENGINEER, reason="no").standing == "withdrawn"
    with pytest.raises(InvalidArgument, match="it was withdrawn; nothing was changed"):
        approve(ledger, pending.number, by=OFFICER, reason="too late")
    drawn = approve(ledger, asked(ledger).number, by=OFFICER, reason="yes")
    draw(ledger, drawn.number, run="run")
    for act, by in ((revoke, OFFICER), (withdraw, ENGINEER)):
        with pytest.raises(InvalidArgument, match="a run has drawn on it; nothing was changed"):
            act(ledger, drawn.number, by=by, reason="too late")
    assert replay(ledger.history()).requests == ledger.books.requests
    assert ledger.verify().ok


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_of_a_draw_a_revocation_and_two_lapses_at_once_one_counts(
    kind: str, request: pytest.FixtureRequest, on: Callable[[str], None]
) -> None:
    place: Place = request.getfixturevalue(kind)
    ledger = opened(place)
    one, two = (
        approve(ledger, asked(ledger).number, by=OFFICER, reason="yes", days=days)
        for days in (3, 30)
    )
    on("2026-12-20")
    acts: list[Callable[[Ledger], object]] = [
        lapse, lapse, lambda own: draw(own, two.number, run="run"),
        lambda own: revoke(own, two.number, by=OFFICER, reason="no"),
    ]  # fmt: skip
    ledgers, refused = [place.ledger() for _ in acts], []

    def go(act: Callable[[Ledger], object], own: Ledger) -> None:
        try:
            act(own)
        except InvalidArgument as error:
            refused.append(str(error))

    threads = [threading.Thread(target=go, args=pair) for pair in zip(acts, ledgers, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = [entry.kind for entry in ledger.history()]
    assert kinds.count("lapse") == 1
    assert kinds.count("draw") + kinds.count("revoke") == 1
    assert len(refused) == 1
    assert ledger.refresh().requests[one.number].standing == "lapsed"
    assert ledger.verify().ok


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the day; it is 2026-12-01 to begin with."""

    def go(day: str) -> None:
        monkeypatch.setattr(entries, "today", lambda: day)

    go("2026-12-01")
    return go


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
