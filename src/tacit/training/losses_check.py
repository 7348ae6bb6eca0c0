"""The losses of a batch must be one number per row: the message says how to get there.

No message tells how many rows there are: that is how many records were drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tacit.errors import InvalidArgument, UnsupportedModel

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.graph import Node


def check(losses: Tensor, rows: int) -> None:
    """Refuses losses of any shape but (rows,), and losses that lead to no parameter."""
    if not isinstance(losses, torch.Tensor):
        raise InvalidArgument(
            f"losses must be a tensor with one number per row, got {type(losses).__name__}"
        )
    shape = tuple(losses.shape)
    if shape != (rows,):
        raise InvalidArgument(
            f"losses must be a vector with one number per row, got {_kind(shape)}: "
            f"{_remedy(shape, rows)}"
        )
    if not losses.is_floating_point():
        raise InvalidArgument(f"losses must be real numbers, got {losses.dtype}")
    if not losses.requires_grad:
        raise InvalidArgument(
            "losses do not depend on any private parameter: compute them inside `for batch in lot` "
            "with gradients enabled"
        )


def check_graph(losses: Tensor) -> None:
    """Refuses what hides uses of parameters from the recorder, where it can be named."""
    seen: set[Node] = set()
    todo = [losses.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CheckpointFunctionBackward":
            raise UnsupportedModel(
                "the model uses reentrant checkpointing, which hides its parameters from the "
                "losses; pass use_reentrant=False to torch.utils.checkpoint (Hugging Face: "
                "gradient_checkpointing_enable({'use_reentrant': False}))"
            )
        seen.add(node)
        todo += [following for following, _ in node.next_functions]


def _kind(shape: tuple[int, ...]) -> str:
    if not shape:
        return "a single number"
    return f"a tensor of {len(shape)} dimensions" if len(shape) > 1 else "one of another length"


def _remedy(shape: tuple[int, ...], rows: int) -> str:
    if shape == ():
        return (
            "use reduction='none', so that every row keeps its own loss; the loss that a Hugging "
            "Face model returns is an average over the batch: leave labels out of model(**batch) "
            "and pass its logits and the labels to tacit.losses.token_mean or .cross_entropy"
        )
    if shape == (rows, 1):
        return "use losses.squeeze(1)"
    if len(shape) > 1 and shape[0] == rows:
        return "average over a row's own entries, as tacit.losses.token_mean does"
    return "return one loss for each row of the batch that the lot yielded"
