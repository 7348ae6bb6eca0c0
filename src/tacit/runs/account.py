"""A run's charges: everything it will release is in the ledger before the first release."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, final

from tacit._validation import printable
from tacit.accounting.serialization import as_dict
from tacit.errors import InvalidArgument, LedgerError
from tacit.statement import Charge
from tacit.training.charging import detail_of
from tacit.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.accounting.events import Event
    from tacit.ledger import Budget, Release, RequestState, Reservation
    from tacit.runs.recipe import Outline


@final
class RunAccount:
    """The budget of one run, which the ledger knows by ``label``; or none.

    ``opening`` gives the budget. It is called when the budget is first needed, so that a run which
    is refused before that has not even made a ledger. With ``request``, the run draws on what was
    approved under that number, and reserves nothing by itself.

    Guarantee:
        ``reserve`` charges a run once, over all its crashes and resumptions.
    """

    def __init__(
        self, opening: Callable[[], Budget] | None, label: str, request: int | None = None
    ) -> None:
        self._opening = opening
        self._request = request
        self._budget: Budget | None = None
        self.label = label
        self.reservation: Reservation | None = None
        self._others: tuple[Reservation, ...] = ()

    @property
    def budget(self) -> Budget | None:
        """The budget, open."""
        if self._budget is None and self._opening is not None:
            self._budget = self._opening()
        return self._budget

    @property
    def place(self) -> dict[str, str] | None:
        """The ledger's address, without a password, its id, the budget's name, and the request."""
        budget = self.budget
        if budget is None:
            return None
        request = {} if self._request is None else {"request": str(self._request)}
        ledger = budget.ledger
        return {"ledger": ledger.location, "id": ledger.identity, "name": budget.name, **request}

    def plan_for(self, outline: Outline) -> Plan:
        """The plan to go by: the outline's, or the one that was approved if it is the same.

        Raises:
            InvalidArgument: if another plan was approved, or the run releases more than its plan.
        """
        if self._request is None:
            return outline.plan
        budget = self.budget
        assert budget is not None  # a request is in a ledger
        from tacit.ledger.approval import request_of  # noqa: PLC0415 - only with a ledger

        known = request_of(budget.ledger.refresh(), self._request)
        return _approved(known, budget.name, outline)

    def reserve(self, plan: Plan, also: Sequence[Event]) -> None:
        """Charges the plan, and declares what else is released where the budget wants that."""
        budget = self.budget
        if budget is None:
            return
        from tacit.ledger import Release, draw  # noqa: PLC0415 - only those who keep a ledger

        if self._request is not None:
            self.reservation = draw(budget.ledger, self._request, run=self.label)
            return
        self.reservation = self._found(budget, plan)
        if self.reservation is not None:
            return
        training = Release(plan.event, plan.adjacency, plan.unit)
        if budget.composition == "declared" and not self._declared(budget):
            others = [Release(one, plan.adjacency, plan.unit) for one in also]
            self._others = budget.declare([*others, training], label=self.label)[:-1]
        self.reservation = budget.reserve(
            training, steps=plan.steps, label=self.label, detail=detail_of(plan, plan.steps)
        )

    def check_room(self, events: Sequence[Event]) -> None:
        """Refuses a run without a plan that the budget does not hold, before anything is begun."""
        budget = self.budget
        if budget is None or (budget.composition == "declared" and self._declared(budget)):
            return
        budget.check_room(_releases(budget, events))

    def declare(self, events: Sequence[Event]) -> None:
        """Declares what a run without a plan will release, where the budget wants that."""
        budget = self.budget
        if budget is None or budget.composition != "declared" or self._declared(budget):
            return
        self._others = budget.declare(_releases(budget, events), label=self.label)

    def abandon(self) -> None:
        """Gives all of it up if nothing was taken: the run never began."""
        held = (*self._others, *((self.reservation,) if self.reservation else ()))
        if any(one.granted for one in held):
            return
        with suppress(LedgerError):  # what is not given up stays charged, which is safe
            if self._request is not None:
                self._put_back(self._request)
                return
            for one in held:
                one.end()

    def _put_back(self, request: int) -> None:
        """What was approved stays approved: the next run may draw on it."""
        from tacit.ledger import undraw  # noqa: PLC0415 - only those who keep a ledger

        if self.reservation is not None and self._budget is not None:
            undraw(self._budget.ledger, request)

    def describe(self) -> str | None:
        """Where the run is charged, for a statement; None without a budget."""
        budget = self.budget
        if budget is None:
            return None
        ledger = budget.ledger
        return f"the budget {budget.name!r} in {printable(ledger.location)}, head {ledger.head}"

    def charge(self) -> Charge | None:
        """The same for a program that looks it up in the ledger."""
        budget = self.budget
        if budget is None:
            return None
        ledger = budget.ledger
        return Charge(
            ledger=ledger.identity, location=printable(ledger.location), budget=budget.name,
            reservation=None, head=str(ledger.head),
        )  # fmt: skip

    def _declared(self, budget: Budget) -> bool:
        """Whether this run declared its plans before it was interrupted."""
        entries = budget.ledger.history(budget.name)
        return any(one.kind == "declare" and one.data["label"] == self.label for one in entries)

    def _found(self, budget: Budget, plan: Plan) -> Reservation | None:
        """This run's own reservation, from before it was interrupted."""
        detail = detail_of(plan, plan.steps)
        budget.ledger.refresh()
        for known in budget.ledger.books.of(budget.name):
            if known.label == self.label and known.detail is not None:
                if known.detail != detail:
                    raise InvalidArgument(
                        f"the budget {budget.name!r} holds another plan of this run; resume it "
                        "with the settings it was started with"
                    )
                return budget.reservation(known.number)
        return None


def _approved(known: RequestState, budget: str, outline: Outline) -> Plan:
    """The plan of a request, if the run is by that plan up to the last digits."""
    if outline.also:
        raise InvalidArgument(
            f"request {known.number} covers a plan, and this run also releases something before it "
            "trains; charge it to a budget without a request"
        )
    asked = Plan.from_dict((known.detail or {}).get("plan"))
    own = outline.plan
    same = own.taken_up(asked) or own
    for one in fields(Plan):
        mine, theirs = getattr(same, one.name), getattr(asked, one.name)
        if one.compare and mine != theirs:
            raise InvalidArgument(
                f"{one.name} must be {theirs!r} as request {known.number} has it, got {mine!r}; "
                "run it as it was approved, or file another request"
            )
    if as_dict(same.event) != known.event or known.budget != budget:
        raise InvalidArgument(
            f"request {known.number} is for another budget or event than its plan; file another"
        )
    return same


def _releases(budget: Budget, events: Sequence[Event]) -> list[Release]:
    """``events`` as the budget is charged for them."""
    from tacit.ledger import Release  # noqa: PLC0415 - only those who keep a ledger

    return [Release(one, budget.adjacency, budget.unit) for one in events]
