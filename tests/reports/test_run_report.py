"""``write``: both files whole or as they were, with or without matplotlib."""

from __future__ import annotations

import os

import pytest

from tacit.errors import CheckpointError
from tacit.reports import run_report
from tacit.reports.run_report import write


def names(folder) -> set[str]:
    return {one.name for one in folder.iterdir()} - {".lock"}


@pytest.fixture
def undrawn(monkeypatch):
    """Drawings take longer than all the rest of a report."""
    monkeypatch.setattr(run_report, "find_spec", lambda _: None)


BEFORE = {"run.json", "history.jsonl", "statement.json"}


def test_both_files_are_written(run):
    assert write(run) == run / "report.html"
    assert names(run) == BEFORE | {"report.html", "report.md"}
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>\n")
    assert page.count("<svg") == (3 if run_report.find_spec("matplotlib") else 0)
    assert (run / "report.md").read_text(encoding="utf-8").startswith("# digits: 90.00 % at ε = ")


def test_writing_again_gives_the_same_files(run):
    write(run)
    first = (run / "report.html").read_bytes(), (run / "report.md").read_bytes()
    write(run)
    assert first == ((run / "report.html").read_bytes(), (run / "report.md").read_bytes())


@pytest.mark.usefixtures("undrawn")
def test_without_matplotlib_the_tables_say_it_alone(run, monkeypatch):
    monkeypatch.setattr(run_report, "_drawings", lambda _: pytest.fail("drawn without matplotlib"))
    page = write(run).read_text(encoding="utf-8")
    assert "<svg" not in page
    for text in (page, (run / "report.md").read_text(encoding="utf-8")):
        assert "matplotlib was not installed" in text


def test_a_refused_run_leaves_everything_as_it_was(run):
    (run / "report.html").write_text("old")
    (run / "statement.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"statement\.json is refused"):
        write(run)
    assert (run / "report.html").read_text() == "old"
    assert names(run) == BEFORE | {"report.html"}


@pytest.mark.usefixtures("undrawn")
def test_a_crash_leaves_the_old_report_and_no_draft(run, monkeypatch):
    (run / "report.html").write_text("old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        write(run)
    assert (run / "report.html").read_text() == "old"
    assert names(run) == BEFORE | {"report.html"}


@pytest.mark.usefixtures("undrawn")
def test_a_link_in_the_folder_is_replaced_and_not_followed(run, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (run / "report.html").symlink_to(outside)
    write(run)
    assert outside.read_text() == "mine"
    assert not (run / "report.html").is_symlink()
