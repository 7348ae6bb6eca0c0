"""Norms and sums of one shape of batch as one compiled program.

The plain path is run once on shapes alone to write down its operations; the compiler sees those,
not our Python, so nothing in the rules needs to be traceable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import compile as compile_graph
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.training.clipping.clipped import ClippedBatch
from tacit.training.clipping.replay import Replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    Run = Callable[..., Sequence[Tensor]]


def compiled_program(
    plain: Callable[..., ClippedBatch],
    saved: list[Tensor],
    grads: list[Tensor | None],
    bounds: Tensor,
    mask: Tensor,
) -> Callable[..., ClippedBatch]:
    """``plain`` compiled for inputs of these shapes; it is called with the same arguments."""
    present = [at for at, grad in enumerate(grads) if grad is not None]
    names: list[str] = []

    def flat(*tensors: Tensor) -> list[Tensor]:
        kept = list(tensors[: len(saved)])
        given: list[Tensor | None] = [None] * len(grads)
        for at, tensor in zip(present, tensors[len(saved) : -2], strict=True):
            given[at] = tensor
        batch = plain(kept, given, *tensors[-2:])
        names[:] = list(batch.sums)
        return [batch.squared_norms, batch.scales, *batch.sums.values()]

    def inputs(
        kept: list[Tensor], given: list[Tensor | None], limits: Tensor, real: Tensor
    ) -> list[Tensor]:
        reached = [one for one in given if one is not None]
        return [*kept, *reached, limits, real]

    with torch.no_grad():
        example = inputs(saved, grads, bounds, mask)
        graph = make_fx(flat, tracing_mode="fake")(*example)
        compiled = compile_graph(graph, [*example])
    replayable = all(tensor.is_cuda for tensor in example)
    run: Run = Replayed(compiled) if replayable else compiled

    def program(*arguments: Any) -> ClippedBatch:
        with torch.no_grad():
            norms, factors, *sums = run(*inputs(*arguments))
        return ClippedBatch(
            norms, factors, dict(zip(names, sums, strict=True)), borrowed=replayable
        )

    return program
