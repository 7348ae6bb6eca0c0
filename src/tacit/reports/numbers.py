"""Numbers as people read them. What is called a bound is rounded to the side where it stays one."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal


def bound(value: float, digits: int = 6) -> str:
    """An upper bound in ``digits`` significant digits, rounded up so that it stays one.

    >>> bound(0.94686680081)
    '0.946867'
    >>> bound(1.0000000001)
    '1.00001'
    """
    return _shown(value, digits, ROUND_CEILING)


def lower_bound(value: float, digits: int = 6) -> str:
    """A lower bound, rounded down so that it stays one."""
    return _shown(value, digits, ROUND_FLOOR)


def estimate(value: float, digits: int = 6) -> str:
    """A number that is no bound, rounded to the nearest.

    >>> estimate(0.94686680081, digits=3)
    '0.947'
    """
    return _shown(value, digits, ROUND_HALF_EVEN)


def _shown(value: float, digits: int, rounding: str) -> str:
    rounded = Context(digits, rounding).create_decimal(Decimal(value))
    return compact(float(rounded), digits)


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


def percent(share: float) -> str:
    """A share as a percentage, rounded up to three digits.

    >>> percent(0.02613)
    '2.62%'
    """
    return f"{min(float(bound(100.0 * share, digits=3)), 100.0):.3g}%"


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(0.00123)
    '1.2 ms'
    """
    if seconds >= 1.0:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.0995 else f"{1e3 * seconds:.0f} ms"
