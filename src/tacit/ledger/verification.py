"""Verification: the whole ledger read anew, and every problem told with the entry that has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit.errors import InvalidArgument, LedgerError, TacitError
from tacit.ledger import composition as rules
from tacit.ledger.entries import Head, break_between, hash_of
from tacit.ledger.replay import Books

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from tacit.ledger.anchor import AnchorFile
    from tacit.ledger.entries import Entry
    from tacit.ledger.replay import BudgetState
    from tacit.ledger.store import Store

_SLACK = 1e-9  # relative: what two builds of one accountant may differ by


@final
@dataclass(frozen=True, slots=True)
class Verification:
    """What a check of a ledger found.

    ``problems`` each name the entry they concern; ``notes`` are worth knowing but are no problems.
    """

    location: str
    entries: int
    head: Head | None
    anchored: Head | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(
    url: str, *, anchor: str | os.PathLike[str] | None = None, timeout: float = 30.0
) -> Verification:
    """Checks the ledger at ``url``, also one that ``Ledger`` refuses to open.

    Guarantee: as for ``Ledger.verify``. Nothing is written, and nothing but a wrong ``url`` raises.
    """
    from tacit.ledger.anchor import AnchorFile  # noqa: PLC0415
    from tacit.ledger.ledger import anchor_path  # noqa: PLC0415 - that module needs this one
    from tacit.ledger.store import Store  # noqa: PLC0415

    store = Store(url, timeout)
    try:
        return examine(store, AnchorFile(anchor_path(store, anchor), timeout))
    finally:
        store.close()


def examine(store: Store, anchor: AnchorFile) -> Verification:
    """Checks the chain, the anchor and the sums of the ledger in ``store``."""
    problems: list[str] = []
    anchored, missing = _anchored(anchor, problems)
    try:
        entries = store.read() if store.version() is not None else None
    except LedgerError as error:
        return Verification(store.location, 0, None, anchored, (*problems, str(error)))
    if entries is None:
        lost = f"; entry {anchored.number}, which the anchor knows, is missing" if anchored else ""
        problems.append(f"there is no ledger at {store.location}{lost}")
        return Verification(store.location, 0, None, anchored, tuple(problems))
    breaks = list(_breaks(entries))
    problems += breaks
    head = entries[-1].head if entries else None
    notes: list[str] = []
    if missing:
        newest = head.number if head else 0
        # A machine that has not used a server's ledger yet has no anchor of it.
        found = notes if store.kind == "postgresql" else problems
        found.append(f"the anchor {anchor.path} is missing: is entry {newest} the newest?")
    problems += _against_anchor(entries, anchored, str(anchor.path))
    if not breaks:
        problems += _sums(entries, notes)
    return Verification(store.location, len(entries), head, anchored, tuple(problems), tuple(notes))


def _anchored(anchor: AnchorFile, problems: list[str]) -> tuple[Head | None, bool]:
    try:
        found = anchor.read()
    except LedgerError as error:
        problems.append(str(error))
        return None, False
    return (found.head if found else None), found is None


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


def _against_anchor(entries: list[Entry], anchored: Head | None, path: str) -> Iterator[str]:
    if anchored is None:
        return
    found = next((entry for entry in entries if entry.number == anchored.number), None)
    if found is None:
        newest = entries[-1].number if entries else 0
        yield (
            f"entry {anchored.number}, which {path} knows, is missing: the newest is {newest}, so "
            "the end was cut off or an older copy was put back"
        )
    elif found.hash != anchored.hash or hash_of(found) != anchored.hash:
        yield (
            f"entry {anchored.number} is not the one that {path} knows: the ledger was rewritten, "
            "or is another one"
        )


def _sums(entries: list[Entry], notes: list[str]) -> Iterator[str]:
    """Whether every charge is as large as its event, and every budget within its limits."""
    books = Books()
    for entry in entries:
        try:
            books.take(entry)
            yield from _about(entry, books, notes)
        except TacitError as error:
            yield f"entry {entry.number} cannot be checked: {error}"
            return


def _about(entry: Entry, books: Books, notes: list[str]) -> Iterator[str]:
    if entry.kind == "adopt":
        notes.append(
            f"entry {entry.number}: the ledger was adopted, because: {entry.data.get('reason')}"
        )
    if entry.kind in ("reserve", "declare"):
        yield from _undercharged(entry, books.budgets[entry.budget], books)
    raising = entry.kind in ("amend", "reserve", "declare")
    if raising and not rules.within_limits(books.budgets[entry.budget]):
        yield f"entry {entry.number} takes the budget {entry.budget!r} over its limits"


def _undercharged(entry: Entry, state: BudgetState, books: Books) -> Iterator[str]:
    from tacit.accounting.serialization import from_plain  # noqa: PLC0415

    known = books.reservations[entry.number]
    told = f"entry {entry.number} charges less than its event costs"
    try:
        event = from_plain(known.event)
    except InvalidArgument as error:
        yield f"entry {entry.number} has no event that tacit knows: {error}"
        return
    if state.composition == "renyi":
        cost = rules.renyi_cost(event, state.orders, state.adjacency)
        due = (*cost.divergences, cost.failures, cost.truncation)
        paid = (*known.charge.divergences, known.charge.failures, known.charge.truncation)
        if any(one * (1.0 + _SLACK) < other for one, other in zip(paid, due, strict=True)):
            yield told
    elif not rules.covers(known.charge, event, state.adjacency, _SLACK):
        yield told
