"""How an engine is put to the test: a task for it, and what it says about what it did.

An adapter is all that the self-test needs of an engine. It trains as it always does; everything
else is watched from outside, through the data set, the loss, the collate function, the optimizer
and the ledger that a task is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.ledger import Budget
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """One run that an engine is asked for.

    Attributes:
        model: To be trained in place. With several ranks it is that of rank 0.
        optimizer: Over its trainable parameters. Engines that keep one for each rank copy it.
        plan: What to do, and what to claim.
        dataset: The private records, ``plan.examples`` of them (or of users).
        loss: ``loss(model, batch)``, one number for each row. To be called on what ``collate``
            returned, as it is, once for every physical batch.
        collate: Makes a batch of a list of the data set's records, and must be used; if it is None,
            PyTorch's ``default_collate``, or whatever makes the same batch.
        groups: The user of every record, where the plan's unit is the user.
        lengths: Of every record, where rows of like length are to share batches.
        delta: The δ for which ε is asked.
        performance: The size of physical batches, and how many steps are charged in advance.
        budget: What the run must be charged to; None if the subject keeps no ledger.
        save: Where the run must leave a checkpoint; None where none is wanted.
        resume: A checkpoint of the same subject to go on from.
        stop_at: The number of steps after which the run is broken off; only with ``save``.
        ranks: How many processes share the lots.
    """

    model: nn.Module
    optimizer: Optimizer
    plan: Plan
    dataset: Dataset[Any]
    loss: Callable[[nn.Module, Any], Tensor]
    collate: Callable[[list[Any]], Any] | None
    groups: NDArray[np.int64] | None
    delta: float
    performance: Performance
    lengths: NDArray[np.int64] | None = None
    budget: Budget | None = None
    save: Path | None = None
    resume: Path | None = None
    stop_at: int | None = None
    ranks: int = 1


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """What an engine says about a run that is over.

    Attributes:
        epsilon: The ε that it claims for the whole run, at the task's δ.
        published: Whatever else it hands out or writes, by name: a history, a statement, the
            contents of a checkpoint. Numbers, texts, tensors, sequences and mappings of these.
    """

    epsilon: float
    published: Mapping[str, Any]


class Subject(Protocol):
    """An engine under test."""

    @property
    def name(self) -> str:
        """What the report calls it."""
        ...

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of processes that it can be run with; 1 is among them."""
        ...

    @property
    def keeps_ledger(self) -> bool:
        """Whether it charges ``task.budget``."""
        ...

    @property
    def resumes(self) -> bool:
        """Whether it can save a run and go on with it."""
        ...

    def train(self, task: Task) -> Outcome:
        """Trains by the task, whole or up to ``task.stop_at``.

        Errors are passed on as they come: the test raises some of its own, through the loss.
        """
        ...
