"""What a mechanism gives back: the value, and the event that says what releasing it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event

Value = TypeVar("Value")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Released(Generic[Value]):
    """A released value with its event; ``tacit.ledger`` can charge it as it is.

    Args:
        value: What was released; of the kind that came in.
        event: How it was randomised, for ``tacit.accounting``.
        adjacency: Which data sets are neighbours.
        unit: Whom the guarantee protects.
        entry: The number of the ledger's entry that charged it; None without a budget.

    Guarantee:
        Of data sets that are neighbours, ``value`` tells no more than ``event`` says.
    """

    value: Value
    event: Event
    adjacency: Adjacency
    unit: str
    entry: int | None = None

    def epsilon(self, delta: float) -> float:
        """The ε of this release at ``delta``, which is above 0; ``event`` tells a pure ε.

        >>> from tacit.accounting import Gaussian
        >>> round(Released(3.0, Gaussian(4.0), "add-remove", "example").epsilon(1e-5), 4)
        0.9263
        """
        from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked

        return epsilon(self.event, delta, adjacency=self.adjacency)
