"""``tacit plan``: what a training run would give away, before it is run."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tacit._numbers import compact, duration, nearest, percent, rounded_down, rounded_up
from tacit.accounting.events import Adjacency, check_adjacency
from tacit.cli import options
from tacit.cli.options import OptionType, Refusal, picture_file
from tacit.cli.streams import say
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import RenderableType

    from tacit.accounting import Row
    from tacit.reports.plan_summary import AccountedRun, Demand, Odds, PlanSummary


EPILOG = """\b
Examples:
  tacit plan --examples 60000 --lot 600 --epochs 100 --sigma 4 --delta 1e-5
  tacit plan --examples 60000 --lot 600 --epochs 100 --epsilon 2 --delta 1e-5
  tacit plan --rate 0.01 --steps 10000 --sigma 4 --delta 1e-5 --plot plan.png
  tacit plan --rate 0.01 --steps 10000 --sigma 4 --delta 1e-5 --json
"""


ADJACENCIES: tuple[str, ...] = get_args(Adjacency)
_LEAST_RATE = 1e-7


@dataclass(frozen=True)
class Options:
    """The options that describe a run; None where one was not given."""

    examples: int | None = None
    lot: int | None = None
    rate: float | None = None
    epochs: float | None = None
    steps: int | None = None
    sigma: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    adjacency: Adjacency = "add-remove"


def _rate_of(option: str, text: str, remedy: str) -> float:
    rate = options.probability(option, text, remedy)
    if 0.0 < rate < _LEAST_RATE:
        raise Refusal(f"{option} must be 0 or at least {_LEAST_RATE:g}, got {text}; {remedy}")
    return rate


def _steps_of(option: str, text: str, remedy: str) -> int:
    return options.steps_of(option, text, options.whole(option, text, remedy))


def _sigma_of(option: str, text: str, remedy: str) -> float:
    return _within(option, text, remedy, 1e-2, 1e6)


def _epsilon_of(option: str, text: str, remedy: str) -> float:
    return _within(option, text, remedy, 1e-4, 1e4)


def _within(option: str, text: str, remedy: str, low: float, high: float) -> float:
    """A positive number within what a plan can be computed for."""
    value = options.positive(option, text, remedy)
    if not low <= value <= high:
        raise Refusal(f"{option} must be between {low:g} and {high:g}, got {text}; {remedy}")
    return value


def _adjacency_of(option: str, text: str, remedy: str) -> Adjacency:
    try:
        return check_adjacency(text)
    except InvalidArgument:
        raise Refusal(f"{option} must be {remedy}, got {text}") from None


WHO = "give the number of examples, such as 60000"
LOT = "give the expected number of examples in a lot, such as 600"
RATE = "give the chance that one example is in a lot, such as 0.01"
PASSES = "give the passes over the data, such as 100"
STEPS = "give the number of noisy steps, such as 10000"
NOISE = "give the noise over the clip, such as 4"
TARGET = "give the guarantee to reach, such as 2"
SMALL = "give a number well below 1/examples, such as 1e-5"


@click.command(epilog=EPILOG, short_help="Says what a run gives away, before you train.")
@click.option(
    "--examples",
    metavar="N",
    type=OptionType("number", options.whole, WHO),
    help="Number of examples in the data; it is public.",
)
@click.option(
    "--lot",
    metavar="L",
    type=OptionType("number", options.whole, LOT),
    help="Expected number of examples in a lot: each joins it with probability L/N.",
)
@click.option(
    "--rate",
    metavar="Q",
    type=OptionType("rate", _rate_of, RATE),
    help="The sampling rate itself, instead of --lot.",
)
@click.option(
    "--epochs",
    metavar="E",
    type=OptionType("number", options.positive, PASSES),
    help="Expected passes over the data.",
)
@click.option(
    "--steps",
    metavar="T",
    type=OptionType("number", _steps_of, STEPS),
    help="Number of noisy steps, instead of --epochs.",
)
@click.option(
    "--sigma",
    metavar="S",
    type=OptionType("number", _sigma_of, NOISE),
    help="Noise multiplier: the noise's standard deviation over the clip.",
)
@click.option(
    "--epsilon",
    metavar="EPS",
    type=OptionType("number", _epsilon_of, TARGET),
    help="The epsilon to find the least noise for, instead of --sigma.",
)
@click.option(
    "--delta",
    metavar="D",
    type=OptionType("number", options.open_probability, SMALL),
    help="The delta of the guarantee, well below 1/N.",
)
@click.option(
    "--adjacency",
    metavar="KIND",
    type=OptionType("kind", _adjacency_of, f"one of {', '.join(ADJACENCIES)}"),
    default=ADJACENCIES[0],
    help=f"Which data sets are neighbours: {', '.join(ADJACENCIES)}.",
    show_default=True,
)
@click.option("--plot", metavar="FILE", help="Draw the plan, as .png or .svg.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def plan(plot: str | None, as_json: bool, **given: Any) -> None:
    """Says what a private training run gives away, by every accountant, and what an attacker gains.

    Each of T steps draws a Poisson sample of the examples, adds up their clipped gradients and
    adds Gaussian noise of S times the clip.
    """
    from tacit.training.progress import waiting

    request = read(Options(**given))
    picture = None if plot is None else picture_file("--plot", plot)
    with waiting(sys.stderr.isatty(), "asking the accountants"):
        summary = _summary(request)
    if picture is not None:
        _draw(summary, picture)
    if as_json:
        say(json.dumps(summary.as_dict() | {"plot": plot}, indent=2, allow_nan=False))
    else:
        _show(summary, picture)


def _summary(request: PlanRequest) -> PlanSummary:
    # NumPy and SciPy come with these: a refusal need not wait for them.
    from tacit.accounting import noise_multiplier
    from tacit.reports.plan_summary import AccountedRun, summarise

    sigma = request.sigma
    if sigma is None:
        assert request.target is not None
        sigma = noise_multiplier(
            epsilon=request.target,
            delta=request.delta,
            sample_rate=request.rate,
            steps=request.steps,
            adjacency=request.adjacency,
        )
    setting = AccountedRun(
        rate=request.rate,
        steps=request.steps,
        sigma=sigma,
        delta=request.delta,
        adjacency=request.adjacency,
        examples=request.examples,
        lot=request.lot,
    )
    return summarise(setting, request.target)


def _draw(summary: PlanSummary, picture: Path) -> None:
    from tacit.reports.plan_figure import write

    try:
        write(summary, picture)
    except OSError as error:
        raise Refusal(f"--plot {picture} cannot be written: {error.strerror or error}") from None


def _show(summary: PlanSummary, picture: Path | None) -> None:
    from tacit.cli.page import say_page
    from tacit.cli.plan import page

    say_page(page(summary))
    if picture is not None:
        say(f"The picture is at {picture}")


# ---- the run that the options describe, or one line of refusal


@dataclass(frozen=True)
class PlanRequest:
    """A run to account for: with its noise ``sigma``, or a ``target`` ε to find it for."""

    rate: float
    steps: int
    sigma: float | None
    target: float | None
    delta: float
    adjacency: Adjacency
    examples: int | None
    lot: int | None


def read(given: Options) -> PlanRequest:
    """Refuses options that contradict each other or are missing."""
    _refuse_contradictions(given)
    if given.delta is None:
        raise Refusal(f"--delta is missing; {SMALL}")
    rate = _rate(given)
    return PlanRequest(
        rate=rate,
        steps=_steps(given, rate),
        sigma=given.sigma,
        target=given.epsilon,
        delta=given.delta,
        adjacency=given.adjacency,
        examples=given.examples,
        lot=given.lot,
    )


def _refuse_contradictions(given: Options) -> None:
    options.exactly_one(
        {"--lot": given.lot, "--rate": given.rate},
        "say who is sampled with --examples 60000 --lot 600, or with --rate 0.01",
    )
    options.exactly_one(
        {"--epochs": given.epochs, "--steps": given.steps},
        "say how long the run is, such as --epochs 100 or --steps 10000",
    )
    options.exactly_one(
        {"--sigma": given.sigma, "--epsilon": given.epsilon},
        "give the noise, such as --sigma 4, or the guarantee to find it for, such as --epsilon 2",
    )


def _rate(given: Options) -> float:
    if given.rate is not None:
        return given.rate
    lot, examples = given.lot, given.examples
    if lot is None or examples is None:
        raise Refusal(f"--lot {lot} needs --examples; {WHO}")
    if lot > examples:
        raise Refusal(f"--lot must be at most --examples {examples}, got {lot}; take a smaller lot")
    return lot / examples


def _steps(given: Options, rate: float) -> int:
    if given.steps is not None:
        return given.steps
    epochs, examples, lot = given.epochs, given.examples, given.lot
    assert epochs is not None  # one of both is there
    if rate == 0.0:
        raise Refusal(f"--epochs {compact(epochs)} never ends at --rate 0; give --steps")
    exact = epochs / rate if examples is None or lot is None else epochs * examples / lot
    return options.steps_of("--epochs", compact(epochs), exact)


# ---- the page for people


ARGUMENTS = {
    "exact": "the tight answer, certified",
    "rdp": "Rényi divergences at the best order",
    "moments": "moments accountant, orders up to 32",
    "zcdp": "concentrated privacy",
    "gdp": "Gaussian privacy, where it is exact",
    "gdp-clt": "approximation, not a bound",
    "advanced": "strong composition",
    "basic": "ε and δ added up",
}
NEIGHBOURS = {
    "add-remove": "one example added or removed",
    "replace-one": "one example replaced by another",
    "zero-out": "one example made to count for nothing",
}
NO_ANSWER = "–"
BAR = 44
MARGIN = 2


def page(summary: PlanSummary) -> Iterator[RenderableType]:
    """The parts of the page, from top to bottom."""
    yield _run(summary.setting)
    yield ""
    yield _answer(summary)
    yield from _careless_delta(summary.setting)
    yield _accountants(summary)
    yield from _reasons(summary)
    yield from _attacker(summary.odds)
    yield ""
    yield from _curve(summary)


def _run(setting: AccountedRun) -> Text:
    rate = f"rate {compact(setting.rate)}"
    if setting.examples is not None and setting.lot is not None:
        rate = f"{setting.examples:,} examples in lots of {setting.lot:,} ({rate})"
    steps = "1 step" if setting.steps == 1 else f"{setting.steps:,} steps"
    return Text.assemble(
        ("Plan: ", "bold"),
        f"{rate}, {steps} ({compact(setting.epochs)} epochs), "
        f"σ = {rounded_up(setting.sigma, 8)}; neighbours: {NEIGHBOURS[setting.adjacency]}.",
    )


def _answer(summary: PlanSummary) -> Text:
    interval, delta = summary.interval, compact(summary.setting.delta)
    text = Text()
    if summary.target is not None:
        text.append(f"σ = {rounded_up(summary.setting.sigma, 8)}", "bold green")
        tight = interval.upper > 0.999 * summary.target  # else less might do, and nobody knows
        what = "the least noise" if tight else "noise enough"
        text.append(f" is {what} for ε = {compact(summary.target)} at δ = {delta}.\n")
    text.append(f"ε ≤ {rounded_up(interval.upper)}", "bold green")
    text.append(f" at δ = {delta}. ")
    if not interval.two_sided:
        return text.append("This is an upper bound; the truth may be smaller.")
    low, high = rounded_down(interval.lower, 10), rounded_up(interval.upper, 10)
    return text.append(f"Certified: the truth lies between {low} and {high}.")


def _careless_delta(setting: AccountedRun) -> Iterator[Text]:
    if setting.examples is not None and setting.delta * setting.examples >= 1.0:
        yield Text(
            f"Careful: δ = {compact(setting.delta)} is not below 1/{setting.examples:,}. "
            "Publishing one example outright would meet it; take a much smaller one.",
            style="bold red",
        )


def _accountants(summary: PlanSummary) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("accountant", no_wrap=True)
    table.add_column("ε at most", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    if summary.target is not None:
        table.add_column(f"σ for ε = {compact(summary.target)}", justify="right", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
    table.add_column("argument")
    demands = {demand.accountant: demand for demand in summary.demands}
    for row in summary.rows:
        table.add_row(*_cells(row, demands.get(row.accountant)), style=_style(row))
    return table


def _style(row: Row) -> str:
    return "bold" if row.accountant == "exact" else "" if row.is_bound else "dim"


def _cells(row: Row, demand: Demand | None) -> list[str]:
    cells = [row.accountant, _number(row.epsilon, row), duration(row.seconds)]
    if demand is not None:
        cells += [_number(demand.sigma, row), duration(demand.seconds)]
    return [*cells, ARGUMENTS.get(row.accountant, "")]


def _number(value: float | None, row: Row) -> str:
    if value is None:
        return NO_ANSWER
    if math.isinf(value):
        return "infinite"
    return rounded_up(value) if row.is_bound else f"≈ {nearest(value)}"


def _reasons(summary: PlanSummary) -> Iterator[Text]:
    """Why a table's cell holds no number."""
    notes = {row.accountant: row.note for row in summary.rows if row.epsilon is None}
    notes |= {
        demand.accountant: demand.note
        for demand in summary.demands
        if demand.sigma is None and demand.accountant not in notes
    }
    for accountant, note in notes.items():
        yield Text(f"{NO_ANSWER} {accountant}: {note}", style="dim")
    if notes:
        yield Text()


def _attacker(odds: Odds) -> Iterator[Text]:
    yield Text.assemble(
        ("What an attacker gains. ", "bold"),
        "Suppose that someone knows all the other examples, watches every step of the run, and "
        "must tell whether a given example was among the data (an insider) or not (an outsider). "
        "Whatever they do:",
    )
    for false, true in odds.catches:
        yield Text(
            f"  • flagging {compact(100 * false)}% of the outsiders by mistake, "
            f"they find at most {percent(true)} of the insiders;"
        )
    yield Text(
        f"  • if both are equally likely, they are right at most {percent(odds.right)} of the time;"
    )
    yield Text(
        f"  • the share of insiders flagged exceeds that of outsiders by at most "
        f"{percent(odds.advantage)}."
    )


def _curve(summary: PlanSummary) -> Iterator[RenderableType]:
    yield Text("The privacy curve: ε for each δ", style="bold")
    largest = max((point[1] for point in summary.curve if math.isfinite(point[1])), default=0.0)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("δ", justify="right", no_wrap=True)
    table.add_column("ε at most", justify="right", no_wrap=True)
    table.add_column("")
    for delta, epsilon in summary.curve:
        own = delta == summary.setting.delta
        table.add_row(
            compact(delta), rounded_up(epsilon), _bar(epsilon, largest), style="bold" if own else ""
        )
    yield table


def _bar(value: float, largest: float) -> str:
    if not 0.0 < value <= largest:
        return ""
    return "█" * max(1, round(BAR * value / largest))
