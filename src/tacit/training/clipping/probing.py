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
    reached = [False] * len(uses)
    for position, row in enumerate(_probes(real)):
        if position >= 3 and all(reached):
            break
        gradients = gradients_at(losses[row], torch.ones_like(losses[row]), taps, keep=True)
        for at, gradient in enumerate(gradients):
            if gradient is None or not bool(((gradient != 0) & gradient.isfinite()).any()):
                continue
            reached[at] = True
            open_[at] = [one for one in open_[at] if holds(one, gradient, row, rows)]
            if not open_[at]:
                raise UnsupportedModel(
                    f"{describe[at]} mixes or moves examples: the loss of row {row} depends on "
                    "other rows there. Rows must be independent and stay in order in one batch "
                    "(batch norm, pairwise losses and in-batch negatives mix them)"
                )
        if position >= 15:
            break
    return [one[0] if found else None for one, found in zip(open_, reached, strict=True)]


def _probes(real: Sequence[int]) -> list[int]:
    """The ends and the middle first: a layout that fits them by accident is unlikely."""
    if not real:
        return []
    first = [real[0], real[-1], real[len(real) // 2]]
    return list(dict.fromkeys([*first, *real]))
