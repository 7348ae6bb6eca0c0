"""The largest refuted value, from the safe side."""

from __future__ import annotations

import pytest

from tacit.auditing.statistics.searching import last_refuted


@pytest.mark.parametrize("end", [1e-6, 0.3, 1.0, 77.7, 699.0])
def test_it_ends_on_the_refuted_side(end: float) -> None:
    found = last_refuted(lambda value: value <= end, 700.0)
    assert found <= end <= found + 2e-9 * max(1.0, 2.0 * end)


def test_ends_of_the_range() -> None:
    assert last_refuted(lambda _: False, 700.0) == 0.0
    assert last_refuted(lambda _: True, 700.0) == 700.0
    assert last_refuted(lambda _: True, 0.5) == 0.5
