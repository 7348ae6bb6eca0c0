"""Where an operation's result keeps the examples: rows may lie in any dimension, or part of one.

Time-major sequences keep the rows in dimension 1; ``x.view(batch * time, d)`` keeps several entries
of dimension 0 for each row. Which of them holds is not guessed from sizes: it is read off the
gradient of single losses, which must vanish at every other row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """Rows lie along dimension ``dim``; ``inner`` says how, if several entries belong to a row.

    With ``inner`` the entries of a row follow one another (batch-major); otherwise entry j of every
    row precedes entry j+1 of any (batch-minor). One entry a row is both.
    """

    dim: int = 0
    inner: bool = True


@final
@dataclass(frozen=True, slots=True)
class Rows:
    """How the rows of a batch make up units of privacy, and how one result lays them out."""

    count: int
    per_unit: int = 1
    layout: Layout = Layout()

    @property
    def units(self) -> int:
        """How many units the rows make up."""
        return self.count // self.per_unit

    def split(self, tensor: Tensor) -> Tensor:
        """``tensor`` as (units, entries a unit, …the other dimensions in order)."""
        first = tensor.movedim(self.layout.dim, 0) if self.layout.dim else tensor
        if self.count == 0:
            return first.reshape(0, self.per_unit, *first.shape[1:])
        each = first.shape[0] // self.count
        if each > 1 and not self.layout.inner:
            first = first.unflatten(0, (each, self.count)).transpose(0, 1).flatten(0, 1)
        split: Tensor = first.unflatten(0, (self.units, self.per_unit * each))
        return split

    def terms(self, tensor: Tensor) -> Tensor:
        """``tensor`` as (units, terms, last dimension): what a matrix product works on."""
        split = self.split(tensor)
        size = 1
        for length in split.shape[1:-1]:
            size *= length
        return split.reshape(split.shape[0], size, split.shape[-1])


def candidates(shape: Sequence[int], rows: int) -> Iterator[Layout]:
    """The layouts that a result of this shape can have, the usual ones first."""
    fitting = [dim for dim, size in enumerate(shape) if size and size % rows == 0]
    for dim in sorted(fitting, key=lambda dim: (shape[dim] != rows, dim)):
        yield Layout(dim, inner=True)
        if shape[dim] != rows:
            yield Layout(dim, inner=False)


def support(gradient: Tensor, dim: int) -> Tensor:
    """Which entries along ``dim`` the gradient touches.

    A row that is not finite has NaN = 0·∞ where another row's loss touches nothing: not counted.
    """
    others = [axis for axis in range(gradient.ndim) if axis != dim]
    nonzero = (gradient != 0) & gradient.isfinite()
    return nonzero.sum(others) > 0 if others else nonzero


def holds(layout: Layout, gradient: Tensor, row: int, rows: int) -> bool:
    """Whether the gradient of one row's loss touches only that row's entries."""
    touched = support(gradient, layout.dim)
    each = touched.shape[0] // rows
    entries = torch.arange(touched.shape[0], device=touched.device)
    owner = entries // each if layout.inner else entries % rows
    return not bool((touched & (owner != row)).any())
