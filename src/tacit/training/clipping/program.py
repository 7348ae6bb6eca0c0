"""Norms and sums of one shape of batch as one compiled program.

The plain path is run once on shapes alone to write down its operations; the compiler sees those,
not our Python, so nothing in the rules needs to be traceable. Where a step is so short that
launching kernels takes longer than running them, the program is replayed as one CUDA graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import compile as compile_graph
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.training.clipping.clipped import ClippedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    Run = Callable[..., Sequence[Tensor]]

# Beyond this many bytes of inputs, copying them into a graph's buffers costs more than launches.
_LARGEST_REPLAYED = 2**25


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
        run = _replayed(compile_graph(graph, [*example]), example)

    def program(*arguments: Any) -> ClippedBatch:
        with torch.no_grad():
            norms, factors, *sums = run(*inputs(*arguments))
        return ClippedBatch(norms, factors, dict(zip(names, sums, strict=True)))

    return program


def _replayed(run: Run, example: Sequence[Tensor]) -> Run:
    """``run`` as a CUDA graph, where that is possible and pays."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in example)
    if not all(tensor.is_cuda for tensor in example) or size > _LARGEST_REPLAYED:
        return run
    buffers = [tensor.clone() for tensor in example]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run(*buffers)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run(*buffers)

    def replay(*tensors: Tensor) -> Sequence[Tensor]:
        torch._foreach_copy_(buffers, list(tensors))
        graph.replay()
        # The next replay writes into the same results, so the caller gets copies.
        return torch._foreach_mul(list(results), 1.0)

    return replay
