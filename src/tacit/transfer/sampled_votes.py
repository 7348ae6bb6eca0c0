"""The votes of Private-kNN: of a fresh Poisson sample, the k nearest to a query vote.

**One record in the sample moves little.** Let S be a sample without a record x, and v(S) the counts
of its k nearest. Adding x leaves the order of the others as it is (``Neighbours``), so that

- x is not among the k nearest of S + x: nothing changes;
- it is, and S has k records or more: x joins the voters and the last of them drops out, so that one
  count grows by 1 and one falls by 1 (or none, if the two are of one class);
- it is, and S has fewer: all vote, and one count grows by 1.

A record without a class votes for nobody: of the counts above, what it would add is left out. So
v(S + x) and v(S) are √2 apart at most, and their largest counts 1. Replacing x by y: the k
nearest of S + x and of S + y are those of S with the last dropped out for x, for y, for both or for
neither, and differ in one voter at most: again √2 and 1. Nothing here uses how far a record is from
the query, or whether two are equally far: only that the order is total, and blind to the others.

**The coins may be thrown after the ranking.** The k nearest of a sample are the first k of the
sampled ones in the ranking of all records, because the order of two records does not depend on the
rest. So all records are ranked once (as far as is likely to be needed), each query throws one coin
for every record, and the first k with a coin up vote: not only the law but each outcome is that of
sampling first, and a record is in once or not at all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import numpy as np

from tacit.randomness import included

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.randomness import Stream
    from tacit.transfer.neighbours import Neighbours

    Places = NDArray[np.int64]

_CELLS = 1 << 22  # ranked neighbours that are held at a time


@final
class SampledVotes:
    """Counts the votes on one query after the other, each time from a fresh sample.

    Guarantee:
        Every call samples each record independently with probability ``rate`` (``included``), and
        no record votes twice in it. What it gives back is private.

    Args:
        near: The private records.
        labels: Their classes; -1 votes for nobody.
        queries: What is asked about, as ``near.prepared`` made it.
        classes: How many classes there are.
        k: How many of the sampled records vote; all if there are fewer.
        rate: The probability that a record is sampled.
        stream: Where the coins come from.
    """

    def __init__(
        self,
        near: Neighbours,
        labels: Places,
        queries: NDArray[np.float32],
        *,
        classes: int,
        k: int,
        rate: float,
        stream: Stream,
    ) -> None:
        self._near, self._labels, self._queries = near, labels, queries
        self._classes, self._k, self._rate, self._stream = classes, k, rate, stream
        self._depth = ranked_depth(k, rate, len(near))
        self._first, self._ranked = 0, np.empty((0, self._depth), dtype=np.int64)

    def __call__(self, query: int) -> Places:
        """The counts of each class for a query, given by its place, from a new sample."""
        sampled = included(len(self._near), self._rate, self._stream)
        coins = np.zeros(len(self._near), dtype=np.bool_)
        coins[sampled] = True
        ranking = self._ranking(query)
        voters = ranking[coins[ranking]][: self._k]
        if len(voters) < self._k and self._depth < len(self._near):
            voters = self._near.ranked(self._queries[query], sampled, self._k)
        known = self._labels[voters]
        return np.bincount(known[known >= 0], minlength=self._classes).astype(np.int64)

    def _ranking(self, query: int) -> Places:
        """The nearest records, found for a few queries at once because that is faster."""
        if not self._first <= query < self._first + len(self._ranked):
            rows = max(1, _CELLS // max(self._depth, 1))
            self._first = query - query % rows
            some = self._queries[self._first : self._first + rows]
            self._ranked = self._near.first(some, self._depth)
        row: Places = self._ranked[query - self._first]
        return row


def ranked_depth(k: int, rate: float, records: int) -> int:
    """How many of the nearest records hold k sampled ones but for one query in 10⁵ or so.

    >>> ranked_depth(300, 0.15, 60_000), ranked_depth(300, 1.0, 60_000), ranked_depth(5, 0.1, 20)
    (2587, 300, 20)
    """
    if rate == 1.0:
        return min(k, records)
    return min(records, math.ceil((k + 4.5 * math.sqrt(k) + 10.0) / max(rate, 1e-9)))
