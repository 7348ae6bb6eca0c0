"""Norms and sums of one shape of batch as one compiled program, replayed as a CUDA graph.

The plain path is run once on shapes alone to write down its operations; the compiler sees those,
not the Python of the rules, so nothing in them needs to be traceable.

A graph is for where launching a program's kernels takes longer than running them. It reads its
inputs where they lay when it was captured. A training loop allocates in the same order step after
step, so activations and gradients come to lie at the same addresses again, and nothing needs to be
copied: a graph is kept for each set of addresses that was met twice. Addresses that never repeat
are served by the program itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, final

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.training.clipping.sums import BatchSums

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor

    Run = Callable[..., Sequence[Tensor]]

_MOST_GRAPHS = 4  # of one program: a loop may alternate between a few sets of addresses
_MOST_SEEN = 64  # sets of addresses that are remembered
_LAUNCHING = 0.4  # of a run's time: above, a graph pays


def compiled_program(
    plain: Callable[..., BatchSums],
    saved: list[Tensor],
    grads: list[Tensor | None],
    bounds: Tensor,
    mask: Tensor,
) -> Callable[..., BatchSums]:
    """``plain`` compiled for inputs of these shapes; it is called with the same arguments."""
    from torch._inductor import compile as compile_graph  # noqa: PLC0415 - takes a second to import

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

    def program(*arguments: Any) -> BatchSums:
        with torch.no_grad():
            norms, factors, *sums = run(*inputs(*arguments))
        return BatchSums(norms, factors, dict(zip(names, sums, strict=True)), borrowed=replayable)

    return program


@final
class Replayed:
    """``run``, replayed where that is possible and pays.

    What it returns lies in memory that the next call writes over: see ``BatchSums.borrowed``.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Sequence[Tensor]]] = {}
        self._seen: set[Hashable] = set()
        self._pays: bool | None = None  # not yet measured
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        """The program's results for these inputs."""
        if self._pays is False or torch.cuda.is_current_stream_capturing():
            return self._run(*tensors)  # as part of a recording of the whole batch, perhaps
        addresses = tuple([(one.data_ptr(), one.stride()) for one in tensors])
        known = self._graphs.get(addresses)
        if known is not None:
            known[0].replay()
            return known[1]
        if addresses in self._seen and len(self._graphs) < _MOST_GRAPHS:
            return self._captured(addresses, tensors)
        if len(self._seen) < _MOST_SEEN:
            self._seen.add(addresses)
        return self._run(*tensors) if self._pays else self._measured(tensors)

    def _measured(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Decides whether graphs pay and have room: by a second run, as the first loads kernels."""
        self._run(*tensors)
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before = time.perf_counter()
        start.record()
        results = self._run(*tensors)
        stop.record()
        launching = time.perf_counter() - before
        stop.synchronize()
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        free, _ = torch.cuda.mem_get_info(tensors[0].device)
        took = start.elapsed_time(stop) / 1e3
        self._pays = launching > _LAUNCHING * took and free > size
        return results

    def _captured(self, addresses: Hashable, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Captures a graph and replays it: capturing alone computes nothing.

        ``torch.cuda.graph`` would empty the cache of memory, and so move the addresses.
        """
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        try:
            with torch.cuda.stream(side):
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    results = self._run(*tensors)
                finally:
                    graph.capture_end()
        except torch.OutOfMemoryError:
            self._pays = False
            return self._run(*tensors)
        self._graphs[addresses] = graph, results
        graph.replay()
        return results
