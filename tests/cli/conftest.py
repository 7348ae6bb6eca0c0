"""Reports without drawings, which take longer than the runs they are about; no status lines."""

from __future__ import annotations

import pytest


@pytest.fixture
def drawn() -> None:
    """A test that asks for this has its reports with drawings; ``tests/reports`` looks at them."""


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are those of a machine without matplotlib."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("tacit.reports.run_report.find_spec", lambda _: None)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command says does not depend on how busy the machine is."""
    monkeypatch.setattr("tacit.training.progress._PATIENCE", 3600.0)
