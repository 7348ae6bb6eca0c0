"""Largest values of ranges, against looking at all of them."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.transfer.smooth_sensitivity import _largest_between, _range_maxima


@pytest.mark.parametrize("size", [1, 2, 3, 8, 37])
def test_every_range(size):
    values = np.random.default_rng(size).normal(size=size)
    table = _range_maxima(values)
    first, last = (one.ravel() for one in np.meshgrid(np.arange(size), np.arange(size)))
    first, last = np.minimum(first, last), np.maximum(first, last)
    truth = [values[a : b + 1].max() for a, b in zip(first, last, strict=True)]
    assert (_largest_between(table, first, last) == truth).all()
