"""What a run prints or logs is heard, and goes on to where it went before."""

from __future__ import annotations

import logging
import sys
import threading

import pytest

from tacit.auditing.replay.watch import numbers_in, printed


def test_both_streams_are_heard_and_still_written(capsys: pytest.CaptureFixture[str]) -> None:
    with printed(logs=False) as heard:
        sys.stdout.write("loss 1.5\n")
        sys.stderr.write("again\n")
    sys.stdout.write("not this\n")
    assert "".join(heard) == "loss 1.5\nagain\n"
    shown = capsys.readouterr()
    assert shown.out == "loss 1.5\nnot this\n"
    assert shown.err == "again\n"


def test_another_thread_is_not_heard() -> None:
    with printed(logs=False) as heard:
        other = threading.Thread(target=sys.stdout.write, args=("a progress bar",))
        other.start()
        other.join()
    assert heard == []


def test_what_nobody_would_see_logged_is_heard_and_shown_to_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = logging.getLogger()
    level, count = root.level, len(root.handlers)
    with printed(logs=True) as heard:
        logging.getLogger("some engine").debug("norm=%s", 2.5)
    assert heard == ["norm=2.5\n"]
    assert not caplog.records
    assert (root.level, len(root.handlers)) == (level, count)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("loss=0.5", {"loss": 0.5}),
        ("\r 50%|# | 1/2 [00:00<00:00, 3.2it/s, loss=1e-3]", {"loss": 1e-3}),
        ('{"norm": -2}', {"norm": -2.0}),
        ("3 of 4 clipped", {"of": 4.0}),
        ("finfo nothing", {}),
    ],
)
def test_numbers_have_the_name_of_the_word_before(text: str, found: dict[str, float]) -> None:
    assert numbers_in(text) == found
