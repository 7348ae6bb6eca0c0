"""The audit's part of a report: its verdict, what is allowed, and that it is private."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tacit.accounting import profile
from tacit.accounting.serialization import from_plain
from tacit.reports.run_folder import read
from tacit.reports.run_markdown import markdown
from tacit.reports.run_report import MARKDOWN, PAGE, write
from tacit.reports.run_sections import report
from tacit.reports.run_summary import summarise

from .audit_example import example

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def audited(run: Path, whole: Any) -> Path:
    (run / "audit.json").write_text(json.dumps(example(*whole[:2])))
    return run


def test_the_section_has_verdict_figures_and_warning(audited: Path) -> None:
    summary = summarise(read(audited))
    text = markdown(report(summary))
    assert "## What attacks did reach: the audit" in text
    assert "The verdict: no evidence against the claim" in text
    assert "no guarantee covers them" in text
    assert "> **Careful:** this report holds an audit's figures" in text
    assert "With 300 records that were not in the data" in text
    assert "| shadows | 16 |" in text
    assert summary.as_dict()["audit"]["contradicted"] is False


def test_what_is_allowed_comes_from_the_statement(audited: Path) -> None:
    """And not from the audit's file, which may say anything."""
    plain = json.loads((audited / "audit.json").read_text())
    for one in plain["attacks"]:
        for found in one["found"]:
            found["allowed"] = 1.0
    plain["claim"]["event"] = {"kind": "nonsense"}
    (audited / "audit.json").write_text(json.dumps(plain))
    summary = summarise(read(audited))
    (row,) = [
        line for line in markdown(report(summary)).splitlines() if line.startswith("| lira | 1 % |")
    ]
    shown = float(row.split("|")[-2].strip().removesuffix(" %"))
    statement = summary.statement
    curve = profile(from_plain(statement.event), statement.adjacency)
    assert shown == pytest.approx(100.0 * (1.0 - curve.tradeoff(0.01)), rel=0.03)


def test_texts_of_the_file_are_texts(audited: Path) -> None:
    write(audited)
    page = (audited / PAGE).read_text()
    assert "<b>a note</b>" not in page
    assert "&lt;b&gt;a note&lt;/b&gt;" in page
    assert 'id="audit-' in page
    assert "<b>" not in (audited / MARKDOWN).read_text()


def test_a_contradiction_is_the_first_warning(run: Path, whole: Any) -> None:
    (run / "audit.json").write_text(json.dumps(example(*whole[:2], distance=8.0)))
    told = report(summarise(read(run)))
    assert told.warnings[0].startswith("an audit contradicts the claim: the evidence contradicts")


def test_without_the_file_nothing_of_it_is_left(audited: Path) -> None:
    write(audited)
    (audited / "audit.json").unlink()
    write(audited)
    for name in (PAGE, MARKDOWN):
        assert "audit.json" not in (audited / name).read_text()
        assert "What attacks did reach" not in (audited / name).read_text()
