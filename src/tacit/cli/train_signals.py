"""Ctrl-C, SIGTERM and SIGHUP while a run goes: the first lets it stop well, the second stops it.

SIGHUP comes when a terminal or a connection is closed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tacit.recipes.running.interruption import Interruption

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WORD = b"\ntacit: stopping after this step; once more stops at once\n"


@contextmanager
def stoppable() -> Iterator[Interruption]:
    """Inside, these signals are requests to stop."""
    stop = Interruption()

    def ask(_number: int, _frame: object) -> None:
        if not stop.requested and stop.is_deferred:
            with contextlib.suppress(OSError):  # not through sys.stderr: it may be at work
                os.write(2, _WORD)
        stop.request()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = [(number, signal.signal(number, ask)) for number in _heard()]
    try:
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _heard() -> list[signal.Signals]:
    """Those that are requests; a SIGHUP that is ignored stays so, for that is what nohup is."""
    hangup = getattr(signal, "SIGHUP", None)  # there is none on Windows
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        return list(_SIGNALS)
    return [*_SIGNALS, hangup]
