"""Reverse-kNN (arXiv 2207.13253): private records vote for public points, all at once.

Each private record gives its label to the k public points that are nearest to it, and the table of
counts, a row for each public point and a column for each class, is released once with noise. Here
the neighbours are sought among *public* points, so that a record's votes depend on this record
alone: nobody is pushed out by it, and no sample is needed. Labels of public points, confidences and
a student are made from the table without any further cost.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.special import ndtr

from tacit import mechanisms
from tacit._validation import open_probability, positive, whole
from tacit.accounting.events import Gaussian, check_adjacency, distance
from tacit.errors import InvalidArgument
from tacit.transfer.neighbours import (
    Neighbours,
    as_rows,
    on_grid,
    private_labels,
    private_rows,
)

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike, NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.randomness import Stream

    Reals = NDArray[np.float64]

_BLOCK = 8192  # records whose neighbours are sought at a time
_LEAST = 1e-300  # deviation: below it, a lead of one vote is as sure as can be


@final
@dataclass(frozen=True, eq=False, slots=True)
class Tally:
    """The noisy table, and what follows from it without any further cost.

    Args:
        released: The table (a row for each public point, a column for each class), with its event.
        deviation: The standard deviation of the noise in each of its numbers. Public.
    """

    released: Released[Reals]
    deviation: float

    def pooled(self, near: NDArray[np.int64]) -> Tally:
        """The table for other public points, each the sum over the points in its row of ``near``.

        With many points, few votes fall to each, and noise drowns them. The sum over those nearest
        to an image, ``Neighbours(points).nearest(images, 20)``, has the votes of a cluster around
        that very image: better than the one cluster it happens to lie in, and post-processing.
        """
        table: Reals = self.released.value[near].sum(axis=1)
        return Tally(replace(self.released, value=table), self.deviation * math.sqrt(near.shape[1]))

    @property
    def labels(self) -> NDArray[np.int64]:
        """Each public point's class of the largest noisy count."""
        found: NDArray[np.int64] = np.argmax(self.released.value, axis=1).astype(np.int64)
        return found

    @property
    def confidence(self) -> Reals:
        """How sure it is that noise alone did not decide: Φ(lead/(√2·deviation)), from 1/2 to 1.

        The lead is that of the first class over the second in the noisy table. Noise so small
        that its deviation is 0 in floating point decides nothing but ties.
        """
        ranked = np.sort(self.released.value, axis=1)
        lead = ranked[:, -1] - ranked[:, -2]
        with np.errstate(over="ignore"):
            found: Reals = ndtr(lead / (math.sqrt(2.0) * max(self.deviation, _LEAST)))
        return found


@final
@dataclass(frozen=True, slots=True)
class ReverseKnn:
    """Each private record votes with its label for its ``k`` nearest public points.

    Give ``epsilon`` for Laplace noise (the geometric mechanism), ``epsilon`` and ``delta`` for the
    least Gaussian noise that meets them, or ``noise_multiplier`` for Gaussian noise of that many
    times √k.

    Guarantee:
        A record adds 1 to k counts, of its class at k different points. So adding or removing it
        moves the table by k in L1 and √k in L2. Replacing it takes k votes away and adds k others:
        2k in L1 and √(2k) in L2, reached where the classes differ. The noise is measured by that:
        Laplace noise has the scale k/ε (add-remove) or 2k/ε (replace-one). The public points must
        not depend on private data: their number and places are public. The number of records is
        protected. No record is refused: a row with an entry that is missing, no number or infinite
        counts as 0, and one whose label is no class votes for nobody.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> centres = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> rows = np.repeat([[0.9, 0.2], [0.1, 0.7]], 500, axis=0)
    >>> tally = ReverseKnn(classes=3, epsilon=0.5).label(rows, [2] * 500 + [0] * 500, centres,
    ...     stream=UnsafeSeededStream(0, "test"))
    >>> tally.labels.tolist(), tally.released.event
    ([2, 0], DiscreteLaplace(scale=2.0, sensitivity=1, replace_distance=2.0))
    """

    k: int = 1
    _: KW_ONLY
    classes: int
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        whole("k", self.k)
        whole("classes", self.classes, at_least=2)
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise InvalidArgument(
                "give either epsilon (with delta for Gaussian noise) or noise_multiplier, got "
                f"{self.epsilon!r} and {self.noise_multiplier!r}"
            )
        if self.delta is not None and self.epsilon is None:
            raise InvalidArgument(f"delta goes with epsilon, got {self.delta!r} without it")
        for name in ("epsilon", "noise_multiplier"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        if self.delta is not None:
            open_probability("delta", self.delta)

    def label(
        self,
        features: ArrayLike | torch.Tensor,
        labels: ArrayLike | torch.Tensor,
        points: ArrayLike | torch.Tensor,
        *,
        budget: Budget | None = None,
        stream: Stream | None = None,
        adjacency: Adjacency | None = None,
        unit: str | None = None,
        label: str = "",
        device: str | torch.device = "cpu",
    ) -> Tally:
        """Counts the private votes for the public ``points`` and releases the table.

        Args:
            features: The private records, a row for each, made from that record alone; an array,
                a tensor or a DataFrame.
            labels: Their classes, 0 to ``classes`` - 1.
            points: The public points, in the same features: images, or centres of clusters.
            budget: A ``tacit.ledger.Budget``, charged before noise is drawn.
            stream: The random bytes; a fresh secure stream unless a test gives another.
            adjacency: Which data sets are neighbours; the budget's, or ``"add-remove"``.
            unit: Whom it protects, of whom a row is all there is; the budget's, or ``"example"``.
            label: A name for the ledger.
            device: Where the neighbours are sought.
        """
        given = check_adjacency(adjacency or (budget.adjacency if budget else "add-remove"))
        counts = votes_for(features, labels, points, k=self.k, classes=self.classes, device=device)
        return self._tally(counts, given, budget, stream, unit, label)

    def declared(self, *, adjacency: Adjacency = "add-remove") -> Event:
        """What is declared before a run: the event of the table that ``label`` releases."""
        nobody = np.zeros((1, self.classes), dtype=np.int64)
        return self._tally(nobody, check_adjacency(adjacency)).released.event

    def _tally(
        self,
        counts: NDArray[np.int64],
        given: Adjacency,
        budget: Budget | None = None,
        stream: Stream | None = None,
        unit: str | None = None,
        label: str = "",
    ) -> Tally:
        """The table with noise, released."""
        name = label or "tacit.transfer, reverse-kNN"
        moved = self.k * distance(2.0, given)  # counts that a neighbour moves, each by 1
        if self.epsilon is not None and self.delta is None:
            released = mechanisms.discrete_laplace(
                counts, sensitivity=int(moved), epsilon=self.epsilon, adjacency=given, unit=unit,
                budget=budget, label=name, stream=stream,
            )  # fmt: skip
            return Tally(released, _laplace_deviation(moved / self.epsilon))
        # A multiplier is in units of √k, and the mechanism's in those of what a neighbour moves.
        multiplier = self.noise_multiplier and self.noise_multiplier * math.sqrt(self.k / moved)
        released = mechanisms.gaussian(
            counts, sensitivity=math.sqrt(moved), epsilon=self.epsilon, delta=self.delta,
            noise_multiplier=multiplier, adjacency=given, unit=unit, budget=budget, label=name,
            stream=stream,
        )  # fmt: skip
        event = released.event
        assert isinstance(event, Gaussian)
        return Tally(released, event.sigma * math.sqrt(moved))


def votes_for(
    features: ArrayLike | torch.Tensor,
    labels: ArrayLike | torch.Tensor,
    points: ArrayLike | torch.Tensor,
    *,
    k: int,
    classes: int,
    device: str | torch.device = "cpu",
) -> NDArray[np.int64]:
    """How many records of each class have each point among their ``k`` nearest. Private.

    >>> rows = np.array([[1.0, 0.0], [1.0, 0.1]])
    >>> votes_for(rows, [1, 1], [[2.0, 0.0], [0.0, 2.0]], k=1, classes=2)
    array([[0, 2],
           [0, 0]])
    """
    given, rows = as_rows("points", points), private_rows("features", features)
    if rows.shape[1] != given.shape[1]:
        raise InvalidArgument(
            f"features must have as many columns as points, which have {given.shape[1]}, got "
            f"{rows.shape[1]}"
        )
    if whole("k", k) > len(given) > 0:
        raise InvalidArgument(f"k must be at most the {len(given)} public points, got {k}")
    places = Neighbours(given, device=device)
    known = private_labels(labels, classes, records=len(rows))
    counts = np.zeros((len(places), classes), dtype=np.int64)
    for start in range(0, len(rows), _BLOCK):
        some = slice(start, start + _BLOCK)
        voting = known[some] >= 0
        near = places.first(on_grid("features", rows[some][voting]), k)
        np.add.at(counts, (near, known[some][voting, np.newaxis]), 1)
    return counts


def _laplace_deviation(scale: float) -> float:
    """Of whole-number noise with P(x) ∝ exp(-|x|/scale): √(2r)/(1 - r) with r = e^{-1/scale}."""
    return math.sqrt(2.0) * math.exp(-0.5 / scale) / -math.expm1(-1.0 / scale)
