"""A budget: limits (ε, δ) for one body of data, and what may still be released about it."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

from tacit._validation import (
    non_negative,
    positive,
    printable,
    probability,
    unit_of_privacy,
    whole,
)
from tacit.accounting.events import Repeated, check_adjacency, check_event
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.ledger import composition as rules
from tacit.ledger.entries import LONGEST_BODY, Draft, canonical
from tacit.ledger.fields import (
    LARGEST_EPSILON,
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_EVENTS,
    MOST_STEPS,
    events_in,
)
from tacit.ledger.replay import charge_as_plain, same_event
from tacit.ledger.requests import lapse
from tacit.ledger.reservation import Reservation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger.composition import Spending
    from tacit.ledger.ledger import Ledger
    from tacit.ledger.replay import Books, BudgetState, ReservationCost, ReservationState


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

    def check_protects(self, unit: str, adjacency: str | None = None) -> None:
        """Refuses what protects another unit than this budget, or is about other neighbours.

        ``charge`` takes an event to be about the budget's own; whoever knows better asks first.
        Without ``adjacency`` the release takes the budget's.
        """
        _check_protects(self.state, unit, self.adjacency if adjacency is None else adjacency)

    @property
    def composition(self) -> str:
        """The rule by which charges add up."""
        return self.state.composition

    def spent(self) -> Spending:
        """What was charged so far; its ``meaning`` says which figure it is."""
        return rules.spent(self._checked())

    def remaining(self) -> Spending:
        """What is left; its ``meaning`` says which figure it is."""
        return rules.remaining(self._checked())

    def _checked(self) -> BudgetState:
        state = self._ledger.refresh().budgets[self.name]
        self._ledger.check(self.name)
        return state

    def affordable(self, what: Chargeable) -> bool:
        """Whether ``reserve(what)`` would be granted now. Nothing is written.

        An approval that is overdue counts until somebody reserves, or it has lapsed otherwise.
        """
        self._checked()
        try:
            self._admitted(self._ledger.books, what, 1, "", None, granted=0)
        except BudgetExceeded:
            return False
        return True

    def check_room(self, whats: Sequence[Chargeable]) -> None:
        """Refuses what is going to be reserved bit by bit and would not fit as a whole.

        Nothing is charged: whoever else charges the budget meanwhile may still come first.

        Raises:
            BudgetExceeded: if all of it together does not fit now.
        """
        lapse(self._ledger, self.name)
        state = self._checked()
        for what in whats:
            plain_event(state, what)  # refuses another unit or adjacency
        if not rules.hold_all(state, [what.event for what in whats]):
            raise self._exceeded(self._ledger.books, f"{len(whats)} releases together")

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
        lapse(self._ledger, self.name)

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
            BudgetExceeded: if it does not fit; nothing is charged then.
        """
        check_chargeable(what)
        count = check_steps(steps, what.event)
        return self._reserve(what, count, label, detail, granted=0)

    def charge(
        self, event: Event, label: str = "", *, detail: dict[str, Any] | None = None
    ) -> Reservation:
        """Charges one release and grants it at once; release it after this returns.

        ``detail`` is kept with it, so that whoever crashed before noting its number finds it again.
        """
        what = Release(event, self.adjacency, self.unit)
        return self._reserve(what, 1, label, detail, granted=1)

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
        why = check_reason(reason)

        def decide(books: Books) -> list[Draft]:
            return [_amendment(books.budgets[self.name], epsilon, delta, why)]

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
        text, kept = check_label(label), check_detail(detail)
        lapse(self._ledger, self.name)  # what nobody drew on in time is free again

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
        event = plain_event(state, what)
        body = {"steps": steps, "granted": granted, "label": label, "detail": detail}
        if state.composition == "declared" and (state.declared or state.begun):
            return Draft(self.name, "claim", {"reservation": self._claim(books, event), **body})
        charge = rules.charge_for(state, what.event, self._charged_delta)
        if charge is None:
            from tacit.statement.words import mechanism  # noqa: PLC0415 - for a refusal alone

            raise self._exceeded(books, mechanism(event))
        return Draft(self.name, "reserve", _reserve_body(state, event, charge, body))

    def approved(
        self,
        books: Books,
        what: Chargeable,
        steps: int,
        label: str,
        detail: dict[str, Any] | None,
    ) -> list[Draft]:
        """The entry that charges a request which is about to be approved, or ``BudgetExceeded``."""
        if books.budgets[self.name].composition == "declared":
            (draft,) = self._declared(books, [what], label)
            return [Draft(draft.budget, draft.kind, {**draft.body, "steps": steps})]
        return [self._admitted(books, what, steps, label, detail, granted=0)]

    def _claim(self, books: Books, event: dict[str, Any]) -> int:
        """The declared and still unused reservation of ``event``."""
        for known in books.of(self.name):
            unused = known.declared and not known.taken and not known.ended
            if unused and known.request is None and same_event(known.event, event):
                return known.number
        raise BudgetExceeded(
            f"the budget {self.name!r} is 'declared' and has no unused declaration of this event; "
            "each declared plan is reserved once, and all are declared before the first release"
            f"{self._way_on(books)}"
        )

    def _declared(self, books: Books, whats: list[Chargeable], label: str) -> list[Draft]:
        state = books.budgets[self.name]
        if state.composition != "declared" or state.begun:
            why = (
                "something was released already"
                if state.composition == "declared"
                else f"its composition is {state.composition!r}"
            )
            raise InvalidArgument(
                f"plans of the budget {self.name!r} cannot be declared: {why}; declare all plans "
                "of a budget opened with composition='declared' before the first release, or open "
                "one that takes run after run: tacit ledger open NAME --epsilon E --delta D"
                f"{self._way_on(books)}"
            )
        plain = [plain_event(state, what) for what in whats]
        charges = rules.composed_charges(state, [what.event for what in whats])
        if charges is None:
            raise self._exceeded(books, f"{len(whats)} declared plans")
        text = check_label(label)
        return [
            Draft(self.name, "declare", _reserve_body(state, event, charge, _unstarted(what, text)))
            for what, event, charge in zip(whats, plain, charges, strict=True)
        ]

    def _exceeded(self, books: Books, asked: str) -> BudgetExceeded:
        state = books.budgets[self.name]
        left = rules.remaining(state)
        return BudgetExceeded(
            f"the budget {state.name!r} (epsilon={state.epsilon!r}, delta={state.delta!r}, "
            f"{state.composition}) has no room for {_short(asked)}: epsilon={left.epsilon:.6g}, "
            f"delta={left.delta:.6g} are left ({left.meaning}); add noise or take fewer steps, or "
            f"amend the budget with a reason{self._way_on(books)}"
        )

    def _way_on(self, books: Books) -> str:
        """What to do about a reservation that was begun and not finished, if there is one."""
        open_ = [one for one in books.of(self.name) if one.left and one.taken]
        if not open_:
            return ""
        last, state = open_[-1], books.budgets[self.name]
        more = f" (and {len(open_) - 1} more)" if len(open_) > 1 else ""
        call = f"ledger.budget({self.name!r}).reservation({last.number})"
        place = shlex.quote(self._ledger.location)
        return (
            f". Unfinished{more}: {_described(last)}; go on with it by budget={call}, or end it by "
            f"{call}.end() or: tacit ledger close {shlex.quote(self.name)} {last.number} "
            f"--ledger {place} ({_freed(last, state)})"
        )

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
    """Returns ``name`` if a new budget can have it: a line of text with one spelling only."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or printable(name) != name:
        raise InvalidArgument(
            f"name must be one line of 1 to {LONGEST_NAME} characters that can be seen, got "
            f"{_short(ascii(name))}"
        )
    plain = " ".join(unicodedata.normalize("NFKC", name).split())
    if plain != name:
        raise InvalidArgument(
            f"name must be spelt plainly, without spaces around it, full-width letters and the "
            f"like, got {name!a}; write {plain!a}"
        )
    scripts = _scripts(name)
    if len(scripts) > 1:
        raise InvalidArgument(
            f"name must be in one script, got {name!a}, which mixes {' and '.join(scripts)} "
            "letters that look alike; write it in one"
        )
    return name


# Scripts whose letters look like each other's.
_SCRIPTS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU")
# Letters and digits that look like a Latin one, lower case (after Unicode's confusables.txt).
_LOOKS = str.maketrans(
    "01|авсԁеһніјкӏмпорԛгѕтѵуԝхαβγεζηικνορτυωχսօոհցզɑƅᴄɡıɩɪȷᴏꜱᴜʋᴠɯᴡʏᴢ",
    "ollabcdehhijklmnopqrstvywxabyeznikvoptuwxuonhgqabcgiiijosuvvwwyz",
)
# Signs that look like one on the keyboard, which word processors put in its place.
_SIGNS = str.maketrans("−˗⁃ー一‘’ʼ′`´“”″⁄∕‚•∙⋅", "-----''''''\"\"\"//,···")
_MARKS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]")  # that no letter has with it


def _scripts(name: str) -> list[str]:
    found = {unicodedata.name(one, "").partition(" ")[0] for one in name if one.isalpha()}
    return [one.capitalize() for one in _SCRIPTS if one in found]


def look_of(name: str) -> str:
    """What ``name`` looks like: names of the same look are easily taken for each other.

    >>> look_of("Patients-2026") == look_of("pаtients–2026")
    True
    """
    folded = _MARKS.sub("", unicodedata.normalize("NFKC", name).casefold())
    plain = "".join(map(_plain, printable(folded).translate(_SIGNS)))
    return "".join(plain.translate(_LOOKS).split())


def _plain(letter: str) -> str:
    """The dash of the keyboard for any dash, and its digit for that of any script."""
    if unicodedata.category(letter) == "Pd":
        return "-"
    return str(unicodedata.decimal(letter, letter))


def check_new_name(name: str, known: Iterable[str]) -> None:
    """Refuses a new ``name`` that looks like one of those ``known``."""
    for other in known:
        if look_of(other) == look_of(name):
            raise InvalidArgument(
                f"name must not look like that of another budget, got {name!a} beside {other!a}; "
                "open that one, or write a name that nobody can mistake for it"
            )


def check_reason(reason: str) -> str:
    """Returns ``reason`` without spaces around it, if it is a line of text that says something."""
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidArgument(f"reason must be a text that says why, got {reason!r}")
    text = " ".join(reason.split())
    if len(text) > LONGEST_TEXT or printable(text) != text:
        raise InvalidArgument(
            f"reason must be a text of up to {LONGEST_TEXT} characters that can be seen, got "
            f"{_short(repr(reason))}"
        )
    return text


def _limits(epsilon: float, delta: float) -> tuple[float, float]:
    limit, failure = positive("epsilon", epsilon), non_negative("delta", delta)
    if limit > LARGEST_EPSILON:
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
    return Draft(state.name, "amend", {"epsilon": limit, "delta": failure, "reason": reason})


def _check_protects(state: BudgetState, unit: str, adjacency: str) -> None:
    for name, asked, own in (
        ("adjacency", adjacency, state.adjacency),
        ("unit", unit, state.unit),
    ):
        if asked != own:
            raise InvalidArgument(
                f"{name} must be that of the budget {state.name!r}, {own!r}, got {asked!r}; "
                "charge another budget"
            )


def check_chargeable(what: object) -> None:
    """Refuses what does not say whom it protects, as an event by itself."""
    if not all(hasattr(what, name) for name in ("event", "adjacency", "unit")):
        raise InvalidArgument(
            "what must be a plan, a Release or what a mechanism released, got a "
            f"{type(what).__name__}; an event is charged by budget.charge(event)"
        )


def plain_event(state: BudgetState, what: Chargeable) -> dict[str, Any]:
    """``what.event`` in JSON's types, if the budget's unit and neighbours are its own."""
    from tacit.accounting.serialization import as_dict  # noqa: PLC0415

    check_chargeable(what)
    _check_protects(state, what.unit, what.adjacency)
    plain = as_dict(check_event(what.event))
    if events_in(plain) > MOST_EVENTS or len(canonical(plain)) > LONGEST_BODY // 2:
        raise InvalidArgument(
            f"event must be made of at most {MOST_EVENTS} others, so that anyone can check the "
            "charge; charge it in parts"
        )
    return plain


def _unstarted(what: Chargeable, label: str) -> dict[str, Any]:
    steps = what.event.times if isinstance(what.event, Repeated) else 1
    return {"steps": steps, "granted": 0, "label": label, "detail": None}


def check_steps(steps: int, event: Event) -> int:
    """Returns ``steps`` if the event pays for as many."""
    count = whole("steps", steps)
    if count > MOST_STEPS:
        raise InvalidArgument(f"steps must be at most 2**53, got {steps!r}")
    if isinstance(event, Repeated) and count > event.times:
        raise InvalidArgument(
            f"steps must be at most the {event.times} repetitions that the event pays for, "
            f"got {steps!r}"
        )
    return count


def _reserve_body(
    state: BudgetState, event: dict[str, Any], charge: ReservationCost, body: dict[str, Any]
) -> dict[str, Any]:
    terms = {"unit": state.unit, "adjacency": state.adjacency}
    return {"event": event, "charge": charge_as_plain(charge), **terms, **body}


def check_label(label: str) -> str:
    """Returns ``label`` if it is one line of text."""
    if not isinstance(label, str) or len(label) > LONGEST_TEXT or not label.isprintable():
        raise InvalidArgument(
            f"label must be one line of up to {LONGEST_TEXT} characters, got {_short(repr(label))}"
        )
    return label


def check_detail(detail: dict[str, Any] | None) -> dict[str, Any] | None:
    """A copy of ``detail`` if it is in JSON's types, and not too large."""
    if detail is None:
        return None
    try:
        text = canonical(detail)
        kept = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument(f"detail must be in JSON's types, got {detail!r}") from None
    if len(text) > LONGEST_BODY // 2 or not isinstance(kept, dict):
        raise InvalidArgument(
            f"detail must be an object of up to {LONGEST_BODY // 2} characters as JSON"
        )
    return kept


def _described(known: ReservationState) -> str:
    label = f" {known.label!r}" if known.label else ""
    return (
        f"reservation {known.number}{label} of {known.at[:10]}, {known.granted} of {known.steps} "
        "steps granted"
    )


def _freed(known: ReservationState, state: BudgetState) -> str:
    if known.granted or known.used:
        return "it stays charged, since steps were granted"
    if state.composition == "declared" and state.begun:
        return "it stays charged, since the budget's plans were declared together"
    return f"no step was granted, so this frees epsilon={known.charge.epsilon:.6g}"


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
