"""From ε as a function of δ to δ as a function of ε."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy.optimize import brentq

if TYPE_CHECKING:
    from collections.abc import Callable


def smallest_delta(solve: Callable[[float], float], epsilon: float, least: float) -> float:
    """The smallest δ ≥ ``least`` found with ``solve(δ)`` ≤ ``epsilon``; 1 if there is none.

    ``solve`` must fall with δ. The answer is checked, so that it errs upwards only.

    >>> round(smallest_delta(lambda delta: 1.0 / (delta + 0.1), 4.0, 0.0), 9)
    0.15
    """
    if least < 1.0 and solve(least) <= epsilon:
        return least

    def excess(x: float) -> float:
        return min(solve(least + math.exp(x)), 1e300) - epsilon

    low, high = -700.0, math.log1p(-least) if least < 1.0 else -math.inf
    if high <= low or excess(high) > 0.0:
        return 1.0
    root = float(brentq(excess, low, high, xtol=1e-10)) if excess(low) > 0.0 else low
    for step in (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2):
        if excess(min(root + step, high)) <= 0.0:
            return min(1.0, least + math.exp(min(root + step, high)))
    return 1.0
