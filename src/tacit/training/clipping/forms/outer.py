"""Sums of outer products, Σ_t left_t ⊗ right_t: what every matrix product leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import torch

from tacit.training.clipping.forms.form import (
    LARGEST_TEMPORARY,
    gram_total,
    in_parts,
    kept,
    matmul,
    squared_sum,
    weighed,
    worth_keeping,
)

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class Outer:
    """Unit i's gradient is Σ_t ``left[i, t]`` ⊗ ``right[i, t]``, reshaped to ``shape``.

    ``order`` permutes the axes of ``shape`` into those of the weight, where they differ.
    """

    left: Tensor  # (units, terms, p)
    right: Tensor  # (units, terms, q)
    shape: tuple[int, ...]
    order: tuple[int, ...] | None = None
    _kept: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def units(self) -> int:
        """How many units there are."""
        return self.left.shape[0]

    @property
    def _terms(self) -> int:
        return self.left.shape[1]

    @property
    def _size(self) -> int:
        return self.left.shape[2] * self.right.shape[2]

    @property
    def way(self) -> str:
        """How the norms are found."""
        if self._terms == 1:
            return "product of norms"
        if self._keeps:
            return "written out"
        return "Gram matrices" if self._by_gram else "written out in slices"

    @property
    def temporary(self) -> int:
        """Two Gram matrices, or a slice of gradients."""
        if self._terms == 1:
            return self.units
        if self._keeps:
            return self.units * self._size
        size = 2 * self._terms**2 if self._by_gram else self._size
        return min(self.units * size, max(size, LARGEST_TEMPORARY))

    @property
    def _keeps(self) -> bool:
        inputs = self._terms * (self.left.shape[2] + self.right.shape[2])
        return self._terms > 1 and worth_keeping(self._size, inputs, self.left.device)

    @property
    def _by_gram(self) -> bool:
        if self.left.device.type == "cpu":
            return True  # what is not kept costs more products than the Gram form
        return self._terms**2 <= self._size  # what is written then is smaller, too

    def squared_norms(self) -> Tensor:
        """See ``Form``. ‖Σ l_t⊗r_t‖² = Σ_{s,t} ⟨l_s, l_t⟩⟨r_s, r_t⟩ (Li et al. 2022, eq. 3)."""
        if self._terms == 1:
            return squared_sum(self.left) * squared_sum(self.right)
        if self._keeps:
            self._kept[:] = [matmul(self.left.mT, self.right)]
            return squared_sum(self._kept[0])
        one = _gram_norms if self._by_gram else _written_norms
        size = 2 * self._terms**2 if self._by_gram else self._size
        parts = [one(self.left[a:b], self.right[a:b]) for a, b in in_parts(self.units, size)]
        return parts[0] if len(parts) == 1 else torch.cat([*parts, self.left.new_zeros(0)])

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """See ``Form``."""
        if self._kept:
            rows = kept(self._kept.pop(), scales).flatten(1)
            return self._shaped(scales.to(rows.dtype) @ rows, ())
        left = weighed(self.left, scales).flatten(0, 1)
        right = kept(self.right, scales).flatten(0, 1)
        return self._shaped(matmul(left.mT, right), ())

    def dense(self) -> Tensor:
        """See ``Form``."""
        return self._shaped(matmul(self.left.mT, self.right), (self.units,))

    def part(self, start: int, stop: int) -> Outer:
        """See ``Form``."""
        return Outer(self.left[start:stop], self.right[start:stop], self.shape, self.order)

    def _shaped(self, matrix: Tensor, leading: tuple[int, ...]) -> Tensor:
        shaped = matrix.reshape(*leading, *self.shape)
        if self.order is None:
            return shaped
        skip = len(leading)
        return shaped.permute(*range(skip), *(axis + skip for axis in self.order))


def _gram_norms(left: Tensor, right: Tensor) -> Tensor:
    return gram_total(matmul(left, left.mT) * matmul(right, right.mT))


def _written_norms(left: Tensor, right: Tensor) -> Tensor:
    return squared_sum(matmul(left.mT, right))
