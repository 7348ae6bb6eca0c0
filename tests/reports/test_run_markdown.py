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
