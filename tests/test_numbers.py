"""Numbers for people: what is shown as a bound must be one."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit._numbers import (
    at_least,
    at_most,
    compact,
    duration,
    factors,
    per_hundred,
    percent,
    rounded_down,
    rounded_up,
)

positive = st.floats(1e-300, 1e300)


@given(positive, st.integers(1, 12))
def test_a_shown_bound_is_never_on_the_wrong_side(value, digits):
    low, high = rounded_down(value, digits), rounded_up(value, digits)
    assert Decimal(low) <= Decimal(value) <= Decimal(high)


@given(st.floats(0.0, 1.0))
def test_a_shown_percentage_is_never_too_small(share):
    shown = percent(share)
    assert float(shown.rstrip("%")) >= 100.0 * share or shown == "100%"


def test_powers_are_written_as_people_write_them():
    assert (compact(1e-5), compact(2.5e-12), compact(0.01), compact(4.0)) == (
        "1e-5",
        "2.5e-12",
        "0.01",
        "4",
    )


def test_times_have_a_unit_that_suits_them():
    assert [duration(time) for time in (2.5, 0.25, 0.0012, 3e-6)] == [
        "2.50 s",
        "250 ms",
        "1.2 ms",
        "0.003 ms",
    ]


@pytest.mark.parametrize("value", [0.94686680081, 1.0000000001, 3.0, 123456.7, 1e-7])
def test_rounding_stays_on_its_side(value):
    assert float(rounded_down(value)) <= value <= float(rounded_up(value))


def test_factors_of_a_huge_epsilon_are_still_words():
    assert factors(0.0) == ("1", "1")
    assert factors(1000.0) == ("e^1000", "0")


@pytest.mark.parametrize("loss", [1e-9, 0.1, 1.0, 30.0])
def test_factors_enclose(loss):
    most, least = factors(loss)
    assert float(least) <= math.exp(-loss) <= math.exp(loss) <= float(most)


def test_shares_are_never_above_all():
    assert per_hundred(1.0 + 1e-12) == "100"


def test_numbers_in_full():
    assert [compact(one, 10) for one in (1e-5, 1e-10, 0.01, 3.0, 1e12)] == [
        "1e-5", "1e-10", "0.01", "3", "1e12",
    ]  # fmt: skip


def test_what_has_no_end_is_said():
    assert at_most(math.inf) == at_least(math.inf) == "infinite"
    assert float(rounded_up(math.inf)) == math.inf


@given(st.floats(0.0, 1e300), st.integers(1, 12))
def test_digits_that_name_the_float_are_as_good_as_the_float(value, digits):
    exact = Decimal(value)
    least, most = Decimal(at_least(value, digits)), Decimal(at_most(value, digits))
    # Digits that name the float itself are as good as the float.
    assert least <= exact or float(least) == value
    assert exact <= most or float(most) == value


def test_round_numbers_stay_round():
    assert (at_most(1e-5, 3), at_least(1e-6), at_most(8.0), at_most(float("inf"))) == (
        "1e-5",
        "1e-6",
        "8",
        "infinite",
    )
