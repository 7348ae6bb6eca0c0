from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tacit.accounting import PureDp
from tacit.errors import InvalidArgument
from tacit.ledger import Release, Reservation

from .memory import InMemory


def reserved(steps: int) -> Reservation:
    return InMemory().open(1.0, 0.0).reserve(Release(PureDp(0.5)), steps=steps)


def test_lease_grants_what_is_left_and_then_nothing():
    made = reserved(10)
    assert [made.lease(4) for _ in range(4)] == [4, 4, 2, 0]
    assert (made.granted, made.left, made.steps) == (10, 0, 10)


def test_what_is_given_back_can_be_leased_again():
    made = reserved(10)
    made.lease(6)
    made.give_back(2)
    assert (made.granted, made.left) == (4, 6)
    with pytest.raises(InvalidArgument, match="at most the 0 that this object leased"):
        made.give_back(1)  # the proof is public now
    assert made.lease(100) == 6
    with pytest.raises(InvalidArgument, match="at most the 6 that this object leased"):
        made.give_back(7)
    made.give_back(6)
    assert made.granted == 4


def test_only_the_object_that_leased_can_give_back():
    made = reserved(10)
    made.lease(6)
    crashed = Reservation(made._ledger, made.number)
    with pytest.raises(InvalidArgument, match="at most the 0 that this object leased"):
        crashed.give_back(1)
    crashed.lease(1)
    with pytest.raises(InvalidArgument, match="at most the 1 that this object leased"):
        crashed.give_back(2)
    made.give_back(6)
    assert made.granted == 1


def test_nothing_is_given_back_of_which_others_have_counted_on():
    made = reserved(10)
    made.lease(6)
    other = Reservation(made._ledger, made.number)
    other.lease(1, after=6)
    made.give_back(2, after=6)
    assert made.granted == 7
    other.give_back(1, after=7)
    made.give_back(2, after=6)
    assert made.granted == 4


def test_what_was_leased_stays_charged_when_it_is_given_back():
    ledger = InMemory()
    budget = ledger.open(1.0, 0.0)
    made = budget.reserve(Release(PureDp(0.5)), steps=10)
    made.lease(3)
    made.give_back(3)
    made.end()
    assert (made.granted, made.state.void, budget.spent().epsilon) == (0, False, 0.5)
    released = budget.charge(PureDp(0.25))
    with pytest.raises(InvalidArgument, match="at most the 0"):
        released.give_back(1)


def test_nothing_is_granted_after_the_end():
    made = reserved(10)
    made.lease(3)
    made.end()
    made.end()
    assert (made.lease(1), made.left, made.granted) == (0, 0, 3)
    with pytest.raises(InvalidArgument, match="at most the 0"):
        made.give_back(1)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_lease_of_no_whole_number_is_refused(steps):
    with pytest.raises(InvalidArgument, match="steps must be a whole number"):
        reserved(10).lease(steps)


def test_nothing_is_granted_after_another_number_of_steps_than_was_said():
    made = reserved(10)
    assert made.lease(4, after=0) == 4
    assert [made.lease(1, after=said) for said in (0, 3, 5, 10)] == [0, 0, 0, 0]
    assert (made.granted, made.lease(9, after=4), made.lease(1, after=10)) == (4, 6, 0)
    with pytest.raises(InvalidArgument, match="after must be a whole number"):
        made.lease(1, after=-1)


def test_of_threads_that_count_alike_one_is_granted(place):
    """The count is compared where it is written: however threads race, each number is used once."""
    budget = place.ledger().open("data", 1.0, 0.0)
    made = budget.reserve(Release(PureDp(0.5)), steps=100)

    def work(_: int) -> list[int]:
        return [after for after in range(0, 40, 2) if made.lease(2, after=after)]

    with ThreadPoolExecutor(4) as pool:
        won = [after for one in pool.map(work, range(4)) for after in one]
    assert len(won) == len(set(won))
    assert made.granted == 2 * len(won)


def test_threads_share_a_reservation_without_sharing_a_step(place):
    budget = place.ledger().open("data", 1.0, 0.0)
    made = budget.reserve(Release(PureDp(0.5)), steps=100)

    def work(_: int) -> int:
        granted = 0
        while more := made.lease(3):
            granted += more
        return granted

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 100
    assert made.granted == 100
