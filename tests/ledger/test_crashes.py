"""``kill -9`` at any moment: what was released is counted, and at most one lease too much."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from tacit.accounting import PureDp
from tacit.ledger import Release

BLOCK = 3


# Newer Pythons warn of threads that a forked child does not have; ours uses none.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kills", [8, pytest.param(400, marks=pytest.mark.slow)])
def test_killed_process_leaves_too_much_charged_at_most_by_a_lease(place, kills):
    rng = random.Random(5)
    with place.ledger() as ledger:
        number = ledger.open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=10**6).number
    counted = 0
    for _ in range(kills):
        before = counted
        released = _released_until_killed(place, number, rng.randrange(5), rng.uniform(0.0, 0.006))
        with place.ledger() as ledger:
            counted = ledger.budget("data").reservation(number).granted
        assert released <= counted - before <= released + BLOCK
    assert place.ledger().verify().ok


def _released_until_killed(place, number: int, blocks: int, seconds: float) -> int:
    """How many steps a child released; it says each one on a pipe that outlives it.

    It is killed this long after it has released so many blocks.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            with place.ledger() as ledger:
                made = ledger.budget("data").reservation(number)
                os.write(writer, b".")
                while made.lease(BLOCK) == BLOCK:
                    os.write(writer, b"x" * BLOCK)
        finally:
            os._exit(1)
    os.close(writer)
    said = b""
    while len(said) < 1 + BLOCK * blocks:
        said += os.read(reader, 65536) or pytest.fail("the child ended by itself")
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    while more := os.read(reader, 65536):
        said += more
    os.close(reader)
    return said.count(b"x")
