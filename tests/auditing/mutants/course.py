"""Bugs of what goes on from step to step, or from rank to rank: epochs, mixed noise, real ranks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from tacit.auditing.replay.part_checks import ranks, strategies, ways
from tacit.randomness import CorrelatedSource, NoiseMemory
from tacit.training import noise
from tacit.training.distributed.shares import Shares
from tacit.training.distributed.world import World
from tacit.training.run_state import RunState
from tacit.training.sampling import LotSampler, RunningEpoch

from . import settings
from .mutant import Mutant, together

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


# ---- epochs


def _epoch_goes_on() -> Any:
    """An epoch of which a step was lost goes on: that lot's records are in two lots of it."""
    unlooked = patch.object(LotSampler, "go_to", lambda *_: None)  # it compares places
    return together(patch.object(RunState, "_leave_broken_epoch", lambda _: None), unlooked)


def _epoch_dealt_again() -> Any:
    """A resumed run deals a new epoch in the middle of the old one."""
    return patch.object(RunningEpoch, "load_state_dict", lambda *_: None)


def _last_lot_twice() -> Any:
    """The last lot of an epoch also holds the records of the first."""
    draw = RunningEpoch.draw

    def drawn(self: RunningEpoch) -> Any:
        order, ends, last = self._order, self._ends, self._next == len(self._ends) - 1
        return order[: ends[-1]] if last and (draw(self) is not None) else draw(self)

    return patch.object(RunningEpoch, "draw", drawn)


# ---- mixed noise


def _lost_noise_kept() -> Any:
    """After lost steps the noise before them is mixed in as if it were that of the last steps."""

    def begin(self: NoiseMemory, position: int) -> None:
        self.position = position

    return patch.object(NoiseMemory, "begin", begin)


def _replayed_one_later() -> Any:
    """Of the last steps' noise, each is taken for the one after it: a step takes its own back."""
    draw = CorrelatedSource._draw

    def drawn(self: CorrelatedSource, tensor: Tensor, step: int, share: Any) -> bool:
        return draw(self, tensor, min(step + 1, self._memory.position), share)

    return patch.object(CorrelatedSource, "_draw", drawn)


# ---- ranks


def _lot_on_every_rank() -> Any:
    """Each rank computes the whole lot, and the sums are added up."""
    return patch.object(World, "share", lambda _, units: units)


def _own_sums_only() -> Any:
    """A rank releases the sum of its own units, not that of all ranks."""

    def totals(self: Shares, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: sums[name].flatten()[slice(*at)] if name in sums else torch.zeros(at[1] - at[0])
            for name, at in self.stretches.items()
        }

    return patch.object(Shares, "totals", totals)


def _same_noise_on_both_shares() -> Any:
    """A rank's share of the noise begins with the first numbers of the draw, as every rank's."""

    def drawn(
        source: Any, device: Any, parameters: Any, dtype: Any, scale: float, stretches: Any
    ) -> list[Tensor]:
        sizes = [stop - start for start, stop in (stretches[name] for name in parameters)]
        flat = torch.empty(sum(sizes), dtype=dtype, device=device)
        source.normal_(flat, scale)
        return list(flat.split(sizes))

    return patch.object(noise, "_drawn_share", drawn)


_in_part = partial(Mutant, setting=settings.linear)

MUTANTS = (
    _in_part(
        name="epoch goes on after a lost step", says="lots that may have been seen come again",
        components=("sampling",), patch=_epoch_goes_on, part=ways.epochs,
    ),
    _in_part(
        name="epoch dealt again at resume", says="a resumed run begins an epoch within an epoch",
        components=("sampling",), patch=_epoch_dealt_again, part=ways.epochs,
    ),
    _in_part(
        name="first lot comes again", says="an epoch's last lot also holds its first records",
        components=("sampling",), patch=_last_lot_twice, part=ways.epochs,
    ),
    _in_part(
        name="noise of before lost steps", says="lost steps leave the memory of the noise as it is",
        components=("noise",), patch=_lost_noise_kept, part=strategies.lost,
    ),
    _in_part(
        name="noise replayed one step late", says="a step takes back its own noise",
        components=("noise",), patch=_replayed_one_later, part=strategies.mixtures,
    ),
    _in_part(
        name="lot on every rank", says="each of two real ranks computes the whole lot",
        components=("ranks",), patch=_lot_on_every_rank, part=ranks.replicas,
    ),
    _in_part(
        name="own sums only", says="a rank's share of the release lacks the other ranks' units",
        components=("ranks",), patch=_own_sums_only, part=ranks.replicas,
    ),
    _in_part(
        name="same noise on both shares", says="two ranks add the same numbers to their shares",
        components=("ranks",), patch=_same_noise_on_both_shares, part=ranks.replicas,
    ),
)  # fmt: skip
