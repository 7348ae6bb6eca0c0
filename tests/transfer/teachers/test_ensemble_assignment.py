"""Which teacher a record goes to: fair, and a matter of this record alone."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream
from tacit.transfer.teachers import assigned


class Given:
    """A stream of the words it was given."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def bytes(self, count: int) -> bytes:
        taken, self._words = self._words[: count // 4], self._words[count // 4 :]
        return np.array(taken, dtype=np.uint32).tobytes()


def test_words_that_favour_some_teachers_are_drawn_again() -> None:
    """2³² is one above a multiple of 3: the last word would be a fourth way to teacher 0."""
    stream = Given(0, 2**32 - 1, 2**32 - 2, 5)
    assert assigned(3, 3, stream).tolist() == [0, 2, 2]


def test_every_word_counts_where_teachers_are_a_power_of_two() -> None:
    assert assigned(2, 4, Given(2**32 - 1, 6)).tolist() == [3, 2]


def test_all_teachers_are_equally_likely() -> None:
    """χ² with 9 degrees of freedom is above 48 with probability 2.5e-7; the stream is seeded."""
    found = np.bincount(assigned(100_000, 10, UnsafeSeededStream(1, "t")), minlength=10)
    assert ((found - 10_000) ** 2 / 10_000).sum() < 48
    assert found.sum() == 100_000


def test_sizes_vary_as_those_of_independent_throws() -> None:
    """Regression: a shuffled list cut into equal parts has sizes that do not vary at all.

    The variance over 1,000 teachers of mean 100 has a standard error of 4.5.
    """
    sizes = np.bincount(assigned(100_000, 1000, UnsafeSeededStream(2, "t")), minlength=1000)
    assert 75 < sizes.var() < 125


def test_records_that_follow_do_not_move_the_first() -> None:
    few, many = (assigned(n, 7, UnsafeSeededStream(3, "t")) for n in (50, 60))
    np.testing.assert_array_equal(few, many[:50])


def test_no_records_and_wrong_numbers() -> None:
    assert assigned(0, 5, Given()).tolist() == []
    with pytest.raises(InvalidArgument, match="count must be a whole number, 1 or more"):
        assigned(3, 0, Given())
    with pytest.raises(InvalidArgument, match=r"count must be at most 2\*\*31"):
        assigned(3, 2**31 + 1, Given())
