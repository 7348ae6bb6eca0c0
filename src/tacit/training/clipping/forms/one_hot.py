"""Rows looked up in a table: outer products whose left side is a one-hot vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

from tacit.training.clipping.forms.form import (
    LARGEST_TEMPORARY,
    accumulator,
    gram_total,
    in_parts,
    matmul,
    squared_sum,
    weighed,
)

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class OneHot:
    """Unit i's gradient has Σ_t ``right[i, t]`` over those t with ``ids[i, t] = v`` in row v."""

    ids: Tensor  # (units, terms)
    right: Tensor  # (units, terms, q)
    shape: tuple[int, ...]  # of the table: (rows, ...)

    @property
    def units(self) -> int:
        """How many units there are."""
        return self.ids.shape[0]

    @property
    def way(self) -> str:
        """How the norms are found."""
        return "norms of rows" if self.ids.shape[1] == 1 else "Gram matrix of equal ids"

    @property
    def temporary(self) -> int:
        """One Gram matrix a unit."""
        size = self.ids.shape[1] ** 2
        return min(self.units * size, max(size, LARGEST_TEMPORARY))

    def squared_norms(self) -> Tensor:
        """See ``Form``: Σ_{s,t} [id_s = id_t]·⟨r_s, r_t⟩."""
        if self.ids.shape[1] == 1:
            return squared_sum(self.right)
        parts = [
            _norms(self.ids[a:b], self.right[a:b])
            for a, b in in_parts(self.units, self.ids.shape[1] ** 2)
        ]
        return parts[0] if len(parts) == 1 else torch.cat([*parts, self.right.new_zeros(0)])

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """See ``Form``."""
        wide = accumulator(self.right.dtype)
        rows = weighed(self.right.to(wide), scales).flatten(0, 1)
        table = torch.zeros(self.shape[0], rows.shape[1], dtype=wide, device=rows.device)
        return table.index_add_(0, self.ids.flatten(), rows).view(self.shape)

    def dense(self) -> Tensor:
        """See ``Form``."""
        wide = accumulator(self.right.dtype)
        size = (self.units, self.shape[0], self.right.shape[2])
        table = torch.zeros(size, dtype=wide, device=self.right.device)
        where = self.ids[:, :, None].expand_as(self.right)
        return table.scatter_add_(1, where, self.right.to(wide)).view(self.units, *self.shape)

    def part(self, start: int, stop: int) -> OneHot:
        """See ``Form``."""
        return OneHot(self.ids[start:stop], self.right[start:stop], self.shape)


def _norms(ids: Tensor, right: Tensor) -> Tensor:
    equal = ids[:, :, None] == ids[:, None, :]
    return gram_total(torch.where(equal, matmul(right, right.mT), 0))
