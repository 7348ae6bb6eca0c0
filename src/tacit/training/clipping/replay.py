"""A program replayed as one CUDA graph, where launching its kernels takes longer than running them.

A graph reads its inputs where they lay when it was captured. A training loop allocates in the same
order step after step, so activations and gradients come to lie at the same addresses again, and
nothing needs to be copied: a graph is kept for each set of addresses that was met twice. Addresses
that never repeat are served by the program itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor

    Run = Callable[..., Sequence[Tensor]]

_MOST_GRAPHS = 4  # of one program: a loop may alternate between a few sets of addresses
_MOST_SEEN = 64  # sets of addresses that are remembered
_LAUNCHING = 0.4  # of a run's time: above, a graph pays


@final
class Replayed:
    """``run``, replayed where that is possible and pays.

    What it returns lies in memory that the next call writes over: see ``ClippedBatch.borrowed``.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Sequence[Tensor]]] = {}
        self._seen: set[Hashable] = set()
        self._pays: bool | None = None  # not yet measured
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        """The program's results for these inputs."""
        if self._pays is False:
            return self._run(*tensors)
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
