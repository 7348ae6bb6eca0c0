"""Canaries beside the user's own records: their gradient directions, rows, batches and losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from tacit.errors import InvalidArgument
from tacit.training.noise import parameter_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor
    from torch.optim import Optimizer

    from tacit.training.judging import RowWise
    from tacit.training.loaders import Collate
    from tacit.training.plan import Plan


# ---- gradient directions: axes of a vector of their own, or random ones among a model's

_MOST_ENTRIES = 500_000_000


class Directions(Protocol):
    """Directions of norm 1, one for each canary."""

    def optimizers(self) -> list[Optimizer]:
        """What must hold the parameters that the directions bring along."""

    def along(self, canaries: Tensor) -> Tensor:
        """Of each row, the parameters' coordinate along its canary's direction."""

    def released(self) -> Tensor:
        """The coordinates along all directions of the gradient that the optimizers are given."""


@final
class AxisDirections:
    """A vector with an entry for each canary joins the private parameters; directions are its axes.

    They are exactly orthogonal to each other and to every gradient of the user's own records, so
    that a canary's coordinate depends on this canary and on noise alone. The vector stays at 0.
    Noise on other parameters than the vector is not looked at.
    """

    def __init__(self, canaries: int, device: torch.device) -> None:
        self._vector = nn.Parameter(torch.zeros(canaries, 1, device=device))

    def optimizers(self) -> list[Optimizer]:
        """See ``Directions``."""
        return [torch.optim.SGD([self._vector], lr=0.0)]

    def along(self, canaries: Tensor) -> Tensor:
        """See ``Directions``."""
        return F.embedding(canaries, self._vector).squeeze(1)

    def released(self) -> Tensor:
        """See ``Directions``."""
        assert self._vector.grad is not None
        return self._vector.grad.detach().squeeze(1)


@final
class SpreadDirections:
    """Random directions among the user's own parameters (Andrew et al. 2024).

    In many dimensions they are nearly orthogonal: of k entries, two directions have a product of
    about 1/√k. What other records add is noise to a canary's coordinate: the audit sees a little
    less, and its trials are not quite independent. All parameters' noise is looked at. Where the
    plan clips groups of parameters apart, a direction has its share of each.
    """

    def __init__(
        self, canaries: int, parameters: Mapping[str, nn.Parameter], plan: Plan, seed: int | None
    ) -> None:
        self._parameters = list(parameters.values())
        entries = sum(parameter.numel() for parameter in self._parameters)
        if canaries * entries > _MOST_ENTRIES:
            raise InvalidArgument(
                f"directions='spread' needs {canaries} x {entries} numbers, at most "
                f"{_MOST_ENTRIES:,} are kept; take fewer canaries, or directions='axes'"
            )
        group, shares = parameter_groups(plan, parameters)
        draw = torch.Generator()
        draw.manual_seed(draw.seed() if seed is None else seed)
        squares = torch.zeros(len(shares), canaries)
        parts = []
        for name, parameter in parameters.items():
            parts.append(torch.randn(canaries, parameter.numel(), generator=draw))
            squares[group[name]] += parts[-1].square().sum(1)
        lengths = torch.tensor(shares)[:, None] / squares.sqrt()
        self._parts = [
            part.mul_(lengths[group[name], :, None]).to(parameter.device)
            for part, (name, parameter) in zip(parts, parameters.items(), strict=True)
        ]

    def optimizers(self) -> list[Optimizer]:
        """See ``Directions``."""
        return []

    def along(self, canaries: Tensor) -> Tensor:
        """See ``Directions``."""
        found = torch.zeros(())
        for part, parameter in zip(self._parts, self._parameters, strict=True):
            found = found + part[canaries].to(parameter.dtype) @ parameter.reshape(-1)
        return found

    def released(self) -> Tensor:
        """See ``Directions``."""
        found = torch.zeros(())
        for part, parameter in zip(self._parts, self._parameters, strict=True):
            assert parameter.grad is not None
            found = found + part @ parameter.grad.detach().float().reshape(-1)
        return found


# ---- rows, batches and losses of records and canaries together

NOBODY = -1
_FAR = 1024.0  # how far above the clip a canary's gradient is, so that it is clipped to it


@final
class CanaryDataset(Dataset[Any]):
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
class CanaryCollate:
    """The user's collate function on the examples, with canaries and signs as tensors."""

    examples: Collate

    def __call__(self, rows: list[tuple[Any, int, float]]) -> tuple[Any, Tensor, Tensor]:
        """A batch of rows of ``CanaryDataset``."""
        canaries = torch.tensor([row[1] for row in rows])
        signs = torch.tensor([row[2] for row in rows], dtype=torch.float32)
        return self.examples([row[0] for row in rows]), canaries, signs


def canary_loss(
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
