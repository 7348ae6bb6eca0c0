"""A labelling run and the budget that it is charged to: declared whole, granted bit by bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tacit._validation import unit_of_privacy
from tacit.accounting.events import check_adjacency
from tacit.errors import InvalidArgument, LedgerError, TamperedLedger
from tacit.randomness import UnsafeSeededStream

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget, Release, Reservation
    from tacit.randomness import Stream
    from tacit.transfer.journal import Journal


@final
class Account:
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
        self._journal: Journal | None = None
        self._granted = 0  # by the ledger to this journal, and to no other

    @property
    def entry(self) -> int | None:
        """The number of the ledger's entry that holds the charge."""
        return None if self._reservation is None else self._reservation.number

    def begin(self, release: Release, steps: int, announced: int, last: int, run: Journal) -> None:
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
        """Returns when so many more are in the ledger, synced.

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


def check_budget(budget: object) -> None:
    """Refuses what is no budget."""
    if budget is None:
        return
    from tacit.ledger import Budget  # noqa: PLC0415 - only those who keep a ledger

    if not isinstance(budget, Budget):
        raise InvalidArgument(
            "budget must be a budget of a ledger, ledger.open(name, epsilon, delta), "
            f"got {budget!r}"
        )


def agreed(
    budget: Budget | None, stream: Stream | None, adjacency: Adjacency | None, unit: str | None
) -> tuple[Adjacency, str]:
    """Adjacency and unit of a run: as said, or the budget's, or for one example, add-remove.

    Refuses what is no budget, and a budget beside noise that can be drawn again.
    """
    check_budget(budget)
    if budget is not None and isinstance(stream, UnsafeSeededStream):
        raise InvalidArgument(
            "stream must be left out with a budget: noise from a seed can be taken off again, so "
            "nothing can be charged for it"
        )
    return (
        check_adjacency(adjacency or (budget.adjacency if budget else "add-remove")),
        unit_of_privacy(unit or (budget.unit if budget else "example")),
    )
