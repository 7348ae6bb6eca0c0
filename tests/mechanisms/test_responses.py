"""Randomised response: its law, its kinds, what is refused."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from tacit.accounting import RandomizedResponse, Repeated
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.mechanisms import randomized_response
from tacit.randomness import UnsafeSeededStream

from .laws import has_weights

_MANY = 200_000


@pytest.mark.parametrize("categories", [2, pytest.param(3, marks=pytest.mark.slow), 10])
@pytest.mark.parametrize("epsilon", [pytest.param(0.5, marks=pytest.mark.slow), 2.0])
def test_the_law_and_no_less_noise(categories: int, epsilon: float) -> None:
    stream = UnsafeSeededStream(0, f"{categories} {epsilon}")
    answers = np.full(_MANY, 1)
    given = randomized_response(answers, categories=categories, epsilon=epsilon, stream=stream)
    weights = np.ones(categories)
    weights[1] = math.exp(epsilon)
    assert has_weights(given.value, weights)
    less = randomized_response(
        answers, categories=categories, epsilon=epsilon / 0.97, stream=stream
    )
    assert not has_weights(less.value, weights) or epsilon < 1
    less = randomized_response(
        np.full(5 * _MANY, 1), categories=categories, epsilon=epsilon / 0.97, stream=stream
    )
    assert not has_weights(less.value, weights)


def test_many_answers_of_one_person_add_up() -> None:
    """A peer's event forgets the count; ours must not."""
    event = randomized_response([0, 1], epsilon=0.1).event
    assert event == RandomizedResponse(epsilon=0.1)
    assert epsilon_of(Repeated(event, 1000), 1e-6) > 19.3


def test_the_same_kind_comes_out() -> None:
    assert randomized_response(True, categories=[False, True], epsilon=50).value is True
    assert type(randomized_response(1, epsilon=50).value) is int
    assert randomized_response("no", categories=["no", "yes"], epsilon=50).value == "no"
    bools = randomized_response(
        np.asarray([True, False]), categories=[False, True], epsilon=50
    ).value
    assert bools.dtype == bool
    assert bools.tolist() == [True, False]
    series = pd.Series(["b", "a"], index=[5, 7], name="answer")
    found = randomized_response(series, categories=("a", "b", "c"), epsilon=60).value
    assert found.tolist() == ["b", "a"]
    assert found.index.tolist() == [5, 7]
    assert randomized_response(np.zeros((2, 3), dtype=int), epsilon=1).value.shape == (2, 3)


def test_an_answer_of_no_category_counts_as_any_of_them() -> None:
    stream = UnsafeSeededStream(0, "maybe")
    answers = ["maybe", None, 10**400, [1]] * (_MANY // 4)
    given = randomized_response(answers, categories=["a", "b", "c"], epsilon=1, stream=stream)
    counts = np.unique(given.value, return_counts=True)[1]
    assert np.abs(counts - _MANY / 3).max() < 5 * math.sqrt(_MANY)


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="categories must be two or more"):
        randomized_response([0], categories=["a", "a"], epsilon=1)
    with pytest.raises(InvalidArgument, match="categories must be a whole number"):
        randomized_response([0], categories=1, epsilon=1)
