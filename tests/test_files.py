"""Files that are there whole or not at all, in real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import _files
from tacit._files import OWNER_ONLY, drafted, locked, parse_array, parse_json, put, read

if TYPE_CHECKING:
    from pathlib import Path

ENDLESS = """
import sys
from pathlib import Path
from tacit._files import put
at = 0
while True:
    at += 1
    put(Path(sys.argv[1]), bytes([at % 256]) * 200_000)
    print(at, flush=True)
"""


def test_a_file_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "file"
    for delay in (0.0, 0.003, 0.011):
        writer = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, str(place)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        found = place.read_bytes()
        assert len(found) == 200_000
        assert len(set(found)) == 1


def test_a_private_file_is_its_owners(tmp_path: Path) -> None:
    put(tmp_path / "votes", b"counts", mode=OWNER_ONLY)
    assert stat.S_IMODE((tmp_path / "votes").stat().st_mode) == 0o600


def test_a_lock_keeps_others_out_until_its_file_is_closed(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        assert locked(first)
        assert not locked(second)
    finally:
        os.close(first)
    try:
        assert locked(second)
    finally:
        os.close(second)


# ---- links


def test_no_link_beside_is_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    folder = tmp_path / "sent"
    folder.mkdir()
    for name in ("run.json", "run.json.new", "run.json.part", ".run.json.tmp", "run.json.tmp"):
        (folder / name).symlink_to(victim)
    put(folder / "run.json", b"theirs")
    assert victim.read_bytes() == b"mine"
    assert not (folder / "run.json").is_symlink()
    assert (folder / "run.json").read_bytes() == b"theirs"


def test_a_draft_is_made_and_never_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    monkeypatch.setattr(_files.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".x.guessed.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        put(tmp_path / "x", b"theirs")
    assert (tmp_path / "victim").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["link", "pipe", "folder"])
def test_what_is_no_file_is_neither_locked_nor_appended_to(tmp_path: Path, name: str) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    make = {"link": lambda one: one.symlink_to(tmp_path / "victim"), "pipe": os.mkfifo,
            "folder": os.mkdir}[name]  # fmt: skip
    for place in (tmp_path / ".lock", tmp_path / "journal"):
        make(place)
    with pytest.raises(OSError, match=r"symbolic links|directory|no plain file"):
        os.close(_files.append_to(tmp_path / "journal"))
    if name != "pipe":
        with pytest.raises(OSError, match=r"symbolic links|directory"):
            os.close(_files.lock(tmp_path))
    assert (tmp_path / "victim").read_bytes() == b"mine"


def test_a_draft_that_fails_leaves_nothing(tmp_path: Path) -> None:
    put(tmp_path / "x", b"before")
    with pytest.raises(ZeroDivisionError), drafted(tmp_path / "x") as draft:
        draft.write_bytes(b"after")
        raise ZeroDivisionError
    assert [one.name for one in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"before"
    (tmp_path / ".x.0123.tmp").touch()  # of a process that was killed
    _files.sweep(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


# ---- reading


def test_pipes_devices_and_giants_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with (tmp_path / "giant").open("wb") as file:
        file.truncate(1 << 40)
    for name, words in {"pipe": "no plain", "zero": "no plain", "giant": "too large"}.items():
        with pytest.raises(ValueError, match=words):
            read(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read(tmp_path)
    (tmp_path / "all").write_bytes(b"1234")
    assert read(tmp_path / "all", most=4) == b"1234"
    with pytest.raises(ValueError, match="more than 3"):
        read(tmp_path / "all", most=3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 10**6, "deep"),
        ("[" * 101 + "]" * 101, "deep"),
        ('{"a":' * 101 + "1" + "}" * 101, "deep"),
        ("9" * 65, "65 digits"),
        ("-" + "9" * 5000, "5,001 digits"),
        ("1e400", "too large for a number"),
        ("-Infinity", "no number"),
        ("NaN", "no number"),
        ('{"b": 1, "a": 2, "a": 2}', "'a' is there twice"),
        ('"\\udc00"', "half a character"),
        ('{"\\ud83d": 1}', "half a character"),
        (b"\xff", "UTF-8"),
        ("", "no JSON"),
        ("{", "no JSON"),
        ("1" * (1 << 25), "too large"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_documents_that_are_refused(text: str | bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        parse_json(text)
    assert len(str(refusal.value)) < 200


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_what_json_writes_is_read(value: object) -> None:
    try:
        text = json.dumps(value)
        text.encode()
    except UnicodeEncodeError:
        return
    assert parse_json(text) == value
    assert parse_json("[" * 80 + text + "]" * 80) is not None


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_bytes_are_a_document_or_a_value_error(text: bytes | str) -> None:
    with contextlib.suppress(ValueError):
        parse_json(text)


@pytest.mark.parametrize("kind", ["<i8", ">f4", "|b1", "|u1", "<f2", "<u2"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (1, 0, 5)])
def test_arrays_are_read_as_numpy_reads_them(kind: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    for order in (array, np.asfortranarray(array)):
        found = parse_array(_files.array_bytes(order))
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype


@pytest.mark.parametrize("kind", [b"a5", b"|O", b"<U1", b"<X1", b"<c8", b"i99"])
def test_an_array_of_what_is_no_number_is_refused(kind: bytes) -> None:
    """Letters that NumPy takes no more are none, and not its warning."""
    whole = _files.array_bytes(np.arange(6)).replace(b"'<i8'", b"'" + kind + b"'")
    with pytest.raises(ValueError, match="it is no array of numbers"):
        parse_array(whole)


@given(st.binary(max_size=200), st.integers(0, 127))
def test_a_changed_array_is_an_array_or_a_value_error(change: bytes, place: int) -> None:
    whole = bytearray(_files.array_bytes(np.arange(6).reshape(2, 3)))
    whole[place : place + len(change)] = change
    with contextlib.suppress(ValueError):
        assert parse_array(bytes(whole)).size <= 200
