"""Bounds stay bounds when they are rounded."""

from __future__ import annotations

import math

import pytest

from tacit.statement.rounding import factors, percent, rounded_down, rounded_up, short


@pytest.mark.parametrize("value", [0.94686680081, 1.0000000001, 3.0, 123456.7, 1e-7])
def test_rounding_stays_on_its_side(value):
    assert float(rounded_down(value)) <= value <= float(rounded_up(value))


def test_factors_of_a_huge_epsilon_are_still_words():
    assert factors(0.0) == ("1", "1")
    assert factors(1000.0) == ("e^1000", "0")


def test_shares_are_never_above_all():
    assert percent(1.0 + 1e-12) == "100"


def test_numbers_as_people_write_them():
    assert [short(one) for one in (1e-5, 1e-10, 0.01, 3.0, 1e12)] == [
        "1e-5", "1e-10", "0.01", "3", "1e+12",
    ]  # fmt: skip


@pytest.mark.parametrize("loss", [1e-9, 0.1, 1.0, 30.0])
def test_factors_enclose(loss):
    most, least = factors(loss)
    assert float(least) <= math.exp(-loss) <= math.exp(loss) <= float(most)
