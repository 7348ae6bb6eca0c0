"""The anchor: a small file beside the ledger that knows its newest entry.

The chain of hashes shows what was changed inside a ledger, but not that its end is missing: an
older copy is a perfectly good chain. So the newest entry's number and hash are kept a second time.
The file is written after each commit and before anything is granted: what was granted is anchored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from tacit._files import locked, put
from tacit.errors import LedgerError, TamperedLedger
from tacit.ledger.entries import Head, canonical

if TYPE_CHECKING:
    from collections.abc import Iterator


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

    def read(self) -> Anchored | None:
        """What was anchored last; None if there is no file."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise LedgerError(f"the anchor {self.path} cannot be read: {error}") from None
        try:
            plain = json.loads(text)
            number, digest = plain["number"], plain["hash"]
            head = Head.parse(f"{number}:{digest}") if number != 0 else None
            return Anchored(str(plain["ledger"]), head)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise TamperedLedger(
                f"the anchor {self.path} is damaged; find out why, then run "
                "'tacit ledger verify --accept' or call Ledger.adopt with the reason"
            ) from None

    def begin(self) -> Anchored:
        """Anchors a new, still empty ledger under a random name, unless somebody just did."""
        with self._locked():
            found = self.read()
            if found is None:
                found = Anchored(secrets.token_hex(16), None)
                self._replace(found)
            return found

    def advance(self, ledger_id: str, head: Head) -> None:
        """Anchors ``head``, unless a newer one is anchored already."""
        with self._locked():
            found = self.read()
            if found is None or found.head is None or found.head.number < head.number:
                self._replace(Anchored(ledger_id, head))

    def reset(self, ledger_id: str, head: Head) -> None:
        """Anchors ``head`` whatever was anchored before: for a ledger that is adopted."""
        with self._locked():
            self._replace(Anchored(ledger_id, head))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds off other writers, so that the older of two anchors cannot come last."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o666)
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
        plain = {
            "ledger": anchored.ledger_id,
            "number": head.number if head else 0,
            "hash": head.hash if head else "",
        }
        put(self.path, f"{canonical(plain)}\n".encode())  # the lock is held

    def _failed(self, error: OSError) -> LedgerError:
        return LedgerError(
            f"the anchor {self.path} cannot be written: {error.strerror or error}; nothing was "
            "granted. Make room, or make the folder writable"
        )


def default_anchor(location: str) -> Path:
    """Where the anchor of a ledger on a server lies: in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    name = hashlib.sha256(location.encode()).hexdigest()[:32]
    return Path(state) / "tacit" / "anchors" / f"{name}.anchor"
