"""The rows of units: views and users, in rectangles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream
from tacit.training.batches import Units

from .sessions import plan

OWNERS = [3, 3, 9, 3, 5, 9, 3]  # users 3, 5 and 9 with four, one and two examples


def units(groups: Any = None, **changed: Any) -> Units:
    return Units(plan(**changed), groups, UnsafeSeededStream(0, "users"))


def users(cap: int = 10, **changed: Any) -> Units:
    given = {"examples": 3, "lot_size": 3, "unit": "user", "examples_per_user": cap}
    return units(OWNERS, **given | changed)


def test_an_example_is_one_row() -> None:
    got = units().rows(np.array([4, 7]), widest=False)
    assert got.rows.tolist() == [4, 7]
    assert got.weights.tolist() == [1.0, 1.0]
    assert got.per_unit == 1


def test_views_are_consecutive_rows_with_equal_shares() -> None:
    got = units(views=4).rows(np.array([4, 7]), widest=False)
    assert got.rows.tolist() == [4, 4, 4, 4, 7, 7, 7, 7]
    assert got.weights.tolist() == [0.25] * 8
    assert got.per_unit == units(views=4).width(np.array([4]), widest=False) == 4


@pytest.mark.parametrize("one", [units(), units(views=4), users(), users(cap=2, views=2)])
def test_what_fills_up_a_batch_is_the_first_units_and_counts_for_nothing(one: Units) -> None:
    for who, padded in (([2, 0], 5), ([1], 1), ([0, 1, 2], 3), ([2], 9), ([0, 1], 2), ([1, 2], 9)):
        alone = one.rows(np.array(who), widest=True)
        got = one.rows(np.array(who), widest=True, padded=padded)
        first, fill = alone.per_unit, (padded - len(who)) * alone.per_unit
        assert got.per_unit == alone.per_unit
        assert got.rows.tolist() == [*alone.rows, *np.resize(alone.rows[:first], fill)]
        assert got.weights.tolist() == [*alone.weights, *[0.0] * fill]


def test_shares_that_batches_have_in_common_cannot_be_changed() -> None:
    one = units()
    got, larger = (one.rows(np.arange(count), widest=False, padded=30) for count in (3, 30))
    with pytest.raises(ValueError, match="read-only"):
        got.weights[:] = 2.0
    assert (got.weights.sum(), larger.weights.sum()) == (3, 30)


@pytest.mark.parametrize("widest", [False, True])
def test_a_users_rows_are_theirs_and_their_shares_add_up_to_one(widest: bool) -> None:
    one = users()
    everyone = np.arange(3)
    got = one.rows(everyone, widest=widest)
    assert got.per_unit == one.width(everyone, widest=widest) == (10 if widest else 4)
    weights = got.weights.reshape(3, -1)
    rows = got.rows.reshape(3, -1)
    np.testing.assert_allclose(weights.sum(1), 1.0, rtol=1e-6)
    for user, name in enumerate((3, 5, 9)):
        real = weights[user] > 0
        assert sorted(rows[user][real]) == [at for at, who in enumerate(OWNERS) if who == name]
        assert len(set(weights[user][real].tolist())) == 1
        # What fills up the rectangle is the user's own, too: it must not bring another one in.
        assert {OWNERS[at] for at in rows[user]} == {name}


def test_no_user_has_more_rows_than_the_cap() -> None:
    one = users(cap=2)
    seen = set()
    for _ in range(200):
        got = one.rows(np.array([0]), widest=False)
        assert len(got.rows) == len(set(got.rows.tolist())) == 2
        assert got.weights.tolist() == [0.5, 0.5]
        again = one.rows(np.array([1, 0]), widest=False)  # in the same lot, in another batch
        assert again.rows[-2:].tolist() == got.rows.tolist()
        seen.add(tuple(sorted(got.rows.tolist())))
        one.renew()
    assert len(seen) == 6  # every pair of the four


def test_users_and_views() -> None:
    got = users(views=2).rows(np.array([2]), widest=False)
    assert got.rows.tolist() == [2, 2, 5, 5]
    assert got.weights.tolist() == [0.25] * 4


def test_no_units_have_no_rows() -> None:
    for one in (units(), users()):
        got = one.rows(np.zeros(0, dtype=np.int64), widest=False)
        assert len(got.rows) == len(got.weights) == 0


def test_groups_are_for_users() -> None:
    with pytest.raises(InvalidArgument, match="unit='user'"):
        units(OWNERS)
    with pytest.raises(InvalidArgument, match="names 3 users, but the plan is for examples=4"):
        users(examples=4)
