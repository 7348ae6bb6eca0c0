"""The direct audit: what it must find of the Gaussian mechanism, and how it makes scores."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.accounting import analytic_gaussian_sigma
from tacit.auditing import (
    draw_scores,
    every_threshold,
    every_threshold_gaussian,
    gaussian_scores,
)
from tacit.errors import InvalidArgument


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
