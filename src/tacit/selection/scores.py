"""Scores by which runs are compared. A score is public, private, or part of what a run returns.

A score that reads private data without noise gives it away by which model wins: it is refused.
There is no way to see from a function what it reads, so whoever gives one says so by its type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from tacit._validation import positive, unit_of_privacy
from tacit.accounting.events import Composed, DiscreteLaplace, check_event
from tacit.errors import InvalidArgument
from tacit.mechanisms._keys import canonical
from tacit.mechanisms._records import entries
from tacit.randomness import discrete_laplace, fresh_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from tacit.accounting.events import Event


@final
@dataclass(frozen=True, slots=True, eq=False)
class PublicScore:
    """A score of a model that reads nothing private: public data, the model's size, its speed.

    Guarantee:
        None of its own: that ``function`` reads no private data is for its giver to see to. The
        statement of the search says that this was assumed.
    """

    function: Callable[[Any], float]

    def __post_init__(self) -> None:
        _check_function(self.function)


@final
@dataclass(frozen=True, slots=True, eq=False)
class PrivateScore:
    """A score that reads private data and is itself differentially private.

    Args:
        function: Gives a model's score, with noise from a cryptographic stream.
        event: What one score releases; it is charged beside each run's training.
        unit: Whom the event protects, ``"example"`` or ``"user"``; None for whom the search does.
    """

    function: Callable[[Any], float]
    event: Event
    unit: str | None = None

    def __post_init__(self) -> None:
        _check_function(self.function)
        check_event(self.event)
        if self.unit is not None:
            unit_of_privacy(self.unit)


@final
@dataclass(frozen=True, slots=True)
class ReturnedScore:
    """The score that the training function returns with the model, in a ``Scored``.

    The event of a run must cover it as it covers the model.
    """


@final
@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What a training function returns with ``ReturnedScore``: the model, and its private score."""

    model: Any
    score: float


Score: TypeAlias = PublicScore | PrivateScore | ReturnedScore


def check_score(score: object) -> Score:
    """Returns ``score`` if it says what it reads, else refuses it."""
    if isinstance(score, PublicScore | PrivateScore | ReturnedScore):
        return score
    raise InvalidArgument(
        f"score must be a PublicScore, a PrivateScore or ReturnedScore(), got {score!r}; a score "
        "that reads private data without noise would void the guarantee"
    )


def with_score(event: Event, score: Score) -> Event:
    """What one run releases: its training, and its score if that is charged apart."""
    return Composed(event, score.event) if isinstance(score, PrivateScore) else event


def apply_score(score: Score, result: Any) -> tuple[Any, float]:
    """The model and its score; a score that is no number (NaN) is the worst there is."""
    if isinstance(score, ReturnedScore):
        if not isinstance(result, Scored):
            raise InvalidArgument(
                f"train must return Scored(model, score) with ReturnedScore, got {type(result)!r}"
            )
        model, value = result.model, result.score
    else:
        model, value = result, score.function(result)
    number = float(value)
    return model, -math.inf if math.isnan(number) else number


def public_set(data: ArrayLike, labels: ArrayLike) -> PublicScore:
    """``model.score(data, labels)`` on public data."""
    return PublicScore(_OnSet(data, labels))


def noisy_accuracy(data: ArrayLike, labels: ArrayLike, epsilon: float) -> PrivateScore:
    """The share of ``model.predict(data)`` that is right, with discrete Laplace noise on the count.

    Guarantee:
        Each score is ε-differentially private, for adding, removing, replacing or zeroing out a
        row: one row changes the count of right answers by at most 1. A search for users, who may
        have many rows, refuses it. The number of rows is public:
        the count is divided by it. Labels are compared one by one, and one that no model could
        predict (missing, say) counts as wrong. That ``predict`` treats each row by itself, and
        refuses none, is for the model to see to; those of ``tacit.convex`` do.
    """
    scale = 1.0 / positive("epsilon", epsilon)
    event = DiscreteLaplace(scale, sensitivity=1, replace_distance=1.0)
    if isinstance(data, list | tuple):
        raise InvalidArgument(
            "data must be an array, for what is in a list decides its type; give "
            "np.asarray(data, dtype=float)"
        )
    rows, known = np.asarray(data), tuple(map(canonical, entries("labels", labels)))
    if len(known) != len(rows):
        raise InvalidArgument("labels must be as many as the rows of data")
    return PrivateScore(_NoisyShare(rows, known, scale), event, unit="example")


@dataclass(frozen=True, slots=True, eq=False)
class _OnSet:
    data: ArrayLike
    labels: ArrayLike

    def __call__(self, model: Any) -> float:
        return float(model.score(self.data, self.labels))


@dataclass(frozen=True, slots=True, eq=False)
class _NoisyShare:
    data: Any
    labels: tuple[Any, ...]
    scale: float

    def __call__(self, model: Any) -> float:
        answers = map(canonical, entries("answers", model.predict(self.data)))
        pairs = zip(answers, self.labels, strict=True)
        right: int = sum(answer is not None and answer == label for answer, label in pairs)
        noise = discrete_laplace(self.scale, 1, fresh_stream("score"))
        return (right + int(noise[0])) / max(1, len(self.labels))


def _check_function(function: object) -> None:
    if not callable(function):
        raise InvalidArgument(f"function must be callable with a model, got {function!r}")
