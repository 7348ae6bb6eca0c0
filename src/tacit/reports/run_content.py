"""What a report is made of: headings, paragraphs and tables, for any form that it is written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


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
class Report:
    """A whole report; ``warnings`` are what must not be overlooked."""

    title: str
    lead: str
    warnings: tuple[str, ...]
    cards: tuple[Card, ...]
    sections: tuple[Section, ...]
