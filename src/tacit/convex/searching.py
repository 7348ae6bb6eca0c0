"""The regularisation of least risk: a search over one positive number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy.optimize import minimize_scalar

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAST, _WIDTH, _TRIED = 1e-12, 60.0, 61


def least_at(risk: Callable[[float], float], at_least: float = _LEAST) -> float:
    """The x ≥ ``at_least`` where a positive function is least: on a grid, then near its best.

    >>> round(least_at(lambda x: x + 4 / x), 4)
    2.0
    """
    start = math.log(max(at_least, _LEAST))
    places = [start + _WIDTH * number / (_TRIED - 1) for number in range(_TRIED)]
    heights = [math.log(risk(math.exp(place))) for place in places]
    best = heights.index(min(heights))
    found = minimize_scalar(
        lambda log_x: math.log(risk(math.exp(log_x))),
        bounds=(places[max(best - 1, 0)], places[min(best + 1, _TRIED - 1)]),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return max(at_least, math.exp(float(found.x)))
