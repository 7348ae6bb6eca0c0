"""The anchor: a small file beside the ledger that knows its newest entry.

The chain of hashes shows what was changed inside a ledger, but not that its end is missing: an
older copy is a perfectly good chain. So the newest entry's number and hash are kept a second time.
The file is written after each commit and before anything is granted: what was granted is anchored.

The anchor of a ledger on a server lies in the user's state folder, under the id that the ledger
gave itself: one server has many addresses. A second file there notes which ledger an address had.

Who can write the database can often write the anchor as well. With a key that is kept elsewhere,
the anchor and each entry are sealed (HMAC-SHA256), and cannot be forged without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tacit._files import OWNER_ONLY, locked, put
from tacit.errors import InvalidArgument, LedgerError, TamperedLedger
from tacit.ledger.entries import Head, canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.ledger.store import Store

KEY_VARIABLE = "TACIT_LEDGER_KEY"
_LARGEST = 4096  # bytes of an anchor or a key
_SHORTEST_KEY = 32
_ACCEPT = (
    "Find out why, then run 'tacit ledger verify --accept' or call Ledger.adopt with the reason"
)


@final
@dataclass(frozen=True, slots=True)
class Anchored:
    """What the file says: the ledger's name for itself and its newest entry, if it had any."""

    ledger_id: str
    head: Head | None


@final
@dataclass(frozen=True, slots=True)
class AnchorFile:
    """The anchor at ``path``.

    Guarantee: the file holds either all of one anchor or all of the one before, also after a crash
    of the machine, and never goes back to an older one, however many processes write it.
    """

    path: Path
    timeout: float = 30.0
    key: bytes | None = field(default=None, repr=False)

    def read(self) -> Anchored | None:
        """What was anchored last; None if there is no file."""
        try:
            raw = _small_file(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = error.strerror or error
            raise LedgerError(f"the anchor {self.path} cannot be read: {reason}") from None
        try:
            plain = json.loads(raw.decode("utf-8"))
            seal = plain.pop("seal", None)
            number, digest = plain["number"], plain["hash"]
            head = Head.parse(f"{number}:{digest}") if number != 0 else None
            found = Anchored(str(plain["ledger"]), head)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise self._unfit("is damaged") from None
        self._check_seal(plain, seal)
        return found

    def _check_seal(self, plain: dict[str, Any], seal: object) -> None:
        if self.key is None:
            if seal is not None:
                raise LedgerError(
                    f"the anchor {self.path} is sealed with a key; name the file that holds it, "
                    f"by key= or ${KEY_VARIABLE}"
                )
            return
        given = seal.encode("utf-8", "replace") if isinstance(seal, str) else b""
        if not hmac.compare_digest(given, _seal(plain, self.key).encode()):
            raise self._unfit("was not sealed with this key")

    def _unfit(self, how: str) -> TamperedLedger:
        return TamperedLedger(f"the anchor {self.path} {how}. {_ACCEPT}")

    def begin(self, ledger_id: str | None = None) -> Anchored:
        """Anchors a still empty ledger, under a random id if none is given, unless one is known."""
        with self._locked():
            found = self.read()
            if found is None:
                found = Anchored(ledger_id or secrets.token_hex(16), None)
                self._replace(found)
            return found

    def advance(self, ledger_id: str, head: Head) -> None:
        """Anchors ``head``, unless a newer one is anchored already."""
        with self._locked():
            found = self.read()
            if found is None or found.head is None or found.head.number < head.number:
                self._replace(Anchored(ledger_id, head))

    def reset(self, ledger_id: str, head: Head | None) -> None:
        """Anchors ``head`` whatever was anchored before: for a ledger that is adopted."""
        with self._locked():
            self._replace(Anchored(ledger_id, head))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds off other writers, so that the older of two anchors cannot come last."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            handle = os.open(f"{self.path}.lock", flags, OWNER_ONLY)
        except OSError as error:
            raise self._failed(error) from None
        try:
            self._lock(handle)
            yield
        except OSError as error:
            raise self._failed(error) from None
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        # Without locks the last of two writers wins; an older anchor is still a true one.
        until = time.monotonic() + self.timeout
        while not locked(handle):
            if time.monotonic() > until:
                raise LedgerError(
                    f"the anchor {self.path} is locked by another process; nothing was granted. "
                    "Try again, or give a longer timeout="
                )
            time.sleep(0.002)

    def _replace(self, anchored: Anchored) -> None:
        head = anchored.head
        plain: dict[str, Any] = {
            "ledger": anchored.ledger_id,
            "number": head.number if head else 0,
            "hash": head.hash if head else "",
        }
        if self.key is not None:
            plain["seal"] = _seal(plain, self.key)
        put(self.path, f"{canonical(plain)}\n".encode(), mode=OWNER_ONLY)  # the lock is held

    def _failed(self, error: OSError) -> LedgerError:
        return LedgerError(
            f"the anchor {self.path} cannot be written: {error.strerror or error}; nothing was "
            "granted. Make room, or make the folder writable"
        )


def _seal(plain: dict[str, Any], key: bytes) -> str:
    return hmac.digest(key, b"tacit ledger anchor " + canonical(plain).encode(), "sha256").hex()


def _small_file(path: Path) -> bytes:
    """The contents of a small plain file; a pipe that somebody laid there is not waited for."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "it is no plain file")
        return file.read(_LARGEST + 1)


def read_key(key: str | os.PathLike[str] | None) -> bytes | None:
    """The secret in the file ``key``, or in the one that the environment names; None without."""
    path = key if key is not None else os.environ.get(KEY_VARIABLE) or None
    if path is None:
        return None
    if not os.fspath(path):  # as of --key "$UNSET": a ledger would be made without a seal
        raise InvalidArgument("key must name a file, got ''; name one, or leave the key out")
    try:
        secret = _small_file(Path(path)).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgument(f"key must name a file, got {os.fspath(path)!r}: {reason}") from None
    if not _SHORTEST_KEY <= len(secret) <= _LARGEST:
        raise InvalidArgument(
            f"key must name a file of {_SHORTEST_KEY} to {_LARGEST} secret bytes, got "
            f"{os.fspath(path)!r} with {len(secret)}; make one with: openssl rand -hex 32"
        )
    return secret


# ---- places


def fixed_anchor(store: Store, anchor: str | os.PathLike[str] | None) -> Path | None:
    """Where the anchor lies if that was said, or is beside a file; None for a server."""
    if anchor is not None:
        return Path(anchor).absolute()
    return None if store.path is None else Path(f"{store.path}.anchor")


def anchor_to_read(store: Store, anchor: str | os.PathLike[str] | None) -> Path:
    """Where to look for the anchor of a ledger that is only checked."""
    fixed = fixed_anchor(store, anchor)
    if fixed is not None:
        return fixed
    with contextlib.suppress(LedgerError):  # said again when it is read
        own = anchor_of(store.identity())
        if own.exists():
            return own
    return default_anchor(store.place)


def server_anchor(
    store: Store, timeout: float, key: bytes | None, *, create: bool, adopting: bool = False
) -> AnchorFile:
    """The anchor of a ledger on a server, by the id that the ledger has or is about to have.

    Guarantee:
        A server on which this user kept a ledger, and which has another one now or none, is
        refused at the same address; and an older state of the same ledger is found at any address.
    """
    note = AnchorFile(default_anchor(store.place), timeout, key)
    found = _read_or_none(note) if adopting else note.read()
    identity = store.identity()
    if not identity:  # none was made yet, or its making was interrupted
        begun = found or (note.begin() if create else None)
        return note if begun is None else _begun(store, note, begun)
    own = AnchorFile(anchor_of(identity), timeout, key)
    if adopting:
        note.reset(identity, None)
        return own
    if found is not None and found.ledger_id != identity:
        raise TamperedLedger(
            f"the ledger {store.location} cannot be trusted: another one was at this address "
            f"before; nothing was granted. {_ACCEPT}"
        )
    if found is not None and found.head is not None:  # as it was noted before 2026-12
        own.advance(identity, found.head)
        note.reset(identity, None)
    elif own.path.exists():
        note.begin(identity)
    elif found is not None:  # the making of it was interrupted
        own.begin(identity)
    return own


def _read_or_none(note: AnchorFile) -> Anchored | None:
    try:
        return note.read()
    except TamperedLedger:
        return None


def _begun(store: Store, note: AnchorFile, begun: Anchored) -> AnchorFile:
    """The anchor of a ledger that is about to be made, unless there was one at this address."""
    own = AnchorFile(anchor_of(begun.ledger_id), note.timeout, note.key)
    head = begun.head or own.begin(begun.ledger_id).head
    if head is not None:
        raise TamperedLedger(
            f"the ledger {store.location} cannot be trusted: entry {head.number}, which {own.path} "
            "knows, is missing: there is no ledger here any more; nothing was granted. Put the "
            "newest copy back, or use another database"
        )
    return own


def default_anchor(location: str) -> Path:
    """Where the note about a server's address lies: in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    name = hashlib.sha256(location.encode()).hexdigest()[:32]
    return Path(state) / "tacit" / "anchors" / f"{name}.anchor"


def anchor_of(ledger_id: str) -> Path:
    """Where the anchor of the ledger with this id lies, if it is on a server."""
    return default_anchor(f"ledger {ledger_id}")
