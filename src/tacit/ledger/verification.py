"""Verification: the whole ledger read again, and every problem named with the entry that has it.

The chain shows that entries are as they were written, not that tacit wrote them: whoever can write
the database can compute hashes as well. So what each entry means is computed again, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit._validation import printable
from tacit.errors import DamagedLedger, InvalidArgument, LedgerError, TacitError
from tacit.ledger import composition as rules
from tacit.ledger import entries as entries_of
from tacit.ledger.anchor import Anchored, AnchorFile, anchor_to_read, read_key
from tacit.ledger.entries import Head, break_between, hash_of, is_sealed_by
from tacit.ledger.replay import Books

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from tacit.ledger.entries import Entry
    from tacit.ledger.replay import BudgetState, ReservationState
    from tacit.ledger.store import Store

CHARGING = ("amend", "reserve", "declare")
_SLACK = 1e-9  # relative: what two builds of one accountant may differ by
# What a forged event may make of a computation.
_NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@final
@dataclass(frozen=True, slots=True)
class Verification:
    """What a check of a ledger found.

    ``problems`` each name the entry they concern; ``notes`` are worth knowing but are no problems.
    ``reached`` is False if the ledger could not be looked at, so that nothing is known to be wrong
    with it.
    """

    location: str
    entries: int
    head: Head | None
    anchored: Head | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reached: bool = True

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(
    url: str | os.PathLike[str],
    *,
    anchor: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,
) -> Verification:
    """Checks the ledger at ``url``, even one that ``Ledger`` refuses to open.

    Guarantee: as for ``Ledger.verify``. Nothing is written, and nothing but a wrong ``url`` or
    ``key`` raises.
    """
    from tacit.ledger.store import Store  # noqa: PLC0415 - SQLAlchemy

    secret = read_key(key)
    store = Store(url, timeout)
    try:
        return examine(store, AnchorFile(anchor_to_read(store, anchor), timeout, secret))
    finally:
        store.close()


def examine(store: Store, anchor: AnchorFile) -> Verification:
    """Checks the chain, the anchor and the meaning of every entry of the ledger in ``store``."""
    problems: list[str] = []
    anchored = _anchored(anchor, problems)
    known = anchored.head if anchored else None
    try:
        there = store.version() is not None
        problems += store.faults() if there else ()
        entries = store.read() if there else None
    except LedgerError as error:
        damaged = isinstance(error, DamagedLedger)
        return _found(store, None, known, [*problems, str(error)], lost=damaged)
    if entries is None:
        lost = f"; entry {known.number}, which the anchor knows, is missing" if known else ""
        missing = f"there is no ledger at {store.location}{lost}"
        return _found(store, None, known, [*problems, missing], lost=True)
    breaks = list(_breaks(entries))
    notes: list[str] = []
    problems += breaks
    problems += _against_anchor(entries, anchored, str(anchor.path))
    if not breaks:
        problems += _meaning(entries, anchor, anchored, notes)
    return _found(store, entries, known, problems, notes)


def _found(
    store: Store,
    entries: list[Entry] | None,
    anchored: Head | None,
    problems: list[str],
    notes: Sequence[str] = (),
    *,
    lost: bool = False,
) -> Verification:
    """``lost``: the ledger itself is missing or damaged, where the anchor may know of one."""
    unread = not entries and len(problems) == 1 and (anchored is None or not lost)
    return Verification(
        store.location,
        len(entries or ()),
        entries[-1].head if entries else None,
        anchored,
        tuple(map(printable, problems)),
        tuple(map(printable, notes)),
        reached=not unread,
    )


def _anchored(anchor: AnchorFile, problems: list[str]) -> Anchored | None:
    try:
        found = anchor.read()
    except LedgerError as error:
        problems.append(str(error))
        return Anchored("", None)
    return found


def _breaks(entries: list[Entry]) -> Iterator[str]:
    """Every place where the chain is broken; a broken entry is taken as it stands for the next."""
    last: Head | None = None
    if not entries:
        yield "entry 1 is missing"
    for entry in entries:
        broken = break_between(last, entry)
        if broken:
            yield broken
        last = entry.head


def _against_anchor(entries: list[Entry], anchored: Anchored | None, path: str) -> Iterator[str]:
    newest = entries[-1].number if entries else 0
    if anchored is None:
        yield f"the anchor {path} is missing: is entry {newest} the newest?"
        return
    head = anchored.head
    if head is None:
        if anchored.ledger_id and newest > 1:
            yield f"the anchor {path} knows no entry: is entry {newest} the newest?"
        return
    found = next((entry for entry in entries if entry.number == head.number), None)
    if found is None:
        yield (
            f"entry {head.number}, which {path} knows, is missing: the newest is {newest}, so "
            "the end is missing or an older copy was put back"
        )
    elif found.hash != head.hash or hash_of(found) != head.hash:
        yield (
            f"entry {head.number} is not the one that {path} knows: the ledger was rewritten, "
            "or is another one"
        )


def _meaning(
    entries: list[Entry], anchor: AnchorFile, anchored: Anchored | None, notes: list[str]
) -> Iterator[str]:
    """Whether every entry is one that the rules allow where it stands."""
    books, key = Books(), anchor.key
    for entry in entries:
        try:
            before = books.budgets.get(entry.budget)
            books.take(entry)
            yield from _unsealed(entry, books, key)
        except TacitError as error:
            yield str(error)
            return
        notes += _remarks(entry, before)
        state, known = books.budgets.get(entry.budget), books.reservations.get(entry.number)
        problem = None if state is None else doubt(entry, state, known)
        if problem:
            yield problem
    if entries and not books.ledger_id:
        yield "entry 1 does not begin a ledger"
    elif anchored is not None and anchored.ledger_id not in ("", books.ledger_id):
        yield f"{anchor.path} is the anchor of another ledger"
    if books.day > entries_of.today():
        notes.append(
            f"the newest entry is dated {books.day}, which is to come: a clock was wrong, and "
            "approvals count their days from there"
        )
    if key is None and books.sealed:
        notes.append("the seals of the entries were not checked: no key was given")
    if key is not None and not books.sealed:
        yield "no entry has a seal, although a key was given: it was stripped, or never sealed"


def _unsealed(entry: Entry, books: Books, key: bytes | None) -> Iterator[str]:
    if key is not None and books.sealed and not is_sealed_by(entry, key):
        yield f"entry {entry.number} was not sealed with this key"


def _remarks(entry: Entry, before: BudgetState | None) -> Iterator[str]:
    if entry.kind == "adopt":
        yield f"entry {entry.number}: the ledger was adopted, because: {entry.data['reason']}"
    if entry.kind == "amend" and before is not None:
        yield (
            f"entry {entry.number}: the limits of {entry.budget!r} were changed from "
            f"epsilon={before.epsilon!r}, delta={before.delta!r} to "
            f"epsilon={entry.data['epsilon']!r}, delta={entry.data['delta']!r}, because: "
            f"{entry.data['reason']}"
        )


def doubt(entry: Entry, state: BudgetState, known: ReservationState | None) -> str | None:
    """What is wrong with the charge or the limits of ``entry``, if anything.

    ``state`` is its budget after it, and ``known`` the reservation that it made, if it did.

    Guarantee: if None, the charge is no less than its event costs, and the budget is within its
    limits by its rule, both computed from the event itself.
    """
    if entry.kind not in CHARGING:
        return None
    try:
        if known is not None and undercharged(known, state):
            return f"entry {entry.number} charges less than its event costs"
        if not rules.within_limits(state):
            return f"entry {entry.number} takes the budget {entry.budget!r} over its limits"
    except InvalidArgument as error:
        return f"entry {entry.number} has no event that tacit knows: {_short(error)}"
    except (TacitError, *_NONSENSE) as error:
        return f"entry {entry.number} cannot be checked: {type(error).__name__}: {_short(error)}"
    return None


def _short(error: Exception) -> str:
    text = str(error)
    return printable(text if len(text) <= 300 else f"{text[:300]}…")


def undercharged(known: ReservationState, state: BudgetState) -> bool:
    """Whether a reservation of the budget ``state`` is charged less than its event costs."""
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    event = from_dict(known.event)
    # An ε that is not finite is of a rule that does not add up ε.
    endless = math.isinf(known.charge.epsilon)
    if not endless and not rules.covers(known.charge, event, state.adjacency, _SLACK):
        return True
    if state.composition != "renyi":
        return False
    cost = rules.renyi_cost(event, state.orders, state.adjacency)
    due = (*cost.divergences, cost.failures, cost.truncation)
    paid = (*known.charge.divergences, known.charge.failures, known.charge.truncation)
    return any(one * (1.0 + _SLACK) < other for one, other in zip(paid, due, strict=True))
