"""What a labelling run told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.transfer.aggregators import Aggregator


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What a labelling run told, and the event that covers it; ``tacit.ledger`` can charge it.

    Args:
        labels: One for each query, in the order asked; -1 where nothing was told.
        asked: Which queries were screened or answered, or may have been.
        lost: Which of these were in flight when a run was cut off. They are not asked again.
        event: What was declared, which covers every outcome.
        adjacency: Which data sets are neighbours.
        unit: Whom the guarantee protects.
        entry: The number of the ledger's entry that charged it; None without a budget.
        complete: Whether the run came to its end; one that was stopped goes on with its journal.
        aggregator: How each query was answered, if by an aggregator and at its own charges.

    Guarantee:
        Of data sets that are neighbours all fields together tell no more than ``event`` says.
    """

    labels: NDArray[np.int64]
    asked: NDArray[np.bool_]
    lost: NDArray[np.bool_]
    event: Event
    adjacency: Adjacency
    unit: str
    entry: int | None = None
    complete: bool = True
    aggregator: Aggregator | None = None

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which queries have a label."""
        result: NDArray[np.bool_] = self.labels >= 0
        return result

    def epsilon(self, delta: float) -> float:
        """The ε of the declared event at ``delta``, whatever the votes were."""
        from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked

        return epsilon(self.event, delta, adjacency=self.adjacency)

    def __repr__(self) -> str:
        told, all_ = int(self.answered.sum()), len(self.labels)
        return f"Answers({told} of {all_} queries answered, {self.event!r})"
