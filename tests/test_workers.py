"""Pieces of work in processes, and on a real Ray cluster of two workers on this machine."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tacit._workers import RayCluster, carried_out, fork
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize(("forks", "status"), [(fork, 0), (os.fork, 3)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the plain fork, in newer Pythons
def test_a_forked_child_leaves_the_garbage_of_its_parent_alone(
    forks: Callable[[], int], status: int
) -> None:
    """Regression: a group of ranks that a run had left there was ended in a child: a crash."""
    home = os.getpid()

    class Group:
        def __init__(self) -> None:
            self.itself = self  # so that garbage is collected, not freed

        def __del__(self) -> None:
            if os.getpid() != home:
                os._exit(3)

    gc.disable()
    try:
        Group()
        child = forks()
        if child == 0:
            gc.collect()
            os._exit(0)
    finally:
        gc.enable()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status


@pytest.fixture
def two_workers() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="Ray (the extra [cluster]) is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    assert ray.is_initialized()  # a connection that was there is left
    ray.shutdown()


@pytest.mark.usefixtures("two_workers")
@pytest.mark.slow
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

    done = carried_out(work, 10, enumerate(pieces()), RayCluster())
    first = next(done)
    assert taken == [5, 6]
    assert sorted([first, *done]) == [(0, 50), (1, 60), (2, 70), (3, 80)]

    def endless(folder: str, piece: str) -> None:
        (Path(folder) / piece).touch()
        while piece == "long":
            time.sleep(0.02)
            (Path(folder) / piece).touch()

    both = enumerate(["short", "long"])
    stopped = carried_out(endless, str(tmp_path), both, RayCluster())
    next(stopped)
    stopped.close()
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
    with pytest.raises(InvalidArgument, match=r"RayCluster\(\) needs Ray.*tacit\[cluster\]"):
        next(carried_out(max, 1, enumerate([2]), RayCluster("here")))


# ---- processes


def test_pieces_in_processes_come_back_with_their_keys(tmp_path: Path) -> None:
    """A script of its own: new processes import the main module again."""
    script = tmp_path / "work.py"
    script.write_text(
        "import os\n"
        "from tacit._workers import carried_out\n"
        "def work(shared, piece):\n"
        "    return shared * piece, os.getpid()\n"
        "if __name__ == '__main__':\n"
        "    done = dict(carried_out(work, 10, zip('abc', (5, 6, 7)), 2))\n"
        "    assert {key: one for key, (one, _) in done.items()} == {'a': 50, 'b': 60, 'c': 70}\n"
        "    assert os.getpid() not in {process for _, process in done.values()}\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=300)


def test_what_cannot_be_sent_to_a_process_is_named() -> None:
    with pytest.raises(
        InvalidArgument, match=r"the work must be picklable with workers=2.*take workers=1"
    ):
        carried_out(max, lambda: 0, enumerate([1]), 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"cpus": 0}, "cpus must be a positive"), ({"gpus": -1}, "gpus must be a finite number")],
)
def test_a_cluster_that_is_none(given: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        RayCluster(**given)
