"""The ways to transfer knowledge: PATE, Private-kNN and reverse-kNN, each a value.

A method's own file, and PyTorch, are imported when it is asked for: listing names must not cost
that. What its settings cost, and which noise meets an ε, is found here for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, final

from tacit.accounting import calibrate
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.recipes.transferring.splits import DATASETS
from tacit.runs import settings as settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tacit.accounting.events import Adjacency, Event
    from tacit.recipes.transferring.splits import Parts
    from tacit.recipes.transferring.student import Transferred, TransferSettings
    from tacit.runs import Anchor, Job

METHODS: Final = ("pate", "knn", "rknn")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Method:
    """PATE, Private-kNN or reverse-kNN.

    Args:
        name: What the command calls it.
        summary: What it does, in one line.
        transfer: Carries it out.
        defaults: The settings for each data set; they say themselves what they cost.
        epsilons: The ε to find the noise for if nothing is given, by data set; where there is none
            the default noise stands.
        anchors: What was published, by data set.
        compared: What was compared to find the default settings, for the statement.
    """

    name: str
    summary: str
    transfer: Callable[[Job, Parts], Transferred]
    defaults: Mapping[str, TransferSettings]
    compared: str
    epsilons: Mapping[str, float] = field(default_factory=dict)
    anchors: Mapping[str, tuple[Anchor, ...]] = field(default_factory=dict)

    def tuning(self, dataset: str) -> str:
        """How the default settings for a data set were found, for the statement."""
        match dataset:
            case "mnist":
                return (
                    f"{self.compared} were compared on parts of the training images, but for one "
                    "change of the student that was taken back after a look at the evaluated ones; "
                    "this choice is not charged"
                )
            case "digits":
                return (
                    f"{self.compared} were tried out on digits, its evaluated images included: "
                    "this is a demonstration, not a measurement; the choice is not charged"
                )
            case "svhn" | "cifar10":
                return (
                    "features, neighbours and teachers were compared on training images by how "
                    "many labels were right, and students by what they learned from such labels; "
                    "this choice is not charged"
                )
            case _:
                return (
                    f"{self.compared} are not tuned for {dataset}: they follow those for mnist and "
                    "what was published; this choice is not charged"
                )


# ---- by name


def find(name: str) -> Method:
    """The method of this name.

    >>> find("knn").summary
    'the private neighbours of each public image vote on it (Private-kNN)'
    """
    _known("method", name, METHODS)
    found: Method = import_module(f"tacit.recipes.transferring.{name}").METHOD
    return found


def check_dataset(name: str) -> str:
    """``name``, if there is such a data set to transfer knowledge of."""
    return _known("dataset", name, DATASETS)


def title(method: str, dataset: str) -> str:
    """What a run is called in its record.

    >>> title("pate", "mnist"), named("pate-mnist")
    ('pate-mnist', ('pate', 'mnist'))
    """
    return f"{method}-{dataset}"


def named(recipe: str) -> tuple[str, str]:
    """The method and the data set of a record."""
    method, _, dataset = recipe.partition("-")
    if method not in METHODS or dataset not in DATASETS:
        raise InvalidArgument(
            f"{recipe!r} is no transfer; a run that tacit train began goes on with tacit train"
        )
    return method, dataset


def _known(what: str, name: str, known: tuple[str, ...]) -> str:
    if name in known:
        return name
    close = get_close_matches(str(name), known, 1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    raise InvalidArgument(f"there is no {what} {name!r}; {meant}there are {', '.join(known)}")


# ---- settings and ε


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
    settings: TransferSettings = settings_of.changed(method.defaults[dataset], given)
    settings.check()
    for name, others in settings.idle.items():
        if name in given:
            raise InvalidArgument(
                f"{name}={given[name]} has no effect with {others}; leave it out or change that"
            )
    if not settings.least_delta < delta:
        raise InvalidArgument(
            f"delta must be above the {settings.least_delta:g} of it that these settings cost "
            f"whatever their noise, got {delta:g}; give a larger delta or a smaller failure"
        )
    noisy = [name for name in settings.noises if name in given]
    if epsilon is not None and noisy:
        raise InvalidArgument(
            f"epsilon={epsilon:g} and {noisy[0]}={given[noisy[0]]} contradict each other; give "
            "one: the other follows"
        )
    goal = epsilon if epsilon is not None or noisy else method.epsilons.get(dataset)
    if goal is None:
        return settings, cost(settings, delta, adjacency)
    return calibrated(settings, goal, delta, adjacency), goal


def cost(settings: TransferSettings, delta: float, adjacency: Adjacency) -> float:
    """The ε of all that a run with these settings releases."""
    return epsilon_of(settings.event(adjacency), delta, adjacency=adjacency)


def calibrated(
    settings: TransferSettings,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add-remove",
) -> Any:
    """``settings`` with all noises larger or smaller by one factor, so that they just meet (ε, δ).

    Guarantee:
        The event of the result is (ε, δ)-differentially private, as the exact accountant proves.
    """

    def scaled(factor: float) -> TransferSettings:
        noises = {name: factor * getattr(settings, name) for name in settings.noises}
        return replace(settings, **noises)

    def event(factor: float) -> Event:
        return scaled(factor).event(adjacency)

    return scaled(calibrate(event, epsilon, delta, adjacency=adjacency))
