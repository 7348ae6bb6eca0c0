"""What is shown where: the private loss on a terminal only, public numbers elsewhere."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
import time
from typing import TYPE_CHECKING

import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.training import progress
from tacit.training.progress import (
    Bar,
    EpochRecord,
    Lines,
    Silent,
    checked_metrics,
    counting,
    display,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.training.progress import Display

RECORD = EpochRecord(epoch=2, steps=20, held_out_accuracy=0.875, epsilon=0.12341)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# pytest puts a standard error of its own in place between the fixtures and the test: these are
# called by the test itself.


def terminal(patch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    patch.setattr(sys, "stderr", stream)
    patch.setenv("COLUMNS", "200")
    patch.setenv("TERM", "xterm")
    return stream


def file(patch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    patch.setattr(sys, "stderr", stream)
    return stream


def made(wanted: bool | None) -> Display:
    return display(wanted, steps=40, taken=0, delta=1e-5)


def play(shown: Display) -> None:
    with shown:
        for step in range(1, 41):
            shown.losses(torch.full((5,), 0.987654))
            shown.losses(torch.zeros(0))  # an empty batch has no mean
            shown.step(step, lambda: 0.12341)
            if step % 20 == 0:
                shown.epoch(dataclasses.replace(RECORD, steps=step))


def test_a_terminal_shows_a_bar_unless_it_is_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    assert isinstance(made(None), Bar)
    assert isinstance(made(True), Bar)
    assert isinstance(made(False), Silent)
    assert stream.getvalue() == ""


def test_a_command_that_a_notebook_starts_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """``!tacit train`` in a cell has a terminal, and what it prints is saved in the notebook."""
    stream = terminal(monkeypatch)
    monkeypatch.setenv("JPY_PARENT_PID", "7")
    play(made(None))
    assert "loss" not in stream.getvalue()
    assert "held-out 87.50%" in stream.getvalue()


def test_elsewhere_lines_are_shown_unless_they_are_unwanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = file(monkeypatch)
    assert isinstance(made(None), Lines)
    assert isinstance(made(True), Lines)
    assert isinstance(made(False), Silent)
    assert stream.getvalue() == ""


def test_the_bar_shows_everything_and_marks_the_loss_as_private(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = terminal(monkeypatch)
    play(made(None))
    text = stream.getvalue()
    for part in ("40/40", "loss 0.9877 (secret, not saved)", "held-out 87.50%", "ε 0.1235",
                 "δ 1e-5"):  # fmt: skip
        assert part in text


def test_the_bar_shows_the_share_of_rows_that_are_not_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = terminal(monkeypatch)
    with made(None) as shown:
        shown.losses(torch.tensor([1.0, torch.nan, torch.inf, 1.0]))
        shown.losses(torch.tensor([1.0, 1.0, 1.0, 1.0]))
        shown.epoch(RECORD)
    assert "loss 1.0000 (secret, not saved)  25.0% of rows not finite (secret)" in stream.getvalue()
    written = file(monkeypatch)
    with made(True) as lines:
        lines.losses(torch.tensor([torch.nan]))
        lines.epoch(RECORD)
    assert "finite" not in written.getvalue()


def test_nothing_is_lost_on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    play(made(None))
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).splitlines()[-2:]
    assert "40/40 ━━━━━━━━━━━━━━━━━━━━ " in last[0]
    assert re.search(r"\d:\d\d:\d\d left \d:\d\d:\d\d", last[0])
    assert last[1].strip() == (
        "loss 0.9877 (secret, not saved)  held-out 87.50%  ε 0.1235 at δ 1e-5"
    )
    assert max(map(len, last)) <= 80


def test_metrics_are_shown_beside_the_accuracy() -> None:
    record = dataclasses.replace(RECORD, metrics={"auc": 0.93751, "perplexity": None})
    assert str(record) == (
        "epoch 2  step 20  held-out 87.50%  auc 0.9375  perplexity not finite  ε 0.1235"
    )
    assert record.numbers() == {
        "epoch": 2, "epsilon": 0.12341, "held_out_accuracy": 0.875, "auc": 0.93751,
    }  # fmt: skip


@pytest.mark.parametrize(
    "plain", [{"a b": 1.0}, {"": 1.0}, {"auc": "1"}, {"auc": True}, {"auc": float("nan")}, [1.0],
              {"\x1b[2J": 1.0}, {"x" * 33: 1.0}],
)  # fmt: skip
def test_metrics_of_a_file_are_numbers_by_name(plain: object) -> None:
    assert checked_metrics({"auc": 0.5, "ppl": None}) == {"auc": 0.5, "ppl": None}
    with pytest.raises(InvalidArgument, match="metrics"):
        checked_metrics(plain)


def test_the_last_thing_the_bar_shows_is_the_last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    with made(None) as shown:
        shown.step(40, lambda: 0.1)
        shown.epoch(RECORD)
    assert "held-out 87.50%" in stream.getvalue()


def test_what_may_end_up_in_a_file_holds_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = file(monkeypatch)
    play(made(True))
    line = "epoch 2  step {}  held-out 87.50%  ε 0.1235  (δ 1e-5)\n"  # ε rounded up
    assert stream.getvalue() == line.format(20) + line.format(40)


def test_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = file(monkeypatch)
    play(made(False))
    assert stream.getvalue() == ""


def test_the_bar_asks_for_epsilon_only_to_draw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    asked: list[int] = []

    def spent() -> float:
        asked.append(1)
        return 0.5

    with display(None, steps=100_000, taken=0, delta=1e-5) as shown:
        for step in range(1, 2000):
            shown.step(step, spent)
    assert len(asked) < 100
    assert stream.getvalue()


def test_an_epoch_without_held_out_data_says_nothing_of_it() -> None:
    record = EpochRecord(epoch=1, steps=10, held_out_accuracy=None, epsilon=0.25)
    assert str(record) == "epoch 1  step 10  ε 0.25"


# ---- a wait that nothing can be counted in


@pytest.mark.parametrize("where", [file, terminal])
def test_a_long_wait_is_named_once_and_a_short_one_never(
    monkeypatch: pytest.MonkeyPatch, where: Callable[[pytest.MonkeyPatch], io.StringIO]
) -> None:
    stream = where(monkeypatch)
    with waiting(None, "calibrating"):
        pass
    assert stream.getvalue() == ""
    monkeypatch.setattr(progress, "_PATIENCE", 0.01)
    with waiting(False, "calibrating"):
        time.sleep(0.05)
    assert stream.getvalue() == ""
    with waiting(None, "calibrating"):
        time.sleep(0.3)
    ends = {file: "\n", terminal: "\r\x1b[2K"}  # a terminal forgets it
    assert stream.getvalue() == f"calibrating …{ends[where]}"


# ---- how far a long job is


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
