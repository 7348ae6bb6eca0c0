"""Downloads from a server that breaks off, lies, or is not there: never a wrong file in place."""

from __future__ import annotations

import errno
import gzip
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tacit.data import download as downloads
from tacit.data.description import File
from tacit.data.download import download
from tacit.errors import DataError

from .writing import sha256

if TYPE_CHECKING:
    from pathlib import Path

    from .serving import Server

DATA = os.urandom(150_000)
SIZE = len(DATA)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "sets" / "own" / "file"


@pytest.fixture
def file(server: Server) -> File:
    server.files["file"] = DATA
    return File(name="file", size=SIZE, digest=sha256(DATA), urls=(server.url("file"),))


def part(target: Path) -> Path:
    return target.with_name("file.part")


def refused(file: File, target: Path) -> str:
    """The one line of a download that fails, which leaves nothing under the file's name."""
    with pytest.raises(DataError) as refusal:
        download(file, target)
    assert not target.exists()
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def with_size(file: File, size: int | None) -> File:
    return File(name=file.name, size=size, digest=file.digest, urls=file.urls)


def test_a_file_arrives_whole(file, target):
    seen: list[tuple[str, int, int | None]] = []
    download(file, target, lambda *told: seen.append(told))
    assert target.read_bytes() == DATA
    assert os.listdir(target.parent) == ["file"]
    assert seen[-1] == ("file", SIZE, SIZE)
    assert [there for _, there, _ in seen] == sorted(there for _, there, _ in seen)


@pytest.mark.parametrize("known", [True, False])
def test_a_broken_connection_is_taken_up_where_it_broke(file, target, server, known):
    server.moods = ["drop 50000", "drop 40000", ""]
    download(file if known else with_size(file, None), target)
    assert target.read_bytes() == DATA
    assert [wanted for _, wanted in server.asked] == [None, "bytes=50000-", "bytes=90000-"]


def test_what_arrived_is_kept_for_the_next_attempt(file, target, server):
    server.moods = ["drop 50000", "drop 0"]
    assert "it broke off after 50,000 of 150,000 bytes" in refused(file, target)
    assert part(target).read_bytes() == DATA[:50_000]
    server.moods = [""]
    download(file, target)
    assert target.read_bytes() == DATA
    assert server.asked[-1][1] == "bytes=50000-"
    assert not part(target).exists()


@pytest.mark.parametrize("mood", ["no range", "from start"])
def test_a_server_that_knows_no_ranges_sends_all_of_it_again(file, target, server, mood):
    target.parent.mkdir(parents=True)
    part(target).write_bytes(DATA[:70_000])
    server.moods = [mood]
    download(file, target)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("left", [DATA[:-1][::-1], b"x" * 1_000, DATA + b"x", DATA[::-1]])
@pytest.mark.parametrize("known", [True, False])
def test_a_part_of_something_else_is_thrown_away(file, target, server, left, known):
    target.parent.mkdir(parents=True)
    part(target).write_bytes(left)
    download(file if known else with_size(file, None), target)
    assert target.read_bytes() == DATA
    assert len(server.asked) <= 3


def test_a_part_that_is_whole_needs_no_server(file, target, server):
    target.parent.mkdir(parents=True)
    part(target).write_bytes(DATA)
    download(file, target)
    assert target.read_bytes() == DATA
    assert server.asked == []


def test_the_wrong_bytes_are_not_kept(file, target, server):
    server.moods = ["wrong"]
    assert "another file than the published one, by its checksum" in refused(file, target)
    assert not part(target).exists()


@pytest.mark.parametrize(
    ("mood", "known", "message"),
    [
        ("short 999", True, "it has 999 bytes where 150,000 are published"),
        ("short 999", False, "another file than the published one"),
        ("long", True, "it has 150,001 bytes where 150,000 are published"),
        ("404", True, "HTTP 404 Not Found"),
        ("500", True, "HTTP 500 Internal Server Error"),
    ],
)
def test_what_goes_wrong_is_said(file, target, server, mood, known, message):
    server.moods = [mood]
    line = refused(file if known else with_size(file, None), target)
    assert message in line
    assert "127.0.0.1" in line
    assert f"put the file into {target.parent} yourself" in line
    assert not target.parent.parent.exists()  # nor are folders left that were made for it


def test_a_file_without_a_length_is_read_to_its_end(file, target, server):
    server.moods = ["no length"]
    download(file, target)
    assert target.read_bytes() == DATA


def test_a_server_that_sends_without_end_is_stopped(file, target, server):
    server.files["file"] = DATA * 10
    server.moods = ["no length"]
    assert "it sends more than 150,000 bytes" in refused(file, target)


def test_the_next_place_is_asked_and_goes_on(file, target, server):
    server.moods = ["drop 1000", "404", ""]
    both = File(name="file", size=SIZE, digest=file.digest, urls=file.urls * 2)
    download(both, target)
    assert target.read_bytes() == DATA
    assert [wanted for _, wanted in server.asked] == [None, "bytes=1000-", "bytes=1000-"]


def test_every_place_is_named_when_none_has_it(file, target, server):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        urls = (server.url("none"), f"http://127.0.0.1:{port}/file", "http://no.invalid/file")
        line = refused(File(name="file", size=SIZE, digest=file.digest, urls=urls), target)
    assert "HTTP 404" in line
    assert f"127.0.0.1:{port}: it refuses connections" in line
    assert "no.invalid: no network, or no such server" in line


def test_a_server_that_says_nothing_is_given_up(file, target, server, monkeypatch):
    monkeypatch.setattr(downloads, "PATIENCE", 0.2)
    server.moods = ["silent 1"]
    assert "no answer for 0.2 seconds" in refused(file, target)


def test_a_checksum_of_what_is_inside_is_compared_too(target, server):
    server.files["file"] = gzip.compress(DATA)
    good = File(name="file", digest=sha256(DATA), inside="gzip", urls=(server.url("file"),))
    bad = File(name="file", digest=sha256(b"other"), inside="gzip", urls=(server.url("file"),))
    assert "by its checksum" in refused(bad, target)
    server.moods = ["short 1000", ""]
    assert "by its checksum" in refused(good, target)
    download(good, target)
    assert gzip.decompress(target.read_bytes()) == DATA


def test_a_file_without_a_known_checksum_is_taken_whole(file, target, server):
    server.moods = ["drop 5000", ""]
    download(File(name="file", digest=None, urls=file.urls), target)
    assert target.read_bytes() == DATA


# ---- the disk


def test_a_full_disk_is_noticed_before(file, target, server, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1_000))
    line = refused(file, target)
    assert "has room for 1,000 bytes only, and file needs 150,000 bytes" in line
    assert server.asked == []


def test_a_disk_that_becomes_full_is_freed_again(file, target):
    """The system's own limit on a file's size: a write is cut short, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    target.parent.mkdir(parents=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(DataError, match=r"the disk of .* is full \(File too large\)"):
            download(file, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(target.parent) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_other_ways_to_be_full(file, target, monkeypatch, code):
    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(downloads.Received, "add", full)
    assert f"is full ({os.strerror(code)})" in refused(file, target)
    assert not part(target).exists()


def test_an_unwritable_folder_is_refused(file, tmp_path):
    (tmp_path / "file").touch()
    line = refused(file, tmp_path / "file" / "folder" / "file")
    assert "cannot be written: Not a directory; choose another folder" in line


# ---- several at once, and none to the end

CHILD = """
import sys
from pathlib import Path
from tacit.data.description import File
from tacit.data.download import download
url, size, digest, target = sys.argv[1:]
download(File(name="file", size=int(size), digest=digest, urls=(url,)), Path(target))
"""


def test_two_who_want_the_same_file_take_turns(file, target, server):
    server.moods = ["slow 0.01"]
    threads = [threading.Thread(target=download, args=(file, target)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == DATA
    assert len(server.asked) == 1
    assert os.listdir(target.parent) == ["file"]


def test_killed_in_the_middle_it_leaves_no_file_and_goes_on(file, target, server):
    """kill -9, again and again, each time after more has arrived."""
    command = [sys.executable, "-c", CHILD, file.urls[0], str(SIZE), str(file.digest), str(target)]
    server.moods = ["slow 0.5"]  # 150,000 bytes would take 18 seconds
    lengths = [0]
    for _ in range(3):
        child = subprocess.Popen(command)
        wait_for(lambda: length(part(target)) > lengths[-1], child)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert not target.exists()
        lengths.append(length(part(target)))
        assert part(target).read_bytes() == DATA[: lengths[-1]]
    server.moods = [""]
    subprocess.run(command, check=True)
    assert target.read_bytes() == DATA
    assert os.listdir(target.parent) == ["file"]
    asked = [wanted for _, wanted in server.asked]
    assert asked == [None, *(f"bytes={length}-" for length in lengths[1:])]


def length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_for(condition, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert child.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.005)
