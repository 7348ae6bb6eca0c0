"""What a recipe's model answers to the examples that the recipe prepared for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit.errors import InvalidArgument
from tacit.training.loading import make_loader

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.training.fit import Prepared

_BATCH = 1024


def answers(model: nn.Module, prepared: Prepared, views: int = 1) -> NDArray[np.float32]:
    """The logits of ``model`` on the held-out examples: (examples, views, classes).

    All views of an example come one after the other. A recipe that has its own rule for what is
    right hands several views of each example itself, along the second axis of ``x``; they are asked
    as views, too.
    """
    assert prepared.held_out is not None
    length = len(prepared.held_out)  # type: ignore[arg-type]  # a map-style data set has one
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    loader = make_loader(prepared.held_out, device, prepared.collate, workers=0, pin_memory=False)
    every = np.arange(length, dtype=np.int64)
    parts = [every[start : start + _BATCH] for start in range(0, length, _BATCH)]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            found = [_logits(model, batch, prepared.correct is not None)
                     for batch in loader.batches(parts)]  # fmt: skip
    finally:
        model.train(training)
    logits = torch.cat(found).float().cpu().numpy()
    return np.ascontiguousarray(logits.reshape(length // views, -1, logits.shape[-1]))


def _logits(model: nn.Module, batch: Any, has_views: bool) -> Tensor:
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise InvalidArgument(
            "an audit asks models whose batches are pairs (x, y), got a batch that is a "
            f"{type(batch).__name__}; audit another recipe"
        )
    x = batch[0]
    if has_views:
        return torch.stack([model(x[:, view]) for view in range(x.shape[1])], dim=1)
    return model(x)[:, None]  # type: ignore[no-any-return]
