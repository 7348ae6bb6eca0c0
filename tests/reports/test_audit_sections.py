"""An audit in a report: its file, which may come from anyone, and its section."""

from __future__ import annotations

import copy
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tacit._numbers import per_hundred
from tacit.accounting import profile
from tacit.accounting.serialization import from_dict
from tacit.errors import CheckpointError
from tacit.recipes.auditing import audit_file
from tacit.recipes.auditing.audit_file import read_plain
from tacit.reports import run_report
from tacit.reports.run_content import markdown
from tacit.reports.run_folder import read
from tacit.reports.run_report import MARKDOWN, PAGE, write
from tacit.reports.run_sections import report
from tacit.reports.run_summary import summarise

from .audit_example import example

if TYPE_CHECKING:
    from pathlib import Path


# ---- ``audit.json`` may come from anyone: what is malformed, false or of another run is refused


@pytest.fixture(scope="module")
def plain(whole: Any) -> dict[str, Any]:
    return example(*whole[:2])


def test_an_audit_is_read_as_it_was_written(run: Path, plain: dict[str, Any]) -> None:
    (run / "audit.json").write_text(json.dumps(plain))
    audit = read(run).audit
    assert audit is not None
    assert audit.verdict is not None
    assert audit.verdict.describe() == plain["words"]
    assert audit.verdict.contradicted is plain["contradicted"] is False
    assert [one.name for one in audit.attacks] == ["lira", "loss"]
    assert audit.attacks[0].auc.value == plain["attacks"][0]["auc"]["value"]
    assert len(audit.attacks[0].roc) == len(plain["attacks"][0]["roc"])
    assert audit.settings["attacks"] == "lira, loss"


def test_a_run_without_an_audit(run: Path) -> None:
    assert read(run).audit is None


def changed(plain: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(plain)
    place: Any = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "tacit-run"),
        (("version",), 2),
        (("kind",), "recipe"),
        (("kind",), ["run"]),
        (("subject",), 3),
        (("run",), None),
        (("run", "configuration"), "0" * 64),
        (("verdict", "claimed"), 0.1),
        (("verdict", "claimed"), -1),
        (("verdict", "claimed"), "3"),
        (("verdict", "shown", "delta"), 1e-9),
        (("verdict", "shown", "confidence"), 1.5),
        (("verdict", "decisive", "method"), "x" * 5000),
        (("verdict", "decisive", "epsilon"), 10**400),
        (("attacks",), {}),
        (("attacks", 0, "members"), True),
        (("attacks", 0, "members"), -3),
        (("attacks", 0, "auc", "value"), 1.5),
        (("attacks", 0, "auc", "lower"), 0.99),
        (("attacks", 0, "found", 0, "tpr", "upper"), None),
        (("attacks", 0, "roc", 0), [0.0, 0.5, 0.6, 0.7]),
        (("attacks", 0, "roc", 0), [0.0, 0.5]),
        (("attacks", 0, "roc"), [[0.0, 0.0, 0.0, 0.0]] * 5000),
        (("notes",), "no list"),
        (("notes", 0), None),
        (("settings",), []),
        (("settings", "seed"), ["a", 3]),
        (("claim",), {"event": []}),
    ],
)
def test_what_is_malformed_is_refused_in_a_line(
    run: Path, plain: dict[str, Any], path: tuple[Any, ...], value: Any
) -> None:
    (run / "audit.json").write_text(json.dumps(changed(plain, path, value)))
    with pytest.raises(CheckpointError, match=r"audit\.json is refused") as caught:
        read(run)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"a": NaN}', "\x00"])
def test_no_json(run: Path, text: str) -> None:
    (run / "audit.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"audit\.json"):
        read(run)


def test_no_text_no_file_too_long(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run / "audit.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"audit\.json is refused"):
        read(run)
    monkeypatch.setattr(audit_file, "LARGEST", 1)
    with pytest.raises(CheckpointError, match="too large"):
        read(run)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="it is no plain file"):
        read(run)


def test_whether_it_contradicts_follows_from_the_numbers(plain: dict[str, Any]) -> None:
    shown = changed(plain, ("contradicted",), True)
    verdict = read_plain(shown).verdict
    assert verdict is not None
    assert not verdict.contradicted
    strong = changed(plain, ("verdict", "decisive", "epsilon"), 50.0)
    verdict = read_plain(strong).verdict
    assert verdict is not None
    assert verdict.contradicted


# ---- The audit's part of a report: its verdict, what is allowed, and that it is private


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
    shown = row.split("|")[-2].strip()
    statement = summary.statement
    curve = profile(from_dict(statement.event), statement.adjacency)
    assert shown == f"{per_hundred(1.0 - curve.tradeoff(0.01))} %"  # as at the head of the report


def test_settings_that_were_left_out_are_not_shown(audited: Path) -> None:
    plain = json.loads((audited / "audit.json").read_text())
    plain["settings"] |= {"records": None, "asked": 600}
    (audited / "audit.json").write_text(json.dumps(plain))
    text = markdown(report(summarise(read(audited))))
    assert "| records attacked | 600 |" in text
    assert "none |" not in text


def test_texts_of_the_file_are_texts(audited: Path) -> None:
    write(audited)
    page = (audited / PAGE).read_text()
    assert "<b>a note</b>" not in page
    assert "&lt;b&gt;a note&lt;/b&gt;" in page
    assert 'id="audit-' in page
    assert "<b>" not in (audited / MARKDOWN).read_text()


def test_a_contradiction_is_the_first_warning(run: Path, whole: Any) -> None:
    (run / "audit.json").write_text(json.dumps(example(*whole[:2], distance=8.0)))
    shown = report(summarise(read(run)))
    assert shown.warnings[0].startswith("an audit contradicts the claim: the evidence contradicts")


def test_without_the_file_nothing_of_it_is_left(
    audited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "_drawings", lambda _: {})  # what is said is looked at
    write(audited)
    assert "What attacks did reach" in (audited / PAGE).read_text()
    (audited / "audit.json").unlink()
    write(audited)
    for name in (PAGE, MARKDOWN):
        assert "audit.json" not in (audited / name).read_text()
        assert "What attacks did reach" not in (audited / name).read_text()
