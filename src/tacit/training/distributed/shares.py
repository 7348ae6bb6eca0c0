"""From the sums of every process to the means of all: who releases which entries of a parameter.

Every process holds a clipped sum of its own units. They are added up once a lot, in single
precision or in whole numbers, each process being given an equal share of the entries; it adds the
noise of its share, and all are given what everybody released. So noise takes each process its part
of the time, and a sum that is no process's own exists nowhere whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, final

import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from tacit.training.distributed.world import World
    from tacit.training.noise import Stretches


@final
@dataclass(frozen=True, slots=True)
class _Row:
    """The parameters whose sums are of one type, after one another, in as many equal pieces."""

    dtype: torch.dtype
    starts: dict[str, tuple[int, int]]  # of each parameter, its first entry and the next one's
    piece: int

    def stretch(self, name: str, rank: int) -> tuple[int, int]:
        """The entries of a parameter that are a process's."""
        start, stop = self.starts[name]
        first = min(max(rank * self.piece, start), stop)
        last = min(max((rank + 1) * self.piece, first), stop)
        return first - start, last - start


@final
class Shares:
    """Adds up the sums of replicas, and gives everybody the means.

    Guarantee:
        Every entry is released by exactly one process, from the sum over all processes, once a lot.
        A process without a unit takes part like any other.
    """

    def __init__(
        self, world: World, parameters: Mapping[str, Tensor], *, whole_numbers: bool
    ) -> None:
        self._world = world
        self._parameters = dict(parameters)
        self._rows = _rows(parameters, world.size, whole_numbers=whole_numbers)
        self._stretches = {
            name: row.stretch(name, world.rank) for row in self._rows for name in row.starts
        }

    @property
    def stretches(self) -> Stretches:
        """The entries that this process releases."""
        return self._stretches

    def totals(self, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The sums over all processes of the entries that this one releases."""
        with self._world.waiting("the sum over ranks"):
            return {name: one for row in self._rows for name, one in self._total(row, sums)}

    def means(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The means of all entries, from those of every process."""
        with self._world.waiting("the means of all ranks"):
            return {name: one for row in self._rows for name, one in self._everybody(row, own)}

    def _total(self, row: _Row, sums: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
        device = self._device(row)
        flat = torch.zeros(row.piece * self._world.size, dtype=row.dtype, device=device)
        for name, (start, stop) in row.starts.items():
            if name in sums:
                flat[start:stop] = sums[name].reshape(-1)
        piece = torch.empty(row.piece, dtype=row.dtype, device=device)
        reduce_scattered(piece, flat, self._world.group_for(device))
        before = self._world.rank * row.piece
        found = []
        for name, (start, _) in row.starts.items():
            first, last = self._stretches[name]
            found.append((name, piece[start + first - before : start + last - before]))
        return found

    def _everybody(self, row: _Row, own: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
        device = self._device(row)
        # Whole numbers were turned into means: those have the precision of their parameter.
        dtype = torch.float64 if _is_double(self._parameters, row) else torch.float32
        piece = torch.zeros(row.piece, dtype=dtype, device=device)
        before = self._world.rank * row.piece
        for name, (start, _) in row.starts.items():
            first, last = self._stretches[name]
            piece[start + first - before : start + last - before] = own[name]
        flat = torch.empty(row.piece * self._world.size, dtype=dtype, device=device)
        all_gathered(flat, piece, self._world.group_for(device))
        return [
            (name, _like(self._parameters[name], flat[start:stop]))
            for name, (start, stop) in row.starts.items()
        ]

    def _device(self, row: _Row) -> torch.device:
        return self._parameters[next(iter(row.starts))].device


def _like(parameter: Tensor, flat: Tensor) -> Tensor:
    return flat.to(parameter.dtype).view(parameter.shape)


def _is_double(parameters: Mapping[str, Tensor], row: _Row) -> bool:
    return any(parameters[name].dtype == torch.float64 for name in row.starts)


def _rows(parameters: Mapping[str, Tensor], size: int, *, whole_numbers: bool) -> list[_Row]:
    kinds: dict[torch.dtype, dict[str, Tensor]] = {}
    for name, parameter in parameters.items():
        real = torch.float64 if parameter.dtype == torch.float64 else torch.float32
        kinds.setdefault(torch.int64 if whole_numbers else real, {})[name] = parameter
    return [_row(dtype, each, size) for dtype, each in kinds.items()]


def _row(dtype: torch.dtype, parameters: Mapping[str, Tensor], size: int) -> _Row:
    ends = list(accumulate((one.numel() for one in parameters.values()), initial=0))
    starts = dict(zip(parameters, pairwise(ends), strict=True))
    return _Row(dtype, starts, -(-ends[-1] // size))


@final
class Wrapper:
    """``DistributedDataParallel`` around the model, which inside a private context only calls it.

    It has no gradient to average: those of weights are never computed. Buffers do not change.
    """

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._before = (True, True)

    def enter(self) -> None:
        """Leaves it nothing to send: ranks run as many batches as their share of a lot has."""
        wrapped = self._wrapped
        self._before = wrapped.require_backward_grad_sync, wrapped.require_forward_param_sync
        wrapped.require_backward_grad_sync = wrapped.require_forward_param_sync = False

    def leave(self) -> None:
        """Puts it back as it was."""
        wrapped = self._wrapped
        wrapped.require_backward_grad_sync, wrapped.require_forward_param_sync = self._before


# ---- torch's collectives, by the names that its version has


def reduce_scattered(piece: Tensor, flat: Tensor, group: Any) -> None:
    """``piece`` becomes this process's part of the sum of all processes' ``flat``."""
    _collective("reduce_scatter_single", "reduce_scatter_tensor")(piece, flat, group=group)


def reduce_scattering(piece: Tensor, flat: Tensor, group: Any) -> Any:
    """The same, begun: ``piece`` is there once one has waited for what this returns."""
    begin = _collective("reduce_scatter_single", "reduce_scatter_tensor")
    return begin(piece, flat, group=group, async_op=True)


def all_gathered(flat: Tensor, piece: Tensor, group: Any) -> None:
    """``flat`` becomes all processes' pieces after one another."""
    _collective("all_gather_single", "all_gather_into_tensor")(flat, piece, group=group)


def _collective(name: str, older: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(distributed, name, None) or getattr(distributed, older)
    return found
