"""Whitening of features by statistics of images that nobody has to protect.

Features of all images have much in common, and noise of the same size in every direction drowns
those in which they differ. Scaling the directions by what they hold in *synthetic* images helps
nearly as much as statistics of the private images would, and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from tacit._validation import non_negative, positive, whole
from tacit.errors import InvalidArgument
from tacit.models.devices import full_precision

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Whitening"]

ROWS = 4096  # at a time: what is computed on the way stays small
DOUBLE = 8192  # features up to which eigenvectors are found in double precision


@dataclass(frozen=True, eq=False)
class Whitening:
    """(S+λ·tr(S)·I)^(−p/2) and norm 1, one row at a time.

    S is the mean of x·xᵀ over the public rows it was made of; it is not centred, so that what all
    images have in common is held down as well. The directions come in the order of their strength
    there, the strongest first: the result is the whitened row in the basis of S's eigenvectors,
    which for a linear model is as good as any other basis.

    Guarantee: row i of the result depends on row i alone, to the last bit if it is part of what
    ``batched`` does (else rounding may depend on how many rows there are), and has a norm of 1, or
    0 where the row says nothing; only what ``of`` was given shows in the directions.

    Args:
        directions: the scaled eigenvectors, shape (kept, features), float32.
        strengths: all eigenvalues of S that were found, the largest first, float64.

    >>> rows = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    >>> whitening = Whitening.of(rows, power=1.0, ridge=1e-3, keep=20)
    >>> whitening(rows[:3]).shape
    torch.Size([3, 20])
    """

    directions: Tensor
    strengths: Tensor

    @classmethod
    def of(cls, rows: Tensor, *, power: float, ridge: float, keep: int | None = None) -> Whitening:
        """The whitening that makes ``rows`` of about equal strength in all directions.

        Args:
            rows: features of public images, shape (images, features).
            power: p; 1 whitens, 0 leaves the features as they are, 0.5 goes half-way.
            ridge: λ, as a share of the features' whole strength.
            keep: how many of the strongest directions to keep; all by default.
        """
        power, ridge = non_negative("power", power), positive("ridge", ridge)
        moments = _moments(rows)
        size = len(moments)
        kept = whole("keep", keep) if keep is not None else size
        if kept > size:
            raise InvalidArgument(f"keep must be at most the {size} features, got {keep!r}")
        whole_strength = moments.diagonal().sum()
        values, vectors = _strongest(moments, kept)
        scales = (values + ridge * whole_strength).pow(-power / 2)
        return cls((vectors * scales).T.float().contiguous(), values.double())

    def to(self, device: torch.device | str) -> Whitening:
        """The same on another device."""
        return Whitening(self.directions.to(device), self.strengths.to(device))

    @torch.no_grad()
    def __call__(self, rows: Tensor) -> Tensor:
        """The whitened rows, shape (rows, kept), on the device of the directions."""
        place = self.directions.device
        found = torch.empty(len(rows), len(self.directions), device=place)
        with full_precision(place.type):
            for which, part in _parts(rows, place):
                found[which] = functional.normalize(part @ self.directions.T, dim=1)
        return found


@torch.no_grad()
def _moments(rows: Tensor) -> Tensor:
    """The mean of x·xᵀ: sums of a few thousand terms in single precision, added up in double."""
    if rows.ndim != 2 or len(rows) < 2:
        raise InvalidArgument(
            f"rows must have the shape (images, features) with 2 images or more, got "
            f"{tuple(rows.shape)}"
        )
    size = rows.shape[1]
    products = torch.zeros(size, size, dtype=torch.float64, device=rows.device)
    with full_precision(rows.device.type):
        for _, part in _parts(rows, rows.device):
            products += part.T @ part
    return products / len(rows)


def _strongest(moments: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues and their vectors, the largest first.

    In double precision where that takes no more than minutes. Single precision errs by about
    1e-7 of the largest eigenvalue, far below any ridge that is of use.
    """
    size = len(moments)
    work = moments if size <= DOUBLE else moments.float()
    if work.device.type == "cpu" and 2 * count <= size:
        from scipy.linalg import eigh  # noqa: PLC0415 - it can stop at the strongest; torch cannot

        found = eigh(work.numpy(), subset_by_index=(size - count, size - 1), driver="evr")
        values, vectors = (torch.from_numpy(one) for one in found)
    else:
        values, vectors = torch.linalg.eigh(work)
        values, vectors = values[size - count :], vectors[:, size - count :]
    return values.flip(0).clamp(min=0), vectors.flip(1)


def _parts(rows: Tensor, device: torch.device) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS].to(device, torch.float32)
        yield slice(start, start + len(part)), part
