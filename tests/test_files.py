"""Files that are there whole or not at all, in real processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tacit._files import PRIVATE, locked, put

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
    put(tmp_path / "votes", b"counts", mode=PRIVATE)
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
