"""How far a transfer is, on standard error: numbers that are public, and nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LINES = 10  # about so many in all, where standard error is no terminal


def doing(wanted: bool | None, what: str) -> None:
    """Says what begins, where it may take minutes without a number to count."""
    if wanted or (wanted is None and sys.stderr.isatty()):
        sys.stderr.write(f"{what} …\n")
        sys.stderr.flush()


def questions(wanted: bool | None, total: int) -> Callable[[int, int], None] | None:
    """To be told how many queries were asked and how many answered."""
    return _shown(wanted, lambda asked, told: (asked, total, f"queries asked: {asked:,} of "
                                               f"{total:,}, answered: {told:,}"))  # fmt: skip


def epochs(wanted: bool | None) -> Callable[[int, int], None] | None:
    """To be told how many epochs a student has learned, and of how many."""
    return _shown(wanted, lambda done, of: (done, of, f"student: epoch {done:,} of {of:,}"))


def _shown(
    wanted: bool | None, worded: Callable[[int, int], tuple[int, int, str]]
) -> Callable[[int, int], None] | None:
    """One line that is written over on a terminal; elsewhere a few lines if they are wanted."""
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        return None
    last, shown = 0, ""

    def show(first: int, second: int) -> None:
        nonlocal last, shown
        done, of, text = worded(first, second)
        if text == shown:
            return
        shown = text
        if terminal:
            sys.stderr.write(f"\r{text}\x1b[K" + ("\n" if done >= of else ""))
        elif done >= of or done - last >= of / _LINES:
            last = done
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    return show
