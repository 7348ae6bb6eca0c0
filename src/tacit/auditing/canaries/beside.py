"""Canaries as records beside the user's own: rows, batches and losses of both together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.auditing.canaries.directions import Directions
    from tacit.training.judging import RowWise
    from tacit.training.loaders import Collate
    from tacit.training.plan import Plan

NOBODY = -1
_FAR = 1024.0  # how far above the clip a canary's gradient is, so that it is clipped to it


@final
class Beside(Dataset[Any]):
    """A data set with canaries after its examples: of each row the example, canary and sign.

    Examples of the data set are canary ``NOBODY``. A canary shows an example of the data set to the
    model, whose loss then does not count: batches look as they always do.
    """

    def __init__(self, dataset: Dataset[Any], signs: NDArray[np.float32]) -> None:
        self._dataset, self._signs = dataset, signs
        self._length: int = len(dataset)  # type: ignore[arg-type]  # a map-style data set has one

    def __len__(self) -> int:
        return self._length + len(self._signs)

    def __getitem__(self, at: int) -> tuple[Any, int, float]:
        if at < self._length:
            return self._dataset[at], NOBODY, 0.0
        canary = at - self._length
        return self._dataset[canary % self._length], canary, float(self._signs[canary])


@final
@dataclass(frozen=True, slots=True)
class BesideCollate:
    """The user's collate function on the examples, with canaries and signs as tensors."""

    examples: Collate

    def __call__(self, rows: list[tuple[Any, int, float]]) -> tuple[Any, Tensor, Tensor]:
        """A batch of rows of ``Beside``."""
        canaries = torch.tensor([row[1] for row in rows])
        signs = torch.tensor([row[2] for row in rows], dtype=torch.float32)
        return self.examples([row[0] for row in rows]), canaries, signs


def beside_loss(
    loss: RowWise, model: nn.Module, directions: Directions, plan: Plan
) -> Callable[[Any], Tensor]:
    """The losses of a batch: the user's own, and those of canaries in their rows.

    A canary's loss is linear, with a gradient along its direction and far above the clip, which
    clipping brings to the clip. ``Automatic`` brings a norm r to clip·r/(r + γ): r is far above γ
    too.
    """
    stability = float(getattr(plan.clipping, "stability", 0.0))
    strength = _FAR * max(plan.clip, stability)

    def losses(batch: tuple[Any, Tensor, Tensor]) -> Tensor:
        data, canaries, signs = batch
        own = directions.along(canaries.clamp(min=0)) * (strength * signs)
        users = loss(model, data)
        return torch.where(canaries == NOBODY, users, own.to(users.dtype))

    return losses
