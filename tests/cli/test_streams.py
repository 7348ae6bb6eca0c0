"""Whatever a file or a server says, a terminal shows letters and obeys nobody."""

from __future__ import annotations

import io
import sys

import pytest
from rich.table import Table
from rich.text import Text

from tacit._validation import printable
from tacit.cli import page, streams

EVIL = [
    "\x1b[2J", "\x1b]8;;http://e\x07x", "\x1b]0;title\x07", "\x9b31m", "\x08\x08", "\r", "\x7f",
    "\u202eabc", "\u2066", "\u200f", "\u200b", "\u200d", "\ufeff", "\u2028", "\u115f", "\u3164",
    "\ue000", "\ud800",
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


def test_a_complaint_is_not_longer_than_a_page(capsys):
    streams.complain("a" * 10**6)
    assert len(capsys.readouterr().err) < 5000
