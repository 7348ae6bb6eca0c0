"""What an attack gives: one score for each trial, higher where it believes in membership."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.statistics.rates import Rates
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of members (``inside``) and of others (``outside``), each an independent trial.

    Infinite scores are ranked like any other; NaN is refused.

    >>> Scores([0.3, 2.0, 5.0], [1.0, 0.0]).at(1.5)
    Rates(tp=2, n_in=3, fp=0, n_out=2)
    """

    inside: NDArray[np.float64]
    outside: NDArray[np.float64]

    def __init__(self, inside: ArrayLike, outside: ArrayLike) -> None:
        object.__setattr__(self, "inside", _checked("inside", inside))
        object.__setattr__(self, "outside", _checked("outside", outside))

    def at(self, threshold: float) -> Rates:
        """The rates of the attack that calls a member what scores ``threshold`` or more."""
        return Rates(
            tp=int(np.count_nonzero(self.inside >= threshold)),
            n_in=len(self.inside),
            fp=int(np.count_nonzero(self.outside >= threshold)),
            n_out=len(self.outside),
        )


def _checked(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise InvalidArgument(
            f"{name} must be a list of scores, at least one, got an array of shape {array.shape}"
        )
    if np.isnan(array).any():
        raise InvalidArgument(f"{name} must hold no NaN, got {int(np.isnan(array).sum())} of them")
    array.flags.writeable = False
    return array
