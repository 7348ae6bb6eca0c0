"""A run that takes one query at a time, because what it does next depends on what it told.

It is charged, announced and recorded as ``tacit.transfer.label`` does it, with the same journal and
the same account: the whole is reserved before the first query, and each query is announced, and
granted, before noise is drawn for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, final

import numpy as np

from tacit.randomness import fresh_stream
from tacit.transfer import journal as stages
from tacit.transfer.answers import Answers
from tacit.transfer.charging import Account, agreed
from tacit.transfer.journal import Journal

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.randomness import Stream
    from tacit.transfer.journal import Record
    from tacit.transfer.votes import Votes

_LOST = (stages.LOST_SCREENING, stages.LOST_ANSWER)


@final
class Turns:
    """Where such a run stands; a context that holds its journal.

    Args:
        votes: Whose rows are the queries, in this order.
        setting: The public numbers of the run; a journal of others is refused.
        event: What the whole run is charged.
        two_steps: Whether an answer is granted by itself, after its query was.
        labels: How many different labels the journal may hold.
        budget: A ``tacit.ledger.Budget`` or None.
        journal: A file by which the run can be resumed, or None.
        stream: The random bytes; a fresh secure stream if None.
        adjacency: Which data sets are neighbours; the budget's, or add-remove, if None.
        unit: Whom it protects; the budget's, or each example, if None.
        label: A name for the ledger.
    """

    def __init__(
        self,
        votes: Votes,
        setting: object,
        event: Event,
        *,
        two_steps: bool,
        labels: int,
        budget: Budget | None,
        journal: str | os.PathLike[str] | None,
        stream: Stream | None,
        adjacency: Adjacency | None,
        unit: str | None,
        label: str,
    ) -> None:
        self._adjacency, self._unit = agreed(budget, stream, adjacency, unit)
        self._event = event
        self._two_steps = two_steps
        self._account = Account(budget, label)
        settings = {
            "aggregator": repr(setting),
            "queries": votes.queries,
            "votes": [votes.classes, votes.teachers],
            "adjacency": self._adjacency,
            "unit": self._unit,
            "budget": None if budget is None else [budget.ledger.identity, budget.name],
        }
        self._journal = Journal(journal, settings, votes.queries, labels)
        self.stream = fresh_stream("votes") if stream is None else stream

    def __enter__(self) -> Self:
        from tacit.ledger import Release  # noqa: PLC0415 - only those who keep a ledger

        self._journal.__enter__()
        record = self.record
        screened, told = record.last
        try:
            self._account.begin(
                Release(self._event, self._adjacency, self._unit),
                len(record.labels) * (1 + self._two_steps),
                record.screenings + self._two_steps * record.answers,
                screened + self._two_steps * told,
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
    def record(self) -> Record:
        """How far each query got, and what was told."""
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
        """What the run told."""
        return Answers(
            labels,
            self.record.stages != stages.WAITING,
            np.isin(self.record.stages, _LOST),
            self._event,
            self._adjacency,
            self._unit,
            self._account.entry,
            self.record.ended,
        )
