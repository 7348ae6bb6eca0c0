"""The planner: from the fields of a form to a plan, what it gives away, and the lines that run it.

The form is the query of the address, so that a link holds all of it. One answer takes a
calibration, one call of each accountant and two dozen points of the curve: about 40 ms. What a
field does not touch (the clip, the budget, the recipe) is not computed again.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import urlencode

from tacit._numbers import at_most, compact, nearest, per_hundred, rounded_down
from tacit._validation import check_delta, one_line
from tacit.errors import InvalidArgument, TacitError
from tacit.serve.charts import Axis, Line, graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from tacit.accounting import Interval, Row
    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import BudgetState
    from tacit.serve.charts import Point
    from tacit.training.plan import Plan

PATIENCE: Final = 0.1  # seconds of computing after which the points that there are must do
POINTS: Final = 24  # of the curve, so that the bounds between them lie close to it
RATES: Final = (0.001, 0.01, 0.1)  # of false alarms, in words
# Quantiles of the normal law: at 1 - RATES, where the odds are read, and between two of them.
_QUANTILES: Final = (3.0902, 1.2816, 2.3263, 1.8, 2.7)
SAMPLINGS: Final = {
    "poisson": "Poisson: by independent coins",
    "full": "everybody in every step",
}
UNITS: Final = {"example": "one example", "user": "one user, with all of theirs"}
ADJACENCIES: Final = {
    "add-remove": "one record added or removed",
    "replace-one": "one record replaced",
    "zero-out": "one record made to count for nothing",
}
ACCOUNTANTS: Final = {
    "exact": "the tight answer, certified",
    "rdp": "Rényi divergences at the best order",
    "moments": "moments accountant, orders up to 32",
    "zcdp": "concentrated privacy",
    "gdp": "Gaussian privacy, where it is exact",
    "gdp-clt": "an approximation, not a bound",
    "advanced": "strong composition",
    "basic": "ε and δ added up",
}
LOOKS: Final = 4  # colours for the lines of attacks that were tried
_LONGEST: Final = 200
MOST_STEPS: Final = 1e7
DELTAS: Final = (1e-15, 0.5)  # smaller ones mean nothing to anybody, and take minutes


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanForm:
    """The fields of the form, as texts; ``by`` says which of ε and σ is given."""

    examples: str = "60000"
    lot: str = "600"
    epochs: str = "30"
    clip: str = "1"
    by: str = "epsilon"
    epsilon: str = "2"
    sigma: str = "1.1"
    delta: str = "1e-6"
    sampling: str = "poisson"
    unit: str = "example"
    per_user: str = "10"
    adjacency: str = "add-remove"
    budget: str = ""
    recipe: str = ""

    @classmethod
    def read(cls, query: Mapping[str, str]) -> PlanForm:
        """The form of a query; what it does not have is as it comes."""
        given = {
            one.name: one_line(query[one.name])[:_LONGEST]
            for one in fields(cls) if one.name in query
        }  # fmt: skip
        return cls(**given)

    def address(self) -> str:
        """The query of the link that holds the form: what differs from the defaults."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return urlencode({name: text for name, text in own.items() if text != _DEFAULT[name]})

    def asked(self, plan: Plan) -> dict[str, float]:
        """What a request keeps for the command that runs it."""
        delta = _real("delta", self.delta)
        epsilon = _real("epsilon", self.epsilon) if self.by == "epsilon" else plan.epsilon(delta)
        return {
            "epsilon": epsilon, "delta": delta, "lot": float(plan.lot_size),
            "epochs": _real("epochs", self.epochs), "clip": plan.clip,
        }  # fmt: skip


_DEFAULT: Final = {one.name: one.default for one in fields(PlanForm)}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """What a plan gives away: figures, words, drawings, and the lines to copy."""

    plan: Plan
    epsilon: float
    delta: float
    interval: str
    rows: tuple[AccountantRow, ...]
    odds: tuple[str, ...]
    curve: Markup
    attack: Markup
    python: str
    shell: str
    room: Room | None
    careful: tuple[str, ...]

    @property
    def shown(self) -> str:
        """ε, rounded up."""
        return at_most(self.epsilon)


@final
@dataclass(frozen=True, slots=True)
class AccountantRow:
    """One accountant's answer in words."""

    name: str
    epsilon: str
    argument: str
    is_bound: bool


@final
@dataclass(frozen=True, slots=True)
class Room:
    """What a run would leave of a budget."""

    budget: str
    fits: bool
    words: str
    before: float
    after: float


def plan_of(form: PlanForm) -> Plan:
    """The plan that the form describes.

    Raises:
        InvalidArgument: with one line that names the field.
    """
    from tacit.training.plan import Plan  # noqa: PLC0415 - SciPy comes with it

    sampling, lot = _sampling(form)
    shape: dict[str, Any] = {
        "examples": _count("examples", form.examples), "lot_size": lot,
        "clip": _real("clip", form.clip), "adjacency": form.adjacency, "unit": form.unit,
        "examples_per_user": _count("per_user", form.per_user) if form.unit == "user" else None,
        "sampling": sampling,
    }  # fmt: skip
    delta = _within("delta", form.delta, *DELTAS)
    epochs = _real("epochs", form.epochs)
    steps = _steps(epochs * shape["examples"] / lot)
    if form.by == "epsilon":
        epsilon = _within("epsilon", form.epsilon, 0.01, 100.0)
        return Plan.for_budget(epsilon=epsilon, delta=delta, epochs=epochs, **shape)
    check_delta(delta, shape["examples"], form.unit)
    sigma = _within("sigma", form.sigma, 0.1, 1e4)
    return Plan(noise_multiplier=sigma, steps=steps, **shape)


def _steps(exact: float) -> int:
    """Whole steps, rounded up as ``Plan.for_budget`` does; as many as are answered soon."""
    if exact > MOST_STEPS:
        raise InvalidArgument(
            f"epochs must amount to at most {MOST_STEPS:g} steps, got {exact:.3g}"
        )
    close = math.isclose(exact, round(exact), rel_tol=1e-12) and round(exact) > 0
    return round(exact) if close else math.ceil(exact)


def answer(form: PlanForm, state: BudgetState | None = None) -> PlanAnswer:
    """Everything that the page shows of a plan; ``state`` is the chosen budget's.

    Guarantee: every ε, rate and share is a bound, rounded to the side where it stays one.
    """
    plan = plan_of(form)
    delta = _real("delta", form.delta)
    found = _accounted(plan.event, delta, plan.adjacency)
    upper, points = found.interval.upper, list(found.points)
    low = rounded_down(found.interval.lower, 6) if found.interval.two_sided else None
    return PlanAnswer(
        plan=plan,
        epsilon=upper,
        delta=delta,
        interval=f"the truth lies between {low} and {at_most(upper)}" if low is not None
        else "an upper bound; the truth may be smaller",
        rows=found.rows,
        odds=tuple(_odds(points)),
        curve=_curve(points, (upper, delta)),
        attack=attack_picture(points),
        python=_python(form, plan),
        shell=_shell(form, plan),
        room=None if state is None else room(state, plan),
        careful=tuple(_careful(plan, upper)),
    )  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class _Accounted:
    """What accountants say of an event: all that the clip, the budget and the words leave alone."""

    interval: Interval
    rows: tuple[AccountantRow, ...]
    points: tuple[Point, ...]


@lru_cache(maxsize=64)
def _accounted(event: Event, delta: float, adjacency: Adjacency) -> _Accounted:
    from tacit.accounting import bounds, compare  # noqa: PLC0415 - SciPy comes with it

    found = bounds(event, delta=delta, adjacency=adjacency)
    if not math.isfinite(found.upper):
        raise InvalidArgument("sigma is too small: no finite ε is certified; take a larger one")
    rows = tuple(map(_row, compare(event, delta=delta, adjacency=adjacency)))
    return _Accounted(found, rows, _points(event, adjacency, found.upper, delta))


# ---- the curve, and what no attack exceeds


def _points(event: Event, adjacency: Adjacency, epsilon: float, delta: float) -> tuple[Point, ...]:
    """Pairs (ε, δ), each of them guaranteed, where they bound attacks best.

    At α false alarms the best pair has e^ε for the slope of the trade-off there; that of the
    Gaussian with the same (ε, δ) is near it: ε = μ·z - μ²/2 at z = Φ⁻¹(1 - α), and its mirror
    (Dong, Roth & Su 2022, Def. 2.6). Where a point takes long there are fewer: what follows from
    those there are is still a bound.
    """
    from tacit.accounting import profile  # noqa: PLC0415 - SciPy comes with it

    curve = profile(event, adjacency=adjacency)
    last, until = min(1.15 * epsilon, 700.0), time.thread_time() + PATIENCE
    mu = _near_gaussian(epsilon, delta)
    best = [min(abs(mu * z - 0.5 * mu * mu), last) for z in _QUANTILES]
    found = {epsilon: delta}
    for loss in (0.0, last, *best, 0.5 * (best[0] + last)):
        if len(found) > 3 and time.thread_time() > until:
            break
        if loss not in found:
            found[loss] = curve.delta(loss)
    while len(found) < POINTS and time.thread_time() < until:
        loss = _widest(found)
        found[loss] = curve.delta(loss)
    return tuple(sorted(found.items()))


def _widest(found: dict[float, float]) -> float:
    """The middle of the gap in which the curve falls furthest, as it is drawn.

    >>> _widest({0.0: 0.1, 1.0: 0.01, 2.0: 1e-6})
    1.5
    """
    _, first, last = max(
        (_height(found[first]) - _height(found[last]), first, last)
        for first, last in itertools.pairwise(sorted(found))
    )
    return 0.5 * (first + last)


def _height(delta: float) -> float:
    """Where a δ is drawn: its power of ten, down to the floor of the picture."""
    return math.log10(max(delta, 1e-12))


def _near_gaussian(epsilon: float, delta: float) -> float:
    """The μ of the Gaussian that has this (ε, δ), by halving; it only chooses where to look."""
    low, high = 1e-6, 60.0
    for _ in range(40):
        mu = math.sqrt(low * high)
        above = 0.5 * math.erfc((epsilon / mu - 0.5 * mu) / math.sqrt(2.0))
        below = 0.5 * math.erfc((epsilon / mu + 0.5 * mu) / math.sqrt(2.0))
        excess = above - (math.exp(min(epsilon, 700.0)) * below if below > 0.0 else 0.0)
        low, high = (mu, high) if excess < delta else (low, mu)
    return high


def _limit(points: list[Point], rate: float) -> float:
    """The largest share of members that any attack finds with this share of false alarms.

    e^ε·α + δ and 1 - e^-ε(1 - δ - α) for every pair (Dong, Roth & Su 2022, Prop. 2.13).
    """
    found = 1.0
    for loss, delta in points:
        found = min(
            found, math.exp(loss) * rate + delta, 1.0 - math.exp(-loss) * (1.0 - delta - rate)
        )
    return found


def _odds(points: list[Point]) -> list[str]:
    found = []
    for rate in RATES:
        among = round(1.0 / rate)
        most = min(float(at_most(among * _limit(points, rate), 3)), float(among))
        found.append(
            f"with 1 false alarm in {among:,}, an attacker finds at most {most:.3g} of {among:,} "
            "who were in the data (guessing: 1)"
        )
    advantage = points[0][1]  # δ at ε = 0
    found.append(
        "asked whether somebody was in the data or not, both equally likely, they are right at "
        f"most {per_hundred(0.5 + 0.5 * advantage)} times in 100 (guessing: 50)"
    )
    return found


def attack_picture(points: list[Point], found: Sequence[Sequence[Point]] = ()) -> Markup:
    """The picture of what no attack exceeds, from pairs (ε, δ) that are guaranteed.

    ``found`` are the false alarms and hits of attacks that were tried, to be drawn below it.
    """
    rates = [10 ** (-3 + 3 * place / 60) for place in range(61)]
    limit = [(math.log10(rate), math.log10(max(1e-3, _limit(points, rate)))) for rate in rates]
    ticks = ((-3.0, "0.1 %"), (-2.0, "1 %"), (-1.0, "10 %"), (0.0, "100 %"))
    tried = [Line(f"found found-{at % LOOKS}", _steps_of(one)) for at, one in enumerate(found)]
    said = " The other lines are what attacks found." if found else ""
    return graph(
        "The largest share of members that any attack finds, for each share of false alarms; the "
        f"straight line is guessing.{said}",
        Axis("false alarms", -3.0, 0.0, ticks),
        Axis("members found, at most", -3.0, 0.0, ticks),
        [Line("guess", [(-3.0, -3.0), (0.0, 0.0)]), *tried, Line("main", limit)],
    )


def _steps_of(rates: Sequence[Point]) -> list[Point]:
    """Observed rates as a stair on logarithmic axes: a share is held until the next is reached."""
    stair: list[Point] = []
    for false, true in rates:
        at = math.log10(max(1e-3, false)), math.log10(max(1e-3, true))
        stair += [(at[0], stair[-1][1]), at] if stair else [at]
    return [*stair, (0.0, 0.0)] if stair else []


def _curve(points: list[Point], own: Point) -> Markup:
    last = points[-1][0]
    floor = -12.0
    step = _nice(last / 4)
    across = tuple((step * at, compact(step * at)) for at in range(int(last / step) + 1))
    up = tuple((float(power), f"1e{power}" if power else "1") for power in range(-12, 1, 3))
    return graph(
        "The privacy curve: δ for each ε. Every pair on the line is guaranteed, and so is whatever "
        "lies above it or to its right.",
        Axis("ε", 0.0, last, across),
        Axis("δ", floor, 0.0, up),
        [Line("main", [(loss, _height(delta)) for loss, delta in _between(points)])],
        [(own[0], _height(own[1]))],
        [(loss, _height(delta)) for loss, delta in points if delta < 1.0],
    )


def _between(points: list[Point]) -> list[Point]:
    """Guaranteed pairs between those that are known: δ(ε) is convex in e^ε, a supremum of lines.

    >>> [(loss, round(delta, 3)) for loss, delta in _between([(0.0, 0.5), (1.0, 0.1)])][7:10]
    [(0.875, 0.174), (1.0, 0.1)]
    """
    found: list[Point] = points[:1]
    for (first, above), (last, below) in itertools.pairwise(points):
        wide = math.expm1(last - first)
        for part in range(1, 9):
            loss = first + (last - first) * part / 8
            share = math.expm1(loss - first) / wide if wide else 1.0
            found.append((loss, above + (below - above) * share))
    return [(loss, delta) for loss, delta in found if delta < 1.0]


def _nice(step: float) -> float:
    """The next of 1, 2, 5, 10 … that is no smaller."""
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(power * one for one in (1, 2, 5, 10) if power * one >= step * (1 - 1e-9))


def _row(row: Row) -> AccountantRow:
    if row.epsilon is None:
        shown = "no answer"
    elif math.isinf(row.epsilon):
        shown = "infinite"
    else:
        shown = at_most(row.epsilon) if row.is_bound else f"≈ {nearest(row.epsilon)}"
    return AccountantRow(row.accountant, shown, ACCOUNTANTS.get(row.accountant, ""), row.is_bound)


def _careful(plan: Plan, epsilon: float) -> list[str]:
    found = []
    if epsilon > 10:
        found.append(
            f"ε = {at_most(epsilon, 3)} promises little: what is released may be e^ε times as "
            "likely with a person's data as without."
        )
    if plan.epochs < 1:
        found.append("Less than one epoch: some records are never seen.")
    return found


# ---- a budget


def room(state: BudgetState, plan: Plan) -> Room:
    """What the plan would leave of the budget, by the budget's own rule."""
    from tacit.serve.budgets import granted  # noqa: PLC0415 - SQLAlchemy comes with it

    for name in ("unit", "adjacency"):
        own, asked = getattr(state, name), getattr(plan, name)
        if own != asked:
            return Room(state.name, False, f"it is for {name} {own!r}, not {asked!r}", 0.0, 0.0)
    return granted(state, [plan.event])


# ---- the lines to copy


def _python(form: PlanForm, plan: Plan) -> str:
    """The call that makes this plan; of numbers only, whatever the link says."""
    given = [f"examples={plan.examples}", f"lot_size={plan.lot_size:.12g}"]
    given += [f"epochs={_text('epochs', form)}", f"clip={plan.clip:.12g}"]
    if plan.adjacency != "add-remove":
        given.append(f"adjacency={plan.adjacency!r}")
    if plan.unit == "user":
        given.append(f"unit='user', examples_per_user={plan.examples_per_user}")
    if form.by == "epsilon":
        start = [f"epsilon={_text('epsilon', form)}", f"delta={_text('delta', form)}"]
        return f"plan = tacit.Plan.for_budget({', '.join([*start, *given])})"
    given[2] = f"steps={plan.steps}"
    given.append(f"noise_multiplier={plan.noise_multiplier:.12g}")
    return f"plan = tacit.Plan({', '.join(given)})"


def _shell(form: PlanForm, plan: Plan) -> str:
    """The command that shows or runs it; what a command has no option for is left to Python.

    Whoever sends a link chooses its fields, and whoever opens it may paste this line: it is made of
    numbers, and of the name of a recipe that exists.
    """
    noise = f"--{form.by} {_text(form.by, form)}"
    rest = f"--delta {_text('delta', form)}"
    if form.recipe in recipes() and form.by == "epsilon":
        return (
            f"tacit train {form.recipe} {noise} {rest} --lot {plan.lot_size:.12g} "
            f"--epochs {_text('epochs', form)} --clip {plan.clip:.12g}"
        )
    return (
        f"tacit plan --examples {plan.examples} --lot {plan.lot_size:.12g} "
        f"--epochs {_text('epochs', form)} {noise} {rest} --adjacency {plan.adjacency}"
    )


def recipes() -> tuple[str, ...]:
    """The names of the recipes that train by a plan or otherwise."""
    from tacit.recipes.catalogue import names  # noqa: PLC0415

    return names()


def _text(name: str, form: PlanForm) -> str:
    """A field as a number that reads back as itself."""
    return f"{_real(name, getattr(form, name)):.12g}"


# ---- fields


def _sampling(form: PlanForm) -> tuple[Any, float]:
    from tacit.training.sampling import FullBatch, Poisson  # noqa: PLC0415

    for name, choices in (("sampling", SAMPLINGS), ("unit", UNITS), ("adjacency", ADJACENCIES),
                          ("by", ("epsilon", "sigma"))):  # fmt: skip
        if getattr(form, name) not in choices:
            raise InvalidArgument(f"{name} must be one of {', '.join(choices)}")
    if form.sampling == "full":
        return FullBatch(), _count("examples", form.examples)
    lot = _real("lot", form.lot)
    return Poisson(), lot


def _real(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 < found <= 1e15:
        raise InvalidArgument(f"{name} must be a positive number, got {text!a:.40}")
    return found


def _count(name: str, text: str) -> int:
    found = _real(name, text)
    if not found.is_integer() or found > 1e12:
        raise InvalidArgument(f"{name} must be a whole number up to 1e12, got {text!a:.40}")
    return int(found)


def _within(name: str, text: str, low: float, high: float) -> float:
    found = _real(name, text)
    if not low <= found <= high:
        raise InvalidArgument(f"{name} must lie between {low:g} and {high:g}, got {text!a:.40}")
    return found


def preset(recipe: str, form: PlanForm) -> PlanForm:
    """The form with a recipe's own data and settings; unknown ones are refused.

    The numbers of examples are public facts of the published data.
    """
    from tacit.data.sets import set_named  # noqa: PLC0415
    from tacit.recipes import find  # noqa: PLC0415 - PyTorch comes with a recipe's settings

    found = find(recipe)
    settings = found.settings(_within("epsilon", form.epsilon, 1e-3, 1e3))
    own = {name: f"{getattr(settings, name):g}" for name in ("lot", "epochs", "clip")
           if isinstance(getattr(settings, name, None), int | float)}  # fmt: skip
    own["examples"] = f"{set_named(found.data).examples[0]}"
    if own.get("lot") == own.get("examples"):
        own["sampling"] = "full"
    return replace(form, recipe=recipe, **own)


def cold() -> bool:
    """Whether the first answer has to wait for SciPy."""
    return "scipy.optimize" not in sys.modules


REFUSED: Final = (TacitError, ArithmeticError, ValueError, TypeError, MemoryError)
