"""Watching a run from outside: what is read, what goes into the loss, what the optimizer gets."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from torch.optim import optimizer as hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn
    from torch.optim import Optimizer


_KEPT = 24  # steps of which the parameters are kept


class Read(NamedTuple):
    """One reading of a record: its place in the run's data, which of its views, and the example."""

    place: int
    view: int
    example: Any


@final
@dataclass(frozen=True, eq=False)
class Step:
    """What was seen of one step of the optimizer, and since the one before.

    Attributes:
        rows: The reads (places in ``Trace.reads``) whose losses were computed.
        batches: How many of them at a time.
        gradient: What the optimizer was given: all private parameters, one after the other.
        before: The parameters when the optimizer's step began.
        after: The parameters when it ended; of later steps neither is kept, to save memory.
        others: The model's other numbers at that time: buffers, and what is not trained.
        charged_at_read: How many steps were in the ledger when the lot's first record was read; of
            the first step, its last one, since an engine may rehearse with records before.
        charged_at_step: How many were when the optimizer's step began.
    """

    rows: NDArray[np.int64]
    batches: tuple[int, ...]
    gradient: Tensor
    before: Tensor | None
    after: Tensor | None
    others: Tensor
    charged_at_read: int | None
    charged_at_step: int | None


@final
class Watch:
    """Notes the events of one run, in their order, on one timeline.

    ``charged`` says how many steps are in the ledger; ``stepped`` is called after every step.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        charged: Callable[[], int] | None,
        stepped: Callable[[], None] | None = None,
    ) -> None:
        self._model, self._optimizer, self._charged = model, optimizer, charged
        self._stepped = stepped
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.reads: list[Read] = []
        self.steps: list[Step] = []
        self.other_ranks: list[list[Tensor]] = []
        self.lots_begun = 0
        self._rows: list[int] = []
        self._batches: list[int] = []
        self._first_charge: int | None = None
        self._open: dict[str, Any] | None = None
        self._replicas: dict[int, list[Tensor]] = {}

    def read(self, read: Read) -> int:
        """A record was read; returns the number of the reading."""
        if (self._first_charge is None or not self.steps) and self._charged is not None:
            self._first_charge = self._charged()
        self.reads.append(read)
        return len(self.reads) - 1

    def loss(self, rows: Sequence[int]) -> None:
        """The loss of these readings is about to be computed."""
        if not self._rows:
            self.lots_begun += 1
        self._rows.extend(rows)
        self._batches.append(len(rows))

    @property
    def in_lot(self) -> set[int]:
        """The places whose losses were computed since the last step."""
        return {self.reads[row].place for row in self._rows}

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Listens to every optimizer of the process."""
        handles = [
            hooks.register_optimizer_step_pre_hook(self._before),
            hooks.register_optimizer_step_post_hook(self._after),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if optimizer is not self._optimizer:
            self._replica(optimizer)
            return
        self._open = {
            "rows": np.array(self._rows, dtype=np.int64),
            "batches": tuple(self._batches),
            "gradient": flat(_gradients(self.parameters)),
            "before": self._kept(),
            "charged_at_read": self._first_charge,
            "charged_at_step": None if self._charged is None else self._charged(),
        }
        self._rows, self._batches, self._first_charge = [], [], None

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if optimizer is self._optimizer and self._open is not None:
            seen, self._open = self._open, None
            others = flat(self._others())
            self.steps.append(Step(**seen, after=self._kept(), others=others))
            if self._stepped is not None:
                self._stepped()

    def _others(self) -> list[Tensor]:
        mine = {id(p) for p in self.parameters}
        held = [*self._model.buffers(), *self._model.parameters()]
        return [tensor for tensor in held if tensor is not None and id(tensor) not in mine]

    def _kept(self) -> Tensor | None:
        return flat(self.parameters) if len(self.steps) < _KEPT else None

    def _replica(self, optimizer: Optimizer) -> None:
        """Another rank's optimizer, if it has parameters of the same shapes."""
        held = [p for group in optimizer.param_groups for p in group["params"]]
        mine = {id(p) for p in self.parameters}
        same = [p.shape for p in held] == [p.shape for p in self.parameters]
        if same and not any(id(p) in mine for p in held):
            self._replicas.setdefault(id(optimizer), []).append(flat(_gradients(held)))
            self.other_ranks = list(self._replicas.values())


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors as one vector, in a precision that holds them exactly."""
    if not tensors:
        return torch.empty(0)
    double = any(t.dtype in {torch.float64, torch.int64} for t in tensors)
    kind = torch.float64 if double else torch.float32
    return torch.cat([t.detach().to("cpu", kind, copy=True).reshape(-1) for t in tensors])


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
