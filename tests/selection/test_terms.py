"""What each run is allowed, so that the whole search meets what was asked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.accounting import (
    ApproxDp,
    Composed,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonRuns,
    PrivateSelection,
    PureDp,
    TruncatedNegativeBinomial,
    epsilon,
)
from tacit.errors import InvalidArgument, Uncalibratable
from tacit.randomness import UnsafeSeededStream
from tacit.selection import PrivateScore, PublicScore
from tacit.selection.terms import draw_choices, draw_runs, settle

RUNS = TruncatedNegativeBinomial.with_mean(10.0, 0.0)
PUBLIC = PublicScore(len)


@pytest.mark.parametrize("runs", [RUNS, TruncatedNegativeBinomial(1.0, 0.1), PoissonRuns(5.0)])
@pytest.mark.parametrize("score", [PUBLIC, PrivateScore(len, DiscreteLaplace(20.0))])
@pytest.mark.parametrize("event", [None, Gaussian])
def test_what_was_asked_is_met_and_used_up(runs, score, event) -> None:  # type: ignore[no-untyped-def]
    found = settle(runs, score, 2.0, 1e-6, "add-remove", event)
    assert 1.99 < found.epsilon <= 2.0
    assert found.epsilon == epsilon(found.event, 1e-6)
    assert found.single < found.epsilon
    if isinstance(score, PrivateScore) and event is not None:
        assert found.event.base == Composed(found.allowance.event, score.event)


def test_a_family_of_events_is_given_its_noise() -> None:
    found = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", Gaussian)
    noise = found.allowance.noise
    assert noise is not None
    assert found.event == PrivateSelection(Gaussian(noise), RUNS)
    assert found.allowance.epsilon == epsilon(Gaussian(noise), found.allowance.delta)
    twice = settle(RUNS, PUBLIC, 2.0, 1e-6, "replace-one", Gaussian).allowance.noise
    assert twice == pytest.approx(2 * noise, rel=1e-6)


def test_knowing_the_event_allows_more_than_knowing_epsilon() -> None:
    known = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", Gaussian).allowance
    share = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", None).allowance
    assert isinstance(share.event, ApproxDp)
    assert share.delta == pytest.approx(1e-7, rel=1e-6)
    assert share.epsilon == pytest.approx(1.0, rel=1e-5)  # (2 + η)·ε₀ for η = 0
    assert known.epsilon > 1.3 * share.epsilon
    pure = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", None, pure=True).allowance
    assert (pure.event, pure.delta) == (PureDp(pure.epsilon, "add-remove"), 0.0)
    assert pure.epsilon >= share.epsilon


def test_a_fixed_event_must_fit() -> None:
    found = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", Gaussian(8.0))
    assert found.allowance.event == Gaussian(8.0)
    assert found.epsilon < 1.0
    with pytest.raises(InvalidArgument, match="event must let the search meet epsilon=2"):
        settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", Laplace(0.5))


def test_a_score_that_costs_too_much_is_refused() -> None:
    score = PrivateScore(len, DiscreteLaplace(0.5))
    with pytest.raises(Uncalibratable, match="score must leave something for training"):
        settle(RUNS, score, 2.0, 1e-6, "add-remove", None)
    with pytest.raises(Uncalibratable, match="choosing by it alone has epsilon="):
        settle(RUNS, score, 2.0, 1e-6, "add-remove", Gaussian)
    with pytest.raises(Uncalibratable, match="event must be able to meet epsilon=2"):
        settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", lambda _: PureDp(3.0))


def test_a_score_takes_its_part_of_a_run() -> None:
    plain = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", None).allowance
    pure = settle(RUNS, PrivateScore(len, PureDp(0.25)), 2.0, 1e-6, "add-remove", None).allowance
    assert pure.epsilon == pytest.approx(plain.epsilon - 0.25, rel=1e-6)
    assert pure.delta == pytest.approx(plain.delta)
    noisy = settle(RUNS, PrivateScore(len, Gaussian(20.0)), 2.0, 1e-6, "add-remove", None).allowance
    assert noisy.delta == pytest.approx(plain.delta / 2)
    own = epsilon(Gaussian(20.0), noisy.delta)
    assert noisy.epsilon == pytest.approx(plain.epsilon - own, rel=1e-6)


# ---- the number of runs has its law: a test with power accepts it and rejects other laws

LAWS = (
    pytest.param(TruncatedNegativeBinomial(1.0, 0.2), marks=pytest.mark.slow),
    TruncatedNegativeBinomial(0.0, 0.05),
    pytest.param(TruncatedNegativeBinomial(-0.5, 0.02), marks=pytest.mark.slow),
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
@pytest.mark.parametrize(
    "near",
    [
        pytest.param(1.0, marks=pytest.mark.slow),
        2.0,  # a law twice as far away takes a quarter of the draws to tell
    ],
)
def test_the_law(runs: TruncatedNegativeBinomial | PoissonRuns, near: float) -> None:
    stream = UnsafeSeededStream(3, "runs")
    draws = round((1500 if isinstance(runs, PoissonRuns) else 6000) / near**2)
    drawn = np.array([draw_runs(runs, stream) for _ in range(draws)])
    assert statistic(drawn, chances(runs, 60)) > 1e-4
    if isinstance(runs, PoissonRuns):
        other: TruncatedNegativeBinomial | PoissonRuns = PoissonRuns(runs.mean * (1 + 0.15 * near))
    else:
        other = TruncatedNegativeBinomial(runs.eta + 0.15 * near, runs.gamma * (1 + 0.3 * near))
    assert statistic(drawn, chances(other, 60)) < 1e-6


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
