"""Tables and styled text as characters: colours for a terminal, plain text for anything else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment, Segments

from tacit._validation import printable
from tacit.cli.streams import write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

WIDTH_WITHOUT_TERMINAL = 100


def say_page(parts: Iterable[RenderableType]) -> None:
    """Writes the parts to standard output, one below the other."""
    write(rendered(parts))


def rendered(parts: Iterable[RenderableType]) -> str:
    """The parts one below the other, as standard output can show them.

    Guarantee:
        Letters are shown as letters: no text is taken for markup such as ``[red]``, and a control
        character in it becomes a question mark. Only the styles that a page sets reach a terminal.
    """
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH_WITHOUT_TERMINAL
    with console.capture() as capture:
        for part in parts:
            console.print(Segments(_cleaned(console.render(part))))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _cleaned(segments: Iterable[Segment]) -> Iterator[Segment]:
    """The segments with printable letters and line ends only."""
    for one in segments:
        if one.control is None:
            letters = "\n".join(map(printable, one.text.split("\n")))
            yield Segment(letters, one.style)
