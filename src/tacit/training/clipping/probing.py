"""Finding where every recorded result keeps the rows, from the gradients of single losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd.graph import _engine_run_backward

from tacit.errors import UnsupportedModel
from tacit.training.clipping.layout import Layout, candidates, holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tacit.training.clipping.uses import Use


_FEWEST = 3  # probes, however early every result has been reached


def gradients_at(
    losses: Tensor, weights: Tensor, taps: Sequence[Tensor], *, keep: bool = False
) -> list[Tensor | None]:
    """∂(Σ weights·losses)/∂taps; None where no loss reaches.

    ``torch.autograd.grad`` would suspend the recorder, which recomputed activations need.
    """
    found = _engine_run_backward(
        (losses,), (weights,), keep, False, tuple(taps), True, accumulate_grad=False
    )
    return list(found)


def layouts(
    losses: Tensor,
    taps: Sequence[Tensor],
    uses: Sequence[Use],
    real: Sequence[int],
    describe: Sequence[str],
) -> list[Layout | None]:
    """The layout of each use's result; None where no loss among ``real`` rows reaches it.

    The loss of row i may depend on row i of a result alone. A result for which no layout makes that
    so belongs to an operation that mixes examples, and is refused by name.
    """
    rows = len(losses)
    if rows <= 1 or not uses:
        return [Layout()] * len(uses)
    open_ = [list(candidates(use.shape, rows)) for use in uses]
    whole = gradients_at(losses, torch.ones_like(losses), taps, keep=True)
    sought = {at for at, gradient in enumerate(whole) if _touches(gradient)}
    reached: set[int] = set()
    for position, row in enumerate(_probes(real)):
        if position >= _FEWEST and sought <= reached:
            break
        one = losses[row]
        for at, gradient in enumerate(gradients_at(one, torch.ones_like(one), taps, keep=True)):
            if gradient is None or not _touches(gradient):
                continue
            reached.add(at)
            open_[at] = [layout for layout in open_[at] if holds(layout, gradient, row, rows)]
            if not open_[at]:
                raise UnsupportedModel(
                    f"{describe[at]} mixes or moves examples: the loss of row {row} depends on "
                    "other rows there. Rows must be independent and stay in order in one batch "
                    "(batch norm, pairwise losses and in-batch negatives mix them)"
                )
    return [fitting[0] if at in reached else None for at, fitting in enumerate(open_)]


def _touches(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(((gradient != 0) & gradient.isfinite()).any())


def _probes(real: Sequence[int]) -> list[int]:
    """The ends and the middle first: a layout that fits them by accident is unlikely."""
    if not real:
        return []
    first = [real[0], real[-1], real[len(real) // 2]]
    return list(dict.fromkeys([*first, *real]))
