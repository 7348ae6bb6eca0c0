"""The page: well formed, alone, and harmless whatever its texts say."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tacit.reports.run_content import (
    Card,
    Code,
    Items,
    Paragraph,
    Picture,
    RunReport,
    Section,
    Table,
    escaped,
    markdown,
    page,
)
from tacit.reports.run_folder import read
from tacit.reports.run_sections import report
from tacit.reports.run_summary import summarise

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b{{ 7*7 }}"
VOID = {"meta", "br", "img", "link"}


class Tags(HTMLParser):
    """Collects tags and attributes; complains about tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def made(text: str) -> RunReport:
    blocks = (
        Paragraph(text),
        Items((text,)),
        Table((text, "b"), ((text, text),), numbers=(1,)),
        Code((text,)),
        Picture("curve", text),
    )
    return RunReport(text, text, (text,), (Card(text, text, text),), (Section(text, blocks),))


def test_every_text_is_escaped():
    tags = Tags(page(made(EVIL), {"curve": "<svg></svg>"}))
    names = {tag for tag, _ in tags.found}
    assert not names & {"script", "img", "iframe", "object", "link", "form", "a"}
    assert not any(name.startswith("on") for _, given in tags.found for name in given)
    assert tags.text.count(EVIL.replace("\x1b", "?")) == 15
    assert "\x1b" not in tags.text


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ("record", "summary"),
        ("record", "device"),
        ("record", "command"),
        ("record", "notes"),
        ("record", "settings"),
        ("record", "versions"),
        ("record", "anchors"),
        ("record", "data"),
        ("statement", "threat_model"),
        ("statement", "releases"),
        ("statement", "sampling"),
        ("statement", "noise"),
        ("statement", "randomness"),
        ("statement", "assumptions"),
        ("statement", "not_promised"),
        ("statement", "tuning"),
        ("statement", "ledger"),
        ("statement", "versions"),
        ("statement", "tacit_version"),
        ("statement", "torch_version"),
    ],
)
def test_every_field_of_a_run_is_escaped(make, where, field):
    values: dict[str, Any] = {
        "command": (EVIL,),
        "notes": (EVIL,),
        "settings": {EVIL: EVIL},
        "versions": {EVIL: EVIL},
        "releases": (EVIL,),
        "assumptions": (EVIL,),
        "not_promised": (EVIL,),
        "anchors": ({"epsilon": 1, "accuracy": 2, "source": EVIL, "shortcuts": EVIL},),
        "data": {"name": EVIL, "files": {EVIL: EVIL}, "train": 1000, "test": 9},
    }
    changes = {field: values.get(field, EVIL)}
    if where == "statement":  # which holds no control characters at all
        changes = json.loads(json.dumps(changes).replace("\\u001b", ""))
    folder = make(changes, lines=[]) if where == "record" else make({}, changes, [])
    tags = Tags(page(report(summarise(read(folder))), {}))
    assert not {tag for tag, _ in tags.found} & {"script", "img"}
    assert "<script>alert(1)" in tags.text


def test_the_page_needs_nothing_but_itself(summary):
    text = page(report(summary), {})
    policy = next(
        given["content"]
        for tag, given in Tags(text).found
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert not re.search(r"https?://|url\(|@import|src=", text)


def test_it_is_made_for_phones_paper_and_the_dark(summary):
    text = page(report(summary), {})
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "@media print" in text
    assert "@media (prefers-color-scheme: dark)" in text
    assert '<html lang="en">' in text


def test_a_drawing_is_put_in_as_it_is_and_a_missing_one_left_out():
    text = page(made("a"), {"curve": '<svg id="x"><path d="M0"/></svg>'})
    assert '<svg id="x"><path d="M0"/></svg>' in text
    assert "<figure>" not in page(made("a"), {})


def test_numbers_and_their_signs_are_not_torn_apart():
    text = page(made("ε = 3 and 90 % of all"), {})
    assert "ε\u00a0=\u00a03 and 90\u00a0% of all" in text


# ---- Markdown: whatever a text holds, a reader of the rendered form sees that text

MARKED = "<script>alert(1)</script> **b** `c` [d](javascript:e) | f\n# g \x1b[2J ~~h~~ &lt;"


def marked(text: str) -> RunReport:
    blocks = (
        Paragraph(text),
        Items((text,)),
        Table((text, "b"), ((text, text),), numbers=(1,)),
        Picture("curve", text),
    )
    return RunReport(text, text, (text,), (Card(text, text, text),), (Section(text, blocks),))


def test_nothing_that_means_anything_to_markdown_is_left():
    for line in markdown(marked(MARKED)).splitlines():
        assert "<" not in line
        assert "\x1b" not in line
        told = line.removeprefix("> **Careful:** ")
        assert not re.search(r"(?<!\\)[*`\[\]~_]", told), line


def test_a_table_has_as_many_cells_in_every_row():
    rows = [line for line in markdown(marked(MARKED)).splitlines() if line.startswith("|")]
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
        ("see http://x.y/z, now", "see `http://x.y/z`, now"),
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
    code = RunReport("a", "b", (), (), (Section("c", (Code(("tacit report .", "x\n# y")),)),))
    text = markdown(code)
    assert "    tacit report .\n    x?# y\n" in text


def test_the_renderer_of_a_reader_agrees():
    parser = pytest.importorskip("markdown_it")
    page = parser.MarkdownIt("js-default").render(markdown(marked(MARKED)))
    for tag in ("<script", "<strong>b", "<code>c", "<a ", "<s>", "<del>"):
        assert tag not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 9


LINKS = ("https://evil.example/x", "http://e", "ftp://e/f", "www.evil.example", "a@evil.example",
         "mailto:a@b.c", "xmpp:a@b.c/d", "[a](http://e)", "<http://e>", "![i](//e)", "[r]: http://e",
         "<img src=x>", "`http://e`", "\\http://e", "|http://e|", "(www.e.com)")  # fmt: skip


@pytest.mark.parametrize("evil", LINKS)
def test_no_text_becomes_a_link(evil):
    """Also for readers that make links of bare addresses, as GitHub's does, outside of code."""
    for line in markdown(marked(evil)).splitlines():
        bare = re.sub("`[^`]*`", "", re.sub(r"\\.", "", line))
        assert not re.search(r"://|www\.|@|(mailto|xmpp):", bare, re.IGNORECASE), line
        assert not re.search(r"[\[\]<>]", bare.removeprefix("> **Careful:** ")), line
    parser = pytest.importorskip("markdown_it")
    page = parser.MarkdownIt("gfm-like", {"linkify": False}).render(markdown(marked(evil)))
    assert not re.search(r"<(a|img)\b", page)


def test_a_long_text_takes_no_long_time():
    for evil in ("a" * 100_000, "`" * 100_000, "a:/" * 30_000, "@" * 100_000, "1" * 100_000):
        assert escaped(evil)
