"""The command ``tacit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    That is 0; 1 for a ledger, data or a claim that are not sound; 2 for a refusal; 130 for Ctrl-C.

    Whatever is refused, it is refused with one line on standard error.
    """
    try:
        # Imported here so that Ctrl-C is answered in one line from the first moment on.
        from tacit.cli.program import run

        return run(arguments)
    except KeyboardInterrupt:
        import sys

        sys.stderr.write("tacit: stopped\n")
        return 130
