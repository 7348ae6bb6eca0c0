"""Leases: never more than the window ahead, renewed unseen, and nothing taken that is not there."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tacit.accounting import PureDp
from tacit.errors import LedgerError
from tacit.ledger import Release
from tacit.training import charging
from tacit.training.charging import Lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..ledger.conftest import Place


class Ledger:
    """A reservation that remembers who asked for what, and can be slow or broken."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.granted = 0
        self.asked: list[tuple[int, bool]] = []  # how many, and whether in the background
        self.back = 0
        self.ended = False
        self.before: Callable[[], None] = lambda: None

    @property
    def left(self) -> int:
        return 0 if self.ended else self.steps - self.granted

    def lease(self, steps: int) -> int:
        assert steps >= 1
        hidden = threading.current_thread().name.startswith("tacit-lease")
        self.asked.append((steps, hidden))
        self.before()
        more = min(steps, self.left)
        self.granted += more
        return more

    def give_back(self, steps: int) -> None:
        assert 0 < steps <= self.granted
        self.granted -= steps
        self.back += steps

    def end(self) -> None:
        self.ended = True


def leased(ledger: Any, size: int | None) -> Lease:
    return Lease(ledger, size)


def settle(lease: Lease) -> None:
    """Waits for the background."""
    if lease._coming is not None:
        lease._coming.exception()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("steps", [1, 2, 7, 41])
def test_each_step_is_granted_before_it_is_taken_and_few_are_ahead(size: int, steps: int) -> None:
    ledger = Ledger(steps)
    lease = leased(ledger, size)
    done = 0
    while lease.take():
        settle(lease)
        assert done + 1 <= ledger.granted <= done + size  # the step at hand is one of the window
        done += 1
    assert done == ledger.granted == steps
    assert lease.take() is False
    lease.close()
    assert (ledger.ended, ledger.back) == (True, 0)


def test_window_is_renewed_in_the_background_by_halves() -> None:
    ledger = Ledger(1000)
    lease = leased(ledger, 10)
    for _ in range(100):
        assert lease.take()
        settle(lease)
    assert ledger.asked[0] == (10, False)
    assert all(hidden and 5 <= steps <= 10 for steps, hidden in ledger.asked[1:])
    assert len(ledger.asked) <= 1 + 100 / 5
    lease.close()


def test_window_of_one_asks_for_each_step_itself() -> None:
    ledger = Ledger(5)
    lease = leased(ledger, 1)
    while lease.take():
        pass
    assert ledger.asked == [(1, False)] * 6


def test_training_goes_on_while_the_ledger_is_slow() -> None:
    ledger, gate = Ledger(100), threading.Event()
    lease = leased(ledger, 8)
    assert lease.take()
    ledger.before = lambda: gate.wait(10.0) and None
    for _ in range(7):
        assert lease.take()  # the whole window, though the renewal hangs
    assert ledger.granted == 8
    threading.Timer(0.05, gate.set).start()
    assert lease.take()  # this one waits
    assert ledger.granted > 8
    lease.close()
    assert ledger.granted == 9


def broken() -> None:
    raise LedgerError("the disk is full")


def test_failure_in_the_background_is_tried_again_in_the_foreground() -> None:
    ledger = Ledger(100)
    lease = leased(ledger, 8)
    assert lease.take()
    ledger.before = broken
    for _ in range(7):
        assert lease.take()
        settle(lease)
    assert [hidden for _, hidden in ledger.asked] == [False, True]  # it is not asked at each step
    with pytest.raises(LedgerError, match="the disk is full"):
        lease.take()
    with pytest.raises(LedgerError, match="the disk is full"):
        lease.take()
    assert ledger.granted == 8
    ledger.before = lambda: None
    assert lease.take()
    # A write that failed may stand: the two together must not be more than one lease.
    assert [steps for steps, hidden in ledger.asked if not hidden] == [8, 1, 1, 1]
    for _ in range(20):  # and it goes on as before
        assert lease.take()
        settle(lease)
    assert ledger.asked[-1][1]
    lease.close()
    assert ledger.granted == 29


def test_failure_that_passed_is_not_noticed() -> None:
    ledger = Ledger(100)
    lease = leased(ledger, 8)
    assert lease.take()
    ledger.before = broken
    while lease._coming is None:
        assert lease.take()
    settle(lease)
    ledger.before = lambda: None
    for _ in range(50):
        assert lease.take()
    lease.close()


def test_nothing_is_asked_for_once_the_end_is_in_sight() -> None:
    ledger = Ledger(100)
    lease = leased(ledger, 60)
    while lease.take():
        settle(lease)
    assert len(ledger.asked) <= 4
    lease.close()


def test_what_was_not_taken_is_given_back_even_if_it_was_on_its_way() -> None:
    for taken in range(1, 12):
        ledger = Ledger(30)
        lease = leased(ledger, 8)
        for _ in range(taken):
            assert lease.take()
        lease.close()
        assert ledger.granted == taken
        assert not ledger.ended
        lease.close()
        assert ledger.granted == taken


def test_close_that_cannot_give_back_says_so_and_leaves_it_charged() -> None:
    ledger = Ledger(30)
    lease = leased(ledger, 8)
    assert lease.take()

    def refuse(_steps: int) -> None:
        raise LedgerError("locked")

    ledger.give_back = refuse  # type: ignore[method-assign]
    with pytest.raises(LedgerError, match="locked"):
        lease.close()
    assert ledger.granted == 8
    lease.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the fork, in newer Pythons
def test_forked_child_has_none_of_its_parents_steps() -> None:
    ledger = Ledger(100)
    lease = leased(ledger, 8)
    for _ in range(6):
        assert lease.take()
    settle(lease)
    before = ledger.granted
    child = os.fork()
    if child == 0:
        code = 1
        try:
            lease.close()
            assert ledger.granted == before  # what the parent holds is not given back
            assert lease.take()
            assert ledger.granted == before + 8
            assert ledger.asked[-1] == (8, False)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lease.close()
    assert ledger.granted == 6


# ---- how large a window is, if nobody says


class Clock:
    """A simulated processor: what the background computes delays training, its waiting does not."""

    def __init__(self, processor: float, wall: float) -> None:
        self.now = 0.0
        self.worked = 0.0
        self.processor, self.wall = processor, wall

    def write(self) -> None:
        self.now += self.wall
        self.worked += self.processor

    def submit(self, call: Callable[[int], int], steps: int) -> Future[int]:
        start, done = self.now, Future[int]()
        done.set_result(call(steps))
        self.now = start + self.processor
        return done

    def shutdown(self) -> None:
        pass


@pytest.mark.parametrize("pace", [1e-4, 2e-3, 5e-2, 2.0])
@pytest.mark.parametrize(("processor", "wall"), [(2e-3, 5e-3), (1e-3, 1e-1), (2e-3, 2.1e-3)])
def test_automatic_window_costs_its_share_and_is_no_larger_than_needed(
    pace: float, processor: float, wall: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(processor, wall)
    times = SimpleNamespace(perf_counter=lambda: clock.now, thread_time=lambda: clock.worked)
    monkeypatch.setattr(charging, "time", times)
    monkeypatch.setattr(charging, "ThreadPoolExecutor", lambda *_: clock)
    ledger = Ledger(100_000)
    ledger.before = clock.write
    lease = leased(ledger, None)
    for _ in range(1000):  # until it has found its size
        lease.take()
        clock.now += pace
    start, steps = clock.now, 20_000
    for _ in range(steps):
        lease.take()
        clock.now += pace
    assert clock.now - start <= 1.01 * steps * pace
    needed = max(2.0 * processor / (0.005 * pace), 2.0 * (wall / pace + 1.0))
    assert lease.size <= max(1, 1.1 * needed + 1)


def test_automatic_window_begins_with_one_step_and_grows_slowly() -> None:
    ledger = Ledger(10_000)
    lease = leased(ledger, None)
    for _ in range(6):
        assert lease.take()
        settle(lease)
        lease._cost = (1.0, 1.0)  # a write that takes ages
    asked = [steps for steps, _ in ledger.asked]
    assert asked[0] == 1
    assert all(b <= 8 * a for a, b in pairwise(asked))
    lease.close()


@pytest.mark.parametrize("steps", [1, 19, 40, 318, 5000])
def test_automatic_window_is_a_twentieth_of_the_plan_at_most(steps: int) -> None:
    """Steps that take no time and writes that take ages: a crash costs no more."""
    ledger = Ledger(steps)
    lease = leased(ledger, None)
    most = done = 0
    while lease.take():
        settle(lease)
        lease._cost = (1.0, 1.0)
        most = max(most, ledger.granted - done)
        done += 1
    assert done == steps
    assert most <= max(1, steps // 20)
    lease.close()


def test_evaluation_between_two_steps_does_not_collapse_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(0.002, 0.005)
    times = SimpleNamespace(perf_counter=lambda: clock.now, thread_time=lambda: clock.worked)
    monkeypatch.setattr(charging, "time", times)
    monkeypatch.setattr(charging, "ThreadPoolExecutor", lambda *_: clock)
    ledger = Ledger(100_000)
    ledger.before = clock.write
    lease = leased(ledger, None)
    for number in range(10_000):
        assert lease.take()
        clock.now += 0.002 if number % 1000 else 30.0
        assert number < 1000 or lease.size >= 50
    assert sum(not hidden for _, hidden in ledger.asked) <= 10_000 / 200


# ---- a real ledger


def test_leases_of_one_reservation_share_its_steps(place: Place) -> None:
    made = place.ledger().open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=40)
    other = place.ledger().budget("data").reservation(made.number)
    one, two = leased(made, 4), leased(other, 7)
    taken = 0
    while one.take() + two.take():
        taken += 1
    fresh = place.ledger().budget("data").reservation(made.number)
    assert fresh.granted == 40
    one.close()
    two.close()
    assert fresh.budget.reservation(made.number).left == 0
    assert 20 <= taken <= 40
