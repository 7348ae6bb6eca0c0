"""What every form of per-example gradients can do, and the arithmetic that forms share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from torch import Tensor

# The most numbers that one temporary of per-example gradients may hold; beyond it, slices of units.
LARGEST_TEMPORARY = 2**25


class Form(Protocol):
    """The gradients of one weight, one per unit of privacy."""

    @property
    def units(self) -> int:
        """How many units there are."""

    @property
    def way(self) -> str:
        """In a word or two, how the norms are found: shown by ``explain``."""

    @property
    def temporary(self) -> int:
        """The most numbers that finding the norms keeps beside the inputs."""

    def squared_norms(self) -> Tensor:
        """The squared L2 norm of each unit's gradient, shape (units,)."""

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """Σ scales_i·g_i in the weight's shape; a unit of scale 0 adds nothing, not even NaN."""

    def dense(self) -> Tensor:
        """Every unit's gradient, written out: shape (units, *weight's shape)."""

    def part(self, start: int, stop: int) -> Form:
        """The same for the units from ``start`` to ``stop``."""


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Sums are kept in at least single precision."""
    return torch.promote_types(dtype, torch.float32)


def squared_sum(values: Tensor) -> Tensor:
    """Σ v² over all but the first dimension, in at least single precision."""
    wide = values.unsqueeze(-1).flatten(1).to(accumulator(values.dtype))
    return wide.abs().square().sum(1) if wide.is_complex() else wide.square().sum(1)


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """A (batched) product whose result is not rounded to half precision."""
    if left.dtype in (torch.float32, torch.float64):
        return left @ right
    if left.is_cuda:
        product = torch.mm if left.ndim == 2 else torch.bmm
        return product(left, right, out_dtype=torch.float32)  # type: ignore[call-arg]
    return left.float() @ right.float()


def weighed(values: Tensor, scales: Tensor) -> Tensor:
    """``values`` times their unit's scale; exactly zero where the scale is, whatever the value."""
    column = scales.view(-1, *[1] * (values.ndim - 1))
    return torch.where(column > 0, values * column.to(values.dtype), 0)


def kept(values: Tensor, scales: Tensor) -> Tensor:
    """``values`` of the units whose scale is not zero, and zeros for the others."""
    return torch.where(scales.view(-1, *[1] * (values.ndim - 1)) > 0, values, 0)


def in_parts(units: int, size: int) -> list[tuple[int, int]]:
    """Slices of units such that ``size`` numbers a unit stay within the largest temporary."""
    step = max(1, LARGEST_TEMPORARY // max(1, size))
    return [(start, min(start + step, units)) for start in range(0, units, step)]
