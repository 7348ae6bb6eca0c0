"""Choosing queries by active learning: where the student has most to learn.

What to ask next is decided from public points and from the labels told before. That is
post-processing, and costs nothing; ``tacit.transfer.rounds`` asks in rounds chosen so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Indices = NDArray[np.int64]


def uncertain(
    scores: ArrayLike,
    count: int,
    *,
    among: ArrayLike | None = None,
    measure: Literal["margin", "entropy", "confidence"] = "margin",
) -> Indices:
    """The ``count`` points that a student is least sure of, the least sure first.

    Args:
        scores: Its probabilities, a row for each point.
        count: How many.
        among: The points to choose from; all if left out.
        measure: ``"margin"`` between the two likeliest classes, ``"entropy"``, or ``"confidence"``
            in the likeliest.

    >>> uncertain([[0.9, 0.1, 0.0], [0.4, 0.35, 0.25], [0.5, 0.49, 0.01]], 2).tolist()
    [2, 1]
    """
    given = np.asarray(scores, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] < 2 or not (given >= 0.0).all():
        raise InvalidArgument(
            f"scores must be a row of two or more probabilities for each point, got {given.shape}"
        )
    ranked = np.sort(given, axis=1)
    match measure:
        case "margin":
            sure = ranked[:, -1] - ranked[:, -2]
        case "entropy":
            sure = np.sum(given * np.log(np.maximum(given, np.finfo(np.float64).tiny)), axis=1)
        case "confidence":
            sure = ranked[:, -1]
        case _:
            raise InvalidArgument(
                f"measure must be 'margin', 'entropy' or 'confidence', got {measure!r}"
            )
    places = _places(among, len(given), count)
    return places[np.argsort(sure[places], kind="stable")[:count]]


def spread(
    features: ArrayLike,
    count: int,
    *,
    among: ArrayLike | None = None,
    chosen: ArrayLike = (),
) -> Indices:
    """``count`` points that leave none far from all of them: k-centre, greedily.

    Each is the one that lies farthest from all that were ``chosen`` before (Gonzalez 1985; Sener &
    Savarese 2018); the first, if none were, is the one nearest to the mean.

    >>> spread([[0.0], [0.1], [5.0], [5.2], [9.0]], 2, chosen=[0]).tolist()
    [4, 2]
    """
    points = np.asarray(features, dtype=np.float64)
    if points.ndim != 2 or not np.isfinite(points).all():
        raise InvalidArgument(
            f"features must be a row of finite numbers for each point, got shape {points.shape}"
        )
    places = _places(among, len(points), count)
    before = np.asarray(chosen, dtype=np.int64)
    far = np.full(len(places), np.inf)
    for one in before:
        far = np.minimum(far, _squares(points[places], points[one]))
    found: list[int] = []
    for _ in range(count):
        if before.size or found:
            best = int(np.argmax(far))
        else:
            best = int(np.argmin(_squares(points[places], points.mean(axis=0))))
        found.append(best)
        far = np.minimum(far, _squares(points[places], points[places[best]]))
        far[found] = -1.0  # never twice, also where points are equal
    return places[found]


def _places(among: ArrayLike | None, points: int, count: int) -> Indices:
    places = np.arange(points) if among is None else np.asarray(among, dtype=np.int64)
    if whole("count", count) > len(places):
        raise InvalidArgument(
            f"count must be at most the {len(places)} points to choose from, got {count!r}"
        )
    return places


def _squares(points: NDArray[np.float64], centre: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = ((points - centre) ** 2).sum(axis=1)
    return result
