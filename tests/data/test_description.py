"""Examples and splits: equally long, and cut the same way for good."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data.description import Examples, fixed_split
from tacit.errors import InvalidArgument


def test_inputs_and_labels_are_equally_many():
    with pytest.raises(InvalidArgument, match="got 3 and 2"):
        Examples(np.zeros((3, 1, 2, 2), np.uint8), np.zeros(2, np.int64))


def test_the_fixed_split_is_a_partition():
    train, test = fixed_split(1797, 360)
    assert len(train) == 1437
    assert len(test) == 360
    assert sorted([*train, *test]) == list(range(1797))


def test_the_fixed_split_never_changes():
    """These rows were drawn once; another version of NumPy must draw them again."""
    train, test = fixed_split(1797, 360)
    assert test[:8].tolist() == [4, 5, 6, 9, 14, 17, 18, 19]
    assert int((train * np.arange(1, 1438)).sum()) == 1_246_505_496
