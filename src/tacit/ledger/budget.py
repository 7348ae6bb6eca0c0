"""A budget: limits (ε, δ) for one body of data, and what may still be released about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

from tacit._validation import non_negative, positive, probability, unit_of_privacy, whole
from tacit.accounting.events import Repeated, check_adjacency, check_event
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.ledger import composition as rules
from tacit.ledger.entries import Draft, canonical
from tacit.ledger.replay import charge_as_plain, same_event
from tacit.ledger.reservation import Reservation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger.composition import Spending
    from tacit.ledger.ledger import Ledger
    from tacit.ledger.replay import Books, BudgetState, Charge


class Chargeable(Protocol):
    """What can be charged: an event, whose neighbours it is about, and whom it protects."""

    @property
    def event(self) -> Event:
        """What is released."""
        ...

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets are neighbours."""
        ...

    @property
    def unit(self) -> str:
        """Whom the guarantee protects: one ``"example"`` or one ``"user"``."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Release:
    """A ``Chargeable`` made of its three parts."""

    event: Event
    adjacency: Adjacency = "add-remove"
    unit: str = "example"

    def __post_init__(self) -> None:
        check_event(self.event)
        check_adjacency(self.adjacency)
        unit_of_privacy(self.unit)


@final
class Budget:
    """A budget of a ledger, made by ``Ledger.open``.

    Guarantee:
        Everything that is released under a reservation of this budget is (ε, δ)-differentially
        private together for each ``unit`` of the data, however plans, their order and the end were
        chosen from earlier releases; by which theorem says ``tacit.ledger.composition``. If limits
        were amended, the largest since the first charge is what is promised.
    """

    def __init__(self, ledger: Ledger, name: str, charged_delta: float | None = None) -> None:
        self._ledger = ledger
        self._charged_delta = charged_delta
        self.name = name

    @property
    def state(self) -> BudgetState:
        """Where the budget stood when the ledger was last read."""
        return self._ledger.books.budgets[self.name]

    @property
    def ledger(self) -> Ledger:
        """The ledger that holds the budget."""
        return self._ledger

    @property
    def epsilon(self) -> float:
        """The limit on ε, as last amended."""
        return self.state.epsilon

    @property
    def delta(self) -> float:
        """The limit on δ, as last amended."""
        return self.state.delta

    @property
    def unit(self) -> str:
        """Whom the budget protects."""
        return self.state.unit

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets are neighbours."""
        return self.state.adjacency

    @property
    def composition(self) -> str:
        """The rule by which charges add up."""
        return self.state.composition

    def spent(self) -> Spending:
        """What was charged so far; its ``meaning`` says which figure it is."""
        return rules.spent(self._ledger.refresh().budgets[self.name])

    def remaining(self) -> Spending:
        """What is left; its ``meaning`` says which figure it is."""
        return rules.remaining(self._ledger.refresh().budgets[self.name])

    def affordable(self, what: Chargeable) -> bool:
        """Whether ``reserve(what)`` would be granted now. Nothing is written."""
        books = self._ledger.refresh()
        try:
            self._admitted(books, what, 1, "", None, granted=0)
        except BudgetExceeded:
            return False
        return True

    def check_room(self, whats: Sequence[Chargeable]) -> None:
        """Refuses what is going to be reserved bit by bit and would not fit as a whole.

        Nothing is written: whoever else charges the budget meanwhile may still come first.

        Raises:
            BudgetExceeded: if all of it together does not fit now.
        """
        state = self._ledger.refresh().budgets[self.name]
        for what in whats:
            _plain_event(state, what)  # refuses another unit or adjacency
        if not rules.hold_all(state, [what.event for what in whats]):
            raise _exceeded(state, f"{len(whats)} releases together")

    def at(self, delta: float) -> Budget:
        """The same budget; what is reserved through the result is charged at this δ."""
        if self.composition != "basic":
            raise InvalidArgument(
                f"delta cannot be chosen: the budget {self.name!r} is {self.composition!r}, whose "
                "rule has one δ for all; reserve without at()"
            )
        return Budget(self._ledger, self.name, probability("delta", delta))

    def declare(self, whats: Sequence[Chargeable], label: str = "") -> tuple[Reservation, ...]:
        """Declares plans that are fixed together before the first release; all or none.

        Each is used once: by leasing from its reservation, or by a ``reserve`` of the same event.
        A ``Repeated`` event has as many steps as it has repetitions, any other one has one.
        """
        given = list(whats)

        def decide(books: Books) -> list[Draft]:
            return self._declared(books, given, label)

        entries = self._ledger.append(decide, prepared=True)
        return tuple(Reservation(self._ledger, entry.number) for entry in entries)

    def reserve(
        self,
        what: Chargeable,
        *,
        steps: int = 1,
        label: str = "",
        detail: dict[str, Any] | None = None,
    ) -> Reservation:
        """Charges the whole of ``what``, whose ``steps`` are then granted by ``lease``.

        Args:
            what: A plan, or a ``Release``.
            steps: How many releases ``what.event`` is made of.
            label: A name for people.
            detail: Anything in JSON's types to keep with it, such as ``plan.as_dict()``.

        Guarantee:
            The charge is written and synced, and anchored, when this returns.

        Raises:
            BudgetExceeded: if it does not fit; nothing is written then.
        """
        count = _steps(steps, what.event)
        return self._reserve(what, count, label, detail, granted=0)

    def charge(self, event: Event, label: str = "") -> Reservation:
        """Charges one release and grants it at once; release it after this returns."""
        what = Release(event, self.adjacency, self.unit)
        return self._reserve(what, 1, label, None, granted=1)

    def reservation(self, number: int) -> Reservation:
        """The reservation with this number, to go on with after a crash."""
        known = self._ledger.refresh().reservations.get(number)
        if known is None or known.budget != self.name:
            raise InvalidArgument(
                f"number must be that of a reservation of the budget {self.name!r}, got {number!r}"
            )
        return Reservation(self._ledger, known.number)

    def amend(
        self, *, epsilon: float | None = None, delta: float | None = None, reason: str
    ) -> Budget:
        """Changes the limits, and records the reason. They cannot be below what is charged."""
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidArgument(f"reason must be a text that says why, got {reason!r}")

        def decide(books: Books) -> list[Draft]:
            return [_amendment(books.budgets[self.name], epsilon, delta, reason)]

        self._ledger.append(decide)
        return self

    def _reserve(
        self,
        what: Chargeable,
        steps: int,
        label: str,
        detail: dict[str, Any] | None,
        *,
        granted: int,
    ) -> Reservation:
        text, kept = _label(label), _detail(detail)

        def decide(books: Books) -> list[Draft]:
            return [self._admitted(books, what, steps, text, kept, granted=granted)]

        (entry,) = self._ledger.append(decide, prepared=True)
        number = entry.data["reservation"] if entry.kind == "claim" else entry.number
        return Reservation(self._ledger, number)

    def _admitted(
        self,
        books: Books,
        what: Chargeable,
        steps: int,
        label: str,
        detail: dict[str, Any] | None,
        *,
        granted: int,
    ) -> Draft:
        """The entry that grants the reservation, or ``BudgetExceeded``."""
        state = books.budgets[self.name]
        event = _plain_event(state, what)
        body = {"steps": steps, "granted": granted, "label": label, "detail": detail}
        if state.composition == "declared" and (state.declared or state.granted):
            return Draft(self.name, "claim", {"reservation": self._claim(books, event), **body})
        charge = rules.charge_for(state, what.event, self._charged_delta)
        if charge is None:
            raise _exceeded(state, repr(what.event))
        return Draft(self.name, "reserve", _reserve_body(event, charge, body))

    def _claim(self, books: Books, event: dict[str, Any]) -> int:
        """The declared and still unused reservation of ``event``."""
        for known in books.of(self.name):
            unused = known.declared and not known.taken and not known.ended
            if unused and same_event(known.event, event):
                return known.number
        raise BudgetExceeded(
            f"the budget {self.name!r} is 'declared' and has no unused declaration of this event; "
            "each declared plan is reserved once, and all are declared before the first release"
        )

    def _declared(self, books: Books, whats: list[Chargeable], label: str) -> list[Draft]:
        state = books.budgets[self.name]
        if state.composition != "declared" or state.granted > 0:
            why = (
                "something was released already"
                if state.composition == "declared"
                else f"its composition is {state.composition!r}"
            )
            raise InvalidArgument(
                f"plans of the budget {self.name!r} cannot be declared: {why}; declare all plans "
                "of a budget opened with composition='declared' before the first release"
            )
        plain = [_plain_event(state, what) for what in whats]
        charges = rules.composed_charges(state, [what.event for what in whats])
        if charges is None:
            raise _exceeded(state, f"{len(whats)} declared plans")
        text = _label(label)
        return [
            Draft(self.name, "declare", _reserve_body(event, charge, _unstarted(what, text)))
            for what, event, charge in zip(whats, plain, charges, strict=True)
        ]

    def __repr__(self) -> str:
        state = self.state
        return (
            f"Budget({self.name!r}, epsilon={state.epsilon!r}, delta={state.delta!r}, "
            f"unit={state.unit!r}, adjacency={state.adjacency!r}, "
            f"composition={state.composition!r})"
        )


def opening(
    name: str, epsilon: float, delta: float, unit: str, adjacency: Adjacency, composition: str
) -> Draft:
    """The entry that opens a budget, its arguments checked."""
    limit, failure = _limits(epsilon, delta)
    rule = rules.check_composition(composition, failure)
    neighbours = check_adjacency(adjacency)
    orders = rules.filter_orders(limit, failure, neighbours) if rule == "renyi" else ()
    body = {
        "epsilon": limit,
        "delta": failure,
        "unit": unit_of_privacy(unit),
        "adjacency": neighbours,
        "composition": rule,
        "orders": list(orders),
    }
    return Draft(check_name(name), "open", body)


def check_name(name: str) -> str:
    """Returns ``name`` if a budget can have it: a line of text."""
    if not isinstance(name, str) or not 0 < len(name.strip()) <= 200 or not name.isprintable():
        raise InvalidArgument(f"name must be one line of 1 to 200 characters, got {name!r}")
    return name


def _limits(epsilon: float, delta: float) -> tuple[float, float]:
    limit, failure = positive("epsilon", epsilon), non_negative("delta", delta)
    if limit > 1e6:
        raise InvalidArgument(f"epsilon must be at most 1e6, got {epsilon!r}: it protects nobody")
    if failure >= 1.0:
        raise InvalidArgument(f"delta must be below 1, got {delta!r}")
    return limit, failure


def _amendment(
    state: BudgetState, epsilon: float | None, delta: float | None, reason: str
) -> Draft:
    limit, failure = _limits(
        state.epsilon if epsilon is None else epsilon, state.delta if delta is None else delta
    )
    rules.check_composition(state.composition, failure)
    if not rules.within_limits(rules.with_limits(state, limit, failure)):
        used = rules.spent(state)
        raise BudgetExceeded(
            f"the budget {state.name!r} cannot be amended to epsilon={limit!r}, delta={failure!r}: "
            f"epsilon={used.epsilon!r}, delta={used.delta!r} are charged already; amend it to more"
        )
    return Draft(
        state.name, "amend", {"epsilon": limit, "delta": failure, "reason": reason.strip()}
    )


def _plain_event(state: BudgetState, what: Chargeable) -> dict[str, Any]:
    from tacit.accounting.serialization import to_plain  # noqa: PLC0415

    for name, asked, own in (
        ("adjacency", what.adjacency, state.adjacency),
        ("unit", what.unit, state.unit),
    ):
        if asked != own:
            raise InvalidArgument(
                f"{name} must be that of the budget {state.name!r}, {own!r}, got {asked!r}; "
                "charge another budget, or make the plan anew"
            )
    return to_plain(check_event(what.event))


def _unstarted(what: Chargeable, label: str) -> dict[str, Any]:
    steps = what.event.times if isinstance(what.event, Repeated) else 1
    return {"steps": steps, "granted": 0, "label": label, "detail": None}


def _steps(steps: int, event: Event) -> int:
    count = whole("steps", steps)
    if isinstance(event, Repeated) and count > event.times:
        raise InvalidArgument(
            f"steps must be at most the {event.times} repetitions that the event pays for, "
            f"got {steps!r}"
        )
    return count


def _reserve_body(event: dict[str, Any], charge: Charge, body: dict[str, Any]) -> dict[str, Any]:
    return {"event": event, "charge": charge_as_plain(charge), **body}


def _label(label: str) -> str:
    if not isinstance(label, str) or not (label.isprintable() and len(label) <= 1000):
        raise InvalidArgument(f"label must be one line of up to 1000 characters, got {label!r}")
    return label


def _detail(detail: dict[str, Any] | None) -> dict[str, Any] | None:
    if detail is None:
        return None
    try:
        canonical(detail)
    except (TypeError, ValueError):
        raise InvalidArgument(f"detail must be in JSON's types, got {detail!r}") from None
    return dict(detail)


def _exceeded(state: BudgetState, asked: str) -> BudgetExceeded:
    left = rules.remaining(state)
    return BudgetExceeded(
        f"the budget {state.name!r} (epsilon={state.epsilon!r}, delta={state.delta!r}, "
        f"{state.composition}) does not hold {_short(asked)}: epsilon={left.epsilon:.6g}, "
        f"delta={left.delta:.6g} are left ({left.meaning}); add noise or take fewer steps, or "
        "amend the budget with a reason"
    )


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
