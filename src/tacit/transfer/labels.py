"""The loop that charges, asks and records: from votes to noisy labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tacit.accounting.serialization import as_dict
from tacit.errors import InvalidArgument
from tacit.mechanisms.release import agreed
from tacit.randomness import fresh_stream
from tacit.transfer import journal as stages
from tacit.transfer.charges import Charges, LabellingAccount, checked_numbers
from tacit.transfer.journal import LabelJournal, journal_terms
from tacit.transfer.votes import VoteSource

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget, Release
    from tacit.randomness import Stream
    from tacit.transfer.aggregators import Aggregator
    from tacit.transfer.votes import Votes

    Counts = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What a labelling run released, and the event that covers it; ``tacit.ledger`` can charge it.

    Args:
        labels: One for each query, in the order asked; -1 where there is no answer.
        asked: Which queries were screened or answered, or may have been.
        lost: Which of these were in flight when a run was interrupted. They are not asked again.
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
        count, all_ = int(self.answered.sum()), len(self.labels)
        return f"Answers({count} of {all_} queries answered, {self.event!r})"


# Queries that are announced at a time: 16, then four times as many each time, up to a share of all.
# Longer blocks need fewer syncs; shorter ones lose less in a crash, and end sooner when one wants
# to stop. Where a block ends shows in which queries were asked: sizes are public numbers, and do
# not depend on the time that private counts take.
_FIRST, _MOST, _SHARE = 16, 256, 32
_AHEAD = 256  # queries whose noise is drawn at a time
_KEPT = 2048  # queries that may lie between a screening and its answer


def label(
    counts: Votes | Callable[[int], NDArray[np.int64]],
    aggregator: Aggregator,
    *,
    queries: int | None = None,
    answers: int | None = None,
    charges: Charges | None = None,
    fresh: bool = False,
    budget: Budget | None = None,
    journal: str | os.PathLike[str] | None = None,
    stream: Stream | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    label: str = "",
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Answers:
    """Asks query after query, and releases noisy labels.

    Guarantee:
        All that is released is covered by the event declared beforehand, ``charges.declared``:
        every query screened, at most ``answers`` answered (``tacit.transfer.charges`` says why).
        With a budget the whole is reserved first, and each screening and answer is granted, in the
        ledger and synced, before its noise meets the votes. With a journal an interrupted run
        continues without asking a query twice, and what was in flight is lost. When a run ends
        depends on public numbers and on earlier answers; never on what it cost by a data-dependent
        count.

    Args:
        counts: The votes; or a function that gives the counts of the query with a number, once for
            each query that is asked (and again for its answer, if ``fresh``).
        aggregator: How a query is answered.
        queries: How many there are; all of ``Votes`` unless fewer are said.
        answers: A public cap: the run ends after this number of answers, which is at most queries.
        charges: What a screening and an answer are charged, if not what the aggregator says: of
            counts that are themselves of a sample.
        fresh: Whether an answer takes new counts, not those that were screened.
        budget: A ``tacit.ledger.Budget``, charged before anything is drawn.
        journal: A file, made if it is not there, by which the run can be resumed.
        stream: The random bytes; a fresh secure stream unless a test gives another.
        adjacency: Which data sets are neighbours; the budget's, or ``"add-remove"``.
        unit: Whom it protects; the budget's, or ``"example"``.
        label: A name for the ledger.
        progress: Called with the number of queries asked and of answers, both public.
        stop: Asked now and then; if it is true, the run stops and can be resumed.

    >>> from tacit.transfer.aggregators import ConfidentGNMax
    >>> from tacit.transfer.votes import Votes
    >>> from tacit.randomness import UnsafeSeededStream
    >>> votes = Votes(np.array([[240, 10], [20, 230], [125, 125]]))
    >>> answers = label(votes, ConfidentGNMax(threshold=200, screening_sigma=10, sigma=5),
    ...     stream=UnsafeSeededStream(0, "test"))
    >>> answers.labels.tolist()
    [0, 1, -1]
    """
    terms = agreed("label", adjacency, unit, budget, label or "tacit.transfer, label", stream)
    source = VoteSource(counts, aggregator)
    asked, cap = checked_numbers(source.queries(queries), answers)
    costs = _charges(aggregator, charges)
    settings = {
        "aggregator": repr(aggregator),
        "charges": [None if one is None else as_dict(one) for one in costs.both],
        "queries": asked,
        "answers": cap,
        "votes": source.shape,
        **journal_terms(terms),
    }
    kept = LabelJournal(journal, settings, asked, None if source.shape is None else source.shape[0])
    account = LabellingAccount(terms.budget, terms.label)
    drawn = fresh_stream("votes") if stream is None else stream
    run = _Run(source, aggregator, costs, cap, kept, account, drawn, fresh)
    from tacit.ledger import Release  # noqa: PLC0415 - only those who keep a ledger

    release = Release(costs.declared(queries=asked, answers=cap), terms.adjacency, terms.unit)
    with kept:
        run.begin(release)
        complete = run.go_on(progress, stop)
    return run.answers(release, complete=complete)


@final
class _Run:
    """A run: what it is charged, where it stands, and the noise it has drawn."""

    def __init__(
        self,
        source: VoteSource,
        aggregator: Aggregator,
        charges: Charges,
        answers: int,
        journal: LabelJournal,
        account: LabellingAccount,
        stream: Stream,
        fresh: bool,
    ) -> None:
        self._source = source
        self._aggregator = aggregator
        self._charges = charges
        self._answers = answers
        self._noise = NoiseAhead(aggregator, stream)
        self._fresh = fresh
        self.journal = journal
        self.account = account

    def begin(self, release: Release) -> None:
        """Makes sure that the whole is charged, and that ledger and journal agree."""
        record = self.journal.record
        self.account.begin(
            release,
            self._charges.steps(queries=len(record.labels), answers=self._answers),
            self._steps(record.screenings, record.answers),
            self._steps(*record.last),
            self.journal,
        )

    def go_on(
        self, progress: Callable[[int, int], None] | None, stop: Callable[[], bool] | None
    ) -> bool:
        """Asks what was not asked yet; False if it was stopped before the end."""
        record, size = self.journal.record, _FIRST
        most = min(_MOST, max(_FIRST, len(record.labels) // _SHARE))
        while not record.ended:
            if stop is not None and stop():
                return False
            self._block(size)
            size = min(4 * size, most)
            if progress is not None:
                progress(record.next, int((record.labels >= 0).sum()))
        self.account.end()
        return True

    def answers(self, release: Release, *, complete: bool) -> Answers:
        """What was asked and answered so far."""
        record, aggregator = self.journal.record, self._aggregator
        return Answers(
            record.labels.copy(),
            record.stages != stages.WAITING,
            np.isin(record.stages, (stages.LOST_SCREENING, stages.LOST_ANSWER)),
            release.event,
            release.adjacency,
            release.unit,
            self.account.entry,
            complete,
            aggregator if self._charges == aggregator.charges else None,
        )

    def _block(self, size: int) -> None:
        """Screens and answers the next queries, or ends the run if none may follow."""
        record = self.journal.record
        left = self._answers - record.answers
        last = min(record.next + size, len(record.labels))
        if self._charges.screening is None:
            last = min(last, record.next + left)
        queries = range(record.next, last)
        if not queries or not left:
            self.journal.end()
            return
        rows: dict[int, Counts] = {}
        passed = list(queries)
        if self._charges.screening is not None:
            self.journal.screen(queries)
            self.account.grant(self._steps(len(queries), 0))
            rows = {query: self._source.row(query) for query in queries}
            passed = [query for query in queries if self._passes(query, rows[query])][:left]
        self.journal.answer(passed)
        self.account.grant(self._steps(0, len(passed)))
        for query in passed:
            known = None if self._fresh else rows.get(query)
            row = self._source.row(query) if known is None else known
            drawn = self._noise.answer(query, len(row))
            self.journal.tell(query, self._aggregator.respond(row, drawn))

    def _passes(self, query: int, row: Counts) -> bool:
        return self._aggregator.passes(row, self._noise.screening(query, len(row)))

    def _steps(self, screenings: int, answers: int) -> int:
        """How many of them are charged, each as one step."""
        costs = self._charges
        return screenings * (costs.screening is not None) + answers * (costs.answer is not None)


def _charges(aggregator: Aggregator, charges: Charges | None) -> Charges:
    if charges is None:
        return aggregator.charges
    if (charges.screening is None) != (aggregator.screening is None):
        raise InvalidArgument(
            f"charges must have a screening just if the aggregator has one, got {charges!r}"
        )
    return charges


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
