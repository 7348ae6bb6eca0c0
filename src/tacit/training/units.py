"""Which rows of the data a unit of privacy stands for: an example's views, or a user's examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from tacit.errors import InvalidArgument
from tacit.randomness import subset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.randomness import Stream
    from tacit.training.plan import Plan


@final
@dataclass(frozen=True, slots=True)
class RowsOfUnits:
    """The rows of a physical batch: ``per_unit`` consecutive ones for every unit.

    ``weights`` multiplies a row's loss: an equal share of its unit, or 0 for a row that only fills
    up the rectangle.
    """

    rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    per_unit: int


@final
class Units:
    """The units of a plan's data set.

    A user's examples are averaged into one gradient before clipping. Of a user with more than the
    plan's ``examples_per_user``, a fresh uniform choice of that many is used each time.
    """

    def __init__(
        self, plan: Plan, groups: Sequence[int] | NDArray[np.int64] | None, stream: Stream
    ) -> None:
        self._plan = plan
        self._stream = stream
        self._members = None if groups is None else _members(groups, plan)
        self._counts = np.array([len(one) for one in self._members or ()], dtype=np.int64)

    def width(self, units: NDArray[np.int64], *, widest: bool) -> int:
        """How many rows each of these units takes in a batch of them."""
        if self._members is None:
            return self._plan.views
        cap = self._plan.examples_per_user
        assert cap is not None
        longest = int(self._counts[units].max(initial=1))
        return (cap if widest else min(cap, longest)) * self._plan.views

    def rows(self, units: NDArray[np.int64], *, widest: bool) -> RowsOfUnits:
        """The rows of these units; ``widest`` fills every unit up to the largest possible."""
        views = self._plan.views
        if self._members is None:
            share = np.full(len(units) * views, 1.0 / views, dtype=np.float32)
            return RowsOfUnits(np.repeat(units, views), share, views)
        cap = self._plan.examples_per_user
        assert cap is not None
        chosen = [self._chosen(self._members[unit], cap) for unit in units]
        width = cap if widest else max((len(one) for one in chosen), default=1)
        rows = np.empty((len(units), width, views), dtype=np.int64)
        weights = np.zeros((len(units), width, views), dtype=np.float32)
        for at, members in enumerate(chosen):
            rows[at] = members[0]
            rows[at, : len(members)] = members[:, None]
            weights[at, : len(members)] = 1.0 / (len(members) * views)
        return RowsOfUnits(rows.ravel(), weights.ravel(), width * views)

    def _chosen(self, members: NDArray[np.int64], cap: int) -> NDArray[np.int64]:
        return members if len(members) <= cap else subset(members, cap, self._stream)


def _members(groups: Sequence[int] | NDArray[np.int64], plan: Plan) -> list[NDArray[np.int64]]:
    if plan.unit != "user":
        raise InvalidArgument(
            f"groups is given, but the plan's unit is {plan.unit!r}; make the plan with unit='user'"
        )
    names, owner = np.unique(np.asarray(groups), return_inverse=True)
    if len(names) != plan.examples:
        raise InvalidArgument(
            f"groups names {len(names)} users, but the plan is for examples={plan.examples} "
            "(which counts users when unit='user')"
        )
    order = np.argsort(owner, kind="stable").astype(np.int64)
    starts = np.searchsorted(owner[order], np.arange(1, len(names)))
    return list(np.split(order, starts))
