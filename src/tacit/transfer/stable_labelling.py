"""The loop of sparse-vector PATE: charges a run, asks until enough was unstable, and records.

A round's threshold noise is in memory only. A run that goes on after it was cut off or stopped
cannot go on with the round that was open, so it closes it: either a query was lost in flight, or
the next one is given up unasked. Both count as unstable, so that no more rounds are drawn than were
charged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.transfer import journal as stages
from tacit.transfer.sparse_vector_votes import StableMax, distances, opened
from tacit.transfer.turns import Turns

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.mechanisms import SparseVector
    from tacit.randomness import Stream
    from tacit.transfer.answers import Answers
    from tacit.transfer.journal import Record
    from tacit.transfer.votes import Votes

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
    """Tells the winner of each query that is found stable, until ``setting.cutoff`` were not.

    Guarantee:
        All that is told is covered by ``setting.declared``, which is charged, whole, before any
        noise is drawn (``tacit.transfer.sparse_vector_votes`` says why). With a journal a run that
        was cut off goes on without asking a query twice; that costs it a round.

    Args:
        votes: The votes; their rows are the queries, in this order.
        setting: How stable a query must be, and how many may fail.
        budget: A ``tacit.ledger.Budget``, charged before anything is drawn.
        journal: A file, made if it is not there, by which the run can be resumed.
        stream: The random bytes; a fresh secure stream unless a test gives another.
        adjacency: Which data sets are neighbours; the budget's, or ``"add-remove"``.
        unit: Whom it protects; the budget's, or ``"example"``.
        label: A name for the ledger.
        progress: Called with the number of queries asked and of answers told, both public.
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
        two_steps=False,
        labels=votes.classes,
        budget=budget,
        journal=journal,
        stream=stream,
        adjacency=adjacency,
        unit=unit,
        label=label or "tacit.transfer, label_stable",
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


def _closed(record: Record) -> int:
    """How many rounds have ended; each query lost in flight ended one."""
    return int(np.isin(record.stages, _CLOSING).sum())


def _is_open(record: Record) -> bool:
    """Whether the query asked last was found stable, so that its round's noise was in use."""
    return record.next > 0 and bool(record.stages[record.next - 1] == stages.TOLD)
