"""A way to transfer knowledge as data: its settings, what they cost, and how it is carried out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from tacit.accounting import calibrate
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.runs import settings as settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tacit.accounting.events import Adjacency, Event
    from tacit.recipes.transferring.splits import Parts
    from tacit.recipes.transferring.transferred import Transferred
    from tacit.runs import Anchor, Job


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Method:
    """PATE, Private-kNN or reverse-kNN.

    Args:
        name: What the command calls it.
        summary: What it does, in one line.
        settings: The default settings for a data set: a frozen dataclass, as a recipe's.
        check: Refuses settings that cannot be, before anything is begun,
        fits: and those that do not fit the data.
        event: All that a run with such settings releases, whatever the data are, as it is charged
            for such neighbours.
        noises: The settings that say how much noise is added; an ε given beforehand finds them.
        idle: The settings that have no effect beside the others, with the others that make it so.
        epsilon: The ε to find them for if nothing is said; None where their defaults stand.
        transfer: Carries it out.
        anchors: What was published for a data set.
        tuning: How the default settings for a data set were found, for the statement.
    """

    name: str
    summary: str
    settings: Callable[[str], Any]
    check: Callable[[Any], None]
    fits: Callable[[Any, Parts], None]
    event: Callable[[Any, Adjacency], Event]
    noises: Callable[[Any], tuple[str, ...]]
    idle: Callable[[Any], Mapping[str, str]]
    epsilon: Callable[[str], float | None]
    transfer: Callable[[Job, Parts], Transferred]
    anchors: Callable[[str], tuple[Anchor, ...]]
    tuning: Callable[[str], str]


def chosen(
    method: Method,
    dataset: str,
    given: Mapping[str, Any],
    *,
    epsilon: float | None,
    delta: float,
    adjacency: Adjacency = "add-remove",
) -> tuple[Any, float]:
    """The settings of a run and the ε of all that it will release.

    An ε and a noise contradict each other. Of neither, the method has its own. What is given and
    would have no effect is refused: whoever gives a threshold believes that queries are screened.

    Guarantee:
        The event of these settings is (ε, δ)-differentially private, for such neighbours.
    """
    settings = settings_of.changed(method.settings(dataset), given)
    method.check(settings)
    for name, others in method.idle(settings).items():
        if name in given:
            raise InvalidArgument(
                f"{name}={given[name]} has no effect with {others}; leave it out or change that"
            )
    noises = method.noises(settings)
    told = [name for name in noises if name in given]
    if epsilon is not None and told:
        raise InvalidArgument(
            f"epsilon={epsilon:g} and {told[0]}={given[told[0]]} contradict each other; give one: "
            "the other follows"
        )
    goal = epsilon if epsilon is not None or told else method.epsilon(dataset)
    if goal is None:
        return settings, cost(method, settings, delta, adjacency)
    return calibrated(method, settings, goal, delta, adjacency), goal


def cost(method: Method, settings: Any, delta: float, adjacency: Adjacency) -> float:
    """The ε of all that a run with these settings releases."""
    return epsilon_of(method.event(settings, adjacency), delta, adjacency=adjacency)


def calibrated(
    method: Method,
    settings: Any,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add-remove",
) -> Any:
    """``settings`` with all noises larger or smaller by one factor, so that they just meet (ε, δ).

    Guarantee:
        The event of the result is (ε, δ)-differentially private, as the exact accountant proves.
    """
    noises = method.noises(settings)

    def scaled(factor: float) -> Any:
        return replace(settings, **{name: factor * getattr(settings, name) for name in noises})

    def event(factor: float) -> Event:
        return method.event(scaled(factor), adjacency)

    return scaled(calibrate(event, epsilon, delta, adjacency=adjacency))
