"""Runs that take one query at a time, because what they do next depends on earlier answers.

They are charged, announced and recorded as ``tacit.transfer.label`` does it, with the same journal
and the same account: the whole is reserved before the first query, and each query is announced, and
granted, before noise is drawn for it. ``label_interactively`` compares the votes with a student's
scores first; ``label_stable`` is sparse-vector PATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, final

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.mechanisms.release import ReleaseTerms, agreed
from tacit.randomness import fresh_stream
from tacit.transfer import journal as stages
from tacit.transfer import vote_noise
from tacit.transfer.charges import LabellingAccount, checked_numbers
from tacit.transfer.journal import LabelJournal, journal_terms
from tacit.transfer.labels import Answers
from tacit.transfer.stable_max import StableMax, distances, opened

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.mechanisms import SparseVector
    from tacit.randomness import Stream
    from tacit.transfer.aggregators import InteractiveGNMax
    from tacit.transfer.journal import LabellingState
    from tacit.transfer.votes import Votes


_LOST = (stages.LOST_SCREENING, stages.LOST_ANSWER)


@final
class Turns:
    """Where such a run stands; a context that holds its journal.

    Args:
        votes: Whose rows are the queries, in this order.
        setting: The public numbers of the run; a journal of others is refused.
        event: What the whole run is charged.
        terms: Whose neighbours count, whom it protects, and the budget to charge.
        two_steps: Whether an answer is granted by itself, after its query was.
        labels: How many different labels the journal may hold.
        journal: A file by which the run can be resumed, or None.
    """

    def __init__(
        self,
        votes: Votes,
        setting: object,
        event: Event,
        *,
        terms: ReleaseTerms,
        two_steps: bool,
        labels: int,
        journal: str | os.PathLike[str] | None,
    ) -> None:
        self._terms, self._event, self._two_steps = terms, event, two_steps
        self._account = LabellingAccount(terms.budget, terms.label)
        settings = {
            "aggregator": repr(setting),
            "queries": votes.queries,
            "votes": [votes.classes, votes.teachers],
            **journal_terms(terms),
        }
        self._journal = LabelJournal(journal, settings, votes.queries, labels)
        self.stream = fresh_stream("votes") if terms.stream is None else terms.stream

    def __enter__(self) -> Self:
        from tacit.ledger import Release  # noqa: PLC0415 - only those who keep a ledger

        self._journal.__enter__()
        record = self.record
        screened, answered = record.last
        try:
            self._account.begin(
                Release(self._event, self._terms.adjacency, self._terms.unit),
                len(record.labels) * (1 + self._two_steps),
                record.screenings + self._two_steps * record.answers,
                screened + self._two_steps * answered,
                self._journal,
            )
        except BaseException:
            self._journal.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._journal.close()

    @property
    def record(self) -> LabellingState:
        """How far each query got, and what was released."""
        return self._journal.record

    @property
    def resumed(self) -> bool:
        """Whether this run was begun before, and is to go on."""
        return self._journal.resumed and not self.record.ended

    @property
    def over(self) -> bool:
        """Whether no query is left, or the run was ended."""
        return self.record.ended or self.record.next == len(self.record.labels)

    def ask(self) -> int:
        """The next query, announced and granted: noise may be drawn for it now."""
        query = self.record.next
        self._journal.screen([query])
        self._account.grant(1)
        return query

    def answer(self, query: int) -> None:
        """Announces that the query asked last gets a label, and grants it if it is charged."""
        self._journal.answer([query])
        if self._two_steps:
            self._account.grant(1)

    def tell(self, query: int, label: int) -> None:
        """Notes the label of an announced answer."""
        self._journal.tell(query, label)

    def pass_over(self) -> None:
        """Notes that the query asked last gets none."""
        self._journal.answer([])

    def end(self) -> None:
        """Asks nothing more."""
        if not self.record.ended:
            self._journal.end()
            self._account.end()

    def answers(self, labels: NDArray[np.int64]) -> Answers:
        """What the run released."""
        return Answers(
            labels,
            self.record.stages != stages.WAITING,
            np.isin(self.record.stages, _LOST),
            self._event,
            self._terms.adjacency,
            self._terms.unit,
            self._account.entry,
            self.record.ended,
        )


# ---- Interactive-GNMax


def label_interactively(
    votes: Votes,
    setting: InteractiveGNMax,
    student: Callable[[NDArray[np.int64]], NDArray[np.floating]],
    *,
    every: int,
    answers: int | None = None,
    budget: Budget | None = None,
    journal: str | os.PathLike[str] | None = None,
    stream: Stream | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    label: str = "",
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[Answers, NDArray[np.bool_]]:
    """Asks the teachers where they disagree with the student; releases labels and their source.

    Guarantee:
        All that is released is covered by ``setting.declared`` (each check is charged, and each of
        at most ``answers`` answers), which is reserved whole before anything is drawn; each check
        and each answer is granted before its noise is. It holds if ``student`` uses nothing but
        public points and the labels that it is given. Reinforced labels cost their check alone.

    Args:
        votes: The votes; their rows are the queries, in this order.
        setting: How far votes and scores must be apart, and the noise.
        student: Given all labels so far (-1: none), the student's scores for all queries, a row
            each that adds up to 1.
        every: After how many queries the student is trained again.
        answers: A public cap: the run ends after this number of the teachers' answers.
        budget: A ``tacit.ledger.Budget``, charged before anything is drawn.
        journal: A file, made if it is not there, by which the run can be resumed.
        stream: The random bytes; a fresh secure stream unless a test gives another.
        adjacency: Which data sets are neighbours; the budget's, or ``"add-remove"``.
        unit: Whom it protects; the budget's, or ``"example"``.
        label: A name for the ledger.
        progress: Called with the number of queries checked and of labels, both public.
        stop: Asked before each query; if it is true, the run stops and can be resumed.

    Returns:
        The labels, and which of them the teachers gave; the others were reinforced.
    """
    each = whole("every", every)
    asked, most = checked_numbers(votes.queries, answers)
    run = Turns(
        votes,
        (setting, most),
        setting.declared(queries=asked, answers=most),
        terms=agreed(
            "label_interactively", adjacency, unit, budget,
            label or "tacit.transfer, label_interactively", stream,
        ),
        two_steps=True,
        labels=2 * votes.classes,  # reinforced labels are counted apart
        journal=journal,
    )  # fmt: skip
    kept = _Labels(votes.classes)
    with run:
        scores: NDArray[np.float64] | None = None
        while not run.over and kept.answers(run.record) < most:
            if stop is not None and stop():
                break
            if scores is None or run.record.next % each == 0:
                scores = _checked_scores(student(kept.labels(run.record)), votes)
            _one(run, votes, setting, scores, kept)
            if progress is not None:
                progress(run.record.next, int((run.record.labels >= 0).sum()))
        else:
            run.end()
    return run.answers(kept.labels(run.record)), kept.by_teachers(run.record)


@final
class _Labels:
    """How the journal tells labels apart: j by the teachers, m + j for a reinforced j."""

    def __init__(self, classes: int) -> None:
        self._classes = classes

    def reinforced(self, label: int) -> int:
        return self._classes + label

    def labels(self, record: LabellingState) -> NDArray[np.int64]:
        found = record.labels
        result: NDArray[np.int64] = np.where(found >= 0, found % self._classes, -1)
        return result

    def by_teachers(self, record: LabellingState) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = (record.labels >= 0) & (record.labels < self._classes)
        return result

    def answers(self, record: LabellingState) -> int:
        """How many answers of the teachers were given, or may have been."""
        lost = int((record.stages == stages.LOST_ANSWER).sum())
        return int(self.by_teachers(record).sum()) + lost


def _one(
    run: Turns,
    votes: Votes,
    setting: InteractiveGNMax,
    scores: NDArray[np.float64],
    kept: _Labels,
) -> None:
    query = run.ask()
    counts, own = votes.counts[query], scores[query]
    drawn = vote_noise.gaussian(setting.screening_sigma, 1, run.stream)
    if setting.disagrees(counts, own, int(drawn[0])):
        run.answer(query)
        drawn = vote_noise.gaussian(setting.sigma, votes.classes, run.stream)
        run.tell(query, vote_noise.winner(counts, drawn))
    elif own.max() > setting.confidence:
        run.answer(query)
        run.tell(query, kept.reinforced(int(np.argmax(own))))
    else:
        run.pass_over()


def _checked_scores(scores: NDArray[np.floating], votes: Votes) -> NDArray[np.float64]:
    found = np.asarray(scores, dtype=np.float64)
    if found.shape != (votes.queries, votes.classes):
        raise InvalidArgument(
            f"student must give scores of shape ({votes.queries}, {votes.classes}), a row for each "
            f"query, got {found.shape}"
        )
    if not ((found >= 0.0).all() and np.allclose(found.sum(axis=1), 1.0, atol=1e-3)):
        raise InvalidArgument("student must give scores, zero or above, that add up to 1 in a row")
    return found


# ---- sparse-vector PATE

# A round's threshold noise is in memory only. A run that is resumed cannot continue the round that
# was open, so it closes it: either a query was lost in flight, or the next one is given up unasked.
# Both count as unstable, so that no more rounds are drawn than were charged.
_CLOSING = (stages.SCREENED_OUT, stages.LOST_SCREENING, stages.LOST_ANSWER)


def label_stable(
    votes: Votes,
    setting: StableMax,
    *,
    budget: Budget | None = None,
    journal: str | os.PathLike[str] | None = None,
    stream: Stream | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    label: str = "",
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Answers:
    """Releases the winner of each query that is found stable, until ``setting.cutoff`` were not.

    Guarantee:
        All that is released is covered by ``setting.declared``, which is charged, whole, before any
        noise is drawn (``tacit.transfer.stable_max`` says why). With a journal an
        interrupted run continues without asking a query twice; that costs it a round.

    Args:
        votes: The votes; their rows are the queries, in this order.
        setting: How stable a query must be, and how many may fail.
        budget: A ``tacit.ledger.Budget``, charged before anything is drawn.
        journal: A file, made if it is not there, by which the run can be resumed.
        stream: The random bytes; a fresh secure stream unless a test gives another.
        adjacency: Which data sets are neighbours; the budget's, or ``"add-remove"``.
        unit: Whom it protects; the budget's, or ``"example"``.
        label: A name for the ledger.
        progress: Called with the number of queries asked and of answers, both public.
        stop: Asked before each query; if it is true, the run stops and can be resumed.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> from tacit.transfer.votes import Votes
    >>> votes = Votes(np.array([[990, 10], [0, 1000], [501, 499], [3, 997], [500, 500], [9, 991]]))
    >>> setting = StableMax.for_budget(2.0, 1e-5, queries=6, cutoff=2)
    >>> label_stable(votes, setting, stream=UnsafeSeededStream(0, "test")).labels.tolist()
    [0, 1, -1, 1, -1, -1]
    """
    far, winners = distances(votes), np.argmax(votes.counts, axis=1)
    run = Turns(
        votes,
        setting,
        setting.declared(queries=votes.queries),
        terms=agreed(
            "label_stable", adjacency, unit, budget, label or "tacit.transfer, label_stable", stream
        ),
        two_steps=False,
        labels=votes.classes,
        journal=journal,
    )
    with run:
        open_round: SparseVector | None = None
        if run.resumed and not run.over and _is_open(run.record):
            run.ask()
            run.pass_over()
        while not run.over and _closed(run.record) < setting.cutoff:
            if stop is not None and stop():
                return run.answers(run.record.labels.copy())
            query = run.ask()
            open_round = open_round or opened(setting, run.stream)
            if open_round.above(-float(far[query])):
                run.pass_over()
                open_round = None
            else:
                run.answer(query)
                run.tell(query, int(winners[query]))
            if progress is not None:
                progress(run.record.next, int((run.record.labels >= 0).sum()))
        run.end()
    return run.answers(run.record.labels.copy())


def _closed(record: LabellingState) -> int:
    """How many rounds have ended; each query lost in flight ended one."""
    return int(np.isin(record.stages, _CLOSING).sum())


def _is_open(record: LabellingState) -> bool:
    """Whether the query asked last was found stable, so that its round's noise was in use."""
    return record.next > 0 and bool(record.stages[record.next - 1] == stages.ANSWERED)
