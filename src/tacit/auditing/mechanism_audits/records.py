"""Histograms, sums, means and quantiles of records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.auditing.mechanism_audits.case import MANY, SOME, Asked, Case, Drawn, at_once, one_by_one
from tacit.mechanisms import histogram, mean, quantile
from tacit.mechanisms import sum as noisy_sum

if TYPE_CHECKING:
    from tacit.mechanisms import Released

_CELL = "a cell with one record and without; many cells at once, each with noise of its own"
_COUNT = "the cell's noisy count, which the ratio of probabilities grows with"


def _histogram(inside: bool, draws: int, asked: Asked) -> Drawn:
    records = np.arange(draws) if inside else np.empty(0, dtype=np.int64)
    released = histogram(records, cells=draws, epsilon=asked.epsilon, stream=asked.stream)
    return at_once(released, released.value)


def _gaussian_histogram(inside: bool, draws: int, asked: Asked) -> Drawn:
    records = np.arange(draws) if inside else np.empty(0, dtype=np.int64)
    released = histogram(
        records, cells=draws, epsilon=asked.epsilon, delta=asked.delta, stream=asked.stream
    )
    return at_once(released, released.value)


def _replaced(inside: bool, draws: int, asked: Asked) -> Drawn:
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


def _keys(inside: bool, draws: int, asked: Asked) -> Drawn:
    """Keys that are held by one record more, or not, near the threshold of being told at all."""
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


def _near_threshold(asked: Asked) -> int:
    return max(1, round(math.log(1.0 / asked.delta) / asked.epsilon))


def _sum(inside: bool, draws: int, asked: Asked) -> Drawn:
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


def _mean(inside: bool, draws: int, asked: Asked) -> Drawn:
    records = [1.0] if inside else []

    def release() -> Released[Any]:
        return mean(records, bounds=(0, 1), count=1000, epsilon=asked.epsilon, stream=asked.stream)

    return one_by_one(release, float, draws)


def _quantile(inside: bool, draws: int, asked: Asked) -> Drawn:
    """A record at 1 beside one at 3 makes 0 worse, 2 better and 3 worse, each by half a record."""
    records = [1.0, 3.0] if inside else [3.0]

    def release() -> Released[float]:
        return quantile(
            records, 0.5, bounds=(0, 3), step=1, epsilon=asked.epsilon, stream=asked.stream
        )

    better = np.array([-0.5, 0.0, 0.5, -0.5])
    return one_by_one(release, lambda value: float(better[int(value)]), draws)


CASES = (
    Case("histogram", _CELL, _COUNT, _histogram),
    Case("histogram-gaussian", _CELL, _COUNT, _gaussian_histogram, gaussian=True),
    Case(
        "histogram-replaced",
        "a record in one cell or in another (replace-one); many pairs of cells at once",
        "the ratio of both counts' probabilities",
        _replaced,
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
        "a record at the upper bound or none, divided by a public count of 1,000",
        "the noisy mean, which the ratio of densities grows with",
        _mean,
        SOME,
    ),
    Case(
        "quantile",
        "the median of records (1, 3) and (3) among 0, 1, 2, 3",
        "how far the record moved the answer's score: the ratio of probabilities",
        _quantile,
        SOME,
    ),
)
