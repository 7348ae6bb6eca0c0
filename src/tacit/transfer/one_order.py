"""What answers and screenings cost at one Rényi order, for every possible vote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.errors import InvalidArgument
from tacit.transfer import confident_votes, likely_outcome
from tacit.transfer.aggregators import ConfidentGNMax, GNMax
from tacit.transfer.smooth_sensitivity import Staircase, staircase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.transfer.votes import Votes

    Array = NDArray[np.float64]

_COARSE = 4  # cells of the staircase that share a cost: it rises by less than 1 %


def tight_staircase(votes: Votes, aggregator: GNMax | ConfidentGNMax, order: float) -> Staircase:
    """The cost of an answer at ``order``, for every possible vote of as many teachers. Public."""
    if not isinstance(aggregator, GNMax | ConfidentGNMax):
        raise InvalidArgument(
            f"aggregator must be GNMax or ConfidentGNMax to have its cost told, got {aggregator!r}"
        )
    return staircase(
        sigma=aggregator.analysed_sigma,
        order=order,
        teachers=votes.teachers,
        classes=votes.classes,
        rdp=_coarse_rdp,
    )


def _coarse_rdp(log_q: Array, sigma: float, orders: list[float]) -> Array:
    """``likely_outcome``'s bound at every fourth of falling q, which is one for the next three."""
    found = likely_outcome.data_dependent_rdp(log_q[::_COARSE], sigma, orders)
    result: Array = np.repeat(found, _COARSE, axis=0)[: len(log_q)]
    return result


def screening_rdp(aggregator: GNMax | ConfidentGNMax, order: float, teachers: int) -> float:
    """What one screening costs at ``order``, whatever the votes."""
    if isinstance(aggregator, GNMax):
        return 0.0
    return float(confident_votes.worst_rdp(aggregator, [order], teachers)[0])
