"""Public bounds, given by the user and never taken from the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

_LEAST = 1e-290  # what lies closer together cannot be scaled up in float64


def interval(name: str, bounds: Sequence[float]) -> tuple[float, float]:
    """The two ends of ``bounds``, finite and in order."""
    (lower,), (upper,) = intervals(name, bounds, 1)
    return float(lower), float(upper)


def intervals(
    name: str, bounds: Sequence[Any], columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends for each column, given as two numbers or as two rows of numbers.

    >>> intervals("bounds", (0, [1, 2]), 2)
    (array([0., 0.]), array([1., 2.]))
    """
    try:
        lower, upper = (
            np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)) for end in bounds
        )
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"{name} must be a lower and an upper end, each a number or one per column "
            f"({columns}), got {bounds!r}"
        ) from None
    with np.errstate(over="ignore", invalid="ignore"):
        width = upper - lower
    if not np.all((width > _LEAST) & np.isfinite(width) & np.isfinite(lower)):
        raise InvalidArgument(
            f"{name} must be finite, the lower end below the upper, got {bounds!r}"
        )
    return lower, upper
