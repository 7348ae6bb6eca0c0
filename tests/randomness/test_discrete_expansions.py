"""Unfinished numbers: the digits continue, the intervals enclose, and decisions have their law."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from tacit.randomness import UnsafeSeededStream
from tacit.randomness.discrete import Expansion, interval_arithmetic, whole_parts

_LEVEL = 1e-6


def _exact(number: tuple[int, int, int, int]) -> Fraction:
    """The value of one of mpmath's raw floating-point numbers."""
    sign, mantissa, exponent, _ = number
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def _ends(interval: Any) -> tuple[Fraction, Fraction]:
    low, high = interval._mpi_
    return _exact(low), _exact(high)


def test_digits_continue_the_number() -> None:
    intervals = interval_arithmetic()
    intervals.prec = 300
    number = Expansion(5, 3, UnsafeSeededStream(0, "digits"))
    low, high = _ends(number.enclosed(intervals))
    assert (low, high) == (Fraction(5, 8), Fraction(6, 8))
    for bits in (67, 131):
        number.extend()
        inner_low, inner_high = _ends(number.enclosed(intervals))
        assert number.bits == bits
        assert low <= inner_low < inner_high <= high
        assert inner_high - inner_low == Fraction(1, 2**bits)
        low, high = inner_low, inner_high


def test_too_little_precision_widens_the_interval() -> None:
    intervals = interval_arithmetic()
    intervals.prec = 20
    low, high = _ends(Expansion(2**60 + 1, 63, UnsafeSeededStream(0, "x")).enclosed(intervals))
    assert low <= Fraction(2**60 + 1, 2**63)
    assert high >= Fraction(2**60 + 2, 2**63)


@pytest.mark.parametrize("name", ["log", "sqrt", "exp", "cos", "sin"])
def test_the_interval_arithmetic_encloses(name: str) -> None:
    rng, intervals = np.random.default_rng(0), interval_arithmetic()
    intervals.prec = 100
    for start, width in zip(rng.uniform(0.001, 6.2, 300), rng.integers(0, 50, 300), strict=True):
        low, high = float(start), float(start) + 0.5 ** int(width)
        found = _ends(getattr(intervals, name)(intervals.mpf([low, high])))
        for place in (low, low + (high - low) / 3, high):
            with mpmath.workprec(200):
                value = _exact(getattr(mpmath, name)(mpmath.mpf(place))._mpf_)
            slack = abs(value) / 2**190  # of the oracle's own rounding
            assert found[0] - slack <= value <= found[1] + slack


@pytest.mark.parametrize("bits", [0, 1, 5])
def test_whole_parts_have_the_law_of_the_endless_number(bits: int) -> None:
    """⌊3U⌋ is 0, 1 or 2 with equal chances, however few digits the start had."""
    stream, draws = UnsafeSeededStream(bits, "law"), 3_000
    starts = np.frombuffer(stream.bytes(draws), dtype=np.uint8) >> (8 - bits)
    intervals, found = interval_arithmetic(), np.zeros(3, dtype=np.int64)
    for start in starts.tolist():
        number = Expansion(start, bits, stream)
        thrice = lambda n=number: [3 * n.enclosed(intervals)]  # noqa: E731
        found[whole_parts(thrice, (number,), intervals)] += 1
    low, high = binom.ppf(_LEVEL / 6, draws, 1 / 3), binom.isf(_LEVEL / 6, draws, 1 / 3)
    assert np.all((found >= low) & (found <= high))


def test_digits_are_drawn_until_all_is_decided_and_no_further() -> None:
    class Counted:
        def __init__(self) -> None:
            self.words = [0, 0, 1 << 63]

        def bytes(self, count: int) -> bytes:
            return self.words.pop(0).to_bytes(count, "little")

    stream, intervals = Counted(), interval_arithmetic()
    # Just above 1/2: whether that is more than 2⁻¹⁴¹ above shows at the first digit but zeros.
    number, edge = Expansion(1, 1, stream), 0.5**141
    found = whole_parts(
        lambda: [number.enclosed(intervals) - 0.5 - edge, number.enclosed(intervals)],
        (number,),
        intervals,
    )
    assert found == [0, 0]
    assert stream.words == []
    assert number.bits == 193


def test_an_interval_without_end_is_undecided() -> None:
    intervals = interval_arithmetic()
    number = Expansion(0, 4, UnsafeSeededStream(0, "tail"))  # may be 0: the logarithm has no bound
    (found,) = whole_parts(
        lambda: [-intervals.log(number.enclosed(intervals))], (number,), intervals
    )
    assert found >= 2
    assert number.bits > 4
