"""A report as Markdown. Whatever a text holds, it comes out as that text and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tacit._validation import printable
from tacit.reports.run_content import Code, Items, Paragraph, Picture, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.reports.run_content import Block, Report

_SPECIAL: Final = re.compile(r"([\\`*_\[\]|~]|^[#+\->=]|^\d+[.)](?=\s|$))")
_HTML: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def markdown(report: Report) -> str:
    """The report, its sections one below the other."""
    return "\n\n".join(_blocks(report)) + "\n"


def escaped(text: str) -> str:
    r"""``text`` in one line that Markdown shows as it is.

    >>> escaped("<b>a_b</b>")
    '&lt;b&gt;a\\_b&lt;/b&gt;'
    """
    line = printable(" ".join(text.split()))
    marked = _SPECIAL.sub(lambda found: _backslashed(found[0]), line)
    return re.sub("[&<>]", lambda found: _HTML[found[0]], marked)


def _backslashed(mark: str) -> str:
    """``1.`` is kept from starting a list by a backslash before its dot."""
    return f"{mark[:-1]}\\{mark[-1]}"


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {escaped(report.title)}"
    yield escaped(report.lead)
    yield from (f"> **Careful:** {escaped(one)}" for one in report.warnings)
    yield _table(
        Table(("", "", ""), tuple((one.label, one.value, one.note) for one in report.cards))
    )
    for section in report.sections:
        yield f"## {escaped(section.title)}"
        for block in section.blocks:
            yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text):
            yield escaped(text)
        case Items(texts):
            yield "\n".join(f"- {escaped(one)}" for one in texts)
        case Table():
            yield _table(block)
        case Code(lines):
            # Four spaces: whatever the lines hold, none of it can end the block.
            yield "\n".join(f"    {printable(line)}" for line in lines)
        case Picture():
            return  # drawings are in the page; the tables say the same


def _table(table: Table) -> str:
    rules = ["--:" if at in table.numbers else "---" for at in range(len(table.head))]
    rows = (table.head, rules, *table.rows)
    return "\n".join(
        f"| {' | '.join(cell if row is rules else escaped(cell) for cell in row)} |" for row in rows
    )
