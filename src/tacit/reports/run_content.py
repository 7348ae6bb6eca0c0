"""What a report is made of: headings, paragraphs, tables; and its two forms, Markdown and a page.

Guarantee:
    Whatever a text holds, and whoever wrote it, it comes out as that text and nothing else. The
    page needs nothing but itself: it loads nothing and runs no script, and tells the browser so
    (Content-Security-Policy).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tacit._validation import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Paragraph:
    """A few sentences."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows below a head; columns in ``numbers`` are set to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Code:
    """Lines to be typed."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    """A drawing by its name, and what it shows in words."""

    name: Literal["accuracy", "curve", "attack", "audit"]
    caption: str


Block: TypeAlias = Paragraph | Items | Table | Code | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Card:
    """One figure of the headline."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class RunReport:
    """A whole report; ``warnings`` are what must not be overlooked."""

    title: str
    lead: str
    warnings: tuple[str, ...]
    cards: tuple[Card, ...]
    sections: tuple[Section, ...]


# ---- as Markdown

# What Markdown, also GitHub's and MyST's, takes for more than a letter: anywhere, or at the start.
_SPECIAL: Final = re.compile(r"[\\`*_\[\]|~$!{}^]|^[#+\-=:]|^\d+(?=[.)](?:\s|$))")
_HTML: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# What readers of Markdown make a link of by themselves, with all that hangs on it. No escape keeps
# them from it; in a span of code nothing is a link. Marks that would end one are not part of it.
_WORD: Final = re.compile(r"[^\s`|\\<>]+")
_LINK: Final = re.compile(r"://|www\.|@|(?:mailto|xmpp):", re.IGNORECASE)


def markdown(report: RunReport) -> str:
    """The report, its sections one below the other."""
    return "\n\n".join(_blocks(report)) + "\n"


def escaped(text: str) -> str:
    r"""``text`` in one line that Markdown shows as it is: no link, no image, no HTML.

    >>> print(escaped("<b>a_b</b> at http://x.y"))
    &lt;b&gt;a\_b&lt;/b&gt; at `http://x.y`
    """
    line = printable(" ".join(text.split()))
    parts: list[str] = []
    done = 0
    for found in _WORD.finditer(line):
        if not _LINK.search(found[0]):
            continue
        word = found[0].rstrip(",;.")  # marks of the sentence, which nobody should copy
        parts += (_plain(line[done : found.start()], first=done == 0), f"`{word}`")
        done = found.start() + len(word)
    return "".join((*parts, _plain(line[done:], first=done == 0)))


def _plain(text: str, *, first: bool) -> str:
    """Letters that stay letters; ``first`` says whether they begin a line."""
    marked = _SPECIAL.sub(
        lambda found: _backslashed(found[0]) if first or found.start() else _within(found[0]), text
    )
    return re.sub("[&<>]", lambda found: _HTML[found[0]], marked)


def _backslashed(mark: str) -> str:
    """``1.`` is kept from starting a list by a backslash before its dot."""
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def _within(mark: str) -> str:
    """A mark behind a span of code, where those that count at a line's start do not."""
    return mark if mark.isdigit() or mark in "#+-=:" else f"\\{mark}"


def _blocks(report: RunReport) -> Iterator[str]:
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


# ---- as a page of HTML

_JOIN: Final = "\u00a0"


def page(report: RunReport, drawings: Mapping[str, str]) -> str:
    """The page, with ``drawings`` as SVG by the names of the report's pictures."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - only where a page is made
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["clean"] = _clean
    environment.tests["of"] = lambda block, name: type(block).__name__ == name
    source = resources.files("tacit.reports").joinpath("templates", "run.html")
    template = environment.from_string(source.read_text(encoding="utf-8"))
    trusted = {name: Markup(svg) for name, svg in drawings.items()}  # drawn here
    return template.render(report=report, drawings=trusted) + "\n"


def _clean(text: str) -> str:
    """One line of printable letters, in which ``ε = 3`` and ``90 %`` are not torn apart."""
    line = printable(" ".join(text.split()))
    return re.sub(r"(?<=[εδσμ]) = |(?<=\d) (?=%)", lambda found: found[0].replace(" ", _JOIN), line)
