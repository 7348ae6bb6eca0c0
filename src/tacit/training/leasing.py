"""Steps charged in advance: taken one by one, and renewed in the background while they last."""

from __future__ import annotations

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, final

from tacit.errors import LedgerError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tacit.ledger import Reservation

_SHARE = 0.005  # of training time that a thread may compute; all in all 1 % is allowed
_PARTS = 20  # of a reservation: a crash costs no more than one of them, however fast steps are
_GROWTH = 8  # of a window, at most, over what was asked for last: a first write may be slow


@final
class Lease:
    """A window of steps of a reservation that are written to the ledger before they are taken.

    At most ``size`` steps are granted and not yet done at any time, the one at hand included. Once
    half of them are done, a thread asks for as many again, so that training does not wait for the
    disk. Without a ``size`` the window is as small as it can be for all this to take less than 1 %
    of the time, about a second of training; but never more than 5 % of the reservation's steps.

    Guarantee:
        ``take`` returns True only if the step is in the ledger, synced. A crash leaves at most
        ``size`` steps charged that were not done, and never one done that is not charged. A forked
        child has none of its parent's steps.
    """

    def __init__(self, reservation: Reservation, size: int | None) -> None:
        self._reservation = reservation
        self._fixed = size is not None
        self.size = 1 if size is None else size
        self._home = os.getpid()
        self._held = 0  # granted, and not yet taken
        self._low = 0  # with so few held it is time to ask for more
        self._coming: Future[int] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._trouble = False  # the latest write failed: now the loop itself asks, and tells
        self._dry = False  # less was granted than asked for: there is no more to come
        self._asked = 1  # for so many steps, the last time
        self._cost = (0.0, 0.0)  # seconds of the latest write: of a processor, and on the clock
        self._taken = 0
        self._since: tuple[int, float] | None = None  # steps taken, and when, at the last look

    def take(self) -> bool:
        """Takes one step; the one before is done. False if the reservation has none left.

        Raises:
            LedgerError: if the ledger cannot be written. Nothing is taken then.
        """
        if self._home != os.getpid():
            self._forget()
        if self._held <= self._low:
            self._refill()
            if self._held == 0:
                return False
        self._held -= 1
        self._taken += 1
        return True

    def close(self) -> None:
        """Gives back what was granted and not taken; a spent reservation is ended."""
        if self._home != os.getpid():
            return
        if self._coming is not None:
            self._collect()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        back, self._held = self._held, 0
        if back:
            self._reservation.give_back(back)
        elif self._reservation.left == 0:
            self._reservation.end()

    def _forget(self) -> None:
        """Holds nothing, as a forked child must: steps and thread are its parent's."""
        self._home, self._held = os.getpid(), 0
        self._coming = self._thread = None
        self._trouble = self._dry = False

    # ---- asking

    def _refill(self) -> None:
        """Brings in what is there, and asks for what the window lacks: waits only if it must."""
        if self._coming is not None and (self._held == 0 or self._coming.done()):
            self._collect()
        if self._coming is None:
            self._resize()
            if self._held == 0:
                self._ask()
            self._ask_ahead()

    def _ask(self) -> None:
        # A write that failed may stand all the same. With one step now, both are one lease.
        steps, self._trouble = 1 if self._trouble else self.size, True
        self._held = self._granted(steps)
        self._trouble = False

    def _ask_ahead(self) -> None:
        missing = self.size - self._held  # the step about to be taken is one of those held
        quiet = self._trouble or self._dry
        if not quiet and missing > 0 and 2 * missing >= self.size:
            self._thread = self._thread or ThreadPoolExecutor(1, "tacit-lease")
            self._coming = self._thread.submit(self._granted, missing)
        self._low = 0 if quiet else self.size // 2

    def _granted(self, steps: int) -> int:
        clock, processor = time.perf_counter(), time.thread_time()
        granted = self._reservation.lease(steps)
        self._cost = (time.thread_time() - processor, time.perf_counter() - clock)
        self._asked, self._dry = steps, granted < steps
        return granted

    def _collect(self) -> None:
        """What the thread was granted. If it failed, the loop asks itself when it must."""
        assert self._coming is not None
        coming, self._coming = self._coming, None
        try:
            self._held += coming.result()
        except LedgerError:
            self._trouble = True

    # ---- how large the window is

    def _resize(self) -> None:
        """Fits the window to the pace of the steps since the last look, unless its size is set."""
        if self._fixed:
            return
        now, since = time.perf_counter(), self._since
        if since is not None and self._taken > since[0]:
            wanted = self._wanted((now - since[1]) / (self._taken - since[0]))
            # Slowly: an evaluation between two steps says little about the next ones.
            wanted = min(max(wanted, self._asked // 2), _GROWTH * self._asked)
            self.size = max(1, min(wanted, self._reservation.steps // _PARTS))
        self._since = (self._taken, now)

    def _wanted(self, pace: float) -> int:
        """The smallest window that costs no more than its share, for steps of ``pace`` seconds.

        A thread that writes takes the processor from training, but not the time in which it waits
        for the disk, as long as the half of the window that is left lasts for that.
        """
        processor, clock = self._cost
        if clock <= _SHARE * pace:
            return 1
        steps = max(2.0 * processor / _SHARE, 2.0 * (clock + pace)) / max(pace, 1e-6)
        return math.ceil(steps)
