"""The search for the least risk."""

from __future__ import annotations

import pytest

from tacit.convex.solver import least_at


@pytest.mark.parametrize("place", [1e-9, 1e-3, 1.0, 1e6])
def test_minimum_is_found_over_many_magnitudes(place):
    assert least_at(lambda x: x / place + place / x) == pytest.approx(place, rel=1e-4)


def test_floor_is_kept():
    assert least_at(lambda x: x + 1 / x, at_least=5.0) == pytest.approx(5.0, rel=1e-4)
    assert least_at(lambda x: x + 1 / x, at_least=5.0) >= 5.0
