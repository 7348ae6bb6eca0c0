"""``tacit doctor``: what it finds in a sound installation, and what in a broken one."""

from __future__ import annotations

import json
import os
from importlib import metadata
from typing import Any

import pytest

from tacit import __version__
from tacit.auditing.replay import Finding, Report
from tacit.cli import doctor, main


def asked(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    status = main(["doctor", "--json", *options])
    found = json.loads(capsys.readouterr().out)
    return status, {one["what"]: one for one in found["findings"]} | {"sound": found["sound"]}


@pytest.fixture
def no_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds, and has a test of its own."""
    monkeypatch.setattr(doctor, "_engine", lambda *_, **__: _sound("self-test"))


def _sound(what: str) -> doctor.Diagnosis:
    return doctor.Diagnosis(what, "sound", "")


@pytest.mark.parametrize("options", [pytest.param((), marks=pytest.mark.slow), ("--full",)])
def test_a_sound_installation(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    status, found = asked(capsys, *options)
    assert status == 0
    assert found["sound"] is True
    assert "checks" in found["self-test"]["detail"]
    assert found["self-test"]["state"] == "sound"


@pytest.mark.usefixtures("no_self_test")
def test_it_says_what_is_installed_and_where_it_computes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, found = asked(capsys)
    assert status == 0
    assert __version__ in found["tacit"]["detail"]
    assert found["torch"]["detail"] == metadata.version("torch")
    assert "cores" in found["device"]["detail"]
    assert found["randomness"]["state"] == "sound"
    known = {f"extra {one}" for one in ("plots", "ui", "postgres", "sklearn", "hf", "gpu")}
    assert known <= set(found)
    assert "extra dev" not in found
    assert main(["doctor"]) == 0
    assert "Nothing is at fault." in capsys.readouterr().out


@pytest.mark.usefixtures("no_self_test")
def test_an_extra_that_is_missing_is_no_fault(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "ray" else version(name))
    status, found = asked(capsys)
    assert status == 0
    assert found["extra cluster"] == {
        "what": "extra cluster", "state": "missing",
        "detail": "ray not installed: pip install 'tacit[cluster]'",
    }  # fmt: skip


def test_a_dependency_that_is_missing_is_a_fault(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "scipy" else version(name))
    status, found = asked(capsys)
    assert status == 1
    assert found["scipy"]["detail"] == "not installed: pip install scipy"
    assert "self-test" not in found  # it could not run


class Biased:
    """Seven of eight bits are ones: it varies, and hides little."""

    def bytes(self, count: int) -> bytes:
        return bytes(a | b | c for a, b, c in zip(*(os.urandom(count) for _ in range(3))))  # noqa: B905


@pytest.mark.usefixtures("no_self_test")
def test_broken_randomness_is_a_fault(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.randomness.fresh_stream", lambda _: Biased())
    status, found = asked(capsys)
    assert (status, found["randomness"]["state"]) == (1, "fault")
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "_engine", lambda *_, **__: _sound("self-test"))
    monkeypatch.setattr("os.urandom", lambda count: b"\x07" * count)
    status, found = asked(capsys)
    assert (status, found["randomness"]["state"]) == (1, "fault")
    assert "repeats itself" in found["randomness"]["detail"]


def test_a_fault_of_the_engine_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Report("tacit", (Finding("noise", "scale", False, "half of it"),), 1.0, True)
    monkeypatch.setattr("tacit.auditing.replay.self_test.replay", lambda *_, **__: broken)
    monkeypatch.setattr("tacit.auditing.replay.replay", lambda *_, **__: broken, raising=False)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "FAULT  self-test: the engine is at fault: noise" in said
    assert "Mend this before anything private is trained." in said
