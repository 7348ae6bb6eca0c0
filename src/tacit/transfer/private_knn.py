"""Private-kNN (Zhu et al. 2020): the private records nearest to a query vote on its label.

No teacher is trained. Each query is put to a fresh Poisson sample of the private records, and the
k sampled records nearest to it in a feature space vote; the votes are answered as in PATE, by GNMax
or Confident-GNMax. How little a record moves the votes is shown at ``SampledVotes``.

**What a query costs.** Sampling and noise are one release: ``PoissonSampled(rate, Gaussian(…))``,
in units of √2 votes for an answer and of 1 for a screening. A query that is screened and answered
from one sample is one sampled composition, charged whole when it is screened; with two samples each
is a release of its own, and a query that is screened out costs its screening only.

**Why the declared event covers a run** in which the number of answers is a matter of chance. Each
release is, given what was released before, a randomised function of a fixed pair of laws (Blackwell
1953; Zhu, Dong & Wang 2022, Definition 7). Draw all pairs that are declared beforehand: a run uses
them up in an order that depends on what it saw, and some not at all. All it releases is made from
the whole draw, which is what the accountant composes.

**The published figure.** Zhu et al. report ε = 0.47 (δ = 1e-5) for 735 answers on MNIST. Their
configuration (rate 0.15, k = 300, 1,000 queries screened with σ1 = 75, answers with σ = 25) costs
ε = 0.883 by the exact accountant if screening and answer use a sample each, 0.849 for the answers
alone, and 1.035 with one sample for both, as their code has it; the calls of that code to autodp
0.2.3.1 give 1.179 (``benchmarks/neighbours.py``). It also samples with replacement, which is not
what it accounts for: a record may vote twice.

**Sampling buys no accuracy.** At a given ε, σ is proportional to the rate as long as it is above
four or so, and k/rate records of the whole set decide a query: a rate of 1 with all records, k and
σ larger in proportion, is as good or better, and has the same cost under each adjacency. A small
rate leaves less to compute, no more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, final

import numpy as np

from tacit._validation import probability, whole
from tacit.accounting.events import Composed, PoissonSampled
from tacit.errors import InvalidArgument
from tacit.randomness import fresh_stream, included
from tacit.transfer import labels
from tacit.transfer.aggregators import ConfidentGNMax, GNMax
from tacit.transfer.charges import Charges
from tacit.transfer.neighbours import Neighbours, private_labels, private_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import torch
    from numpy.typing import ArrayLike, NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.randomness import Stream
    from tacit.transfer.labels import Answers

    Places = NDArray[np.int64]


@final
class PrivateKnn:
    """Private records that vote on queries, with what each query costs.

    Guarantee:
        What ``label`` releases is covered by ``declared``, for a record that is added, removed,
        replaced or zeroed out, if each row of ``features`` is a function of one record alone (and
        of what is public). Who was sampled, and the votes, are not released. How many records there
        are is protected: nothing is set by it. No record is refused: a row with an entry that is
        missing, no number or infinite counts as 0, and one whose label is no class votes for
        nobody. How long it takes is not covered.

    Args:
        features: The private records, a row for each, as an array, a tensor or a DataFrame;
            neighbours are those of largest cosine.
        labels: Their classes, 0 to ``classes`` - 1.
        classes: How many classes there are.
        k: How many of the sampled records vote on a query; all, if a sample has fewer.
        rate: The probability that a record is sampled for a query; at 1 all are.
        aggregator: How the votes are answered.
        samples: Whether screening and answer share one sample or have ``"two"``.
        device: Where neighbours are sought.

    >>> import numpy as np
    >>> from tacit.randomness import UnsafeSeededStream
    >>> rows = np.repeat([[1.0, 0.1], [0.1, 1.0]], 1000, axis=0)
    >>> crowd = PrivateKnn(rows, np.repeat([0, 1], 1000), classes=2, k=60, rate=0.1,
    ...     aggregator=GNMax(sigma=8.0))
    >>> crowd.declared(queries=2)
    Repeated(event=PoissonSampled(rate=0.1, event=Gaussian(sigma=5.65685424949238, \
replace_distance=1.0), cap=None, population=None), times=2)
    >>> crowd.label([[0.9, 0.2], [0.0, 1.0]], stream=UnsafeSeededStream(0, "test")).labels.tolist()
    [0, 1]
    """

    def __init__(
        self,
        features: ArrayLike | torch.Tensor,
        labels: ArrayLike | torch.Tensor,
        *,
        classes: int,
        k: int,
        rate: float,
        aggregator: GNMax | ConfidentGNMax,
        samples: Literal["shared", "two"] = "two",
        device: str | torch.device = "cpu",
    ) -> None:
        if not isinstance(aggregator, GNMax | ConfidentGNMax):
            raise InvalidArgument(
                f"aggregator must be GNMax or ConfidentGNMax, got {aggregator!r}; sampled Laplace "
                "answers have no exact accountant"
            )
        if samples not in ("shared", "two"):
            raise InvalidArgument(f"samples must be 'shared' or 'two', got {samples!r}")
        self.classes = whole("classes", classes, at_least=2)
        self.k = whole("k", k)
        self.rate = probability("rate", rate)
        self.aggregator = aggregator
        self.samples = samples
        rows = private_rows("features", features)
        self._labels = private_labels(labels, classes, records=len(rows))
        if len(rows) == 0:  # as if somebody voted for nobody: that there is nobody must not show
            rows, self._labels = np.zeros((1, rows.shape[1])), np.full(1, -1)
        self._near = Neighbours(rows, device=device)

    @property
    def charges(self) -> Charges:
        """What one screening and one answer are charged, whatever the data."""
        plain = self.aggregator.charges
        if plain.screening is None or plain.answer is None:
            return Charges(screening=None, answer=PoissonSampled(self.rate, self.aggregator.answer))
        if self.samples == "shared":
            both = PoissonSampled(self.rate, Composed(plain.screening, plain.answer))
            return Charges(screening=both, answer=None)
        return Charges(
            screening=PoissonSampled(self.rate, plain.screening),
            answer=PoissonSampled(self.rate, plain.answer),
        )

    def declared(self, *, queries: int, answers: int | None = None) -> Event:
        """What is declared before a run: every query asked, at most ``answers`` answered."""
        return self.charges.declared(queries=queries, answers=answers)

    def label(
        self,
        queries: ArrayLike | torch.Tensor,
        *,
        answers: int | None = None,
        budget: Budget | None = None,
        journal: str | os.PathLike[str] | None = None,
        stream: Stream | None = None,
        adjacency: Adjacency | None = None,
        unit: str | None = None,
        label: str = "",
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Answers:
        """Asks the crowd about public points, one after the other, and releases noisy labels.

        Args:
            queries: The features of the public points, a row for each; which points, and in what
                order, must not depend on private data but through what was released.
            answers: A public cap: the run ends after this number of answers.
            budget: As in ``tacit.transfer.label``, like all that follow.
            journal: A file by which the run can be resumed.
            stream: The random bytes, of the samples and of the noise.
            adjacency: Which data sets are neighbours.
            unit: Whom it protects, of whom a row is all there is.
            label: A name for the ledger.
            progress: Called with the number of queries asked and of answers.
            stop: Asked now and then; if it is true, the run stops and can be resumed.
        """
        asked = self._near.prepared(queries)
        votes = SampledVotes(
            self._near, self._labels, asked, classes=self.classes, k=self.k, rate=self.rate,
            stream=fresh_stream("samples") if stream is None else stream,
        )  # fmt: skip
        return labels.label(
            votes, self.aggregator, queries=len(asked), answers=answers, charges=self.charges,
            fresh=self.samples == "two", budget=budget, journal=journal, stream=stream,
            adjacency=adjacency, unit=unit, label=label or "tacit.transfer, Private-kNN",
            progress=progress, stop=stop,
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"PrivateKnn(classes={self.classes}, k={self.k}, rate={self.rate:g}, "
            f"aggregator={self.aggregator!r}, samples={self.samples!r})"
        )


_CELLS = 1 << 22  # ranked neighbours that are held at a time


@final
class SampledVotes:
    """Counts the votes on one query after the other, each time from a fresh sample.

    **One record in the sample moves little.** Let S be a sample without a record x, and v(S) the
    counts of its k nearest. Adding x leaves the order of the others as it is (``Neighbours``), so
    that

    - x is not among the k nearest of S + x: nothing changes;
    - it is, and S has k records or more: x joins the voters and the last of them drops out, so that
      one count grows by 1 and one falls by 1 (or none, if the two are of one class);
    - it is, and S has fewer: all vote, and one count grows by 1.

    A record without a class votes for nobody: of the counts above, what it would add is left out.
    So v(S + x) and v(S) are √2 apart at most, and their largest counts 1. Replacing x by y: the k
    nearest of S + x and of S + y are those of S with the last dropped out for x, for y, for both or
    for neither, and differ in one voter at most: again √2 and 1. Nothing here uses how far a record
    is from the query, or whether two are equally far: only that the order is total, and blind to
    the others.

    **The coins may be thrown after the ranking.** The k nearest of a sample are the first k of the
    sampled ones in the ranking of all records, because the order of two records does not depend on
    the rest. So all records are ranked once (as far as is likely to be needed), each query throws
    one coin for every record, and the first k with a coin up vote: not only the law but each
    outcome is that of sampling first, and a record is in once or not at all.

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
