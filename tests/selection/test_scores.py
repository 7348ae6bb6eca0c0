"""What a score may read, and what it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.accounting import Composed, DiscreteLaplace, Gaussian, epsilon
from tacit.errors import InvalidArgument
from tacit.selection import (
    PrivateScore,
    PublicScore,
    ReturnedScore,
    Scored,
    noisy_accuracy,
    public_set,
)
from tacit.selection.scores import apply_score, check_score, with_score


class Constant:
    """Predicts one class, and scores as scikit-learn's classifiers do."""

    def predict(self, data: np.ndarray) -> np.ndarray:
        return np.ones(len(data))

    def score(self, data: np.ndarray, labels: np.ndarray) -> float:
        return float(np.mean(self.predict(data) == labels))


@pytest.mark.parametrize("score", [None, len, "accuracy", 3])
def test_a_score_that_does_not_say_what_it_reads_is_refused(score: object) -> None:
    with pytest.raises(InvalidArgument, match="score must be a PublicScore, a PrivateScore"):
        check_score(score)


def test_functions_and_events_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="function must be callable"):
        PublicScore(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"event must be a tacit[.]accounting event"):
        PrivateScore(len, "Gaussian")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="unit must be"):
        PrivateScore(len, Gaussian(1.0), unit="person")


def test_only_a_private_score_is_charged() -> None:
    event, own = Gaussian(4.0), DiscreteLaplace(10.0)
    assert with_score(event, PublicScore(len)) == with_score(event, ReturnedScore()) == event
    assert with_score(event, PrivateScore(len, own)) == Composed(event, own)


def test_results() -> None:
    assert apply_score(PublicScore(len), [1, 2]) == ([1, 2], 2.0)
    assert apply_score(ReturnedScore(), Scored("model", 3)) == ("model", 3.0)
    assert apply_score(PublicScore(lambda _: math.nan), "m") == ("m", -math.inf)
    with pytest.raises(InvalidArgument, match="train must return Scored"):
        apply_score(ReturnedScore(), "model")


def test_public_set_asks_the_model() -> None:
    score = public_set(np.zeros((4, 1)), np.array([1, 1, 0, 1]))
    assert apply_score(score, Constant())[1] == 0.75


@pytest.mark.parametrize("draws", [900, pytest.param(4000, marks=pytest.mark.slow)])
def test_noisy_accuracy_is_the_count_with_noise_of_its_scale(draws: int) -> None:
    """A scale off by 15 % shows in ``make test``, one off by 7 % in ``make test-slow``."""
    labels = np.array([1] * 700 + [0] * 300)
    score = noisy_accuracy(np.zeros((1000, 1)), labels, epsilon=0.5)
    assert epsilon(score.event, 1e-12) == pytest.approx(0.5, rel=1e-9)
    assert epsilon(score.event, 1e-12, adjacency="replace-one") == pytest.approx(0.5, rel=1e-9)
    found = np.array([apply_score(score, Constant())[1] for _ in range(draws)])
    counts = found * 1000
    assert np.allclose(counts, np.round(counts), atol=1e-6)
    noise = counts - 700
    # Discrete Laplace of scale 2: E|X| = 2q/(1-q²) with q = e^-½, and its deviation is below 2.
    due = 2 * math.exp(-0.5) / (1 - math.exp(-1.0))
    assert abs(np.mean(np.abs(noise)) - due) < 4 * 2.1 / math.sqrt(draws)
    assert abs(np.mean(noise)) < 4 * 2.9 / math.sqrt(draws)


def test_no_label_changes_how_others_are_compared() -> None:
    """A text in a list would make NumPy turn all labels into texts, and all answers wrong."""

    class Zeros:
        def predict(self, rows: np.ndarray) -> np.ndarray:
            return np.zeros(len(rows), dtype=int)

    for odd in ("x", None, np.nan, 10**400, [0], 0.5):
        score = noisy_accuracy(np.zeros((400, 1)), [0] * 399 + [odd], epsilon=50.0)
        assert score.function(Zeros()) == 399 / 400
    with pytest.raises(InvalidArgument, match="data must be an array"):
        noisy_accuracy([[0.0]], [0], epsilon=1.0)
    with pytest.raises(InvalidArgument, match="labels must be as many"):
        noisy_accuracy(np.zeros((2, 1)), [0], epsilon=1.0)
