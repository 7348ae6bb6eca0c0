"""Principal components and covariances of rows: one call a draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.auditing.mechanism_audits.case import FEW, Asked, Case, Drawn, one_by_one
from tacit.mechanisms import covariance, pca

if TYPE_CHECKING:
    from tacit.mechanisms import Components, Released

_ROWS = {True: np.array([[1.0, 0.0]]), False: np.empty((0, 2))}
_PAIR = "one row, (1, 0), of the largest norm, and none"


def _pca(inside: bool, draws: int, asked: Asked) -> Drawn:
    def release() -> Released[Components]:
        return pca(_ROWS[inside], 2, epsilon=asked.epsilon, delta=asked.delta, stream=asked.stream)

    def score(found: Components) -> float:
        return float(found.strengths @ found.directions[:, 0] ** 2)

    return one_by_one(release, score, draws)


def _covariance(inside: bool, draws: int, asked: Asked) -> Drawn:
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


CASES = (
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
