"""The journal of a labelling run: what it holds after any cut, and what it refuses."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tacit.errors import CheckpointError
from tacit.transfer import journal as stages
from tacit.transfer.journal import LabelJournal, LabellingState

SETTINGS = {"aggregator": "GNMax(sigma=40.0)", "queries": 6, "answers": 4}


def opened(path, settings=SETTINGS, queries=6):
    return LabelJournal(path, settings, queries)


@pytest.fixture(name="path")
def a_run_that_was_cut_off(tmp_path):
    """Query 0 was told, 1 screened out, 2 was being answered, 3 and 4 were being screened."""
    path = tmp_path / "run.journal"
    with opened(path) as journal:
        journal.screen([0, 1, 2])
        journal.answer([0, 2])
        journal.tell(0, 7)
        journal.screen([3, 4])
    return path


def test_what_was_in_flight_is_lost(path):
    with opened(path) as journal:
        assert journal.resumed
        assert journal.record.labels.tolist() == [7, -1, -1, -1, -1, -1]
        assert journal.record.stages.tolist() == [
            stages.ANSWERED,
            stages.SCREENED_OUT,
            stages.LOST_ANSWER,
            stages.LOST_SCREENING,
            stages.LOST_SCREENING,
            stages.WAITING,
        ]
        assert journal.record.next == 5
        assert (journal.record.screenings, journal.record.answers) == (5, 2)
        assert journal.record.last == (2, 0)


def test_the_name_of_the_run_stays(path, tmp_path):
    with opened(path) as one:
        name = one.run
    with opened(path) as other:
        assert other.run == name
    with opened(tmp_path / "other") as new:
        assert new.run != name
        assert not new.resumed


def test_an_ended_run_stays_ended_and_takes_nothing_more(path):
    with opened(path) as journal:
        journal.end()
    with opened(path) as journal:
        assert journal.record.ended
        with pytest.raises(ValueError, match="out of turn"):
            journal.screen([5])


@pytest.mark.parametrize(
    ("what", "values"),
    [("screen", [0]), ("screen", [5, 5, -1]), ("answer", [0]), ("tell", [5, 1]), ("tell", [0, 1])],
)
def test_no_query_is_announced_or_told_twice(path, what, values):
    with opened(path) as journal, pytest.raises(ValueError, match="twice, or out of turn"):
        journal.record.take(what, values)


def test_every_cut_of_the_file_loses_at_most_what_was_not_synced(path):
    """Whatever byte a crash cuts the file at, no query is free again whose line was whole."""
    content = path.read_bytes()
    announced_by = {}
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        with opened(path) as journal:
            announced_by[size] = journal.record.next
    whole_lines = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    first, second, third, fourth, fifth = whole_lines[:5]
    for size, announced in announced_by.items():
        assert announced == (5 if size >= fifth else 3 if size >= second else 0)
    assert first < second < third < fourth < fifth


def test_what_follows_the_last_whole_line_is_dropped_for_good(path):
    with path.open("ab") as file:
        file.write(b'["screen",5] 12')
    with opened(path) as journal:
        journal.screen([5])
    with opened(path) as journal:
        assert journal.record.stages[5] == stages.LOST_SCREENING


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_line_torn_in_the_middle_is_refused(path, place):
    lines = path.read_bytes().split(b"\n")
    lines[place] = lines[place][:-4]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(CheckpointError, match=f"damaged in line {place + 1} ") as error:
        opened(path).__enter__()
    assert "\n" not in str(error.value)


def test_a_line_that_was_changed_or_repeated_is_refused(path):
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"tell",0,7', b'"tell",0,3'))
    with pytest.raises(CheckpointError, match="not what was written"):
        opened(path).__enter__()
    lines = content.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[1]]))
    with pytest.raises(CheckpointError, match="twice"):
        opened(path).__enter__()


@pytest.mark.parametrize(
    ("name", "value"), [("aggregator", "LNMax(gamma=0.05)"), ("queries", 7), ("answers", None)]
)
def test_a_journal_of_another_run_is_refused_in_one_line(path, name, value):
    with pytest.raises(CheckpointError, match=f"of a run with {name} = ") as error:
        opened(path, SETTINGS | {name: value}, 7).__enter__()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content", [b"notes of mine", b"notes\nof mine\n", b"\n", b"[] 00000000\n"]
)
def test_a_file_that_is_no_journal_is_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="no labelling journal"):
        opened(path).__enter__()
    assert path.read_bytes() == content


def test_two_runs_cannot_have_one_journal(path):
    with opened(path), pytest.raises(CheckpointError, match="in use"):
        opened(path).__enter__()
    with opened(path):
        pass


def test_a_folder_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be used"):
        opened(tmp_path / "none" / "run").__enter__()


def test_announcements_are_synced_before_they_return(path, monkeypatch):
    synced = []
    true_fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(file), true_fsync(file)))
    with opened(path) as journal:
        before = len(synced)
        journal.screen([5])
        assert len(synced) == before + 1
        journal.answer([5])
        assert len(synced) == before + 2
        journal.tell(5, 1)
        assert len(synced) == before + 2


def test_only_its_owner_can_read_it(path):
    assert path.stat().st_mode & 0o077 == 0


def test_in_memory_it_keeps_the_same_record():
    with LabelJournal(None, SETTINGS, 6) as journal:
        journal.answer([0, 1])
        journal.tell(1, 3)
        assert not journal.kept
        assert journal.record.labels.tolist() == [-1, 3, -1, -1, -1, -1]


def test_unknown_words_are_refused():
    with pytest.raises(ValueError, match="says 'ask'"):
        LabellingState(np.zeros(1, dtype=np.int8), np.zeros(1, dtype=np.int64)).take("ask", [0])
