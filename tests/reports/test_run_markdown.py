"""Markdown: whatever a text holds, a reader of the rendered form sees that text."""

from __future__ import annotations

import re

import pytest

from tacit.reports.run_content import (
    Card,
    Code,
    Items,
    Paragraph,
    Picture,
    Report,
    Section,
    Table,
)
from tacit.reports.run_markdown import escaped, markdown

EVIL = "<script>alert(1)</script> **b** `c` [d](javascript:e) | f\n# g \x1b[2J ~~h~~ &lt;"


def report(text: str) -> Report:
    blocks = (
        Paragraph(text),
        Items((text,)),
        Table((text, "b"), ((text, text),), numbers=(1,)),
        Picture("curve", text),
    )
    return Report(text, text, (text,), (Card(text, text, text),), (Section(text, blocks),))


def test_nothing_that_means_anything_to_markdown_is_left():
    for line in markdown(report(EVIL)).splitlines():
        assert "<" not in line
        assert "\x1b" not in line
        told = line.removeprefix("> **Careful:** ")
        assert not re.search(r"(?<!\\)[*`\[\]~_]", told), line


def test_a_table_has_as_many_cells_in_every_row():
    rows = [line for line in markdown(report(EVIL)).splitlines() if line.startswith("|")]
    bars = [line.replace("\\|", "").count("|") for line in rows]
    assert bars == [4, 4, 4, 3, 3, 3]
    assert "| --- | --: |" in rows


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# a", "\\# a"),
        ("- a", "\\- a"),
        ("1. a", "1\\. a"),
        ("1.5", "1.5"),
        ("a - b # c", "a - b # c"),
        ("a\n\nb", "a b"),
        ("a_b*c", "a\\_b\\*c"),
        ("&<>", "&amp;&lt;&gt;"),
        ("> a", "&gt; a"),
        ("= a", "\\= a"),
        ("![a](b)", "\\!\\[a\\](b)"),
        ("$x$ {ref}`y`", "\\$x\\$ \\{ref\\}\\`y\\`"),
        ("see http://x.y/z, now", "see `http://x.y/z,` now"),
        ("WWW.x.y", "`WWW.x.y`"),
        ("a@b.c|d", "`a@b.c`\\|d"),
        ("mailto:a", "`mailto:a`"),
        ("<http://x.y>", "&lt;`http://x.y`&gt;"),
        ("http://`x", "`http://`\\`x"),
        ("http://x - # y", "`http://x` - # y"),
    ],
)
def test_marks_are_escaped_where_they_would_count(text, shown):
    assert escaped(text) == shown


def test_code_is_indented_and_cannot_end_itself():
    code = Report("a", "b", (), (), (Section("c", (Code(("tacit report .", "x\n# y")),)),))
    text = markdown(code)
    assert "    tacit report .\n    x?# y\n" in text


def test_the_renderer_of_a_reader_agrees():
    parser = pytest.importorskip("markdown_it")
    page = parser.MarkdownIt("js-default").render(markdown(report(EVIL)))
    for tag in ("<script", "<strong>b", "<code>c", "<a ", "<s>", "<del>"):
        assert tag not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 9


LINKS = ("https://evil.example/x", "http://e", "ftp://e/f", "www.evil.example", "a@evil.example",
         "mailto:a@b.c", "xmpp:a@b.c/d", "[a](http://e)", "<http://e>", "![i](//e)", "[r]: http://e",
         "<img src=x>", "`http://e`", "\\http://e", "|http://e|", "(www.e.com)")  # fmt: skip


@pytest.mark.parametrize("evil", LINKS)
def test_no_text_becomes_a_link(evil):
    """Also for readers that make links of bare addresses, as GitHub's does, outside of code."""
    for line in markdown(report(evil)).splitlines():
        bare = re.sub("`[^`]*`", "", re.sub(r"\\.", "", line))
        assert not re.search(r"://|www\.|@|(mailto|xmpp):", bare, re.IGNORECASE), line
        assert not re.search(r"[\[\]<>]", bare.removeprefix("> **Careful:** ")), line
    parser = pytest.importorskip("markdown_it")
    page = parser.MarkdownIt("gfm-like", {"linkify": False}).render(markdown(report(evil)))
    assert not re.search(r"<(a|img)\b", page)


def test_a_long_text_takes_no_long_time():
    for evil in ("a" * 100_000, "`" * 100_000, "a:/" * 30_000, "@" * 100_000, "1" * 100_000):
        assert escaped(evil)
