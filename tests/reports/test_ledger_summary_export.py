"""An exported ledger: every column of every entry, and never half a file."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from tacit.ledger.entries import Draft, Entry, break_between, entry_after
from tacit.reports import ledger_summary


def chain(count: int) -> list[Entry]:
    done: list[Entry] = []
    for number in range(count):
        draft = Draft("Daten €", "lease", {"steps": number, "text": "ε\u2028\n\x1b"})
        done.append(entry_after(done[-1].head if done else None, draft))
    return done


def test_lines_hold_every_column_to_the_letter(tmp_path):
    entries = chain(5)
    ledger_summary.export(entries, tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_bytes().decode("ascii").split("\n")
    assert lines.pop() == ""
    found = [Entry(**json.loads(line)) for line in lines]
    assert found == entries
    last = None
    for entry in found:
        assert break_between(last, entry) is None
        last = entry.head


def test_a_failure_leaves_the_old_file_and_no_other_one(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("old")

    def broken():
        yield from chain(3)
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        ledger_summary.export(broken(), path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("out.jsonl", "old")]


@pytest.mark.skipif(os.name == "nt", reason="folders are synced on POSIX only")
def test_the_whole_file_is_synced_before_it_is_moved_and_the_folder_after(tmp_path, monkeypatch):
    seen: list[tuple[str, int]] = []
    sync, move = os.fsync, os.replace

    def note_sync(handle: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        seen.append((kind, os.fstat(handle).st_size if kind == "file" else 0))
        sync(handle)

    def note_move(source: str, target: object) -> None:
        seen.append(("move", os.stat(source).st_size))
        move(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_move)
    ledger_summary.export(chain(3), tmp_path / "out.jsonl")
    size = (tmp_path / "out.jsonl").stat().st_size
    assert seen == [("file", size), ("move", size), ("folder", 0)]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_killed_process_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    code = (
        "import sys, time; from pathlib import Path; from tacit.ledger.entries import Entry\n"
        "from tacit.reports.ledger_summary import export\n"
        "def forever():\n"
        "    print('ready', flush=True)\n"
        "    while True: yield Entry(1, 'x' * 100000, '', '', '', '', '')\n"
        "export(forever(), Path(sys.argv[1]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert path.read_text() == "old"
