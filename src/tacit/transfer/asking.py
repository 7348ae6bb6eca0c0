"""What a labelling run meets at each query: the counts of its votes, and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

from tacit.errors import InvalidArgument
from tacit.transfer.noise import LARGEST_COUNT
from tacit.transfer.votes import Votes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.randomness import Stream
    from tacit.transfer.aggregators import Aggregator

    Counts = NDArray[np.int64]

_AHEAD = 256  # queries whose noise is drawn at a time
_KEPT = 2048  # queries that may lie between a screening and its answer


@final
class NoiseAhead:
    """Noise for some queries ahead, so that it is drawn many at a time; each is used once.

    It is drawn for the same queries together, however a run takes them.
    """

    def __init__(self, aggregator: Aggregator, stream: Stream) -> None:
        self._aggregator = aggregator
        self._stream = stream
        self._screening: dict[int, Any] = {}
        self._answer: dict[int, Counts] = {}

    def screening(self, query: int, classes: int) -> Any:
        """That of a query's screening."""
        if query not in self._screening:
            self._draw(query, classes)
        return self._screening.pop(query)

    def answer(self, query: int, classes: int) -> Counts:
        """That of a query's answer."""
        if query not in self._answer:
            self._draw(query, classes)
        return self._answer.pop(query)

    def _draw(self, query: int, classes: int) -> None:
        start = query - query % _AHEAD
        # Of queries that were screened out nothing is needed any more.
        self._answer = {one: kept for one, kept in self._answer.items() if one >= start - _KEPT}
        screening = self._aggregator.screening_noise(_AHEAD, self._stream)
        answer = self._aggregator.answer_noise(_AHEAD, classes, self._stream)
        self._screening.update(enumerate(screening, start))
        self._answer.update(enumerate(answer, start))


@final
class Rows:
    """Where counts come from, row by row, each checked."""

    def __init__(
        self, counts: Votes | Callable[[int], NDArray[np.int64]], aggregator: Aggregator
    ) -> None:
        if not hasattr(aggregator, "respond"):
            raise InvalidArgument(
                f"aggregator must be LNMax, GNMax or ConfidentGNMax, got {aggregator!r}"
            )
        if not isinstance(counts, Votes) and not callable(counts):
            raise InvalidArgument(
                f"counts must be Votes or a function of a query, got {type(counts).__name__}"
            )
        self._counts = counts
        self._binary = aggregator.binary
        self._classes = counts.classes if isinstance(counts, Votes) else None

    @property
    def shape(self) -> list[int] | None:
        """Classes and teachers, as far as they are known beforehand."""
        votes = self._counts
        return [votes.classes, votes.teachers] if isinstance(votes, Votes) else None

    def queries(self, asked: int | None) -> int:
        """How many queries there are."""
        if not isinstance(self._counts, Votes):
            if asked is None:
                raise InvalidArgument("queries must be given with a function, got None")
            return asked
        if asked is not None and asked > self._counts.queries:
            raise InvalidArgument(
                f"queries must be at most the {self._counts.queries} voted on, got {asked!r}"
            )
        return self._counts.queries if asked is None else asked

    def row(self, query: int) -> Counts:
        """The counts of a query."""
        if isinstance(self._counts, Votes):
            found = self._counts.counts[query]
        else:
            found = np.asarray(self._counts(query))
        whole = found.dtype.kind in "iu" and found.ndim == 1 and found.size >= 2
        if not whole or found.min() < 0 or found.max() > LARGEST_COUNT:
            raise InvalidArgument(
                f"counts of query {query} must be a row of two or more whole numbers, from 0 to "
                "2**36"
            )
        self._classes = self._classes or found.size
        if found.size != self._classes or (self._binary and found.size != 2):
            raise InvalidArgument(
                f"counts of query {query} must be of {2 if self._binary else self._classes} "
                f"classes, got {found.size}"
            )
        result: Counts = found.astype(np.int64)
        return result
