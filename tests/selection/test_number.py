"""The number of runs has its law: accepted by a test with power, and other laws are rejected."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.accounting import PoissonRuns, TruncatedNegativeBinomial
from tacit.randomness import UnsafeSeededStream
from tacit.selection.number import draw_choices, draw_runs

LAWS = (
    TruncatedNegativeBinomial(1.0, 0.2),
    TruncatedNegativeBinomial(0.0, 0.05),
    TruncatedNegativeBinomial(-0.5, 0.02),
    PoissonRuns(4.0),
)


def chances(runs: TruncatedNegativeBinomial | PoissonRuns, largest: int) -> np.ndarray:
    """P(K = k) for k = 0 … largest, the last one holding all beyond."""
    if isinstance(runs, PoissonRuns):
        logs = [k * math.log(runs.mean) - runs.mean - math.lgamma(k + 1) for k in range(largest)]
        found = np.exp(logs)
    else:
        gamma, eta = runs.gamma, runs.eta
        norm = math.log(1 / gamma) if eta == 0.0 else (gamma**-eta - 1) / eta
        weights, product = [0.0], 1.0
        for k in range(1, largest):
            weights.append((1 - gamma) ** k * product / norm)
            product *= (k + eta) / (k + 1)
        found = np.array(weights)
    return np.append(found, 1.0 - found.sum())


def statistic(drawn: np.ndarray, law: np.ndarray) -> float:
    """The p-value of χ² over cells that are expected at least 8 times."""
    expected = law * len(drawn)
    cells = expected >= 8.0
    counts = np.bincount(np.minimum(drawn, len(law) - 1), minlength=len(law))
    seen = np.append(counts[cells], counts[~cells].sum())
    due = np.append(expected[cells], expected[~cells].sum())
    kept = due > 0.0
    value = float(((seen - due)[kept] ** 2 / due[kept]).sum())
    return float(chi2.sf(value, int(kept.sum()) - 1))


@pytest.mark.parametrize("runs", LAWS)
def test_the_law(runs: TruncatedNegativeBinomial | PoissonRuns) -> None:
    stream = UnsafeSeededStream(3, "runs")
    drawn = np.array([draw_runs(runs, stream) for _ in range(6000)])
    assert statistic(drawn, chances(runs, 60)) > 1e-4
    if isinstance(runs, PoissonRuns):
        near: TruncatedNegativeBinomial | PoissonRuns = PoissonRuns(runs.mean * 1.15)
    else:
        near = TruncatedNegativeBinomial(runs.eta + 0.15, runs.gamma * 1.3)
    assert statistic(drawn, chances(near, 60)) < 1e-6


class _Then:
    """Given bytes first, and then one byte for ever: digits that a test can choose."""

    def __init__(self, first: int, later: bytes) -> None:
        self.first = [first.to_bytes(16, "little")]
        self.later = later
        self.calls = 0

    def bytes(self, count: int) -> bytes:
        self.calls += 1
        return self.first.pop() if self.first else self.later * count


def test_a_number_at_an_edge_is_decided_by_more_digits() -> None:
    """P(K = 1) = ¾: whether a number that begins like ¾ lies below it, later digits tell."""
    runs = TruncatedNegativeBinomial(1.0, 0.75)
    for first, later, due in (((3 << 126), b"\xff", 2), ((3 << 126) - 1, b"\x00", 1)):
        stream = _Then(first, later)
        assert draw_runs(runs, stream) == due
        assert stream.calls == 2


def test_choices_are_even() -> None:
    drawn = np.array(draw_choices(20_000, 7, UnsafeSeededStream(5, "choices")))
    assert statistic(drawn, np.append(np.full(7, 1 / 7), 0.0)) > 1e-4
    skewed = np.array([1.15, 0.85, 1, 1, 1, 1, 1, 0]) / 7
    assert statistic(drawn, skewed) < 1e-6
    assert draw_choices(0, 3, UnsafeSeededStream(5, "choices")) == ()
