"""The ledger: budgets in a database that only grows, and that no crash can make forget a charge."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, final

from tacit._validation import positive
from tacit.errors import InvalidArgument, LedgerError, TamperedLedger
from tacit.ledger.anchor import KEY_VARIABLE, AnchorFile, fixed_anchor, read_key, server_anchor
from tacit.ledger.budget import Budget, check_new_name, check_reason, opening
from tacit.ledger.entries import Draft, Entry, Head, break_between, entry_after, is_sealed_by
from tacit.ledger.replay import Books
from tacit.ledger.store import VERSION, Store
from tacit.ledger.verification import CHARGING, Verification, doubt, examine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from tacit.accounting.events import Adjacency
    from tacit.ledger.anchor import Anchored
    from tacit.ledger.replay import BudgetState, ReservationState
    from tacit.ledger.store import Writer

    Charged = tuple[Entry, BudgetState, ReservationState | None]

# A connection must not cross a fork: SQLite's locks do not, although its memory of them does, so
# that a child would write without them. All ledgers of a process therefore close theirs before it
# forks, when nothing is under way, and parent and child open new ones.
_LEDGERS: weakref.WeakSet[Ledger] = weakref.WeakSet()
_FORKING = threading.local()
_ADOPT = "If you know why, accept it: 'tacit ledger verify --accept' (Ledger.adopt) with the reason"


def _pause() -> None:
    _FORKING.ledgers = sorted(_LEDGERS, key=id)  # one order for all threads, so that none waits
    for ledger in _FORKING.ledgers:
        ledger._lock.acquire()
        with contextlib.suppress(Exception):  # the fork happens in any case
            ledger.close()


def _resume() -> None:
    for ledger in reversed(_FORKING.ledgers):
        ledger._lock.release()
    _FORKING.ledgers = []


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_resume)


@final
class Ledger:
    """The budgets at ``url``; makes the database if there is none.

    Args:
        url: A file (``"budget.db"``, ``"sqlite:///budget.db"``), or a server
            (``"postgresql://user@host/database"``).
        anchor: Where the newest entry is noted a second time. By default beside an SQLite file
            (``budget.db.anchor``), and in the user's state folder for PostgreSQL.
        key: A file with a secret of 32 bytes or more, kept where the database is not; by default
            the one that ``$TACIT_LEDGER_KEY`` names, if any. Entries and anchor are sealed with it.
        timeout: How many seconds to wait for other writers, or for a server that does not answer.
        create: Whether to make the ledger if there is none; if not, that is an error.

    Guarantee:
        A charge or lease that was granted is on the disk, in the chain and in the anchor. Processes
        that charge at once are granted no more than the limits together. A ledger in which an entry
        was changed, removed or reordered, which is older than its anchor, or which holds an entry
        that the rules do not allow, is refused. One that was rewritten whole together with its
        anchor, by rules and hashes that fit, is refused if it was sealed with a key. An older copy
        that is put back together with its own older anchor is not found by these; the ``head`` that
        checkpoints and statements carry tells, by ``contains``.

    >>> import tempfile
    >>> from tacit.accounting import PureDp
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"sqlite:///{folder.name}/budget.db")
    >>> budget = ledger.open("census", epsilon=1.0, delta=0.0)
    >>> budget.charge(PureDp(0.75)).epsilon, budget.remaining().epsilon
    (0.75, 0.25)
    >>> ledger.head.number, ledger.contains(ledger.head)
    (3, True)
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        anchor: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        create: bool = True,
    ) -> None:
        self._parts(url, key, timeout)
        try:
            self._anchor = self._found_anchor(anchor, create=create)
            self._check_or_make(create)
            self.refresh()
            anchored = self._anchor.read()
            if anchored is not None and anchored.head is None:
                # A ledger just made: refresh has found no more than its first entry.
                self._anchor.advance(self._books.ledger_id, self.head)
        except BaseException:
            self.close()
            raise

    def _parts(
        self, url: str | os.PathLike[str], key: str | os.PathLike[str] | None, timeout: float
    ) -> None:
        self._timeout = positive("timeout", timeout)
        self._key = read_key(key)
        self._store = Store(url, self._timeout)
        self._lock = threading.RLock()
        self._books = Books()
        self._unchecked: dict[str, list[Charged]] = {}
        weakref.finalize(self, self._store.close)
        _LEDGERS.add(self)

    def _found_anchor(
        self, anchor: str | os.PathLike[str] | None, *, create: bool, adopting: bool = False
    ) -> AnchorFile:
        fixed = fixed_anchor(self._store, anchor)
        if fixed is not None:
            return AnchorFile(fixed, self._timeout, self._key)
        return server_anchor(
            self._store, self._timeout, self._key, create=create, adopting=adopting
        )

    @classmethod
    def adopt(
        cls,
        url: str | os.PathLike[str],
        *,
        reason: str,
        anchor: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
    ) -> Ledger:
        """Opens a ledger whose anchor is missing, damaged or ahead of it, and records the reason.

        Use it after moving a ledger without its anchor, after restoring a backup, on a machine that
        uses a server's ledger for the first time, or with a ``key`` to seal one that is not yet.
        Charges that were made after a backup are lost from the count, and nobody can tell how many:
        that the ledger was adopted is recorded in it for good. One whose entries were changed, or
        are not allowed by the rules, is refused.
        """
        why = check_reason(reason)
        ledger = cls.__new__(cls)
        ledger._parts(url, key, timeout)
        try:
            if ledger._store.version() is None:
                raise LedgerError(f"there is no ledger at {ledger.location} to adopt")
            ledger._anchor = ledger._found_anchor(anchor, create=False, adopting=True)
            ledger._store.settle()
            ledger._take_over(why)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @property
    def location(self) -> str:
        """The address of the database, without a password."""
        return self._store.location

    @property
    def anchor(self) -> Path:
        """The file that knows the newest entry."""
        return self._anchor.path

    @property
    def identity(self) -> str:
        """The random name that the ledger gave itself when it was made."""
        return self._books.ledger_id

    @property
    def books(self) -> Books:
        """All budgets and reservations, as of the last time the ledger was read or written."""
        return self._books

    @property
    def head(self) -> Head:
        """The newest entry known, for checkpoints and statements."""
        assert self._books.head is not None  # entry 1 is written when a ledger is made
        return self._books.head

    def contains(self, head: Head | str) -> bool:
        """Whether the ledger still has the entry that ``head`` names, and all before it."""
        asked = Head.parse(head) if isinstance(head, str) else head
        return self.refresh().contains(asked)

    def open(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        unit: str = "example",
        adjacency: Adjacency = "add-remove",
        composition: str = "basic",
    ) -> Budget:
        """Opens the budget ``name``, which is made if there is none.

        Args:
            name: One line of text; it belongs to the data, such as ``"patients-2026"``. It must
                not look like the name of another budget.
            epsilon: The ε that all releases together may not exceed.
            delta: The δ of the same; 0 is possible with ``"basic"``, for pure releases.
            unit: Whom the budget protects: one ``"example"`` or one ``"user"``.
            adjacency: Which data sets are neighbours.
            composition: How charges add up: ``"basic"``, ``"renyi"`` or ``"declared"``, see
                ``tacit.ledger.composition``.

        Raises:
            InvalidArgument: if the budget exists with other limits; ``Budget.amend`` changes them.
        """
        draft = opening(name, epsilon, delta, unit, adjacency, composition)

        def decide(books: Books) -> list[Draft]:
            known = books.budgets.get(draft.budget)
            if known is None:
                check_new_name(draft.budget, books.budgets)
                return [draft]
            _check_same(known, draft)
            return []

        if draft.budget in self.refresh().budgets:  # only a new one needs the lock
            decide(self._books)
        else:
            self.append(decide)
        self.check(draft.budget)
        return Budget(self, draft.budget)

    def budget(self, name: str) -> Budget:
        """The budget ``name``, which must exist."""
        known = self.refresh().budgets
        if name not in known:
            names = ", ".join(map(ascii, known)) or "none"
            raise InvalidArgument(
                f"name must be that of a budget in {self.location}, got {name!a}; it has: {names}"
            )
        self.check(name)
        return Budget(self, name)

    def budgets(self) -> tuple[BudgetState, ...]:
        """Where all budgets stand, in the order in which they were opened."""
        found = self.refresh().budgets
        for name in found:
            self.check(name)
        return tuple(found.values())

    def check(self, name: str) -> None:
        """Computes again what others charged to the budget ``name`` since it was last checked.

        Raises:
            TamperedLedger: if one is charged less than its event costs, or more than the limits.
        """
        with self._lock:
            for charged in self._unchecked.get(name, ()):
                found = doubt(*charged)
                if found:
                    raise self._tampered(found)
            self._unchecked.pop(name, None)

    def history(self, name: str | None = None) -> tuple[Entry, ...]:
        """All entries, or those of the budget ``name``, oldest first."""
        with self._lock:
            if name is None:
                self.budgets()
            else:
                self.budget(name)
            known = self.refresh()
            found = self._store.read()
        last = None
        for entry in found:
            broken = break_between(last, entry)
            if broken:
                raise self._tampered(broken)
            last = entry.head
        if last is None or len(found) < len(known.hashes):
            raise self._tampered(f"entry {len(found) + 1} is missing")
        return tuple(one for one in found if name is None or one.budget == name)

    def verify(self) -> Verification:
        """Checks the chain, the anchor and the meaning of every entry; names every problem."""
        with self._lock:
            return examine(self._store, self._anchor)

    def refresh(self) -> Books:
        """Reads what others wrote, checks it, and returns the books."""
        with self._lock:
            anchored = self._anchor.read()
            self._enter(self._store.read(max(1, len(self._books.hashes))))
            if self._was_begun(anchored):
                # What the newer anchor knows may have come behind the entries that were read.
                anchored = self._anchor.read()
                self._enter(self._store.read(max(1, len(self._books.hashes))))
            if anchored is not None:
                self._check_anchor(anchored)
            if self._books.head is None:
                raise self._tampered("entry 1 is missing")
            if self._key is not None and not self._books.sealed:
                raise self._tampered(f"no entry is sealed, though a key was given. {_ADOPT}")
            return self._books

    def append(
        self, decide: Callable[[Books], Sequence[Draft]], *, prepared: bool = False
    ) -> tuple[Entry, ...]:
        """Writes what ``decide`` makes of the newest books, while nobody else can write.

        ``decide`` may raise to write nothing. If ``prepared`` it is asked once beforehand, so that
        what is slow about it (and remembered) does not hold up other writers.

        Guarantee: when this returns, the entries are committed, synced and anchored. When it
        raises, nothing may be taken as granted.
        """
        with self._lock:
            if prepared:
                self._rehearsed(decide(self.refresh()))
            anchored = self._anchor.read()
            if anchored is None:
                raise self._unanchored()
            with self._store.writing() as writer:
                entries = self._written(writer, decide, anchored)
            for entry in entries:
                self._books.take(entry)
            if entries:
                self._anchor.advance(self._books.ledger_id, self.head)
            return entries

    def close(self) -> None:
        """Closes the connection to the database."""
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.location!r})"

    def _written(
        self,
        writer: Writer,
        decide: Callable[[Books], Sequence[Draft]],
        anchored: Anchored | None,
    ) -> tuple[Entry, ...]:
        self._enter(writer.read(max(1, len(self._books.hashes))))
        if self._was_begun(anchored):
            anchored = self._anchor.read()
        if anchored is not None:
            self._check_anchor(anchored)
        entries = self._rehearsed(decide(self._books))
        writer.append(entries)
        return entries

    def _rehearsed(self, drafts: Iterable[Draft]) -> tuple[Entry, ...]:
        """The entries of ``drafts``, each read by a copy of the books as anybody will read it.

        What cannot be read, or be charged again from its event, would make the ledger unreadable.
        """
        books, entries = self._books.copy(), []
        for draft in drafts:
            self.check(draft.budget)
            made = entry_after(books.head, draft, not_before=books.day, key=self._key)
            try:
                books.take(made)
                if made.kind in CHARGING:
                    known = books.reservations.get(made.number)
                    found = doubt(made, books.budgets[made.budget], known)
                    if found:
                        raise TamperedLedger(found)
            except LedgerError as error:
                raise LedgerError(f"nothing was written: nobody could read it ({error})") from None
            entries.append(made)
        return tuple(entries)

    def _enter(self, entries: Iterable[Entry]) -> None:
        """Takes entries read from the database; the first is the last one known already."""
        rest = iter(entries)
        last = self._books.head
        if last is not None:
            again = next(rest, None)
            if again is None or again.head != last:
                raise self._tampered(
                    f"entry {last.number} was changed or removed while it was open"
                )
        for entry in rest:
            broken = break_between(self._books.head, entry)
            if broken:
                raise self._tampered(broken)
            self._books.take(entry)
            if not self._books.ledger_id:
                raise self._tampered("entry 1 does not begin a ledger")
            self._check_seal(entry)
            if entry.kind in CHARGING:
                state = self._books.budgets[entry.budget]
                known = self._books.reservations.get(entry.number)
                self._unchecked.setdefault(entry.budget, []).append((entry, state, known))

    def _check_seal(self, entry: Entry) -> None:
        if self._key is None and self._books.sealed:
            raise LedgerError(
                f"the ledger {self.location} is sealed with a key; name the file that holds it, by "
                f"key= or ${KEY_VARIABLE}"
            )
        if self._key is not None and self._books.sealed and not is_sealed_by(entry, self._key):
            raise self._tampered(f"entry {entry.number} was not sealed with this key")

    def _was_begun(self, anchored: Anchored | None) -> bool:
        """Whether the ledger was only being made when this was read, and has entries by now."""
        return anchored is not None and anchored.head is None and len(self._books.hashes) > 1

    def _check_anchor(self, anchored: Anchored) -> None:
        newest = self._books.head.number if self._books.head else 0
        head = anchored.head
        if newest and anchored.ledger_id != self._books.ledger_id:
            raise self._tampered(f"{self.anchor} is the anchor of another ledger. {_ADOPT}")
        if head is None and newest > 1:
            raise self._tampered(
                f"{self.anchor} knows no entry, though the newest is {newest}, so nobody can tell "
                f"whether this is the newest copy. {_ADOPT}"
            )
        if head is None or self._books.contains(head):
            return
        if head.number > newest:
            raise self._tampered(
                f"entry {head.number}, which {self.anchor} knows, is missing: the newest is "
                f"{newest}, so the end is missing or an older copy was put back"
            )
        raise self._tampered(
            f"entry {head.number} is not the one that {self.anchor} knows: the ledger was "
            "rewritten, or is another one"
        )

    def _check_or_make(self, create: bool) -> None:
        # Whoever makes a ledger begins its anchor first, and may do so right now.
        version = self._store.version()
        anchored = self._anchor.read()
        if version is None and anchored is not None:
            version = self._store.version()
        if version is None:
            self._check_fresh(anchored, create)
        elif anchored is None:
            raise self._unanchored()
        if version != VERSION:
            self._make()
        faults = self._store.faults()
        if faults:
            raise self._tampered(f"{faults[0]}. {_ADOPT}")
        self._store.settle()

    def _check_fresh(self, anchored: Anchored | None, create: bool) -> None:
        """Refuses to make a ledger where there was one, or where none can or should be made."""
        if anchored is not None and anchored.head is not None:
            raise self._tampered(
                f"entry {anchored.head.number}, which {self.anchor} knows, is missing: there is no "
                "ledger here any more"
            )
        if not create:
            raise LedgerError(f"there is no ledger at {self.location}; check the address")
        path = self._store.path
        if path is not None and not path.parent.is_dir():
            raise LedgerError(f"the folder {path.parent} does not exist; make it, or name another")

    def _make(self) -> None:
        """Makes the tables and the first entry, in one transaction."""
        name = self._anchor.begin().ledger_id
        self._store.make_file()
        with self._store.writing() as writer:
            writer.migrate()
            if not writer.read(1):
                first = Draft("", "ledger", {"id": name, "format": 1})
                writer.append([entry_after(None, first, key=self._key)])

    def _take_over(self, reason: str) -> None:
        try:
            before = self._anchor.read()
            anchored = str(before.head) if before and before.head else "nothing"
        except TamperedLedger:
            anchored = "unreadable"
        body = {"reason": reason, "anchored": anchored}
        self._enter(self._store.read())
        if self._books.head is None:
            raise self._tampered("entry 1 is missing")
        for name in self._books.budgets:
            self.check(name)
        with self._store.writing() as writer:
            writer.guard()
            entries = self._written(writer, lambda _: [Draft("", "adopt", body)], None)
        for entry in entries:
            self._books.take(entry)
        self._anchor.reset(self._books.ledger_id, self.head)

    def _tampered(self, what: str) -> TamperedLedger:
        return TamperedLedger(
            f"the ledger {self.location} cannot be trusted: {what}; nothing was granted. Run "
            "'tacit ledger verify', and put the newest copy back"
        )

    def _unanchored(self) -> LedgerError:
        return LedgerError(
            f"the ledger {self.location} has no anchor: {self.anchor} is missing, so nobody can "
            "tell whether this is the newest copy; put the file back, or run "
            "'tacit ledger verify --accept' (Ledger.adopt) with the reason"
        )


def _check_same(known: BudgetState, draft: Draft) -> None:
    for name in ("epsilon", "delta", "unit", "adjacency", "composition"):
        given, own = draft.body[name], getattr(known, name)
        if given != own:
            remedy = (
                "call amend on it with a reason to change its limits"
                if name in ("epsilon", "delta")
                else "open one with another name"
            )
            raise InvalidArgument(
                f"{name} of the budget {known.name!r} is {own!r}, got {given!r}; "
                f"leave the limits as they are (in Python ledger.budget({known.name!r})), or "
                f"{remedy}"
            )
