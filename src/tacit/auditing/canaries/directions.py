"""Gradient directions of canaries: axes of a vector of their own, or random ones of a model's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import torch
import torch.nn.functional as F
from torch import nn

from tacit.errors import InvalidArgument
from tacit.training.noise import parameter_groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from torch.optim import Optimizer

    from tacit.training.plan import Plan

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
class Axes:
    """A vector with an entry for each canary joins the private parameters; directions are its axes.

    They are exactly orthogonal to each other and to every gradient of the user's own records, so
    that a canary's coordinate tells of this canary and of noise alone. The vector stays at 0.
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
class Spread:
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
