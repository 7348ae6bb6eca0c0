"""The options of ``tacit plan``, checked: a run to account for, or one line of refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from tacit.accounting.events import Adjacency, check_adjacency
from tacit.cli import options
from tacit.cli.options import Refusal
from tacit.errors import InvalidArgument

ADJACENCIES: tuple[str, ...] = get_args(Adjacency)

_LEAST_RATE = 1e-7


@dataclass(frozen=True)
class Typed:
    """The options as they were typed; None where one was not."""

    examples: str | None = None
    lot: str | None = None
    rate: str | None = None
    epochs: str | None = None
    steps: str | None = None
    sigma: str | None = None
    epsilon: str | None = None
    delta: str | None = None
    adjacency: str = ADJACENCIES[0]


@dataclass(frozen=True)
class Request:
    """A run to account for: with its noise ``sigma``, or a ``target`` ε to find it for."""

    rate: float
    steps: int
    sigma: float | None
    target: float | None
    delta: float
    adjacency: Adjacency
    examples: int | None
    lot: int | None


def read(typed: Typed) -> Request:
    """Checks every option, the first bad one first."""
    _refuse_contradictions(typed)
    examples = _whole("--examples", typed.examples, "give the number of examples, as 60000")
    lot = _whole("--lot", typed.lot, "give the expected number of examples in a lot, as 600")
    rate = _rate(typed, examples, lot)
    return Request(
        rate=rate,
        steps=_steps(typed, rate, examples, lot),
        sigma=_within("--sigma", typed.sigma, 1e-2, 1e6, "give the noise over the clip, as 4"),
        target=_within("--epsilon", typed.epsilon, 1e-4, 1e4, "give the guarantee to reach, as 2"),
        delta=_delta(typed.delta),
        adjacency=_adjacency(typed.adjacency),
        examples=examples,
        lot=lot,
    )


def _refuse_contradictions(typed: Typed) -> None:
    options.exactly_one(
        {"--lot": typed.lot, "--rate": typed.rate},
        "say who is sampled with --examples 60000 --lot 600, or with --rate 0.01",
    )
    options.exactly_one(
        {"--epochs": typed.epochs, "--steps": typed.steps},
        "say how long the run is, as --epochs 100 or --steps 10000",
    )
    options.exactly_one(
        {"--sigma": typed.sigma, "--epsilon": typed.epsilon},
        "give the noise, as --sigma 4, or the guarantee to find it for, as --epsilon 2",
    )


def _rate(typed: Typed, examples: int | None, lot: int | None) -> float:
    if typed.rate is not None:
        remedy = "give the chance of one example to be in a lot, as 0.01"
        rate = options.probability("--rate", typed.rate, remedy)
        if 0.0 < rate < _LEAST_RATE:
            raise Refusal(
                f"--rate must be 0 or at least {_LEAST_RATE:g}, got {typed.rate}; {remedy}"
            )
        return rate
    if lot is None or examples is None:
        raise Refusal(f"--lot {typed.lot} needs --examples; give the number of examples, as 60000")
    if lot > examples:
        raise Refusal(f"--lot must be at most --examples {examples}, got {lot}; take a smaller lot")
    return lot / examples


def _steps(typed: Typed, rate: float, examples: int | None, lot: int | None) -> int:
    if typed.steps is not None:
        steps = options.whole("--steps", typed.steps, "give the number of noisy steps, as 10000")
        return options.steps_of("--steps", typed.steps, steps)
    assert typed.epochs is not None
    epochs = options.positive("--epochs", typed.epochs, "give the passes over the data, as 100")
    if rate == 0.0:
        raise Refusal(f"--epochs {typed.epochs} never ends at --rate {typed.rate}; give --steps")
    exact = epochs / rate if examples is None or lot is None else epochs * examples / lot
    return options.steps_of("--epochs", typed.epochs, exact)


def _whole(option: str, text: str | None, remedy: str) -> int | None:
    return None if text is None else options.whole(option, text, remedy)


def _positive(option: str, text: str | None, remedy: str) -> float | None:
    return None if text is None else options.positive(option, text, remedy)


def _within(option: str, text: str | None, low: float, high: float, remedy: str) -> float | None:
    """A positive number within what a plan can be computed for."""
    value = _positive(option, text, remedy)
    if value is not None and not low <= value <= high:
        raise Refusal(f"{option} must be between {low:g} and {high:g}, got {text}; {remedy}")
    return value


def _delta(text: str | None) -> float:
    remedy = "give a number well below 1/examples, as 1e-5"
    if text is None:
        raise Refusal(f"--delta is missing; {remedy}")
    return options.open_probability("--delta", text, remedy)


def _adjacency(text: str) -> Adjacency:
    try:
        return check_adjacency(text)
    except InvalidArgument:
        raise Refusal(f"--adjacency must be one of {', '.join(ADJACENCIES)}, got {text}") from None
