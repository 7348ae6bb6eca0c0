"""Budgets for a page: where each stands, how it got there, what would be left, and what is amiss.

Everything is computed again from the entries of the ledger, whose chain is checked when it is read.
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, final

from tacit._numbers import at_least, at_most, compact, per_hundred
from tacit.errors import InvalidArgument, TacitError, TamperedLedger
from tacit.ledger import composition as rules
from tacit.ledger.replay import Totals
from tacit.reports.ledger_summary import BudgetAccount, account
from tacit.serve.charts import bar
from tacit.serve.planner import Room

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markupsafe import Markup

    from tacit.accounting.events import Event
    from tacit.ledger import BudgetState, Ledger, RequestState, ReservationState
    from tacit.ledger.entries import Entry
    from tacit.ledger.replay import Books

LEVELS: Final = ((0.95, "alarm"), (0.80, "warning"))
ROWS: Final = 50  # releases on one page
_AGAIN: Final = 30.0  # seconds after which a ledger that cannot be trusted is looked at again
_POINTS: Final = 240  # of a burn-down that is drawn
_SHORT: Final = 60  # characters of an event in a table


@final
@dataclass(frozen=True, slots=True)
class Alert:
    """Something that somebody should look at; ``level`` is ``"warning"`` or ``"alarm"``."""

    level: str
    text: str
    link: str = ""


@final
@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """Allowed, spent, reserved and free ε of a budget, each rounded to the safe side, and a bar."""

    allowed: str
    delta: str
    spent: str
    reserved: str
    free: str
    picture: Markup
    odds: str
    meaning: str


@final
class StillReading(TacitError):
    """The charges of a ledger are being computed again, which takes a while the first time."""


@final
@dataclass(slots=True)
class LedgerView:
    """A ledger as pages see it: read again for every page, and summed up again if it has grown.

    The first time every charge is computed again, some milliseconds each: a thread does it, and
    whoever asks meanwhile is refused in one line rather than kept waiting.
    """

    ledger: Ledger
    patience: float = 0.1  # seconds
    _entries: tuple[Entry, ...] = ()
    _accounts: dict[str, BudgetAccount] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reader: threading.Thread | None = None
    _tampered: tuple[float, str] = (-1e9, "")

    def read(self) -> None:
        """Begins to read the ledger, and waits a little for the end of it.

        Raises:
            StillReading: if it has not ended.
        """
        with self._lock:
            if self._reader is None:
                self._reader = threading.Thread(target=self._checked, daemon=True)
                self._reader.start()
        self._reader.join(self.patience)
        if self._reader.is_alive():
            raise StillReading(
                "every charge of the ledger is being computed again; this takes a moment after the "
                "server was started"
            )

    def _checked(self) -> None:
        with contextlib.suppress(TacitError):  # who asks next is given the reason
            self._refreshed()

    def _refreshed(self) -> None:
        """Reads what is new and computes it again; one that cannot be trusted, not at once."""
        at, why = self._tampered
        if time.monotonic() - at < _AGAIN:
            raise TamperedLedger(why)
        try:
            self.ledger.budgets()
        except TamperedLedger as error:
            self._tampered = (time.monotonic(), str(error))
            raise

    def books(self) -> Books:
        """The newest books, every charge computed again; a copy, as others write meanwhile."""
        self.read()
        with self._lock:
            self._refreshed()
            live = self.ledger.books
            found = copy.copy(live)
            found.budgets, found.reservations = dict(live.budgets), dict(live.reservations)
            found.requests, found.hashes = dict(live.requests), list(live.hashes)
        return found

    def entries(self) -> tuple[Entry, ...]:
        """All entries, the chain checked from the first to the last."""
        found = self.ledger.history()
        with self._lock:
            if [one.head for one in self._entries[-1:]] != [one.head for one in found[-1:]]:
                self._entries, self._accounts = found, {}
        return found

    def account(self, name: str) -> BudgetAccount:
        """How one budget got to where it stands."""
        found = self.entries()
        with self._lock:
            if name not in self._accounts:
                self._accounts[name] = account([one for one in found if one.budget == name])
            return self._accounts[name]


# ---- one budget


def figures(state: BudgetState, reservations: Sequence[ReservationState]) -> BudgetFigures:
    """Where a budget stands: what was begun is spent, what was only charged is reserved."""
    begun = rules.spent(_only_begun(state, reservations))
    total, left = rules.spent(state), rules.remaining(state)
    reserved = max(0.0, total.epsilon - begun.epsilon)
    shares = (("spent", begun.share), ("reserved", max(0.0, total.share - begun.share)))
    said = (
        f"{state.name}: ε = {at_most(state.epsilon)} allowed, {at_most(begun.epsilon, 4)} spent, "
        f"{at_most(reserved, 4)} reserved, {_free(left.epsilon, state.epsilon)} free"
    )
    return BudgetFigures(
        allowed=at_most(state.epsilon),
        delta=at_most(state.delta),
        spent=at_most(begun.epsilon, 4),
        reserved=at_most(reserved, 4),
        free=_free(left.epsilon, state.epsilon),
        picture=bar(said, shares),
        odds=_odds(total.epsilon, total.delta),
        meaning=left.meaning,
    )


def _free(left: float, allowed: float) -> str:
    """What is left, rounded down: dust that sums leave behind is nothing.

    >>> _free(4.984e-12, 1.0), _free(0.31416, 1.0)
    ('0', '0.3141')
    """
    return at_least(left, 4) if left > 1e-9 * allowed else "0"


def _only_begun(state: BudgetState, reservations: Sequence[ReservationState]) -> BudgetState:
    """The budget as if only what may have been released were charged."""
    begun = [one for one in reservations if (one.used or one.granted) and not one.void]
    totals = Totals()
    for one in begun:
        totals = totals.plus(one.charge)
    numbers = {one.number for one in begun}
    declared = {number: event for number, event in state.declared.items() if number in numbers}
    return replace(state, totals=totals, declared=declared)


def _odds(epsilon: float, delta: float, rate: float = 0.01) -> str:
    """What an attacker could win from all of it, by the one pair (ε, δ)."""
    if epsilon > 700.0:
        return "100 of 100"
    found = min(
        1.0, math.exp(epsilon) * rate + delta, 1.0 - math.exp(-epsilon) * (1.0 - delta - rate)
    )
    return f"{per_hundred(found)} of 100"


def granted(state: BudgetState, events: Sequence[Event]) -> Room:
    """What would be left if all of ``events`` were charged now, by the budget's own rule."""
    before = rules.spent(state).share
    try:
        after = _charged(state, events)
    except TacitError as error:
        return Room(state.name, False, str(error)[:300], before, before)
    if after is None:
        left = rules.remaining(state)
        return Room(
            state.name, False,
            f"it does not fit: ε = {at_least(left.epsilon, 4)} is free ({left.meaning})",
            before, before,
        )  # fmt: skip
    left, total = rules.remaining(after), rules.spent(after)
    return Room(
        state.name, True,
        f"ε = {at_least(left.epsilon, 4)} of {at_most(state.epsilon)} would be left; from all of "
        f"it together an attacker with 1 false alarm in 100 finds at most "
        f"{_odds(total.epsilon, total.delta)}",
        before, total.share,
    )  # fmt: skip


def _charged(state: BudgetState, events: Sequence[Event]) -> BudgetState | None:
    from tacit.accounting.serialization import as_dict  # noqa: PLC0415

    if state.composition == "declared":
        if state.begun:
            raise InvalidArgument("something was released already, so nothing more is declared")
        charges = rules.composed_charges(state, events)
        if charges is None:
            return None
        totals = state.totals
        for charge in charges:
            totals = totals.plus(charge)
        more = {-at: as_dict(event) for at, event in enumerate(events, 1)}
        return replace(state, totals=totals, declared=state.declared | more)
    for event in events:
        own = rules.charge_for(state, event)
        if own is None:
            return None
        state = replace(state, totals=state.totals.plus(own))
    return state


def what_if(books: Books, state: BudgetState, numbers: Sequence[int]) -> Room | None:
    """What these pending requests would leave; None without any."""
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    chosen = [
        one for one in books.requests.values()
        if one.number in numbers and one.budget == state.name and one.standing == "pending"
    ]  # fmt: skip
    return granted(state, [from_dict(one.event) for one in chosen]) if chosen else None


def burn_down(found: BudgetAccount) -> dict[str, Any]:
    """The part of the budget that was left after each change, for a drawing: days and shares."""
    changes = found.changes
    apart = max(1, math.ceil(len(changes) / _POINTS))
    chosen = changes[::-1][::apart][::-1]
    of_day: dict[str, int] = {}
    for one in chosen:
        of_day[one.at[:10]] = of_day.get(one.at[:10], 0) + 1
    seen: dict[str, int] = {}
    times = []
    for one in chosen:
        day = one.at[:10]
        seen[day] = seen.get(day, 0) + 1
        # Entries have a day and an order, and no time of day.
        start = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC).timestamp()
        times.append(start + 86_400.0 * (seen[day] - 1) / of_day[day])
    return {"times": times, "left": [round(100.0 * one.share, 4) for one in chosen]}


# ---- alerts


def alerts(books: Books) -> Iterator[Alert]:
    """Budgets that are nearly used up, and reservations that nobody finished."""
    for state in books.budgets.values():
        share = rules.spent(state).share
        level = next((name for least, name in LEVELS if share >= least), None)
        if level is not None:
            yield Alert(
                level,
                f"{math.floor(100 * share)} % of the budget {state.name!r} is spent or reserved.",
                f"/budgets/{state.name}",
            )


def age(at: str) -> str:
    """How long ago a day was, in words."""
    days = (datetime.now(UTC).date() - date.fromisoformat(at[:10])).days
    return "today" if days <= 0 else "yesterday" if days == 1 else f"{days} days ago"


def event(plain: dict[str, Any]) -> tuple[str, str]:
    """What was released, in a few words and in all of them; whoever wrote the entry chose it."""
    from tacit.statement import words  # noqa: PLC0415

    try:
        short, whole = _brief(plain), words.mechanism(plain)
    except (LookupError, TypeError, ValueError):
        short = whole = str(plain.get("kind", ""))
    return (short if len(short) <= _SHORT else f"{short[:_SHORT].rstrip()}…"), whole


def _brief(plain: Mapping[str, Any]) -> str:
    """The commonest events in a few words, others as they are."""
    from tacit.statement import words  # noqa: PLC0415

    match plain:
        case {"kind": "Repeated", "event": inner, "times": times}:
            return f"{times:,} × {_brief(inner)}"
        case {"kind": "PoissonSampled", "rate": rate, "event": inner, "cap": None}:
            return f"Poisson {compact(rate, 4)}, {_brief(inner)}"
        case {"kind": "Gaussian", "sigma": sigma, "replace_distance": 2.0}:
            return f"Gaussian σ = {compact(sigma, 4)}"
        case _:
            return words.mechanism(plain)


def in_turn(books: Books) -> list[RequestState]:
    """All requests: those that wait for somebody first, then the others, newest first."""
    newest = list(books.requests.values())[::-1]
    return sorted(newest, key=lambda one: one.standing not in ("pending", "approved"))


def pending(books: Books, budget: str | None = None) -> list[RequestState]:
    """The requests that nobody has decided, newest first."""
    found = [
        one for one in books.requests.values()
        if one.standing == "pending" and budget in (None, one.budget)
    ]  # fmt: skip
    return found[::-1]
