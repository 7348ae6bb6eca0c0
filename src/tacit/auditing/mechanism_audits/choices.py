"""A choice among candidates, and the sparse vector: one call a draw."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.auditing.mechanism_audits.case import SOME, Asked, Case, Drawn, one_by_one
from tacit.mechanisms import SparseVector, exponential, noisy_max, permute_and_flip

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.mechanisms import Released

_AGAINST = (
    "scores (1, g) and (0, g + 1): a record moves them against each other; g = 1 + 1/epsilon makes "
    "the first candidate the rarer one, so that its chance moves the most"
)
_ALONG = "scores (1, g) and (0, g): a record moves all scores one way; g = 1 + 1/epsilon"
_FIRST = "whether the first candidate was chosen, the more likely one with the record"


def _chosen(
    choose: Callable[..., Released[Any]], monotone: bool, inside: bool, draws: int, asked: Asked
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


# ---- sparse vector

_QUERIES = {True: (0.0, 0.0, 1.0), False: (1.0, 1.0, 0.0)}
_THRESHOLD = 1.0
_NODES = np.linspace(-40.0, 40.0, 8001)  # of the threshold's noise, in its scale


def _sparse_vector(inside: bool, draws: int, asked: Asked) -> Drawn:
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
    noise = threshold_scale * _NODES
    left = np.exp(-np.abs(_NODES))
    left /= left.sum()
    found = []
    for query in queries:
        gap = (_THRESHOLD + noise - query) / query_scale
        above = np.where(gap > 0.0, 0.5 * np.exp(-np.abs(gap)), 1.0 - 0.5 * np.exp(-np.abs(gap)))
        found.append(float(left @ above))
        left = left * (1.0 - above)
    return np.array([*found, math.fsum(left)])


CASES = (
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
        "sparse-vector",
        "queries (0, 0, 1) and (1, 1, 0) at the threshold 1, Laplace noise",
        "the ratio of probabilities of which query was the first above, by integration",
        _sparse_vector,
        SOME // 2,
    ),
)
