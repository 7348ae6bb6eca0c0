"""Numbers for people: what is shown as a bound must be one."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from tacit.reports.numbers import bound, compact, duration, lower_bound, percent

positive = st.floats(1e-300, 1e300)


@given(positive, st.integers(1, 12))
def test_a_shown_bound_is_never_on_the_wrong_side(value, digits):
    assert Decimal(lower_bound(value, digits)) <= Decimal(value) <= Decimal(bound(value, digits))


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
