"""Numbers in words: what is called a bound is rounded to the side where it stays one."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def rounded_up(value: float, digits: int = 6) -> str:
    """An upper bound in ``digits`` significant digits, rounded up so that it stays one.

    >>> rounded_up(0.94686680081), rounded_up(2.0)
    ('0.946867', '2')
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 6) -> str:
    """A lower bound, rounded down so that it stays one.

    >>> rounded_down(0.94686680081)
    '0.946866'
    """
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    return f"{float(Context(digits, rounding).create_decimal(Decimal(value))):.{digits}g}"


def short(value: float) -> str:
    """A number as people write it.

    >>> short(1e-5), short(0.01)
    ('1e-5', '0.01')
    """
    return re.sub(r"e([+-])0*", r"e\1", f"{value:.10g}")


def percent(share: float) -> str:
    """A share in percent, rounded up to three digits.

    >>> percent(0.0191421)
    '1.92'
    """
    return f"{min(float(rounded_up(100.0 * share, 3)), 100.0):.3g}"


def factors(epsilon: float) -> tuple[str, str]:
    """e^ε rounded up and e^-ε rounded down."""
    most = rounded_up(math.exp(epsilon), 4) if epsilon <= 700.0 else f"e^{rounded_up(epsilon)}"
    return most, rounded_down(math.exp(-epsilon), 4)
