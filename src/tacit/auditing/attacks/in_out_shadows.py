"""The shadow models on either side of each example: trained on it, or not.

Means and spreads are computed once for all models. To attack one of the models with the others its
own share is taken out again, which costs as much as looking at it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ShadowSide:
    """Models on one side of each example: how many, their mean, and how they scatter about it.

    ``count`` is (examples,), ``mean`` (examples, views), ``scatter`` (examples, views, views): the
    sum of the products of deviations from the mean.
    """

    count: Numbers
    mean: Numbers
    scatter: Numbers

    @classmethod
    def of(cls, values: Numbers, chosen: NDArray[np.bool_]) -> ShadowSide:
        """Of the chosen (models, examples) of values (models, examples, views)."""
        count = chosen.sum(axis=0).astype(np.float64)
        mean = np.einsum("me,mev->ev", chosen, values) / np.maximum(count, 1.0)[:, None]
        rest = (values - mean) * chosen[..., None]
        return cls(count, mean, np.einsum("mev,mew->evw", rest, rest))

    def without(self, values: Numbers, chosen: NDArray[np.bool_]) -> ShadowSide:
        """Less one model: its values (examples, views), where it was chosen (examples)."""
        count = self.count - chosen
        left = np.maximum(count, 1.0)[:, None]
        away = np.where(chosen[:, None], values - self.mean, 0.0)
        factor = np.where(count > 0.0, self.count / left[:, 0], 0.0)[:, None, None]
        taken = factor * away[:, :, None] * away[:, None, :]
        return ShadowSide(count, self.mean - away / left, self.scatter - taken)

    def needs(self, least: int, side: str, remedy: str) -> None:
        """Refuses examples with fewer models than ``least`` on this side."""
        if few := int(np.count_nonzero(self.count < least)):
            raise InvalidArgument(
                f"shadows must have at least {least} model{'s' if least > 1 else ''} {side} each "
                f"example, and {few} of {len(self.count)} examples have fewer: {remedy}"
            )


@dataclass(frozen=True, eq=False)
class InOutShadows:
    """Both sides of each example."""

    inside: ShadowSide
    outside: ShadowSide

    @classmethod
    def of(cls, values: Numbers, members: NDArray[np.bool_]) -> InOutShadows:
        """Of all models: values (models, examples, views), members (models, examples)."""
        return cls(ShadowSide.of(values, members), ShadowSide.of(values, ~members))

    def without(self, values: Numbers, members: NDArray[np.bool_]) -> InOutShadows:
        """Less some models."""
        inside, outside = self.inside, self.outside
        for value, member in zip(values, members, strict=True):
            inside, outside = inside.without(value, member), outside.without(value, ~member)
        return InOutShadows(inside, outside)


def left_out(members: NDArray[np.bool_]) -> list[Sequence[int]]:
    """For each model, which models must not be used to attack it: itself and its complements.

    ``train_shadows`` trains pairs of models of which each example is in exactly one. Then as many
    of all models have it as have it not, and the others would show by their number alone whether
    the left-out one has it. Less a pair they are equally many again and show nothing.

    >>> left_out(np.array([[True, False], [False, True], [True, True]]))
    [[0, 1], [1, 0], [2]]
    """
    places: dict[bytes, list[int]] = {}
    for index, row in enumerate(members):
        places.setdefault(row.tobytes(), []).append(index)
    return [[index, *places.get((~row).tobytes(), [])] for index, row in enumerate(members)]
