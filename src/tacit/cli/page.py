"""Tables and styled text as characters: colours for a terminal, plain text for anything else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from tacit._validation import printable
from tacit.cli.streams import write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType
    from rich.table import Column

WIDTH_WITHOUT_TERMINAL = 100
NARROWEST = 20
GAP = 3  # between two columns of a table
SHORT = 24  # a cell up to this long may be cut into its words, of which
WORD = 9  # letters are kept together, at least; a longer one is prose, and
PROSE = 16  # letters of a line of it are the least that can be read


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
    console.width = max(console.width, NARROWEST)  # of no columns nothing would be left
    with console.capture() as capture:
        for part in parts:
            console.print(Segments(_cleaned(console.render(_fitted(part, console.width)))))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _cleaned(segments: Iterable[Segment]) -> Iterator[Segment]:
    """The segments with printable letters and line ends only."""
    for one in segments:
        if one.control is None:
            letters = "\n".join(map(printable, one.text.split("\n")))
            yield Segment(letters, one.style)


# ---- a table on a narrow terminal


def _fitted(part: RenderableType, width: int) -> RenderableType:
    """The part, or what is shown in its place where a table would be cut."""
    return _stacked(part) if isinstance(part, Table) and _needed(part) > width else part


def _needed(table: Table) -> int:
    """The least width at which the table loses nothing; its drawings may be cropped."""
    widths = [_width(column) for column in table.columns if column.header]
    return sum(widths) + GAP * (len(table.columns) - 1) + 2


def _width(column: Column) -> int:
    cells = [str(column.header), *map(str, column.cells)]
    longest = max(map(cell_len, cells))
    if column.no_wrap:
        return longest
    if longest > SHORT:
        return PROSE
    return min(WORD, max(cell_len(word) for cell in cells for word in cell.split() or [""]))


def _stacked(table: Table) -> Group:
    """Row below row: the first cell, and then the others by the names of their columns.

    Cells that are cut to fit would be worse: the ε of a reservation, say.
    """
    heads = [str(column.header) for column in table.columns]
    rows: list[RenderableType] = [""]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        first, *others = (str(cell).replace("\n", ", ") for cell in cells)
        named = zip(heads[1:], others, strict=True)
        rest = "; ".join(f"{head}: {cell}" for head, cell in named if head and cell)
        rows += [Text(f"{heads[0]} {first}", style="bold")] if first else []
        rows.append(Padding(Text(rest), (0, 0, 0, 2)))
    return Group(*rows, "")
