""""""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from tacit.auditing import Guesses, one_run, one_run_gaussian
from tacit.auditing.canaries import guess, one_run_audit
from tacit.errors import InvalidArgument


def responses(draw: np.random.Generator, epsilon: float, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Coins, and randomised responses about them: the most that ε lets an attack see."""
    coins = draw.random(m) < 0.5
    truthful = draw.random(m) < math.exp(epsilon) / (1.0 + math.exp(epsilon))
    return np.where(truthful, coins, ~coins).astype(float), coins


@pytest.mark.parametrize("made", [1, 2, 5, 30])
def test_guesses_are_the_extremes(made: int) -> None:
    draw = np.random.default_rng(1)
    scores, coins = draw.normal(size=30), draw.random(30) < 0.5
    order = sorted(range(30), key=lambda at: scores[at])
    low, high = order[: made // 2], order[30 - (made + 1) // 2 :]
    right = sum(not coins[at] for at in low) + sum(bool(coins[at]) for at in high)
    assert guess(scores, coins, made) == Guesses(canaries=30, made=made, right=right)


def test_equal_scores_do_not_ask_the_coins() -> None:
    coins = np.arange(1000) % 3 == 0
    first, last = guess(np.zeros(1000), coins, 200), guess(np.zeros(1000), ~coins, 200)
    assert first.right + last.right == 200  # as if the coins had not been looked at


@pytest.mark.parametrize("scores", [np.zeros(1000), np.where(np.arange(1000) % 50, 0.0, 1.0)])
def test_the_places_of_equal_scores_tell_nothing(scores: np.ndarray) -> None:
    """Not even where those that are in come behind all that are out, or before them."""
    for coins in (np.arange(1000) < 500, np.arange(1000) >= 500):
        assert one_run_audit(scores, coins, 1e-5).epsilon == 0.0
        assert 150 < guess(scores, coins, 400).right < 250


def test_one_number_of_guesses_is_one_run() -> None:
    scores, coins = responses(np.random.default_rng(2), 2.0, 500)
    plain = one_run(guess(scores, coins, 100), 1e-5, 0.95)
    assert one_run_audit(scores, coins, 1e-5, made=100).epsilon == plain.epsilon


def test_several_share_the_failure_rate() -> None:
    draw = np.random.default_rng(3)
    coins = draw.random(1000) < 0.5
    scores = 2.0 * coins + draw.normal(size=1000)
    both = one_run_audit(scores, coins, 1e-5, made=(50, 400), bound=one_run_gaussian)
    each = [one_run_gaussian(guess(scores, coins, made), 1e-5, 0.975) for made in (50, 400)]
    assert both.epsilon == max(one.epsilon for one in each)
    assert both.confidence == 0.95
    assert both.number("numbers_tried") == 2


def test_it_is_seldom_too_high() -> None:
    draw = np.random.default_rng(4)
    missed = sum(one_run_audit(*responses(draw, 1.0, 200), 0.0).epsilon > 1.0 for _ in range(300))
    assert binom.sf(missed - 1, 300, 0.05) > 1e-3


def test_it_finds_what_there_is() -> None:
    scores, coins = responses(np.random.default_rng(5), 3.0, 5000)
    assert one_run_audit(scores, coins, 0.0).epsilon > 2.5


@pytest.mark.parametrize(
    ("scores", "included", "made", "named"),
    [
        ([1.0, 2.0], [True], 1, "included"),
        ([1.0, 2.0], [1, 0], 1, "included"),
        ([1.0, float("nan")], [True, False], 1, "NaN"),
        (np.ma.masked_equal([1.0, 9.0], 9.0), [True, False], 1, "nothing masked"),
        ([1.0, 2.0], np.ma.masked_array([True, False], [False, True]), 1, "none masked"),
        ([1.0, 2.0], [True, False], 3, "made"),
        ([1.0, 2.0], [True, False], [], "made"),
    ],
)
def test_refusals(scores: Any, included: Any, made: object, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        one_run_audit(scores, included, 1e-5, made=made)  # type: ignore[arg-type]
