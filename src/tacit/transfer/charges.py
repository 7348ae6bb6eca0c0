"""What a labelling run is charged: so much for a screening, so much for an answer.

Why the declared event covers every run. How many queries are answered, and which, is itself an
outcome: a screening decides whether there is one more release. What a run may release is bounded
beforehand all the same, by ``queries`` screenings and ``answers`` answers, after which it ends.
Given all earlier releases, each of them is dominated by its own fixed event, so that

- of Gaussians the sum of μ² is at most the declared one for sure, and a fully adaptive sequence
  with a sure bound on Σμ² is no worse than one Gaussian of that μ (Koskela, Tobaben & Honkela 2023;
  Smith & Thakurta 2022);
- of one kind of event (LNMax, GNMax), a run that ends early can be thought to go on with releases
  that ignore the data: ordinary adaptive composition of fixed events, for pure ones by Dwork et
  al. 2006;
- of any two kinds, screenings and answers are two interactive mechanisms of fixed events each, and
  a run takes turns between them as it likes: concurrent composition (Vadhan & Zhang 2023).

A run that answered less than was declared has the declared cost. Nothing is taken back: how much it
answered depends on chance and on the data.

An account then connects the run to a budget: declared whole, granted release by release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit._validation import whole
from tacit.accounting.events import Composed, Repeated, check_event
from tacit.errors import InvalidArgument, LedgerError, TamperedLedger

if TYPE_CHECKING:
    from tacit.accounting.events import Event
    from tacit.ledger import Budget, Release, Reservation
    from tacit.transfer.journal import LabelJournal


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
    """What is charged for one screening and for one answer.

    Args:
        screening: Of each query that is screened; None if none is.
        answer: Of each query that is answered; None if its screening is charged for both.

    >>> from tacit.accounting import Gaussian
    >>> Charges(screening=Gaussian(150.0), answer=Gaussian(40.0)).declared(queries=9, answers=4)
    Composed(Repeated(event=Gaussian(sigma=150.0, replace_distance=2.0), times=9), \
Repeated(event=Gaussian(sigma=40.0, replace_distance=2.0), times=4))
    """

    screening: Event | None
    answer: Event | None

    def __post_init__(self) -> None:
        if self.screening is None and self.answer is None:
            raise InvalidArgument("screening or answer must be an event, got None for both")
        for one in (self.screening, self.answer):
            if one is not None:
                check_event(one)

    @property
    def both(self) -> tuple[Event | None, Event | None]:
        """The two events."""
        return self.screening, self.answer

    def declared(self, *, queries: int, answers: int | None = None) -> Event:
        """What is declared before a run: every query screened, at most ``answers`` answered.

        Guarantee:
            It covers all that such a run tells, however many queries turn out to be answered. The
            argument is in this module's docstring.
        """
        asked, answered = checked_numbers(queries, answers)
        if self.screening is None:
            assert self.answer is not None
            return _times(self.answer, answered)
        screened = _times(self.screening, asked)
        return (
            screened if self.answer is None else Composed(screened, _times(self.answer, answered))
        )

    def steps(self, *, queries: int, answers: int | None = None) -> int:
        """How many releases that is, each granted by itself."""
        asked, answered = checked_numbers(queries, answers)
        return asked * (self.screening is not None) + answered * (self.answer is not None)


def checked_numbers(queries: int, answers: int | None) -> tuple[int, int]:
    """How many queries a run has, and how many of them it answers at most."""
    asked = whole("queries", queries)
    answered = asked if answers is None else whole("answers", answers)
    if answered > asked:
        raise InvalidArgument(f"answers must be at most queries = {asked}, got {answers!r}")
    return asked, answered


def _times(event: Event, times: int) -> Repeated:
    if isinstance(event, Repeated):
        return Repeated(event.event, event.times * times)
    return Repeated(event, times)


@final
class LabellingAccount:
    """Grants releases of one run: all that it asks for without a budget, else what is reserved.

    The journal announces first, the ledger grants next, and only then is anything drawn. So a
    journal never announces less than the ledger granted, and more only by its last announcement,
    which was granted whole or not at all: who puts back an older copy of either is found out.

    Of two runs that go on from copies of one journal, the ledger grants to the first that asks. The
    other's count is wrong from then on: it is granted nothing, and its journal is ended.
    """

    def __init__(self, budget: Budget | None, label: str) -> None:
        self._budget = budget
        self._label = label
        self._reservation: Reservation | None = None
        self._journal: LabelJournal | None = None
        self._granted = 0  # by the ledger to this journal, and to no other

    @property
    def entry(self) -> int | None:
        """The number of the ledger's entry that holds the charge."""
        return None if self._reservation is None else self._reservation.number

    def begin(
        self, release: Release, steps: int, announced: int, last: int, run: LabelJournal
    ) -> None:
        """Reserves ``release``, or finds the reservation of a run that goes on.

        ``announced`` of its ``steps`` are in the journal, ``last`` of them in its last line.
        """
        if self._budget is None:
            return
        detail = {"labelling": run.run}
        found = self._found(detail) if run.kept else None
        if found is None:
            if announced:
                raise TamperedLedger(
                    f"the budget {self._budget.name!r} has no reservation of this journal: it is "
                    "another ledger or an older copy; bring the newest one back"
                )
            found = self._budget.reserve(release, steps=steps, label=self._label, detail=detail)
        self._reservation, self._journal, self._granted = found, run, found.granted
        if self._granted > announced:
            raise TamperedLedger(
                f"the journal announces {announced} releases, of which the ledger granted "
                f"{self._granted}: it is an older copy; bring the newest one back"
            )
        if self._granted not in (announced - last, announced):
            raise TamperedLedger(
                f"the ledger granted {self._granted} of {announced} releases that the journal "
                "announces: one of them is an older copy; bring the newest one back"
            )
        self.grant(announced - self._granted)

    def grant(self, releases: int) -> None:
        """Returns when this number more is in the ledger, synced.

        Raises:
            LedgerError: if that many are not left, or another run was granted some; nothing may be
                drawn then.
        """
        if self._reservation is None or releases == 0:
            return
        granted = self._reservation.lease(releases, after=self._granted)
        if granted < releases:
            assert self._journal is not None
            self._journal.end()  # what it announced last may look as if granted to it later
            raise LedgerError(
                f"{self._reservation!r} was ended or used by another run: {granted} of {releases} "
                "releases were granted; go on with the journal of that run, not with a copy"
            )
        self._granted += granted

    def end(self) -> None:
        """Grants nothing more; the whole stays charged if anything was granted."""
        if self._reservation is not None:
            self._reservation.end()

    def _found(self, detail: dict[str, str]) -> Reservation | None:
        assert self._budget is not None
        books = self._budget.ledger.refresh()
        for known in books.of(self._budget.name):
            if known.detail == detail:
                return self._budget.reservation(known.number)
        return None
