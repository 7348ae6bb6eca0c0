"""Progress: lines where they are wanted, and nothing private in them."""

from __future__ import annotations

import pytest

from tacit.transfer.teachers.display import display


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with display(True, total=20, done=0) as show:
        for done in range(1, 21):
            show(done)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[-1] == "teachers trained: 20 of 20"


@pytest.mark.parametrize("wanted", [False, None])
def test_silence_elsewhere(wanted: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with display(wanted, total=2, done=0) as show:
        show(2)
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with display(None, total=8, done=3) as show:
        show(8)
    assert "8/8" in capsys.readouterr().err
