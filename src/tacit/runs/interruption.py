"""How a run is asked to stop: at once where nothing would be lost, else after the current step.

Ctrl-C, SIGTERM and SIGHUP are such requests inside ``stoppable``: the first lets the run stop well,
the second stops it. SIGHUP comes when a terminal or a connection is closed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WORD = b"\ntacit: stopping after this step; once more stops at once\n"


class Interrupted(TacitError):
    """A run was asked to stop and did; ``resumable`` says whether it can be resumed."""

    def __init__(self, message: str, *, resumable: bool) -> None:
        super().__init__(message)
        self.resumable = resumable


@final
class Interruption:
    """A request to stop, as a signal handler makes it.

    ``request`` raises KeyboardInterrupt, unless the run is inside ``deferred``: then it is
    remembered, and whoever is inside asks when it suits. A second request raises in any case.

    >>> stop = Interruption()
    >>> with stop.deferred():
    ...     stop.request()
    ...     stop()
    True
    """

    def __init__(self, asked: Callable[[], bool] | None = None) -> None:
        self._asked = asked
        self._depth = 0
        self.requested = False

    def __call__(self) -> bool:
        """Whether the run is to stop."""
        return self.requested or (self._asked is not None and self._asked())

    @property
    def is_deferred(self) -> bool:
        """Whether a first request would wait."""
        return self._depth > 0

    def request(self) -> None:
        """Asks the run to stop; safe in a signal handler."""
        again, self.requested = self.requested, True
        if again or not self._depth:
            raise KeyboardInterrupt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, a first request waits."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


@contextmanager
def stoppable(*, quiet: bool = False) -> Iterator[Interruption]:
    """Treats these signals as requests to stop; ``quiet``: Ctrl-C alone, and without a word.

    Outside of the main thread, and where a program has its own handler of Ctrl-C, none is taken
    over if ``quiet``.
    """
    stop = Interruption()

    def ask(_number: int, _frame: object) -> None:
        if not quiet and not stop.requested and stop.is_deferred:
            with contextlib.suppress(OSError):  # not through sys.stderr: it may be at work
                os.write(2, _WORD)
        stop.request()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    heard = _interrupts() if quiet else _heard()
    before = [(number, signal.signal(number, ask)) for number in heard]
    try:
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _interrupts() -> list[signal.Signals]:
    """Ctrl-C, unless somebody else listens to it."""
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return [signal.SIGINT] if own else []


def _heard() -> list[signal.Signals]:
    """Those that are requests; a SIGHUP that is ignored stays so, for that is what nohup is."""
    hangup = getattr(signal, "SIGHUP", None)  # there is none on Windows
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        return list(_SIGNALS)
    return [*_SIGNALS, hangup]
