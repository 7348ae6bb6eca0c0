"""A run and the budget that it is charged to: reserved whole, leased step by step, found again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, final

from tacit._validation import printable
from tacit.errors import CheckpointError, InvalidArgument, TamperedLedger
from tacit.statement import Charge, rounded_up
from tacit.training.leasing import Lease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.ledger import Budget, Reservation
    from tacit.ledger.budget import Chargeable
    from tacit.training.checkpoint import Stateful
    from tacit.training.plan import Plan

STATE = "tacit ledger"


@final
class Charges:
    """What a run may still do: everything its plan says, or what its budget grants.

    ``begin`` goes on with the reservation of a checkpoint, or refuses a plan that the budget does
    not hold; ``take`` comes before each lot is sampled, and the first reserves the plan; ``close``
    gives back what was granted and not used.
    """

    def __init__(self, budget: Budget | Reservation | None, lease: int | None) -> None:
        self._budget, self._reservation = _parts(budget)
        self._size = lease
        self._plan: tuple[Plan, int] | None = None  # what is to be reserved, and its last step
        self._lease: Lease | None = None
        self._taken = 0
        self.lost = 0  # steps that were charged to attempts whose results are gone

    def begin(self, plan: Plan, last_step: int, steps_taken: int) -> None:
        """Makes sure that the steps from ``steps_taken`` on can be charged; writes nothing.

        Guarantee:
            A reservation that was granted more steps than ``steps_taken`` has lost the others for
            good.
        """
        if self._budget is None:
            return
        self._taken, self._plan = steps_taken, (plan, last_step)
        if self._reservation is not None:
            self._budget.ledger.refresh()  # others may have gone on with it meanwhile
            self._check_same(plan, last_step)
            if steps_taken > self._reservation.granted:
                raise CheckpointError(
                    f"the checkpoint says that {steps_taken} steps were taken, and the ledger "
                    f"granted {self._reservation.granted}: it is not of this reservation"
                )
            self._lend(self._reservation)
        elif not self._budget.affordable(_release(plan, last_step)):
            self._lend(self._reserved())  # which says why it does not fit

    @property
    def has_more(self) -> bool:
        """Whether another step may be granted."""
        return self._reservation is None or self._reservation.left > 0

    def take(self) -> bool:
        """Charges one more step; False if the budget grants none.

        Guarantee:
            The whole plan is in the ledger, synced, when this returns for the first time; the step
            is, whenever it returns True.
        """
        if self._budget is None:
            return True
        if self._reservation is None:
            self._lend(self._reserved())
        assert self._lease is not None  # between begin and close
        assert self._reservation is not None
        if self._lease.take():
            self._taken += 1
            return True
        self.lost = self._reservation.granted - self._taken  # all that others took meanwhile, too
        return False

    def close(self) -> None:
        """Gives back what was granted and not used; harmless a second time."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    # ---- checkpoints and statements

    def state(self) -> dict[str, Stateful]:
        """What a checkpoint must hold of the ledger: nothing, if there is none."""
        return {} if self._budget is None else {STATE: self}

    def state_dict(self) -> dict[str, Any]:
        """Where the charge is, and the newest entry: an older copy of the ledger has it not."""
        budget, reservation = self._budget, self._reservation
        assert budget is not None
        return {
            "ledger": budget.ledger.identity,
            "budget": budget.name,
            "reservation": None if reservation is None else reservation.number,
            "head": str(budget.ledger.head),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Goes on with the reservation of a checkpoint that ``check_resumable`` let pass."""
        number = state_dict["reservation"]
        if number is not None:
            assert self._budget is not None
            self._reservation = self._budget.reservation(int(number))

    def describe(self) -> str | None:
        """Where the charge is, for a statement; None without a budget."""
        budget, reservation = self._budget, self._reservation
        if budget is None or reservation is None:
            return None
        charged = f"ε = {rounded_up(reservation.epsilon)} at δ = {reservation.delta:.6g}"
        return (
            f"reservation {reservation.number} ({charged}) of the budget {budget.name!r} "
            f"(ε = {budget.epsilon:g}, δ = {budget.delta:g} in all, composition "
            f"{budget.composition!r}) in {printable(budget.ledger.location)}, "
            f"head {budget.ledger.head}"
        )

    def charge(self) -> Charge | None:
        """The same for a program that looks it up in the ledger."""
        budget, reservation = self._budget, self._reservation
        if budget is None or reservation is None:
            return None
        return Charge(
            ledger=budget.ledger.identity,
            location=printable(budget.ledger.location),
            budget=budget.name,
            reservation=reservation.number,
            head=str(budget.ledger.head),
        )

    # ---- reserving

    def _reserved(self) -> Reservation:
        assert self._budget is not None
        assert self._plan is not None  # between begin and close
        plan, last_step = self._plan
        return self._budget.reserve(
            _release(plan, last_step),
            steps=last_step,
            label="training",
            detail=detail_of(plan, last_step),
        )

    def _lend(self, reservation: Reservation) -> None:
        """Takes steps from ``reservation`` from now on."""
        self._reservation = reservation
        self.lost = reservation.granted - self._taken
        self._lease = Lease(reservation, self._size)

    def _check_same(self, plan: Plan, last_step: int) -> None:
        assert self._reservation is not None
        if self._reservation.state.detail != detail_of(plan, last_step):
            raise InvalidArgument(
                f"budget must hold a reservation of this plan, got {self._reservation!r}, which is "
                "of another one or of another stop_after"
            )


def _release(plan: Plan, last_step: int) -> Chargeable:
    from tacit.ledger import Release  # noqa: PLC0415 - only those who keep a ledger

    return Release(plan.event_after(last_step), plan.adjacency, plan.unit)


def check_resumable(held: Mapping[str, Any] | None, budget: object, path: object) -> None:
    """Refuses to go on with a charged run without its budget, or with an uncharged one in one.

    Guarantee:
        The ledger holds the newest entry that the checkpoint knows: it is not an older copy.
    """
    if held is None and budget is not None:
        raise InvalidArgument(
            f"the checkpoint {path} is of a run without a budget: its steps were never charged, "
            "and cannot be now; go on without budget=, or start anew with it"
        )
    if held is None:
        return
    if set(held) != {"ledger", "budget", "reservation", "head"}:
        raise CheckpointError(f"the checkpoint {path} does not say where its run is charged")
    if budget is None:
        raise InvalidArgument(
            f"the checkpoint {path} is of a run that is charged to the budget {held['budget']!r}; "
            "pass budget=, so that the steps to come are counted"
        )
    _check_ledger(held, *_parts(budget))


def _check_ledger(
    held: Mapping[str, Any], budget: Budget | None, reservation: Reservation | None
) -> None:
    assert budget is not None
    ledger, number = budget.ledger, held["reservation"]
    place = f"reservation {number} of {held['budget']!r}"
    if (held["ledger"], held["budget"]) != (ledger.identity, budget.name):
        raise InvalidArgument(
            f"budget must be the one that the checkpoint's run is charged to ({place} in the "
            f"ledger {held['ledger']}), got {budget.name!r} of {ledger.identity}"
        )
    if not ledger.contains(str(held["head"])):
        raise TamperedLedger(
            f"the ledger {ledger.location} does not hold entry {held['head']}, which the "
            "checkpoint names: an older copy was put back; bring the newest one back"
        )
    if number is not None and reservation is not None and reservation.number != number:
        raise InvalidArgument(f"budget must be {place}, as in the checkpoint, got {reservation!r}")


def _parts(budget: object) -> tuple[Budget | None, Reservation | None]:
    if budget is None:
        return None, None
    from tacit.ledger import Budget, Reservation  # noqa: PLC0415 - only those who keep a ledger

    if isinstance(budget, Reservation):
        return budget.budget, budget
    if isinstance(budget, Budget):
        return budget, None
    raise InvalidArgument(
        "budget must be a budget of a ledger, ledger.open(name, epsilon, delta), or a reservation "
        f"of one to go on with, got {budget!r}"
    )


def detail_of(plan: Plan, last_step: int) -> dict[str, Any]:
    """What a reservation keeps of the run that it is for, by which the run finds it again."""
    return {"plan": json.loads(plan.to_json()), "last_step": last_step}
