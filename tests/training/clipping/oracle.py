"""The truth in double precision: one row at a time through the model, by autograd alone."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from .cases import Case


@dataclass(frozen=True)
class Truth:
    """The gradients of every unit, laid out as one vector over the trainable parameters."""

    names: tuple[str, ...]
    gradients: Tensor  # (units, parameters)

    @property
    def finite(self) -> Tensor:
        return self.gradients.isfinite().all(1)

    @property
    def norms(self) -> Tensor:
        return self.gradients.norm(dim=1)

    def contributions(self, clip: float) -> Tensor:
        """What each unit releases: its gradient cut to the clip, nothing where it is not finite."""
        scales = (clip / self.norms).clamp(max=1.0)
        scales[self.norms == 0] = 1.0
        clipped = scales[:, None] * self.gradients
        return torch.where(self.finite[:, None], clipped, 0.0)

    def clipped_sum(self, clip: float) -> Tensor:
        return self.contributions(clip).sum(0)


@functools.cache
def truth(case: Case) -> Truth:
    """The truth about the case's own batch, computed once."""
    return truth_about(case, case.batch())


def truth_about(
    case: Case, inputs: tuple[Tensor, ...], weights: Mapping[str, Tensor] | None = None
) -> Truth:
    """The truth about any inputs of the case, at the weights it begins with or at others."""
    model = copy.deepcopy(case.model()).double()
    if weights is not None:
        model.load_state_dict(weights)
    parameters = trainable(model)
    rows = [
        _row_gradient(case, model, tuple(x[row : row + 1] for x in doubled(inputs)))
        for row in range(len(inputs[0]))
    ]
    size = sum(parameter.numel() for parameter in parameters.values())
    stacked = torch.stack(rows) if rows else torch.zeros(0, size, dtype=torch.float64)
    units = stacked.view(len(rows) // case.views, case.views, size).mean(1)
    return Truth(tuple(parameters), units)


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def doubled(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.double() if x.is_floating_point() else x for x in inputs)


def _row_gradient(case: Case, model: nn.Module, row: tuple[Tensor, ...]) -> Tensor:
    parameters = list(trainable(model).values())
    (loss,) = case.losses(model, *row)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    parts = [
        torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)
    ]
    return torch.cat([part.flatten() for part in parts])
