"""Spaces of secrets in tokens."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tacit.auditing.secrets import Space
from tacit.errors import InvalidArgument

SPACE = Space((9,), ((0, 1), (5,), (2, 3, 4)))


def test_every_is_the_product_of_the_choices() -> None:
    assert SPACE.every().tolist() == [list(one) for one in product((0, 1), (5,), (2, 3, 4))]
    assert len(SPACE.every()) == SPACE.size == 6
    assert SPACE.max_exposure == np.log2(6)


def test_a_sample_is_uniform() -> None:
    rows = SPACE.sample(60_000, seed=3)
    _, counts = np.unique(rows, axis=0, return_counts=True)
    statistic = float(np.sum((counts - 10_000) ** 2 / 10_000))
    assert len(counts) == 6
    assert statistic < 40.0  # χ² with 5 degrees of freedom: 1.5e-7, and seeded


def test_sampling_follows_the_seed() -> None:
    assert (SPACE.sample(50, seed=1) == SPACE.sample(50, seed=1)).all()
    assert (SPACE.sample(50, seed=1) != SPACE.sample(50, seed=2)).any()


def test_the_start_comes_first() -> None:
    assert SPACE.after_start(np.array([[1, 5]])).tolist() == [[9, 1, 5]]


@pytest.mark.parametrize("secret", [[0, 5], [0, 5, 9], [[0, 5, 2]]])
def test_what_is_no_secret_of_the_space_is_refused(secret: list[int]) -> None:
    with pytest.raises(InvalidArgument, match="one of the allowed tokens"):
        SPACE.checked(secret)


def test_bad_spaces_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="start must hold"):
        Space((), ((0, 1),))
    with pytest.raises(InvalidArgument, match=r"choices\[1\] must hold different tokens"):
        Space((0,), ((0, 1), (2, 2)))
    with pytest.raises(InvalidArgument, match="at least two secrets"):
        Space((0,), ((0,), (1,)))
    with pytest.raises(InvalidArgument, match="too large to list"):
        Space((0,), (tuple(range(10)),) * 9).every()
