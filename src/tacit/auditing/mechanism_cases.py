"""How each mechanism is audited: two neighbouring inputs, and a score of what is released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tacit.mechanisms import (
    SparseVector,
    bounded_laplace,
    covariance,
    discrete_gaussian,
    discrete_laplace,
    exponential,
    gaussian,
    histogram,
    laplace,
    mean,
    noisy_max,
    noisy_sum,
    pca,
    permute_and_flip,
    quantile,
    randomized_response,
    standard_deviation,
    top_k,
    variance,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.mechanisms import Components, Released
    from tacit.randomness import Stream


MANY = 1_000_000
SOME = 10_000  # for mechanisms that are called once a draw, in a fraction of a millisecond
FEW = 2_000  # for those that take milliseconds


@dataclass(frozen=True)
class MechanismCall:
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
        draw: Draws on the input with the record (True) or on its neighbour, as many as asked.
        draws: How many on each, unless said otherwise.
        gaussian: Whether scores are Gaussian if the mechanism is right.
    """

    name: str
    pair: str
    score: str
    draw: Callable[[bool, int, MechanismCall], Drawn]
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


# ---- numbers with noise, and randomised answers: many draws by one call on many equal numbers

_MOVED = "a number that a record moves by its sensitivity: 1 and 0"
_OUTPUT = "the noisy number, which the ratio of densities grows with"


def _laplace(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    numbers = np.full(draws, float(inside))
    released = laplace(numbers, sensitivity=1, epsilon=asked.epsilon, stream=asked.stream)
    return at_once(released, released.value)


def _gaussian(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    released = gaussian(
        np.full(draws, float(inside)),
        sensitivity=1,
        epsilon=asked.epsilon,
        delta=asked.delta,
        stream=asked.stream,
    )
    return at_once(released, released.value)


def _discrete_laplace(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    numbers = np.full(draws, int(inside))
    released = discrete_laplace(numbers, epsilon=asked.epsilon, stream=asked.stream)
    return at_once(released, released.value)


def _discrete_gaussian(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    released = discrete_gaussian(
        np.full(draws, int(inside)), epsilon=asked.epsilon, delta=asked.delta, stream=asked.stream
    )
    return at_once(released, released.value)


def _response(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    released = randomized_response(
        np.full(draws, int(inside)), categories=3, epsilon=asked.epsilon, stream=asked.stream
    )
    return at_once(released, np.array([-1.0, 1.0, 0.0])[released.value])


def _bounded_laplace(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    def release() -> Released[Any]:
        return bounded_laplace(
            0.25 * inside,
            sensitivity=0.25,
            bounds=(0, 1),
            epsilon=asked.epsilon,
            stream=asked.stream,
        )

    return one_by_one(release, float, draws)


_NUMBERS = (
    Case("laplace", _MOVED, _OUTPUT, _laplace),
    Case("gaussian", _MOVED, _OUTPUT, _gaussian, gaussian=True),
    Case("discrete-laplace", _MOVED, _OUTPUT, _discrete_laplace),
    Case("discrete-gaussian", _MOVED, _OUTPUT, _discrete_gaussian, gaussian=True),
    Case(
        "bounded-laplace",
        "a number at the lower end of its bounds, and a quarter of their width above it",
        _OUTPUT,
        _bounded_laplace,
        SOME,
    ),
    Case(
        "randomized-response",
        "the answers 1 and 0, of three possible ones",
        "1 if the answer is 1, -1 if it is 0, else 0: the order of the ratios",
        _response,
    ),
)


# ---- a choice among candidates, and the sparse vector: one call a draw

_AGAINST = (
    "scores (1, g) and (0, g + 1): a record moves them against each other; g = 1 + 1/epsilon makes "
    "the first candidate the rarer one, so that its chance moves the most"
)
_ALONG = "scores (1, g) and (0, g): a record moves all scores one way; g = 1 + 1/epsilon"
_FIRST = "whether the first candidate was chosen, the more likely one with the record"


def _chosen(
    choose: Callable[..., Released[Any]],
    monotone: bool,
    inside: bool,
    draws: int,
    asked: MechanismCall,
) -> Drawn:
    gap = 1.0 + 1.0 / asked.epsilon
    scores = [float(inside), gap if inside or monotone else gap + 1.0]

    def release() -> Released[Any]:
        return choose(
            scores,
            sensitivity=1,
            epsilon=asked.epsilon,
            monotone=monotone,
            stream=asked.stream,
        )

    return one_by_one(release, lambda place: float(place == 0), draws)


_RANKED = {True: (1.0, 0.0, 1.0), False: (0.0, 1.0, 0.0)}


def _top_k(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    def release() -> Released[Any]:
        return top_k(_RANKED[inside], 2, sensitivity=1, epsilon=asked.epsilon, stream=asked.stream)

    rate = 0.25 * asked.epsilon  # half of the ε of each of two choices
    laws = [peeled(scores, 2, rate) for scores in (_RANKED[True], _RANKED[False])]
    return one_by_one(
        release, lambda found: math.log(laws[0][tuple(found)] / laws[1][tuple(found)]), draws
    )


def peeled(scores: tuple[float, ...], k: int, rate: float) -> dict[tuple[int, ...], float]:
    """The chance of each order of k places, by k exponential mechanisms one after another."""
    found = {}
    for order in permutations(range(len(scores)), k):
        left = [math.exp(rate * score) for score in scores]
        chance = 1.0
        for place in order:
            chance *= left[place] / math.fsum(left)
            left[place] = 0.0
        found[order] = chance
    return found


_QUERIES = {True: (0.0, 0.0, 1.0), False: (1.0, 1.0, 0.0)}
_THRESHOLD = 1.0
_NOISE_NODES = np.linspace(-40.0, 40.0, 8001)  # of the threshold's noise, in its scale


def _sparse_vector(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    ended = []
    for _ in range(draws):
        vector = SparseVector(_THRESHOLD, sensitivity=1, epsilon=asked.epsilon, stream=asked.stream)
        queries = enumerate(_QUERIES[inside])
        ended.append(next((at for at, query in queries if vector.above(query)), 3))
    scales = vector.event.threshold_scale, vector.event.query_scale
    ratios = np.log(endings(_QUERIES[True], *scales) / endings(_QUERIES[False], *scales))
    return Drawn(ratios[ended], vector.event, vector.adjacency)


def endings(
    queries: tuple[float, ...], threshold_scale: float, query_scale: float
) -> NDArray[np.float64]:
    """The chance that the first query above the threshold is the 1st, 2nd, …, or none.

    Given the threshold's noise, queries are independent; the noise is integrated out.
    """
    noise = threshold_scale * _NOISE_NODES
    left = np.exp(-np.abs(_NOISE_NODES))
    left /= left.sum()
    found = []
    for query in queries:
        gap = (_THRESHOLD + noise - query) / query_scale
        above = np.where(gap > 0.0, 0.5 * np.exp(-np.abs(gap)), 1.0 - 0.5 * np.exp(-np.abs(gap)))
        found.append(float(left @ above))
        left = left * (1.0 - above)
    return np.array([*found, math.fsum(left)])


_CHOICES = (
    Case("exponential", _AGAINST, _FIRST, partial(_chosen, exponential, False), SOME),
    Case("exponential-monotone", _ALONG, _FIRST, partial(_chosen, exponential, True), SOME),
    Case("permute-and-flip", _AGAINST, _FIRST, partial(_chosen, permute_and_flip, False), SOME),
    Case(
        "noisy-max",
        _AGAINST,
        f"{_FIRST}; with Laplace noise",
        partial(_chosen, partial(noisy_max, noise="laplace"), False),
        SOME,
    ),
    Case(
        "top-k",
        "the first two of three candidates, of scores (1, 0, 1) and (0, 1, 0)",
        "the ratio of both orders' probabilities",
        _top_k,
        SOME,
    ),
    Case(
        "sparse-vector",
        "queries (0, 0, 1) and (1, 1, 0) at the threshold 1, Laplace noise",
        "the ratio of probabilities of which query was the first above, by integration",
        _sparse_vector,
        SOME // 2,
    ),
)


# ---- histograms, sums, means and quantiles of records

_CELL = "a cell with one record and without; many cells at once, each with noise of its own"
_COUNT = "the cell's noisy count, which the ratio of probabilities grows with"


def _histogram(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    records = np.arange(draws) if inside else np.empty(0, dtype=np.int64)
    released = histogram(records, cells=draws, epsilon=asked.epsilon, stream=asked.stream)
    return at_once(released, released.value)


def _gaussian_histogram(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    records = np.arange(draws) if inside else np.empty(0, dtype=np.int64)
    released = histogram(
        records, cells=draws, epsilon=asked.epsilon, delta=asked.delta, stream=asked.stream
    )
    return at_once(released, released.value)


def _replaced(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    """A record in the first of two cells, or in the second; as many pairs as draws."""
    released = histogram(
        2 * np.arange(draws) + (not inside),
        cells=2 * draws,
        epsilon=asked.epsilon,
        adjacency="replace-one",
        stream=asked.stream,
    )
    first, second = released.value.reshape(draws, 2).T
    ratios = np.abs(first) - np.abs(first - 1) + np.abs(second - 1) - np.abs(second)
    return at_once(released, ratios)


_WIDE = 1000  # cells of the second column


def _crossed(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    """A cell for every combination of two columns."""
    high = -(-draws // _WIDE)
    places = np.arange(high * _WIDE if inside else 0)
    released = histogram(
        np.column_stack([places // _WIDE, places % _WIDE]),
        cells={0: high, 1: _WIDE},
        epsilon=asked.epsilon,
        stream=asked.stream,
    )
    return at_once(released, released.value.ravel()[:draws])


def _keys(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    """Keys that are held by one record more, or not, near the threshold of being released."""
    held = _near_threshold(asked) + inside
    released = histogram(
        np.repeat(np.arange(draws), held),
        epsilon=asked.epsilon,
        delta=asked.delta,
        stream=asked.stream,
    )
    counts = np.full(draws, -1.0)  # what is left out
    counts[list(released.value)] = list(released.value.values())
    return at_once(released, counts)


def _near_threshold(asked: MechanismCall) -> int:
    return max(1, round(math.log(1.0 / asked.delta) / asked.epsilon))


def _sum(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    records = [1.0] if inside else [-1.0]

    def release() -> Released[Any]:
        return noisy_sum(
            records,
            bounds=(-1, 1),
            epsilon=asked.epsilon,
            adjacency="replace-one",
            stream=asked.stream,
        )

    return one_by_one(release, float, draws)


def _mean(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    records = [1.0] if inside else []

    def release() -> Released[Any]:
        return mean(records, bounds=(0, 1), count=1000, epsilon=asked.epsilon, stream=asked.stream)

    return one_by_one(release, float, draws)


def _spread(
    measure: Callable[..., Released[Any]], inside: bool, draws: int, asked: MechanismCall
) -> Drawn:
    records = [1.0] if inside else []

    def release() -> Released[Any]:
        return measure(
            records, bounds=(0, 1), count=1000, epsilon=asked.epsilon, stream=asked.stream
        )

    return one_by_one(release, float, draws)


def _quantile(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    """A record at 1 beside one at 3 makes 0 worse, 2 better and 3 worse, each by half a record."""
    records = [1.0, 3.0] if inside else [3.0]

    def release() -> Released[float]:
        return quantile(
            records, 0.5, bounds=(0, 3), step=1, epsilon=asked.epsilon, stream=asked.stream
        )

    better = np.array([-0.5, 0.0, 0.5, -0.5])
    return one_by_one(release, lambda value: float(better[int(value)]), draws)


_ONE_AT_THE_END = "a record at the upper bound or none, divided by a public count of 1,000"
_SPREAD = "the noisy answer; the mean that is released with it does not show in it"

_RECORDS = (
    Case("histogram", _CELL, _COUNT, _histogram),
    Case("histogram-gaussian", _CELL, _COUNT, _gaussian_histogram, gaussian=True),
    Case(
        "histogram-replaced",
        "a record in one cell or in another (replace-one); many pairs of cells at once",
        "the ratio of both counts' probabilities",
        _replaced,
    ),
    Case(
        "histogram-crossed",
        "a cell of two columns with one record and without; many cells at once",
        _COUNT,
        _crossed,
    ),
    Case(
        "histogram-keys",
        "a key that nobody named, with about ln(1/delta)/epsilon records or one more",
        "its count, below all others where it is left out",
        _keys,
        MANY // 5,
    ),
    Case(
        "sum",
        "one record, 1 or -1, at the ends of the bounds (replace-one)",
        "the noisy sum, which the ratio of densities grows with",
        _sum,
        SOME,
    ),
    Case(
        "mean",
        _ONE_AT_THE_END,
        "the noisy mean, which the ratio of densities grows with",
        _mean,
        SOME,
    ),
    Case("variance", _ONE_AT_THE_END, _SPREAD, partial(_spread, variance), SOME),
    Case(
        "standard-deviation", _ONE_AT_THE_END, _SPREAD, partial(_spread, standard_deviation), SOME
    ),
    Case(
        "quantile",
        "the median of records (1, 3) and (3) among 0, 1, 2, 3",
        "how far the record moved the answer's score: the ratio of probabilities",
        _quantile,
        SOME,
    ),
)


# ---- principal components and covariances of rows: one call a draw

_ROWS = {True: np.array([[1.0, 0.0]]), False: np.empty((0, 2))}
_PAIR = "one row, (1, 0), of the largest norm, and none"


def _pca(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    def release() -> Released[Components]:
        return pca(_ROWS[inside], 2, epsilon=asked.epsilon, delta=asked.delta, stream=asked.stream)

    def score(found: Components) -> float:
        return float(found.strengths @ found.directions[:, 0] ** 2)

    return one_by_one(release, score, draws)


def _covariance(inside: bool, draws: int, asked: MechanismCall) -> Drawn:
    def release() -> Released[Any]:
        return covariance(
            _ROWS[inside],
            norm=1.0,
            count=1000,
            epsilon=asked.epsilon,
            delta=asked.delta,
            stream=asked.stream,
        )

    return one_by_one(release, lambda found: float(found[0, 0]), draws)


_ROW_STATISTICS = (
    Case(
        "pca",
        _PAIR,
        "the noisy sum of squares along (1, 0), put together from all components",
        _pca,
        FEW,
        gaussian=True,
    ),
    Case(
        "covariance",
        f"{_PAIR}, divided by a public count of 1,000; half of what a row moves is not released",
        "the noisy variance of the first column",
        _covariance,
        FEW,
        gaussian=True,
    ),
)

CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {case.name: case for case in (*_NUMBERS, *_CHOICES, *_RECORDS, *_ROW_STATISTICS)}
)
