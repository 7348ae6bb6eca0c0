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
_GROWTH = 8  # of a window, at most, over what was asked for last: a first write may be slow. It
# shrinks to half of that at most: a busy machine makes single steps slow, and then fast again.


@final
class Lease:
    """A window of steps of a reservation that are written to the ledger before they are taken.

    At most ``size`` steps are granted and not yet done at any time, the one at hand included. Once
    half of them are done, a thread asks for as many again, so that training does not wait for the
    disk. Without a ``size`` the window is as small as it can be for all this to take less than 1 %
    of the time: about a second of training.

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
        self._coming: Future[int] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._trouble = False  # the latest write failed: now the loop itself asks, and tells
        self._dry = False  # less was granted than asked for: there is no more to come
        self._asked = 1  # for so many steps, the last time
        self._cost = (0.0, 0.0)  # seconds of the latest write: of a processor, and on the clock
        self._paces = (math.inf, math.inf)  # seconds of the latest two steps
        self._latest: float | None = None  # when the latest step was taken

    def take(self) -> bool:
        """Takes one step; the one before is done. False if the reservation has none left.

        Raises:
            LedgerError: if the ledger cannot be written. Nothing is taken then.
        """
        if self._home != os.getpid():
            self._forget()
        self._resize()
        if self._coming is not None and (self._held == 0 or self._coming.done()):
            self._collect()
        if self._held == 0:
            # A write that failed may stand all the same. With one step now, both are one lease.
            steps, self._trouble = 1 if self._trouble else self.size, True
            self._held = self._granted(steps)
            self._trouble = False
        if self._held == 0:
            return False
        self._held -= 1
        self._renew()
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

    def _renew(self) -> None:
        """Asks for the steps that the window lacks, if they are half of it."""
        missing = self.size - self._held - 1  # the step at hand is in the window too
        idle = self._coming is None and not self._trouble and not self._dry
        if idle and missing > 0 and 2 * missing >= self.size:
            self._thread = self._thread or ThreadPoolExecutor(1, "tacit-lease")
            self._coming = self._thread.submit(self._granted, missing)

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

    def _resize(self) -> None:
        now = time.perf_counter()
        if self._latest is not None:
            self._paces = (self._paces[1], now - self._latest)
            if not self._fixed:
                largest = min(_GROWTH * self._asked, self._reservation.steps)
                smallest = min(max(1, self._asked // 2), largest)
                self.size = max(smallest, min(self._wanted(), largest))
        self._latest = now

    def _wanted(self) -> int:
        """The smallest window that costs no more than its share of the time.

        A thread that writes takes the processor from training, but not the time in which it waits
        for the disk, as long as the half of the window that is left lasts for that.
        """
        pace = max(min(self._paces), 1e-6)  # one slow step of two is an evaluation, or a pause
        processor, clock = self._cost
        if clock <= _SHARE * pace:
            return 1
        return math.ceil(max(2.0 * processor / (_SHARE * pace), 2.0 * (clock / pace + 1.0)))
