"""Numbers as people read them. What is called a bound is rounded to the side where it stays one."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal


def rounded_up(value: float, digits: int = 6) -> str:
    """An upper bound in ``digits`` significant digits, rounded up so that it stays one.

    >>> rounded_up(0.94686680081), rounded_up(1.0000000001), rounded_up(2.0)
    ('0.946867', '1.00001', '2')
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 6) -> str:
    """A lower bound, rounded down so that it stays one.

    >>> rounded_down(0.94686680081)
    '0.946866'
    """
    return _rounded(value, digits, ROUND_FLOOR)


def nearest(value: float, digits: int = 6) -> str:
    """A number that is no bound, rounded to the nearest.

    >>> nearest(0.94686680081, digits=3)
    '0.947'
    """
    return _rounded(value, digits, ROUND_HALF_EVEN)


def at_most(value: float, digits: int = 6) -> str:
    """``rounded_up``, unless fewer digits say exactly which float it is; or "infinite".

    For numbers that somebody typed: 1e-5 as a float lies above 1e-5, and is still that number.

    >>> at_most(1e-5), rounded_up(1e-5), at_most(0.1 + 0.2, 3)
    ('1e-5', '1.00001e-5', '0.301')
    """
    if math.isinf(value):
        return "infinite"
    near = nearest(value, digits)
    return near if float(near) == value else rounded_up(value, digits)


def at_least(value: float, digits: int = 6) -> str:
    """``rounded_down``, unless fewer digits say exactly which float it is."""
    if math.isinf(value):
        return "infinite"
    near = nearest(value, digits)
    return near if float(near) == value else rounded_down(value, digits)


def compact(value: float, digits: int = 6) -> str:
    """A number as people write it.

    >>> compact(1e-4), compact(0.01), compact(1e7)
    ('1e-4', '0.01', '1e7')
    """
    small = 0.0 < abs(value) < 1e-3
    shown = f"{value:.{digits - 1}e}" if small else f"{value:.{digits}g}"
    mantissa, exponent, power = shown.partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(power)}"


def per_hundred(share: float) -> str:
    """How many of a hundred a share is, rounded up to three digits.

    >>> per_hundred(0.0191421)
    '1.92'
    """
    return f"{min(float(rounded_up(100.0 * share, 3)), 100.0):.3g}"


def percent(share: float) -> str:
    """A share as a percentage, rounded up to three digits.

    >>> percent(0.02613)
    '2.62%'
    """
    return f"{per_hundred(share)}%"


def factors(epsilon: float) -> tuple[str, str]:
    """e^ε rounded up and e^-ε rounded down."""
    most = rounded_up(math.exp(epsilon), 4) if epsilon <= 700.0 else f"e^{rounded_up(epsilon)}"
    return most, rounded_down(math.exp(-epsilon), 4)


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(0.00123)
    '1.2 ms'
    """
    if seconds >= 1.0:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.0995 else f"{1e3 * seconds:.0f} ms"


def _rounded(value: float, digits: int, rounding: str) -> str:
    return compact(float(Context(digits, rounding).create_decimal(Decimal(value))), digits)
