"""A case of a mechanism's audit: two neighbouring inputs, and a score of what is released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.mechanisms import Released
    from tacit.randomness import Stream

MANY = 1_000_000
SOME = 10_000  # for mechanisms that are called once a draw, in a fraction of a millisecond
FEW = 2_000  # for those that take milliseconds


@dataclass(frozen=True)
class Asked:
    """What a mechanism is asked for, and where its random bytes come from."""

    epsilon: float
    delta: float
    stream: Stream


@dataclass(frozen=True, eq=False)
class Drawn:
    """Scores of independent draws on one input, and what the mechanism claimed for each."""

    scores: NDArray[np.float64]
    event: Event
    adjacency: Adjacency


@dataclass(frozen=True)
class Case:
    """How a mechanism is audited.

    Attributes:
        name: For ``audit_mechanism``.
        pair: The two inputs, in words.
        score: The score, in words. The ratio of the two laws' densities, or an increasing function
            of it, is the best there is.
        draw: Draws on the input with the record (True) or on its neighbour, so many, as asked.
        draws: How many on each, unless said otherwise.
        gaussian: Whether scores are Gaussian if the mechanism is right.
    """

    name: str
    pair: str
    score: str
    draw: Callable[[bool, int, Asked], Drawn]
    draws: int = MANY
    gaussian: bool = False


def at_once(released: Released[Any], scores: ArrayLike) -> Drawn:
    """The draws of one call that noises many numbers, each by itself."""
    return Drawn(np.asarray(scores, dtype=np.float64), released.event, released.adjacency)


def one_by_one(
    release: Callable[[], Released[Any]], score: Callable[[Any], float], draws: int
) -> Drawn:
    """The draws of as many calls."""
    last = release()
    scores = [score(last.value)]
    for _ in range(draws - 1):
        last = release()
        scores.append(score(last.value))
    return at_once(last, scores)
