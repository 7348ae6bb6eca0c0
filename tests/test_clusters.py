"""Pieces of work on a real Ray cluster of two workers on this machine."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tacit._clusters import on_cluster
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def two_workers() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="Ray (the extra [cluster]) is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    assert ray.is_initialized()  # a connection that was there is left
    ray.shutdown()


@pytest.mark.usefixtures("two_workers")
def test_pieces_come_back_with_their_numbers_and_are_taken_when_there_is_room(
    tmp_path: Path,
) -> None:
    def work(shared: int, piece: int) -> int:
        return shared * piece

    taken: list[int] = []

    def pieces() -> Iterator[int]:
        for piece in (5, 6, 7, 8):
            taken.append(piece)
            yield piece

    done = on_cluster(work, 10, pieces(), cluster="local")
    first = next(done)
    assert taken == [5, 6]
    assert sorted([first, *done]) == [(0, 50), (1, 60), (2, 70), (3, 80)]

    def endless(folder: str, piece: str) -> None:
        (Path(folder) / piece).touch()
        while piece == "long":
            time.sleep(0.02)
            (Path(folder) / piece).touch()

    cut_off = on_cluster(endless, str(tmp_path), ["short", "long"], cluster="local")
    next(cut_off)
    cut_off.close()
    long = tmp_path / "long"
    end = time.monotonic() + 60
    while time.monotonic() < end:
        long.unlink(missing_ok=True)
        time.sleep(0.5)
        if not long.exists():
            break
    assert not long.exists()  # nobody goes on with it


def test_ray_is_needed_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidArgument, match=r"cluster='here' needs Ray.*tacit\[cluster\]"):
        next(on_cluster(max, 1, [2], cluster="here"))
