"""What every form of per-example gradients can do, and the arithmetic that forms share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from torch import Tensor

# The most numbers that one temporary of per-example gradients may hold; beyond it, slices of units.
LARGEST_TEMPORARY = 2**24
_FEW_UNITS = 256
# What one pass of a processor over slices of units should hold, so that it stays in the cache.
CACHED = 2**20
_BLOCK = 512


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
    wide = values.to(accumulator(values.dtype))
    if wide.is_complex():
        wide = wide.abs()
    if wide.device.type == "cpu":
        return _squared_lengths(wide.unsqueeze(-1).flatten(1))
    return in_stages(wide.square())


def _squared_lengths(rows: Tensor) -> Tensor:
    """Σ v² of every row without writing the squares; in blocks, which keeps the rounding small."""
    whole = rows.shape[1] - rows.shape[1] % _BLOCK
    total: Tensor = torch.linalg.vector_norm(rows[:, whole:], dim=1).square()
    if whole:
        blocks = rows[:, :whole].unflatten(1, (-1, _BLOCK))
        total = total + torch.linalg.vector_norm(blocks, dim=2).square().sum(1)
    return total


def in_stages(values: Tensor) -> Tensor:
    """Σ over all but the first dimension, first over the last one where there are few units.

    A compiler that adds up each unit in one go leaves most of a GPU idle if units are few.
    """
    if values.ndim > 2 and len(values) < _FEW_UNITS:
        values = values.sum(-1)
    return values.unsqueeze(-1).flatten(1).sum(1)


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """A (batched) product whose result is not rounded to half precision."""
    if left.dtype in (torch.float32, torch.float64):
        return left @ right
    if left.is_cuda:
        product = torch.mm if left.ndim == 2 else torch.bmm
        return product(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


def gram_total(products: Tensor) -> Tensor:
    """Σ_{s,t} of (units, terms, terms) products of Gram entries, with what rounding may have lost.

    Rounding is relative to Σ|⟨l_s,l_t⟩⟨r_s,r_t⟩| ≤ (Σ‖l_t‖‖r_t‖)² ≤ terms·(the diagonal's sum), not
    to the total, which may be smaller by cancellation.
    """
    terms = products.shape[1]
    slack = terms * torch.finfo(products.dtype).eps / 2
    if products.device.type == "cpu":
        diagonal = products.diagonal(0, 1, 2).sum(1)
        return products.sum((1, 2)).clamp(min=0) + slack * diagonal.clamp(min=0)
    index = torch.arange(terms, device=products.device)
    weights = torch.where(index[:, None] == index, 1.0 + slack, 1.0)  # one pass when compiled
    return in_stages(products * weights).clamp(min=0)


def all_count(scales: Tensor) -> bool:
    """Whether no unit is left out, if that is known without waiting for a device or a compiler."""
    at_hand = type(scales) is torch.Tensor and scales.device.type == "cpu"
    return at_hand and bool((scales > 0).all())


def weighed(values: Tensor, scales: Tensor) -> Tensor:
    """``values`` times their unit's scale; exactly zero where the scale is, whatever the value."""
    column = scales.view(-1, *[1] * (values.ndim - 1))
    if all_count(scales):
        return values * column.to(values.dtype)
    return torch.where(column > 0, values * column.to(values.dtype), 0)


def kept(values: Tensor, scales: Tensor) -> Tensor:
    """``values`` of the units whose scale is not zero, and zeros for the others."""
    if all_count(scales):
        return values
    return torch.where(scales.view(-1, *[1] * (values.ndim - 1)) > 0, values, 0)


def worth_keeping(size: int, inputs: int, device: torch.device) -> bool:
    """Whether gradients of ``size`` numbers a unit are written out once, for norms and sum alike.

    A processor's time goes into the products: one then serves both. The gradients are kept between
    the two, so they must not be larger than the ``inputs`` they are made of, which are kept anyway.
    """
    return device.type == "cpu" and size <= inputs


def in_parts(units: int, size: int, largest: int = LARGEST_TEMPORARY) -> list[tuple[int, int]]:
    """Slices of units such that ``size`` numbers a unit stay within the largest temporary."""
    step = max(1, largest // max(1, size))
    return [(start, min(start + step, units)) for start in range(0, units, step)]
