"""Tables and styled text as characters: colours for a terminal, plain text for anything else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

WIDTH_WITHOUT_TERMINAL = 100


def rendered(parts: Iterable[RenderableType]) -> str:
    """The parts one below the other, as standard output can show them."""
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH_WITHOUT_TERMINAL
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
