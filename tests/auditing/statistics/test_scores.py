"""Bounds from rates against the issue's figures, mpmath and the laws that they obey."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import analytic_gaussian_sigma, gaussian_profile
from tacit.auditing import (
    Rates,
    Scores,
    clopper_pearson,
    draw_scores,
    every_threshold,
    every_threshold_gaussian,
    gaussian_rates,
    gaussian_scores,
)
from tacit.auditing.statistics.scores import epsilon_of_rates, lower_rate, upper_rate
from tacit.errors import InvalidArgument

# ---- Bounds from rates against the figures, mpmath and the laws that they obey

counts = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def bound(tp: int, n_in: int, fp: int, n_out: int, delta: float = 0.0, at: float = 0.95) -> float:
    return clopper_pearson(Rates(tp=tp, n_in=n_in, fp=fp, n_out=n_out), delta, at).epsilon


@pytest.mark.parametrize(("trials", "epsilon"), [(100, 3.281), (1000, 5.601), (10_000, 7.905)])
def test_a_perfect_attack(trials: int, epsilon: float) -> None:
    assert bound(trials, trials, 0, trials) == pytest.approx(epsilon, abs=5e-4)


def test_half_of_the_members_at_one_percent() -> None:
    assert bound(500, 1000, 10, 1000, 1e-5) == pytest.approx(3.241995, abs=5e-7)


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (17, 1000), (999, 1000)])
@pytest.mark.parametrize("failure", [0.025, 5e-5])
def test_the_ends_have_the_chance_that_defines_them(hits: int, trials: int, failure: float) -> None:
    low, high = float(lower_rate(hits, trials, failure)), float(upper_rate(hits, trials, failure))
    assert low == 0.0 if hits == 0 else _tail(trials, low, hits) == pytest.approx(failure)
    assert (
        high == 1.0
        if hits == trials
        else 1 - _tail(trials, high, hits + 1) == pytest.approx(failure)
    )


def _tail(trials: int, rate: float, hits: int) -> float:
    with mp.workdps(40):
        p = mp.mpf(rate)
        return float(
            sum(mp.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(hits)) * -1
            + 1
        )


@settings(max_examples=60, deadline=None)
@given(counts, counts, st.sampled_from([0.0, 1e-5, 0.1]))
def test_laws(inside: tuple[int, int], outside: tuple[int, int], delta: float) -> None:
    (tp, n_in), (fp, n_out) = inside, outside
    found = bound(tp, n_in, fp, n_out, delta)
    assert 0.0 <= found < math.inf
    assert bound(tp, n_in, fp, n_out, delta, 0.9999) <= found  # more confidence, less said
    assert bound(tp, n_in, fp, n_out, min(1.0, delta + 0.05)) <= found
    assert tp == n_in or bound(tp + 1, n_in, fp, n_out, delta) >= found
    assert fp == n_out or bound(tp, n_in, fp + 1, n_out, delta) <= found
    mirrored = bound(n_out - fp, n_out, n_in - tp, n_in, delta)  # others called so, members not
    assert mirrored == pytest.approx(found, rel=1e-9, abs=1e-12)


def test_rates_that_say_nothing() -> None:
    assert bound(0, 10, 0, 10) == 0.0
    assert bound(10, 10, 10, 10) == 0.0
    assert bound(10, 10, 0, 10, 1.0) == 0.0
    assert float(epsilon_of_rates(np.array(0.0), np.array(0.0), 0.0)) == 0.0


def test_the_gaussian_bound_meets_the_gaussian_curve() -> None:
    found = gaussian_rates(Rates(tp=700, n_in=1000, fp=300, n_out=1000), 1e-5)
    tpr, fpr = float(lower_rate(700, 1000, 0.025)), float(upper_rate(300, 1000, 0.025))
    with mp.workdps(30):
        mu = mp.sqrt(2) * (mp.erfinv(2 * mp.mpf(tpr) - 1) - mp.erfinv(2 * mp.mpf(fpr) - 1))
    assert found.number("mu") == pytest.approx(float(mu), rel=1e-10)
    assert gaussian_profile.delta(float(mu), found.epsilon) == pytest.approx(1e-5, rel=1e-8)
    assert "Gaussian" in found.assumption


@pytest.mark.parametrize(
    "wrong", [{"tp": 11}, {"fp": -1}, {"n_in": 0}, {"tp": 1.5}, {"fp": 11, "n_out": 10}]
)
def test_impossible_rates_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Rates(**({"tp": 5, "n_in": 10, "fp": 5, "n_out": 10} | wrong))


def test_arguments_outside_their_range_are_refused() -> None:
    rates = Rates(tp=5, n_in=10, fp=1, n_out=10)
    with pytest.raises(InvalidArgument, match="delta"):
        clopper_pearson(rates, 1.5)
    with pytest.raises(InvalidArgument, match="confidence"):
        clopper_pearson(rates, 0.0, 1.0)
    with pytest.raises(InvalidArgument, match="delta"):
        gaussian_rates(rates, 0.0)  # a Gaussian has no ε there


# ---- Scores as they come in


def test_thresholds_include_their_own_value() -> None:
    scores = Scores([1, 2, 3], [2.0, 0.0])
    assert scores.at(2.0) == Rates(tp=2, n_in=3, fp=1, n_out=2)
    assert scores.at(math.inf) == Rates(tp=0, n_in=3, fp=0, n_out=2)


def test_what_they_were_made_from_may_change() -> None:
    values = np.array([1.0, 2.0])
    scores = Scores(values, [0.0])
    values[0] = 9.0
    assert scores.inside.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        scores.inside[0] = 3.0


MASKED = np.ma.masked_equal([1.0, 999.0], 999.0)


@pytest.mark.parametrize("wrong", [[], [[1.0]], [math.nan], 3.0, MASKED])
def test_what_is_no_list_of_scores_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="inside"):
        Scores(wrong, [1.0])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="outside"):
        Scores([1.0], wrong)  # type: ignore[arg-type]


# ---- The direct audit: what it must find of the Gaussian mechanism, and how it makes scores


@pytest.mark.parametrize(
    ("epsilon", "draws"),
    [
        (8.0, 10**6),
        *(pytest.param(epsilon, 10**6, marks=pytest.mark.slow) for epsilon in (1.0, 2.0, 4.0)),
    ],
)
def test_a_million_draws_of_a_gaussian(epsilon: float, draws: int) -> None:
    sigma, draw = analytic_gaussian_sigma(epsilon, 1e-5), np.random.default_rng(21)
    scores = draw_scores(lambda x, n: x + sigma * draw.normal(size=n), 1.0, 0.0, draws=draws)
    most = 1.02 * epsilon  # one bound in twenty may be above ε, by little
    assert epsilon * 0.97 <= gaussian_scores(scores, 1e-5).epsilon <= most
    assert epsilon * 0.97 <= every_threshold_gaussian(scores, 1e-5).epsilon <= most
    assert epsilon * 0.65 <= every_threshold(scores, 1e-5).epsilon <= most


def test_vectors_are_projected_onto_the_line_that_tells_them_apart() -> None:
    """Correlated noise and a record that moves three of five coordinates: μ = √(v'Σ⁻¹v)."""
    draw = np.random.default_rng(22)
    root = np.tril(draw.normal(size=(5, 5))) + 2.0 * np.eye(5)
    move = np.array([1.0, 0.0, -1.0, 0.5, 0.0])
    mu = float(np.linalg.norm(np.linalg.solve(root, move)))

    def noisy(x: np.ndarray, count: int) -> np.ndarray:
        return x + draw.normal(size=(count, 5)) @ root.T

    scores = draw_scores(noisy, move, np.zeros(5), draws=50_000)
    assert 0.95 * mu < gaussian_scores(scores, 1e-5).number("mu") < mu


def test_a_record_that_lowers_the_output_is_found_as_well() -> None:
    draw = np.random.default_rng(23)
    scores = draw_scores(lambda x, n: x + draw.laplace(size=n), -1.0, 0.0, draws=20_000)
    assert 0.9 < every_threshold(scores, 0.0).epsilon <= 1.0


def test_a_mechanism_with_too_little_noise_contradicts_its_claim() -> None:
    draw = np.random.default_rng(24)
    scores = draw_scores(lambda x, n: x + 0.8 * draw.laplace(size=n), 1.0, 0.0, draws=50_000)
    assert every_threshold(scores, 0.0, 0.9999).epsilon > 1.0


def test_a_score_of_ones_own_is_used() -> None:
    draw = np.random.default_rng(25)
    scores = draw_scores(
        lambda x, n: x + draw.laplace(size=(n, 2)),
        np.array([1.0, 0.0]),
        np.zeros(2),
        draws=20_000,
        score=lambda outputs: np.clip(outputs[:, 0], 0.0, 1.0),
    )
    assert 0.9 < every_threshold(scores, 0.0).epsilon <= 1.0


def test_holes_of_floating_point_noise_are_found() -> None:
    """x + noise in doubles leaves out values that depend on x (Mironov 2012); rounding shows it."""
    draw = np.random.default_rng(25)
    scores = draw_scores(
        lambda x, n: x + draw.laplace(size=n),  # meant to have ε = 1
        1.0,
        0.0,
        draws=20_000,
        score=lambda outputs: np.abs(outputs) - np.abs(outputs - 1.0),
    )
    assert every_threshold(scores, 0.0, 0.9999).epsilon > 2.0


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="mechanism"):
        draw_scores(lambda x, n: np.zeros(n + 1) + x, 1.0, 0.0, draws=10)
    with pytest.raises(InvalidArgument, match="score"):
        draw_scores(lambda x, n: np.zeros((n, 2)) + x, 1.0, 0.0, draws=10, score=lambda x: x)
    with pytest.raises(InvalidArgument, match="draws"):
        draw_scores(lambda x, n: np.zeros(n) + x, 1.0, 0.0, draws=0)
