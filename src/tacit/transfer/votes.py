"""Votes: how many teachers gave each class to each query, and where a run takes them from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from tacit._files import read_array
from tacit._validation import whole
from tacit.errors import DataError, InvalidArgument
from tacit.transfer.vote_noise import LARGEST_COUNT

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.transfer.aggregators import Aggregator

    Counts = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Votes:
    """The counts of one ensemble: a row for each query, a column for each class.

    Every row adds up to the number of teachers: each teacher votes once on each query. The counts
    are copied and cannot be changed. They are private, and so is whatever is computed from them
    alone; a printed ``Votes`` shows its shape only.

    >>> votes = Votes(np.array([[200, 30, 20], [150, 60, 40]]))
    >>> votes, votes.gaps().tolist()
    (Votes(queries=2, classes=3, teachers=250), [[170, 180], [90, 110]])
    """

    counts: Counts

    def __post_init__(self) -> None:
        counts = _integers("counts", self.counts)
        if counts.ndim != 2 or counts.shape[0] < 1 or counts.shape[1] < 2:
            raise InvalidArgument(
                "counts must have one row per query and one column per class (two or more), "
                f"got shape {counts.shape}"
            )
        totals = counts.sum(axis=1)
        if (totals != totals[0]).any() or not 1 <= totals[0] <= LARGEST_COUNT:
            raise InvalidArgument(
                "counts must add up to the same number of teachers, 1 or more and at most 2**36, "
                "in every row; every teacher votes once on every query"
            )
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)

    @classmethod
    def from_labels(cls, labels: NDArray[Any], classes: int) -> Votes:
        """Counts the labels that teachers gave: a row for each teacher, a column for each query.

        ``classes`` is not read off the labels: a class that nobody voted for is one still.

        >>> Votes.from_labels(np.array([[0, 2], [0, 1], [1, 2]]), classes=4).counts.tolist()
        [[2, 1, 0, 0], [0, 1, 2, 0]]
        """
        width = whole("classes", classes, at_least=2)
        given = _integers("labels", labels)
        if given.ndim != 2 or 0 in given.shape:
            raise InvalidArgument(
                "labels must have one row per teacher and one column per query, "
                f"got shape {given.shape}"
            )
        if given.max() >= width:
            raise InvalidArgument(f"labels must lie between 0 and classes - 1 = {width - 1}")
        queries = given.shape[1]
        cells = given + width * np.arange(queries)
        return cls(np.bincount(cells.ravel(), minlength=queries * width).reshape(queries, width))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        holds: Literal["counts", "labels"],
        classes: int | None = None,
    ) -> Votes:
        """Reads votes made elsewhere from an ``.npy`` file; nothing in it is executed.

        Args:
            path: The file.
            holds: ``"counts"`` (a row for each query) or ``"labels"`` (a row for each teacher).
            classes: The number of classes. Needed for labels; checked against counts if given.
        """
        if holds not in ("counts", "labels"):
            raise InvalidArgument(f"holds must be 'counts' or 'labels', got {holds!r}")
        if holds == "labels" and classes is None:
            raise InvalidArgument("classes must be given with holds='labels', got None")
        found = _read(Path(path))
        try:
            if holds == "labels":
                assert classes is not None
                return cls.from_labels(found, classes)
            votes = cls(found)
        except InvalidArgument as error:
            raise DataError(f"{path} does not hold votes: {error}") from None
        if classes is not None and votes.classes != whole("classes", classes, at_least=2):
            raise DataError(f"{path} holds votes on {votes.classes} classes, not on {classes}")
        return votes

    @property
    def queries(self) -> int:
        """The number of queries."""
        return int(self.counts.shape[0])

    @property
    def classes(self) -> int:
        """The number of classes, m."""
        return int(self.counts.shape[1])

    @property
    def teachers(self) -> int:
        """The number of teachers, n."""
        return int(self.counts[0].sum())

    def largest(self) -> Counts:
        """The count of each query's first class. Private."""
        result: Counts = self.counts.max(axis=1)
        return result

    def gaps(self) -> Counts:
        """By how much each query's first class leads each of the others, ascending. Private."""
        ranked = np.sort(self.counts, axis=1)[:, ::-1]
        return ranked[:, :1] - ranked[:, 1:]

    def __len__(self) -> int:
        return self.queries

    def __repr__(self) -> str:
        return f"Votes(queries={self.queries}, classes={self.classes}, teachers={self.teachers})"


def _integers(name: str, value: object) -> Counts:
    """A copy of ``value`` if it holds whole numbers, zero or above; of floats, too, if whole.

    A refusal tells none of them.
    """
    given = np.asarray(value)
    if given.dtype.kind not in "iuf":
        raise InvalidArgument(f"{name} must be whole numbers, got an array of {given.dtype}")
    if given.dtype.kind == "f" and not np.array_equal(given, np.floor(given)):
        raise InvalidArgument(f"{name} must be whole numbers, got fractions or nan")
    if given.size and (given.min() < 0 or given.max() > LARGEST_COUNT):
        raise InvalidArgument(f"{name} must lie between 0 and 2**36")
    return np.array(given, dtype=np.int64, order="C", copy=True)


def _read(path: Path) -> NDArray[Any]:
    try:
        return read_array(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise DataError(f"{path} is no .npy file of numbers: {error}") from None


@final
class VoteSource:
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
