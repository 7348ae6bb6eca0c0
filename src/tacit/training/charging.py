"""A run and the budget that it is charged to: reserved whole, leased step by step, found again."""

from __future__ import annotations

import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, final

from tacit._numbers import at_most
from tacit._validation import printable
from tacit.accounting.serialization import as_dict, from_dict
from tacit.errors import CheckpointError, InvalidArgument, LedgerError, TamperedLedger
from tacit.statement import Charge, rounded_up
from tacit.training.sampling import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from tacit.ledger import Budget, Reservation
    from tacit.ledger.budget import Chargeable
    from tacit.training.checkpoint import Stateful
    from tacit.training.distributed.world import World
    from tacit.training.plan import Plan

STATE = "tacit ledger"
_SHARE = 0.005  # of training time that a thread may compute; all in all 1 % is allowed
_PARTS = 20  # of a reservation: a crash costs no more than one of them, however fast steps are
_GROWTH = 8  # of a window, at most, over what was asked for last: a first write may be slow


@final
class StepCharges:
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

    def forgo(self, steps: int) -> None:
        """Charges ``steps`` that are never taken; they are lost."""
        for _ in range(steps):
            if self._lease is None or not self._lease.take():
                return
            self.lost += 1

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
        charged = f"ε = {rounded_up(reservation.epsilon)} at δ = {at_most(reservation.delta)}"
        return (
            f"reservation {reservation.number} ({charged}) of the budget {budget.name!r} "
            f"(ε = {at_most(budget.epsilon)}, δ = {at_most(budget.delta)} in all, composition "
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
        self._lease = Lease(reservation, self._size, alone=_goes_on(self._plan))

    def _check_same(self, plan: Plan, last_step: int) -> None:
        """Refuses a reservation of another plan; its detail is what whoever made it wrote."""
        from tacit.ledger.replay import alike  # noqa: PLC0415 - only those who keep a ledger

        assert self._reservation is not None
        assert self._budget is not None
        held, budget = self._reservation.state, self._budget
        same = (held.detail, held.steps) == (detail_of(plan, last_step), last_step)
        same &= (budget.adjacency, budget.unit) == (plan.adjacency, plan.unit)
        charged, needed = from_dict(held.event), plan.event_after(last_step)
        if not same or not alike(as_dict(charged), as_dict(needed)):
            raise InvalidArgument(
                f"budget must hold a reservation of this plan, got {self._reservation!r}, which is "
                "of another one or of another stop_after"
            )


@final
class FollowedCharges:
    """What several processes may still do: rank 0 charges, and the others wait for its word.

    Guarantee:
        ``take`` returns True on any rank only if the step is in the ledger, synced. Whatever the
        ledger refuses, all ranks refuse.
    """

    def __init__(self, world: World, own: StepCharges, given: bool) -> None:
        self._world, self._own = world, own
        self._given = given
        self._known: dict[str, Any] = {"lost": 0, "more": True, "in": None, "charge": None}
        self._sent = ""  # what the others know of the ledger

    def begin(self, plan: Plan, last_step: int, steps_taken: int) -> None:
        """See ``StepCharges``."""
        budgets = self._world.all_say("whether there is a budget", self._given)
        if any(budgets) and not budgets[0]:
            raise InvalidArgument(
                "budget must be given on rank 0, which charges for all ranks, got None there"
            )
        self._heard("the budget", lambda: self._own.begin(plan, last_step, steps_taken))

    @property
    def has_more(self) -> bool:
        """See ``StepCharges``."""
        return bool(self._known["more"])

    @property
    def lost(self) -> int:
        """See ``StepCharges``."""
        return int(self._known["lost"])

    def take(self) -> bool:
        """See ``StepCharges``. Every rank calls it, for every lot."""
        return bool(self._heard("a new lot", self._own.take))

    def forgo(self, steps: int) -> None:
        """See ``StepCharges``. Every rank calls it, with the same number."""
        self._heard("the rest of an epoch", lambda: self._own.forgo(steps))

    def close(self) -> None:
        """See ``StepCharges``: waits for nobody, for ranks leave as they come."""
        self._own.close()
        if self._world.leads:
            self._known = self._facts()

    def state(self) -> dict[str, Stateful]:
        """See ``StepCharges``: only rank 0 writes it, and only rank 0 reads it."""
        return self._own.state() if self._world.leads else {}

    def describe(self) -> str | None:
        """See ``StepCharges``; other ranks know it as of the last charge."""
        said: str | None = self._known["in"]
        return said

    def charge(self) -> Charge | None:
        """See ``StepCharges``; other ranks know it as of the last charge."""
        parts = self._known["charge"]
        return None if parts is None else Charge(**parts)

    def _heard(self, what: str, act: Callable[[], Any]) -> Any:
        def say() -> list[Any]:
            result = act()
            facts = json.dumps(self._facts())
            news, self._sent = (None if facts == self._sent else facts), facts
            return [result, news]

        result, news = self._world.said(what, say)
        if news is not None:
            self._known = json.loads(news)
        return result

    def _facts(self) -> dict[str, Any]:
        own = self._own
        charge = own.charge()
        return {
            "lost": own.lost, "more": own.has_more, "in": own.describe(),
            "charge": None if charge is None else asdict(charge),
        }  # fmt: skip


def charges_of(
    world: World, budget: Budget | Reservation | None, lease: int | None
) -> StepCharges | FollowedCharges:
    """The charges of a run, of one process or of several."""
    if world.is_alone:
        return StepCharges(budget, lease)
    own = StepCharges(budget if world.leads else None, lease)
    return FollowedCharges(world, own, budget is not None)


def _goes_on(planned: tuple[Plan, int] | None) -> bool:
    """Whether a step is the reservation's next or none: groups take turns, noise or epochs go on.

    Of two runs from copies of one checkpoint the second would release lots of an epoch again, and
    each would begin epochs of its own, which are charged whole: more of them than are paid for.
    """
    if planned is None:
        return False
    return planned[0].correlation is not None or isinstance(planned[0].sampling, Allocation)


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
            "and cannot be now; go on without budget=, or start again with it"
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
        # One of the run's own: nobody else can give back what it leases.
        return budget.budget, budget.budget.reservation(budget.number)
    if isinstance(budget, Budget):
        return budget, None
    raise InvalidArgument(
        "budget must be a budget of a ledger, ledger.open(name, epsilon, delta), or a reservation "
        f"of one to go on with, got {budget!r}"
    )


def detail_of(plan: Plan, last_step: int) -> dict[str, Any]:
    """What a reservation keeps of the run that it is for, by which the run finds it again."""
    return {"plan": json.loads(plan.to_json()), "last_step": last_step}


# ---- steps charged in advance: taken one by one, and renewed in the background while they last


@final
class Lease:
    """A window of steps of a reservation that are written to the ledger before they are taken.

    At most ``size`` steps are granted and not yet done at any time, the current one included. Once
    half of them are done, a thread asks for as many again, so that training does not wait for the
    disk. Without a ``size`` the window is as small as it can be for all this to take less than 1 %
    of the time, about a second of training; but never more than 5 % of the reservation's steps.

    Guarantee:
        ``take`` returns True only if the step is in the ledger, synced. A crash leaves at most
        ``size`` steps charged that were not done, and never one done that is not charged. A forked
        child has none of its parent's steps.
    """

    def __init__(self, reservation: Reservation, size: int | None, *, alone: bool = False) -> None:
        """If it must be ``alone``, nothing more is granted once another took of the reservation."""
        self._reservation = reservation
        self._expected = reservation.granted if alone else None
        self._fixed = size is not None
        self.size = 1 if size is None else size
        self._home = os.getpid()
        self._held = 0  # granted, and not yet taken
        self._low = 0  # with this few held it is time to ask for more
        self._coming: Future[int] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._trouble = False  # the latest write failed: now the loop itself asks, and raises
        self._dry = False  # less was granted than asked for: there is no more to come
        self._asked = 1  # steps, the last time
        self._cost = (0.0, 0.0)  # seconds of the latest write: of a processor, and on the clock
        self._taken = 0
        self._since: tuple[int, float] | None = None  # steps taken, and when, at the last look

    def take(self) -> bool:
        """Takes one step; the one before is done. False if the reservation has none left.

        Raises:
            LedgerError: if the ledger cannot be written. Nothing is taken then.
        """
        if self._home != os.getpid():
            self._forget()
        if self._held <= self._low:
            self._refill()
            if self._held == 0:
                return False
        self._held -= 1
        self._taken += 1
        return True

    def close(self) -> None:
        """Gives back what was granted and not taken; a spent reservation is ended."""
        if self._home != os.getpid():
            return
        if self._coming is not None:
            self._collect()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        back, self._held = self._held, 0
        if back and self._expected is not None:
            self._reservation.give_back(back, after=self._expected)
        elif back:
            self._reservation.give_back(back)
        elif self._reservation.left == 0:
            self._reservation.end()

    def _forget(self) -> None:
        """Holds nothing, as a forked child must: steps and thread are its parent's."""
        self._home, self._held = os.getpid(), 0
        self._coming = self._thread = None
        self._trouble = self._dry = False

    # ---- asking

    def _refill(self) -> None:
        """Brings in what is there, and asks for what the window lacks: waits only if it must."""
        if self._coming is not None and (self._held == 0 or self._coming.done()):
            self._collect()
        if self._coming is None:
            self._resize()
            if self._held == 0:
                self._ask()
            self._ask_ahead()

    def _ask(self) -> None:
        # A write that failed may stand all the same. With one step now, both are one lease.
        steps, self._trouble = 1 if self._trouble else self.size, True
        self._held = self._granted(steps)
        self._trouble = False

    def _ask_ahead(self) -> None:
        missing = self.size - self._held  # the step about to be taken is one of those held
        quiet = self._trouble or self._dry
        if not quiet and missing > 0 and 2 * missing >= self.size:
            self._thread = self._thread or ThreadPoolExecutor(1, "tacit-lease")
            self._coming = self._thread.submit(self._granted, missing)
        self._low = 0 if quiet else self.size // 2

    def _granted(self, steps: int) -> int:
        clock, processor = time.perf_counter(), time.thread_time()
        if self._expected is None:
            granted = self._reservation.lease(steps)
        else:
            granted = self._reservation.lease(steps, after=self._expected)
            self._expected += granted
        self._cost = (time.thread_time() - processor, time.perf_counter() - clock)
        self._asked, self._dry = steps, granted < steps
        return granted

    def _collect(self) -> None:
        """What the thread was granted. If it failed, the loop asks itself when it must."""
        assert self._coming is not None
        coming, self._coming = self._coming, None
        try:
            self._held += coming.result()
        except LedgerError:
            self._trouble = True

    # ---- how large the window is

    def _resize(self) -> None:
        """Fits the window to the pace of the steps since the last look, unless its size is set."""
        if self._fixed:
            return
        now, since = time.perf_counter(), self._since
        if since is not None and self._taken > since[0]:
            wanted = self._wanted((now - since[1]) / (self._taken - since[0]))
            # Slowly: an evaluation between two steps says little about the next ones.
            wanted = min(max(wanted, self._asked // 2), _GROWTH * self._asked)
            self.size = max(1, min(wanted, self._reservation.steps // _PARTS))
        self._since = (self._taken, now)

    def _wanted(self, pace: float) -> int:
        """The smallest window that costs no more than its share, for steps of ``pace`` seconds.

        A thread that writes takes the processor from training, but not the time in which it waits
        for the disk, as long as the half of the window that is left lasts for that.
        """
        processor, clock = self._cost
        if clock <= _SHARE * pace:
            return 1
        steps = max(2.0 * processor / _SHARE, 2.0 * (clock + pace)) / max(pace, 1e-6)
        return math.ceil(steps)
