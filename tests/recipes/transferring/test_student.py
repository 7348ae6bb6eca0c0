"""Answers as text, and progress in a few lines."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import CheckpointError
from tacit.recipes.transferring.student import answers_bytes, query_progress
from tacit.reports.run_folder import read_answers


def test_answers_come_back_as_they_were_written(tmp_path) -> None:
    labels = np.full(50, -1)
    labels[[0, 7, 49]] = [3, 0, 9]
    path = tmp_path / "answers.csv"
    path.write_bytes(answers_bytes(labels))
    assert read_answers(path) == ((0, 3), (7, 0), (49, 9))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "first line"), ("a,b\n1,2\n", "first line"), ("query,label\n1\n", "line 2"),
        ("query,label\n1,-2\n", "line 2"), ("query,label\n1,2\n1,3\n", "twice"),
        ("query,label\n5,2\n1,3\n", "out of order"), ("query,label\n1,99999999999\n", "line 2"),
        ("query,label\n1,٣\n", "cannot be read"),
    ],
)  # fmt: skip
def test_answers_that_nobody_wrote_so_are_refused(tmp_path, text: str, words: str) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=words) as caught:
        read_answers(path)
    assert "\n" not in str(caught.value)


def test_progress_is_a_few_lines_or_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert query_progress(False, 100) is None
    assert query_progress(None, 100) is None  # no terminal here
    show = query_progress(True, 100)
    assert show is not None
    for asked in range(1, 101):
        show(asked, asked // 2)
    lines = capsys.readouterr().err.splitlines()
    assert 5 <= len(lines) <= 12
    assert lines[-1] == "queries asked: 100 of 100, answered: 50"
