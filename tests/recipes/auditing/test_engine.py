"""The self-test as an audit; what it finds is tested where it lives (``tests/auditing``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.auditing.replay import Finding, Report, standard_settings
from tacit.auditing.replay.standard import special_settings
from tacit.recipes.auditing import engine
from tacit.recipes.auditing.engine import audit_engine

if TYPE_CHECKING:
    import pytest

LINEAR = {"linear": standard_settings()["linear"]}


def test_an_honest_engine_and_time_that_is_up() -> None:
    told: list[tuple[str, int, int, str]] = []
    found = audit_engine(LINEAR, seconds=0.5, private=False, progress=lambda *a: told.append(a))
    assert (found.contradicted, found.exit_status, found.private) == (False, 0, False)
    assert "found nothing" in found.words
    assert all(row["passed"] for row in found.details)
    assert {one[0] for one in told} <= {"linear"}
    assert any("Not every check was run" in note for note in found.notes)


def test_faults_are_named_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Report(
        "tacit",
        (
            Finding("clipping", "norm", True, "as it should be"),
            Finding("noise", "scale", False, "0.95 of it"),
            Finding("noise", "steps", False, "the same twice"),
        ),
        0.1,
    )
    monkeypatch.setattr(engine, "replay", lambda *_, **__: faults)
    found = audit_engine({"a": LINEAR["linear"], "b": LINEAR["linear"]})
    assert found.words == "the engine is at fault: noise"
    assert found.exit_status == 1
    assert len(found.details) == 6
    assert found.details[1] == {
        "setting": "a", "component": "noise", "check": "scale", "passed": False,
        "evidence": "0.95 of it",
    }  # fmt: skip


def test_every_check_is_made_by_default_in_settings_that_differ() -> None:
    jobs = engine._jobs(quick=False, seconds=1.0)
    assert [job.name for job in jobs[:2]] == ["compiled", "adaptive"]
    assert {job.name for job in jobs} == {*standard_settings(), *special_settings(), engine.PARTS}
    assert len(jobs) == len({job.name for job in jobs})
    whole = {job.name for job in jobs if job.scope == "all"} - {engine.PARTS}
    assert whole == {"linear", "users", "adaptive", "secure"}


def test_a_report_says_where_not_all_checks_were_made() -> None:
    said = engine._where(engine._jobs(quick=False, seconds=1.0))
    assert "all checks in adaptive, secure, linear, users;" in said
    assert "noise follows the sums, in convolution, tied, views, per layer;" in said
    for job in (jobs := engine._jobs(quick=True, seconds=1.0)):
        assert job.scope == ("all" if job.name == "linear" else "quick")
    assert engine._where(jobs).startswith("What was looked at: all checks in linear; the first few")


def test_on_a_device_the_parts_of_the_cpu_are_left_out_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = engine._jobs(quick=False, seconds=1.0, device="cuda:0")
    assert {job.name for job in jobs} == {*standard_settings(), *special_settings()}
    assert {job.device for job in jobs} == {"cuda:0"}
    asked: list[str] = []

    def replayed(*_: object, device: str, **__: object) -> Report:
        asked.append(device)
        return Report("tacit", (), 0.1)

    monkeypatch.setattr(engine, "replay", replayed)
    found = audit_engine(LINEAR, device="cuda:0")
    assert asked == ["cuda:0"]
    assert found.settings["device"] == "cuda:0"
    assert any("trained on cuda:0, without TF32" in note for note in found.notes)
    assert not any("TF32" in note for note in audit_engine(LINEAR).notes)
