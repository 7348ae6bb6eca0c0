"""Many processes at one budget: never over the limit, nothing lost, nobody waits forever."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tacit.accounting import PureDp
from tacit.ledger import Release, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Place

RACERS = 8
SIZE = 1 / 64  # every sum is exact in binary, so that the limit can be reached exactly
BEFORE = 58 / 64  # leaves the last tenth: 6 charges, for 8 racers


class Racers:
    """Eight processes that each do what they are told, all at once."""

    def __init__(self, place: Place) -> None:
        pairs = [socket.socketpair() for _ in range(RACERS)]
        script = Path(__file__).parent / "racer.py"
        theirs = [other.fileno() for _, other in pairs]
        command = [sys.executable, str(script), place.url, str(place.anchor), *map(str, theirs)]
        self.process = subprocess.Popen(command, pass_fds=theirs, start_new_session=True)
        for _, other in pairs:
            other.close()
        self.wires = [mine for mine, _ in pairs]
        self.lines = [mine.makefile("rw", encoding="utf-8") for mine in self.wires]

    def all(self, line: str) -> list[str]:
        for one in self.lines:
            one.write(line + "\n")
            one.flush()
        return [one.readline().strip() for one in self.lines]

    def close(self) -> int:
        for one in (*self.lines, *self.wires):
            one.close()
        return self.process.wait(timeout=60)


@contextmanager
def racing(place: Place, patience: float) -> Iterator[Racers]:
    racers = Racers(place)
    # A deadlock would show as silence: then the processes are ended, and their answers are empty.
    watchdog = threading.Timer(patience, lambda: os.killpg(racers.process.pid, signal.SIGKILL))
    watchdog.start()
    try:
        yield racers
        assert racers.close() == 0
    finally:
        watchdog.cancel()
        racers.close()


def race(place: Place, rounds: int) -> None:
    ledger = place.ledger(timeout=60.0)
    with racing(place, patience=60.0 + rounds) as racers:
        for number in range(rounds):
            name = f"round-{number}"
            budget = ledger.open(name, epsilon=1.0, delta=0.0)
            if number % 4:
                budget.charge(PureDp(BEFORE))
                assert sum(map(float, racers.all(f"charge {name} {SIZE}"))) == 1.0 - BEFORE
                assert budget.spent().epsilon == 1.0
            else:
                made = budget.reserve(Release(PureDp(1.0)), steps=64)
                assert made.lease(58) == 58
                assert sum(map(int, racers.all(f"lease {name} {made.number} 2"))) == 6
                ledger.refresh()
                assert (made.granted, made.left) == (64, 0)
    found = verify(place.url, anchor=place.anchor)
    assert found.ok, found.problems
    assert found.anchored == found.head  # the last to write was not overtaken


@pytest.mark.parametrize("rounds", [8, pytest.param(1000, marks=pytest.mark.slow)])
def test_racing_processes_never_exceed_a_budget_together(place, rounds):
    race(place, rounds)


def test_processes_that_make_a_ledger_at_once_make_one(place):
    with racing(place, patience=60.0) as racers:
        assert racers.all("make data") == [str(SIZE)] * RACERS
    ledger = place.ledger(create=False)
    kinds = [entry.kind for entry in ledger.history()]
    assert kinds == ["ledger", "open"] + ["reserve"] * RACERS
    assert ledger.verify().ok
