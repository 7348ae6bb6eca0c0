"""Charges beyond a budget, names alike, and runs in the wrong budget, which a ledger refuses."""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.accounting import Composed, Gaussian, Laplace, PureDp, Repeated
from tacit.auditing.replay.forbidden.checkpoints import RUN, charge_of, forged, resumed, saved
from tacit.auditing.replay.forbidden.small_run import (
    Attempts,
    Small,
)
from tacit.training.correlation import InverseBanded
from tacit.training.sampling import Cyclic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DELTA = 1e-5
_TEN = Repeated(Gaussian(40.0), 10)
_ADJACENCIES, _UNITS = ("add-remove", "replace-one", "zero-out"), ("example", "user")


@contextmanager
def ledger() -> Iterator[Any]:
    """A ledger in a folder of its own."""
    from tacit.ledger import Ledger  # noqa: PLC0415 - SQLAlchemy only for those who keep one

    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        made = Ledger(f"sqlite:///{Path(folder) / 'parts.db'}")
        try:
            yield made
        finally:
            made.close()


def _release(event: Any, *terms: Any) -> Any:
    from tacit.ledger import Release  # noqa: PLC0415

    return Release(event, *terms)


def charges(books: Any) -> Attempts:
    """What the budgets of a ledger must refuse."""
    budget = books.open("patients", 4.0, _DELTA)
    return {**_events(books, budget), **_reservations(budget), **_texts(budget), **_budgets(books)}


def _events(books: Any, budget: Any) -> Attempts:
    """Events that a budget has no room for, or knows nothing of."""
    pure = books.open("pure", 1.0, 0.0)
    filtered = books.open("filtered", 3.0, _DELTA, composition="renyi")
    declared = books.open("declared", 3.0, _DELTA, composition="declared")
    late = books.open("late", 1.0, _DELTA, composition="declared")
    declared.declare([_release(Gaussian(9.0))])
    what, users = _release(_TEN), _release(Gaussian(9.0), "add-remove", "user")
    many = _release(Composed(*(Laplace(1e6 + at) for at in range(2100))))
    return {
        **_other_terms(books),
        "an unknown adjacency": lambda: _release(Gaussian(9.0), "none"),
        "an unknown unit": lambda: _release(Gaussian(9.0), "add-remove", "nobody"),
        "more than is left": lambda: budget.charge(Gaussian(0.1)),
        "more than is left at δ = 0": lambda: pure.charge(PureDp(1.5)),
        "a Gaussian without δ": lambda: pure.charge(Gaussian(9.0)),
        "a Gaussian at δ = 0": lambda: budget.at(0.0).charge(Gaussian(9.0)),
        "a δ beyond the budget's": lambda: budget.at(1e-3).charge(Gaussian(9.0)),
        "a δ of one's own in a filter": lambda: filtered.at(1e-7),
        "more than a filter holds": lambda: filtered.charge(Gaussian(0.3)),
        "room that is not there": lambda: budget.check_room([what] * 400),
        "room for another unit": lambda: budget.check_room([users]),
        "what was not declared": lambda: declared.charge(Laplace(30.0)),
        "more declared than there is": lambda: late.declare([_release(Gaussian(0.5))]),
        "declared under another rule": lambda: budget.declare([what]),
        "an event of too many others": lambda: budget.reserve(many),
        "an amendment of a filter below it": lambda: declared.amend(epsilon=1e-3, reason="less"),
    }


def _other_terms(books: Any) -> Attempts:
    """Releases to neighbours or units that are not the budget's, whichever is the stronger."""
    terms = list(itertools.product(_ADJACENCIES, _UNITS))
    budgets = {
        own: books.open(f"terms {at}", 4.0, _DELTA, adjacency=own[0], unit=own[1])
        for at, own in enumerate(terms)
    }
    return {
        f"a release for {' '.join(asked)} in a budget for {' '.join(own)}": partial(
            budgets[own].reserve, _release(Gaussian(9.0), *asked)
        )
        for own, asked in itertools.permutations(terms, 2)
    }


def _reservations(budget: Any) -> Attempts:
    """Steps that no reservation has, and reservations that there are not."""
    what = _release(_TEN)
    held, ended = (budget.reserve(what, steps=10) for _ in range(2))
    held.lease(4)
    ended.lease(2)
    ended.end()
    return {
        "more steps than repetitions": lambda: budget.reserve(what, steps=11),
        "more steps than can be counted": lambda: budget.reserve(
            _release(Laplace(1e9)), steps=2**53 + 1
        ),
        "no steps": lambda: budget.reserve(what, steps=0),
        "a lease of nothing": lambda: held.lease(0),
        "a lease below nothing": lambda: held.lease(-3),
        "more given back than was granted": lambda: held.give_back(5),
        "less than nothing given back": lambda: held.give_back(-1),
        "given back after the end": lambda: ended.give_back(1),
        "no such reservation": lambda: budget.reservation(10**6),
    }


def _texts(budget: Any) -> Attempts:
    """Labels, details and reasons; and amendments below what is charged."""
    what, long, deep = _release(_TEN), "x" * 2_100_000, dict[str, Any]()
    deep["self"] = deep
    return {
        "a label of two lines": lambda: budget.reserve(what, label="a\nb"),
        "a label that is too long": lambda: budget.reserve(what, label="x" * 1001),
        "a detail that is no object": lambda: budget.reserve(what, detail=[1]),
        "a detail that is no JSON": lambda: budget.reserve(what, detail={"a": object()}),
        "a detail without end": lambda: budget.reserve(what, detail=deep),
        "a detail that is too long": lambda: budget.reserve(what, detail={"a": long}),
        "an amendment below what is charged": lambda: budget.amend(epsilon=1e-3, reason="less"),
        "an amendment of δ below it": lambda: budget.amend(delta=1e-300, reason="less"),
        "an amendment without a reason": lambda: budget.amend(epsilon=9.0, reason=" "),
        "an amendment with a long reason": lambda: budget.amend(epsilon=9.0, reason="x" * 1001),
        "an amendment without end": lambda: budget.amend(epsilon=2e6, reason="more"),
    }


def _budgets(books: Any) -> Attempts:
    """Budgets of other terms than before, of no limits, and of names that look alike."""
    found: dict[str, Callable[[], object]] = {
        "a budget of another unit": lambda: books.open("patients", 4.0, _DELTA, unit="user"),
        "a budget of other limits": lambda: books.open("patients", 5.0, _DELTA),
    }
    for name in ("", " patients", "pаtients", "ｐatients", "Patients", "a\tb", "x" * 201):
        found[f"a budget named {name[:20]!a}"] = partial(books.open, name, 1.0, _DELTA)
    for limits in (
        (0.0, _DELTA), (-1.0, _DELTA), (math.nan, _DELTA), (math.inf, _DELTA), (2e6, _DELTA),
        (1.0, 1.0), (1.0, -1e-9), (1.0, math.nan), ("1", _DELTA),
    ):  # fmt: skip
        found[f"a budget of {limits}"] = partial(books.open, "c", *limits)
    for options in (
        {"composition": "free"}, {"composition": "renyi", "delta": 0.0}, {"unit": "nobody"},
        {"composition": "declared", "delta": 0.0}, {"adjacency": "none"},
    ):  # fmt: skip
        terms = {"name": "c", "epsilon": 1.0, "delta": _DELTA, **options}
        found[f"a budget with {options}"] = partial(books.open, **terms)
    return found


def _left(path: Path, budget: Any) -> None:
    """A checkpoint after two steps of a run, which ends there."""

    def save(scene: Any) -> None:
        scene.dp.save(path)
        raise InterruptedError

    with suppress(InterruptedError):
        Small(options={"budget": budget}, moment="between lots", act=save)()


def charged_runs(books: Any, folder: Path) -> Attempts:
    """Runs in the wrong budget, reservation or copy of a ledger."""
    from tacit.ledger import Ledger  # noqa: PLC0415

    budget, other = books.open("runs", 60.0, _DELTA), books.open("others", 60.0, _DELTA)
    charged, free, fresh, ahead = (folder / name for name in ("charged", "free", "new", "ahead"))
    older = folder / "older.db"
    shutil.copy(books.location.removeprefix("sqlite:///"), older)
    saved(charged, budget=budget)
    saved(free)
    first = max(books.books.reservations)
    _left(ahead, budget)
    second = max(books.books.reservations)
    forged(ahead, ahead, lambda document: document.update(steps_taken=3))
    turns = replace(RUN, lot_size=2.0, steps=6, correlation=InverseBanded(2), sampling=Cyclic())
    in_turns = budget.reserve(turns, steps=6)
    in_turns.lease(2)  # by a run of which nothing is left
    wider = budget.reserve(_release(replace(RUN, steps=9).event), steps=9)
    forged(charged, fresh, lambda document: charge_of(document).update(dict=[["budget", "runs"]]))
    return {
        "a seed for a run that is charged": resumed(budget=budget, unsafe_seed=1),
        "a reservation of another plan": resumed(budget=wider),
        "turns that nobody knows of": Small(plan=turns, options={"budget": in_turns}),
        "a plan beyond the budget": resumed(budget=books.open("small", 1e-3, _DELTA)),
        "a charged run without its budget": resumed(resume=charged),
        "a charged run in another budget": resumed(resume=charged, budget=other),
        "a charged run in another reservation": resumed(resume=charged, budget=wider),
        "a charged run in another run's": resumed(
            resume=charged, budget=budget.reservation(second)
        ),
        "more steps than were granted": resumed(resume=ahead, budget=budget),
        "a charged run in a copy": resumed(
            resume=charged, budget=Ledger(f"sqlite:///{older}").open("runs", 60.0, _DELTA)
        ),
        "a free run in a budget": resumed(resume=free, budget=budget),
        "a free run in a reservation": resumed(resume=free, budget=budget.reservation(first)),
        "a run that does not say where it is charged": resumed(resume=fresh, budget=budget),
    }
