"""A statement in plain words. What is called a bound is rounded to the side where it stays one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tacit._numbers import compact, factors, per_hundred, rounded_down, rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tacit.statement.claim import Statement
    from tacit.statement.figures import Figures

VOID: Final = "a fixed seed was used for sampling and noise, which voids it"
NEIGHBOURS: Final = {
    "add-remove": "one {unit} is added or removed",
    "replace-one": "one {unit} is replaced by another",
    "zero-out": "one {unit} is made to count for nothing",
}
_OTHERWISE: Final = {
    "add-remove": "had it not been there",
    "replace-one": "had another been in its place",
    "zero-out": "had it counted for nothing",
}
# Events of which nothing is known but a guarantee, which may itself rest on sampling.
_GIVEN: Final = frozenset(
    {
        "PureDp", "ApproxDp", "ZeroConcentrated", "TruncatedConcentrated", "RenyiCurve",
        "LossDistribution",
    }
)  # fmt: skip


def describe(statement: Statement) -> str:
    """The whole statement, a fact a line."""
    return "\n".join(_lines(statement))


def _lines(statement: Statement) -> Iterator[str]:
    yield claim(statement)
    yield f"Neighbours: two data sets in which {neighbours(statement)}."
    if statement.threat_model is not None:
        yield f"Who sees what: {statement.threat_model}."
    yield from (f"Released: {one}." for one in statement.releases)
    yield f"Mechanism: {mechanism(statement.event)}."
    yield f"Sampling: {statement.sampling}. Noise: {statement.noise}."
    yield f"Sampling as the accountant assumes it: {assumed_sampling(statement.event)}."
    if statement.randomness is not None:
        yield f"Randomness and floating point: {statement.randomness}."
    if statement.steps_planned is not None:
        reason = f" {statement.stopped_early}" if statement.stopped_early else ""
        yield f"{statement.steps_taken} of {statement.steps_planned} steps were taken.{reason}"
    if not statement.void:
        yield from _figures(statement)
    yield from preprocessing(statement)
    yield tuning(statement)
    yield from (f"It assumes: {one}" for one in statement.assumptions)
    yield from (f"It does not promise: {one}" for one in statement.not_promised)
    if statement.ledger is not None:
        yield f"It is charged in the ledger as {statement.ledger}."
    if statement.configuration is not None:
        yield f"Configuration: SHA-256 {statement.configuration}."
    yield made_by(statement)
    for one in statement.findings():
        yield f"{one.standing.capitalize()}: {one.what} ({one.how})."


def _figures(statement: Statement) -> Iterator[str]:
    """What follows from the event, if it is what happened."""
    figures = statement.figures()
    yield bracket(statement, figures)
    yield f"{curve(figures)} {gaussian(figures)}"
    yield from (f"{one}." for one in attack(statement, figures))
    yield utility(statement)
    if statement.data_dependent is not None:
        yield statement.data_dependent.describe()


def claim(statement: Statement) -> str:
    """The headline: (ε, δ), for whom, proved by what."""
    if statement.void:
        return f"This release has no guarantee: {VOID}."
    delta = compact(statement.delta, 10)
    if math.isinf(statement.epsilon):
        return f"This release has no guarantee: its ε at δ = {delta} is infinite."
    return (
        "This release is (ε, δ)-differentially private with "
        f"ε = {rounded_up(statement.epsilon)} and δ = {delta} for every single "
        f"{statement.unit}, under {statement.adjacency}, as the accountant "
        f"{statement.accountant!r} proves."
    )


def neighbours(statement: Statement) -> str:
    """The adjacency, of the statement's unit."""
    return NEIGHBOURS[statement.adjacency].format(unit=statement.unit)


def mechanism(event: Mapping[str, Any]) -> str:
    """An event with every number of it.

    >>> mechanism({"kind": "Repeated", "event": {"kind": "PureDp", "epsilon": 0.1}, "times": 3})
    '3 times (PureDp with epsilon = 0.1)'
    """
    match event:
        case {"kind": "Gaussian", "sigma": sigma, "replace_distance": distance}:
            named = (
                "" if distance == 2.0 else f" (replacing one moves {_number(distance)} times that)"
            )
            return f"Gaussian noise of σ = {_number(sigma)} times one record's largest part{named}"
        case {"kind": "Repeated", "event": inner, "times": times}:
            return f"{times:,} times ({mechanism(inner)})"
        case {"kind": "Composed", "events": events}:
            return "; and ".join(map(mechanism, events)) or "nothing is released"
        case {"kind": "PoissonSampled", "rate": rate, "event": inner}:
            cut = "" if event["cap"] is None else f", cut down to {event['cap']:,} records"
            return f"on a Poisson sample of rate {_number(rate)}{cut}: {mechanism(inner)}"
        case {"kind": "RandomAllocation", "steps": steps, "event": inner, "epochs": epochs}:
            visits = event["visits"]
            lots = "one" if visits == 1 else f"{visits:,}"
            return (
                f"{epochs:,} epochs of {steps:,} releases, in {lots} of which each record takes "
                f"part, at random: {mechanism(inner)}"
            )
        case _:
            return _generic(event)


def _generic(event: Mapping[str, Any]) -> str:
    parts = [
        f"{name} = {mechanism(value) if isinstance(value, dict) else _number(value)}"
        for name, value in event.items()
        if name != "kind"
    ]
    return f"{event.get('kind')} with {', '.join(parts)}" if parts else str(event.get("kind"))


def _number(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def assumed_sampling(event: Mapping[str, Any]) -> str:
    """What the accountant takes for granted of who is in a sample.

    >>> assumed_sampling({"kind": "Gaussian", "sigma": 1.0, "replace_distance": 2.0})
    'none: every record takes part in every release'
    """
    found = dict.fromkeys(_sampled(event))
    return "; ".join(found) or "none: every record takes part in every release"


def _sampled(event: object) -> Iterator[str]:
    if isinstance(event, list):
        for one in event:
            yield from _sampled(one)
    if not isinstance(event, dict):
        return
    match event:
        case {"kind": "PoissonSampled", "rate": rate, "cap": cap}:
            cut = "" if cap is None else f"; a sample above {cap:,} is cut to that many at random"
            yield (
                "Poisson: each record is in each sample with probability "
                f"{_number(rate)}, independently of all others and of all other samples{cut}"
            )
        case {"kind": "RandomAllocation", "steps": steps, "visits": visits}:
            lots = "exactly one" if visits == 1 else f"{visits:,} different ones"
            yield (
                f"allocation: each record is in {lots} of the {steps:,} releases of every epoch, "
                "all equally likely, independently of all others and of all other epochs"
            )
        case {"kind": "SampledWithoutReplacement" | "SampledWithReplacement" as kind}:
            how = "different" if kind == "SampledWithoutReplacement" else "independent"
            yield (
                f"each sample is {event['size']:,} {how} draws from {event['population']:,} "
                "records, drawn afresh"
            )
        case {"kind": kind} if kind in _GIVEN:
            yield f"what {kind} rests on, which is not in the event: its figures are as given"
    for value in event.values():
        yield from _sampled(value)


def bracket(statement: Statement, figures: Figures) -> str:
    """The certified ends of ε."""
    upper = _shown(figures.upper, 10)
    if not figures.two_sided:
        return (
            f"Certified: at δ = {compact(statement.delta, 10)} the event's ε is at most {upper} "
            f"({figures.method}); the truth may be smaller."
        )
    lower = "infinite" if math.isinf(figures.lower) else rounded_down(figures.lower, 10)
    return (
        f"Certified: at δ = {compact(statement.delta, 10)} the event's ε lies between {lower} and "
        f"{upper} ({figures.method})."
    )


def curve(figures: Figures) -> str:
    """ε at several δ: one release, several ways to say it."""
    pairs = (
        f"ε = {_shown(epsilon)} at δ = {compact(delta, 10)}" for delta, epsilon in figures.curve
    )
    return f"The same release is (ε, δ)-private with {', '.join(pairs)}."


def gaussian(figures: Figures) -> str:
    """The Gaussian guarantee."""
    smallest = compact(figures.mu_smallest_delta, 10)
    if figures.mu is None:
        return "No μ is claimed for it."
    return f"It is μ-GDP with μ = {rounded_up(figures.mu)} for every δ from {smallest} up."


def attack(statement: Statement, figures: Figures) -> Iterator[str]:
    """What the best attack on one unit's presence can reach."""
    unit = statement.unit
    for false, true in figures.attack:
        yield (
            f"No attack on whether one {unit} was in the data that raises a false alarm for "
            f"{100 * false:g} % of those who were not finds more than "
            f"{per_hundred(true)} % of those who were"
        )


def utility(statement: Statement) -> str:
    """The bound on anyone's expected utility.

    For u with values in [0, 1]: E[u(M(D))] ≤ e^ε·E[u(M(D'))] + δ, and the same with D and D'
    exchanged (Dwork & Roth 2014, section 2.3.1, with δ).
    """
    if math.isinf(statement.epsilon):
        return "Nothing bounds what the release may do to anyone."
    most, least = factors(statement.epsilon)
    return (
        "Score whatever may come of this release for anyone, from 0 (worst) to 1 (best). With a "
        f"given {statement.unit} in the data, the expected score is at most {most} (e^ε) times "
        f"what it would be {_OTHERWISE[statement.adjacency]}, plus δ = "
        f"{compact(statement.delta, 10)}; and at least {least} (e^-ε) times (the latter minus δ)."
    )


def preprocessing(statement: Statement) -> Iterator[str]:
    """What was done with the data before, and whether the claim covers it."""
    for one in statement.preprocessing:
        if one.event is None:
            yield f"Preprocessing, which looks at no data and costs nothing: {one.what}."
        else:
            yield f"Preprocessing, covered: {one.what} ({mechanism(one.event)})."
    if not statement.preprocessing:
        yield "Preprocessing: none is stated, so none that depends on the data is covered."


def tuning(statement: Statement) -> str:
    """How hyper-parameters were found."""
    if statement.tuning is None:
        return (
            "Tuning: nothing is stated; if the same data helped to choose the hyper-parameters, "
            "that is not covered."
        )
    return f"Tuning: {statement.tuning}."


def made_by(statement: Statement) -> str:
    """The software."""
    torch = f", PyTorch {statement.torch_version}" if statement.torch_version else ""
    named = {"tacit", "torch"}
    others = "".join(
        f", {name} {is_}" for name, is_ in statement.versions.items() if name not in named
    )
    return f"Made by tacit {statement.tacit_version}{torch}{others}."


def _shown(epsilon: float, digits: int = 6) -> str:
    return "infinite" if math.isinf(epsilon) else rounded_up(epsilon, digits)
