"""Whatever a file or a server says, a terminal shows letters and obeys nobody."""

from __future__ import annotations

import io
import sys

import pytest
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tacit._validation import printable
from tacit.cli import page, streams

EVIL = [
    "\x1b[2J", "\x1b]8;;http://e\x07x", "\x1b]0;title\x07", "\x9b31m", "\x08\x08", "\r", "\x7f",
    "\u202eabc", "\u2066", "\u200f", "\u200b", "\u200d", "\ufeff", "\u2028", "\u115f", "\u3164",
    "\ue000", "\ud800", "\u2800", "\ufe0f", "\U000e0100",
]  # fmt: skip


@pytest.mark.parametrize("evil", EVIL)
def test_no_control_character_is_said(evil, capsys):
    streams.say(f"a{evil}b\nc")
    streams.complain(f"a{evil}b\nc")
    out, err = capsys.readouterr()
    assert out.startswith("a")
    assert out.endswith("b\nc\n")
    assert err.startswith("tacit: a")
    assert err.endswith("b?c\n")  # one line
    assert printable(out.replace("\n", "")) == out.replace("\n", "")
    assert printable(err.rstrip("\n")) == err.rstrip("\n")


@pytest.mark.parametrize("evil", [*EVIL, "[red]x[/red]", "[link=http://e]x[/link]", "[/]", "[bold"])
def test_no_page_obeys_a_text(evil, monkeypatch):
    """On a terminal, where a page's own styles do come out."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    table = Table()
    table.add_column(f"head {evil}")
    table.add_row(f"cell {evil}")
    told = page.rendered([f"text {evil}", Text.assemble((f"styled {evil}", "bold")), table])
    assert "\x1b[1m" in told  # the page's own
    plain = told.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\n", "")
    assert printable(plain) == plain
    if evil.startswith("["):
        assert told.count(evil) == 4
    monkeypatch.setenv("COLUMNS", "8")  # where a table is no table
    narrow = page.rendered([table]).replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert printable(narrow.replace("\n", "")) == narrow.replace("\n", "")


def test_a_complaint_is_not_longer_than_a_page(capsys):
    streams.complain("a" * 10**6)
    assert len(capsys.readouterr().err) < 5000


# ---- encodings without Greek letters


def test_letters_that_an_encoding_lacks_are_spelled() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    streams.be_encodable(stream)
    stream.write("μ at most, ε ≤ 3: 8 × 8, Tramèr, 24…, 10⁸ 漢\u202e")
    stream.flush()
    assert raw.getvalue() == b"mu at most, epsilon <= 3: 8 x 8, Tramer, 24..., 10? ??"


# ---- narrow terminals

NUMBERS = ("2.0901673856", "5e-6", "1 of 1", "0.029 ms")


def shown_at(width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table as the ledger and the planner have them, at a width."""
    monkeypatch.setenv("COLUMNS", str(width))
    table = Table(box=SIMPLE_HEAD)
    for name in ("number", "what", "ε at most", "δ", "steps granted", "time", ""):
        table.add_column(name, no_wrap=name not in ("what", ""))
    table.add_row("3", "a first model of all patients of 2026", *NUMBERS, "█" * 30)
    table.add_row("", "the same again", *NUMBERS, "█")
    return page.rendered([table])


def test_a_narrow_terminal_loses_no_letter_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (20, 40, 60, 80):
        shown = shown_at(width, monkeypatch)
        together = " ".join(shown.split())
        assert "…" not in together.replace("█…", "")  # a drawing may be cropped
        assert "a first model of all patients of 2026" in together or width > 60
        for number in NUMBERS:
            assert together.count(number) == 2, (width, number)
        assert max(map(len, shown.splitlines())) <= width
    assert "number 3" in shown_at(60, monkeypatch)  # row below row
    assert "─" * 50 in shown_at(120, monkeypatch)  # a table
