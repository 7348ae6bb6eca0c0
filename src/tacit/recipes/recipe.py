"""A recipe as data: what it trains on, its settings, how it trains, and what was published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.recipes.running.job import Job
    from tacit.recipes.running.trained import Trained


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A published result to compare with.

    Args:
        epsilon: The ε that it claims, at δ = 1e-5 unless ``source`` says otherwise.
        accuracy: The test accuracy, in per cent.
        source: Who published it, and where in the paper.
        shortcuts: What it did that the recipe does not, such as shuffling where it accounts for
            Poisson sampling.
    """

    epsilon: float
    accuracy: float
    source: str
    shortcuts: str


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recipe:
    """A named experiment.

    Args:
        name: What it is called, in lower case with hyphens.
        summary: What it does, in one line.
        data: The data set, by its name in ``tacit.data``.
        settings: The default settings for an ε: a frozen dataclass whose fields are numbers,
            texts, truth values or one of ``Literal``.
        train: Trains by the settings of a job, through the job's methods.
        anchors: What was published.
        tuning: How the default settings were found, in words, for the statement: what is not
            charged must be said.
    """

    name: str
    summary: str
    data: str
    settings: Callable[[float], Any]
    train: Callable[[Job], Trained]
    anchors: tuple[Anchor, ...] = ()
    tuning: str
