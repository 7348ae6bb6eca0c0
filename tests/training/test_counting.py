"""Progress: lines where they are wanted, a bar on a terminal, and nothing private in them."""

from __future__ import annotations

import pytest

from tacit.training.counting import counting


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with counting(True, "shadow models", total=20, done=10) as show:
        for done in range(11, 21):
            show(done)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert lines[-1] == "shadow models: 20 of 20"


@pytest.mark.parametrize("wanted", [False, None])
def test_silence_elsewhere(wanted: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with counting(wanted, "models", total=2, done=0) as show:
        show(2)
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with counting(None, "shadow models", total=8, done=3) as show:
        show(8)
    said = capsys.readouterr().err
    assert "shadow models" in said
    assert "8/8" in said
