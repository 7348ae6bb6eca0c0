"""Canaries in texts and in privacy units."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.auditing.secrets import insert, insert_into_unit
from tacit.errors import InvalidArgument

TEXT = "".join(f"line {number}\n" for number in range(50))


@pytest.mark.parametrize("times", [0, 1, 7])
def test_a_text_gets_the_canary_so_often(times: int) -> None:
    found = insert(TEXT, "<secret>\n", times, seed=1)
    assert found.count("<secret>\n") == times
    assert found.replace("<secret>\n", "") == TEXT


def test_places_in_a_text_are_random_and_follow_the_seed() -> None:
    assert len({insert(TEXT, "x\n", 1, seed=seed).index("x") for seed in range(200)}) > 40
    assert insert(TEXT, "x\n", 5, seed=2) == insert(TEXT, "x\n", 5, seed=2)


@pytest.mark.parametrize("times", [0, 1, 2, 5, 8])
def test_all_copies_are_in_one_unit(times: int) -> None:
    rows = np.zeros((4, 33), np.uint8)
    changed = insert_into_unit(rows, 2, [1, 2, 3, 4], times)
    assert bytes(changed[2]).count(bytes([1, 2, 3, 4])) == times
    assert np.count_nonzero(changed[2]) == 4 * times
    assert not changed[[0, 1, 3]].any()
    assert not rows.any()
    assert changed.dtype == np.uint8


def test_more_copies_than_there_is_room_for() -> None:
    with pytest.raises(InvalidArgument, match="times must be at most 8"):
        insert_into_unit(np.zeros((4, 33)), 2, [1, 2, 3, 4], 9)
    with pytest.raises(InvalidArgument, match="unit must be the number of one of the rows"):
        insert_into_unit(np.zeros((4, 33)), 4, [1, 2, 3, 4], 1)
