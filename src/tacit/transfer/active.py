"""Active queries: asking in rounds, where the student has most to learn.

What to ask next is decided from public points and from earlier answers. That is post-processing,
and costs nothing. Each round is a labelling run of its own, charged before its answers. Which
points it asks about is kept before anything is asked: a run that continues after a crash asks about
the same ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

import numpy as np

from tacit._files import put, read_json
from tacit._validation import whole
from tacit.errors import CheckpointError, InvalidArgument
from tacit.transfer.labels import Answers, label

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.randomness import Stream
    from tacit.transfer.aggregators import Aggregator
    from tacit.transfer.votes import Votes

    Indices = NDArray[np.int64]
    Chooser = Callable[[NDArray[np.int64], NDArray[np.bool_]], Indices]


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


def label_in_rounds(
    votes: Votes,
    aggregator: Aggregator,
    choose: Chooser,
    *,
    rounds: int,
    queries: int,
    answers: int | None = None,
    budget: Budget | None = None,
    folder: str | os.PathLike[str] | None = None,
    stream: Stream | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Answers:
    """Asks in rounds; what is asked next may depend on all earlier answers.

    Guarantee:
        That of ``tacit.transfer.label`` for every round, each charged by itself before it begins;
        together they are covered by the event of the result. It holds if ``choose`` uses nothing
        but public points and what it is given. A budget of composition ``"renyi"`` loses nothing
        by being charged in rounds.

    Args:
        votes: The votes on all points that could be asked about.
        aggregator: How a query is answered.
        choose: Given the labels so far (-1: none) and which points were asked about, the numbers
            of the next ``queries`` points, none of them asked about before.
        rounds: How many rounds there are.
        queries: How many points are asked about in each.
        answers: A public cap on the answers of each round.
        budget: A ``tacit.ledger.Budget``, charged before each round.
        folder: Made if it is not there; it keeps the choices and journals by which the run can be
            resumed.
        stream: The random bytes; a fresh secure stream unless a test gives another.
        adjacency: Which data sets are neighbours; the budget's, or ``"add-remove"``.
        unit: Whom it protects; the budget's, or ``"example"``.
        progress: Called with the number of queries asked and of answers, both public.
        stop: Asked now and then; if it is true, the run stops and can be resumed.

    Returns:
        Labels for all points of ``votes``; ``entry`` is that of the first round.
    """
    many, each = whole("rounds", rounds), whole("queries", queries)
    if many * each > votes.queries:
        raise InvalidArgument(
            f"rounds times queries must be at most the {votes.queries} points, got {many * each}"
        )
    cap = None if answers is None else many * answers
    event = aggregator.declared(queries=many * each, answers=cap)
    kept = None if folder is None else _made(Path(folder))
    done = Rounds(votes.queries)
    for number in range(many):
        name = f"round-{number:04d}"
        places = done.choice(choose, each, path=None if kept is None else kept / f"{name}.json")
        one = label(
            rows_at(votes, places),
            aggregator,
            queries=each,
            answers=answers,
            budget=budget,
            journal=None if kept is None else kept / f"{name}.journal",
            stream=stream,
            adjacency=adjacency,
            unit=unit,
            label=f"tacit.transfer, label_in_rounds, {number + 1} of {many}",
            stop=stop,
        )
        done.add(places, one)
        if not one.complete:
            break
        if progress is not None:
            progress(int(done.asked.sum()), int((done.labels >= 0).sum()))
    return done.answers(event, aggregator)


def rows_at(votes: Votes, places: Indices) -> Callable[[int], Indices]:
    """The counts of the points at ``places``, query by query, as ``label`` takes them."""
    return lambda query: votes.counts[places[query]]


@final
class Rounds:
    """Where a run in rounds stands: which of its ``points`` were asked about, and the answers.

    Attributes:
        labels: One for each point; -1 where there is none.
        asked: Which points a round has asked about.
    """

    def __init__(self, points: int) -> None:
        self.labels = np.full(points, -1, dtype=np.int64)
        self.asked = np.zeros(points, dtype=np.bool_)
        self._lost = np.zeros(points, dtype=np.bool_)
        self._rounds: list[Answers] = []

    def choice(self, choose: Chooser, count: int, *, path: Path | None) -> Indices:
        """The points of the next round: those in the file, or chosen now and kept there first."""
        if path is not None and path.exists():
            found = _read(path)
        else:
            found = np.asarray(choose(self.labels.copy(), self.asked.copy()))
        whole_numbers = found.ndim == 1 and found.dtype.kind in "iu"
        distinct = whole_numbers and len(found) == len(set(found.tolist())) == count
        if not distinct or found.min() < 0 or found.max() >= len(self.labels):
            raise InvalidArgument(f"choose must give {count} different numbers of points")
        if self.asked[found].any():
            raise InvalidArgument("choose must give points that were not asked about before")
        if path is not None and not path.exists():
            put(path, json.dumps(found.tolist()).encode())
        return found.astype(np.int64)

    def add(self, places: Indices, answers: Answers) -> None:
        """Enters what a round asked about and was answered."""
        self.labels[places], self._lost[places] = answers.labels, answers.lost
        self.asked[places] = True
        self._rounds.append(answers)

    def answers(self, event: Event, aggregator: Aggregator) -> Answers:
        """All of it, covered by ``event``; ``entry`` is that of the first round."""
        first = self._rounds[0]
        return Answers(
            self.labels,
            self.asked,
            self._lost,
            event,
            first.adjacency,
            first.unit,
            first.entry,
            self._rounds[-1].complete,
            aggregator,
        )


def _read(path: Path) -> Indices:
    try:
        found = read_json(path)
        if not isinstance(found, list) or not all(type(one) is int for one in found):
            raise ValueError("it holds no list of whole numbers")
        return np.array(found, dtype=np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}; start in another folder") from None


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
