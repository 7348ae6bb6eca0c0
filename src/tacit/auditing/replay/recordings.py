"""Runs whose steps are recorded and replayed, watched from outside all the same.

A replay calls no Python: neither the loss nor a hook of the optimizer says whose losses were
computed or what was released. So the watch is recorded as well. Batches come with marks, and what
is recorded copies them, the gradients and the parameters to where they can be read afterwards.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final
from unittest.mock import patch

import torch
from torch.utils.data import TensorDataset, default_collate

from tacit.auditing.replay.watch import Kept, Read
from tacit.training import capture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from tacit.auditing.replay.setting import Loss, Records
    from tacit.auditing.replay.watch import Resolve, Watch
    from tacit.training.capture import Computed, Graphs

_NEXT_TO_NOTHING = 1e-9  # of a loss: far below whatever noise there is


@final
class WatchedGraphs:
    """Records as ``inner`` does, and notes after every replay what it has computed or released."""

    def __init__(self, inner: Graphs, watch: Watch) -> None:
        self._inner, self._watch = inner, watch
        self.runs_python = inner.runs_python

    @contextmanager
    def without_host_reads(self) -> Iterator[None]:
        """See ``Graphs``; the batch that is computed meanwhile is noted at the end."""
        kept = Kept()
        with self._inner.without_host_reads(), self._watch.keeping(kept):
            yield
        self._watch.computed(kept)

    def record_batch(self, work: Callable[[], Computed]) -> tuple[Callable[[], None], Computed]:
        """See ``Graphs``."""
        kept = Kept()
        with self._watch.keeping(kept):
            replay, made = self._inner.record_batch(work)

        def replayed() -> None:
            with self._watch.keeping(kept):
                replay()
            self._watch.computed(kept)

        return replayed, made

    def record_update(
        self, work: Callable[[], None], generators: Sequence[torch.Generator]
    ) -> Callable[[], None]:
        """See ``Graphs``."""
        kept = Kept()
        with self._watch.keeping(kept):
            replay = self._inner.record_update(work, generators)

        def replayed() -> None:
            self._watch.begin_step()
            with self._watch.keeping(kept):
                replay()
            self._watch.end_step(kept)

        return replayed


@contextmanager
def watched_recordings(watch: Watch) -> Iterator[None]:
    """Recordings of tacit's, on whatever device, are watched meanwhile."""

    def watched(make: Callable[..., Graphs]) -> Callable[..., Graphs]:
        return lambda *given: WatchedGraphs(make(*given), watch)

    with ExitStack() as stack:
        for name in ("CudaGraphs", "Reruns"):
            own = watched(getattr(capture, name))
            stack.enter_context(patch.object(capture, name, own))
        stack.enter_context(watch.stepping())
        yield


# ---- batches whose rows come with marks, and a loss that does not look at them


@final
@dataclass(frozen=True, eq=False)
class MarkedLoss:
    """The user's loss, times its rows' factors, of batches that end with marks and factors.

    Losses of nothing leave no gradients by which an engine could see how rows lie, without which
    it records no batch: they are next to nothing instead.
    """

    loss: Loss
    watch: Watch
    rows: Resolve
    scale: float

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """The losses of the batch's rows, times their factors."""
        *fields, marks, factors = batch
        self.watch.losses_of(marks, self.rows)
        losses = self.loss(model, fields[0] if self.rows is as_they_are else tuple(fields))
        weights = ((self.scale or _NEXT_TO_NOTHING) * factors).to(losses.dtype)
        found: Tensor = losses * weights.reshape(-1, *[1] * (losses.ndim - 1))
        return found


def as_they_are(marks: Sequence[int]) -> list[int]:
    """Marks that are the numbers of readings already."""
    return list(marks)


@final
@dataclass(frozen=True, slots=True, eq=False)
class PlacesRead:
    """Readings of records that are known by their place in the run's data."""

    examples: Sequence[Any]
    watch: Watch

    def __call__(self, places: Sequence[int]) -> list[int]:
        """The numbers of new readings of these places."""
        return [self.watch.read(Read(place, 0, self.examples[place])) for place in places]


def marked_tensors(
    examples: Sequence[Any], records: Records, factors: Mapping[int, float], device: torch.device
) -> TensorDataset:
    """A data set of tensors on the device; its rows end with their place and their factor."""
    marks = torch.arange(len(examples))
    weights = torch.tensor([factors.get(int(unit), 1.0) for unit in records.units]).double()
    fields = (*default_collate(list(examples)), marks, weights)
    return TensorDataset(*(one.to(device) for one in fields))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Marked:
    """The user's collate function, with numbers of readings and factors beside the batch."""

    collate: Callable[[list[Any]], Any] | None
    records: Records
    watch: Watch
    factors: Mapping[int, float] = field(default_factory=dict)

    def __call__(self, numbered: list[tuple[int, Any]]) -> tuple[Any, Tensor, Tensor]:
        """The batch, which readings its rows are, and the factors on their losses."""
        batch = (self.collate or default_collate)([example for _, example in numbered])
        numbers = [number for number, _ in numbered]
        units = self.records.units[[self.watch.reads[number].place for number in numbers]]
        factors = [self.factors.get(int(unit), 1.0) for unit in units]
        return batch, torch.tensor(numbers), torch.tensor(factors, dtype=torch.float64)


# ---- exact products


@contextmanager
def full_products(device: torch.device) -> Iterator[None]:
    """No TF32 on a GPU: its ten bits are no rounding that a self-test could tell from a bug."""
    if device.type != "cuda":
        yield
        return
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32 = convolution.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before


def recorded(wanted: bool, watch: Watch) -> AbstractContextManager[None]:
    """How a run is listened to: through its recordings, or through hooks of all optimizers."""
    return watched_recordings(watch) if wanted else watch.hooked()
