"""The losses of a batch must be one number per row: the message says how to get there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from torch import Tensor


def check(losses: Tensor, rows: int) -> None:
    """Refuses losses of any shape but (rows,), and losses that lead to no parameter."""
    if not isinstance(losses, torch.Tensor):
        raise InvalidArgument(
            f"losses must be a tensor of shape ({rows},), got {type(losses).__name__}"
        )
    shape = tuple(losses.shape)
    if shape != (rows,):
        raise InvalidArgument(
            f"losses must have one number per row, shape ({rows},), got {shape}: "
            f"{_remedy(shape, rows)}"
        )
    if not losses.is_floating_point():
        raise InvalidArgument(f"losses must be real numbers, got {losses.dtype}")
    if not losses.requires_grad:
        raise InvalidArgument(
            "losses do not depend on any private parameter: compute them inside `for batch in lot` "
            "with gradients enabled"
        )


def _remedy(shape: tuple[int, ...], rows: int) -> str:
    if shape == ():
        return "use reduction='none', so that every row keeps its own loss"
    if shape == (rows, 1):
        return "use losses.squeeze(1)"
    if len(shape) > 1 and shape[0] == rows:
        return "average over a row's own entries, as tacit.losses.token_mean does"
    return "return one loss for each row of the batch that the lot yielded"
