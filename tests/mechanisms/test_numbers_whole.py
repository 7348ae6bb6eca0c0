"""Discrete Laplace and Gaussian noise: exact laws, events that hold, integers only."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import (
    DiscreteGaussian,
    DiscreteLaplace,
    ZeroConcentrated,
)
from tacit.accounting import (
    delta as delta_of,
)
from tacit.accounting import (
    epsilon as epsilon_of,
)
from tacit.errors import InvalidArgument
from tacit.mechanisms import discrete_gaussian, discrete_laplace
from tacit.randomness import UnsafeSeededStream

from .laws import has_integer_weights

_MANY = 400_000


def _stream(name: object = "noise") -> UnsafeSeededStream:
    return UnsafeSeededStream(0, str(name))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_laplace_has_its_law_and_no_less_noise(epsilon: float) -> None:
    values = np.arange(_MANY)
    noise = discrete_laplace(values, epsilon=epsilon, stream=_stream(epsilon)).value - values
    assert has_integer_weights(noise, 1 / epsilon, 1)
    less = discrete_laplace(values, epsilon=epsilon / 0.97, stream=_stream(epsilon)).value - values
    assert not has_integer_weights(less, 1 / epsilon, 1)


@pytest.mark.parametrize("rho", [0.02, 0.5])
def test_gaussian_has_its_law_and_no_less_noise(rho: float) -> None:
    values = np.arange(_MANY)
    sigma = 1 / math.sqrt(2 * rho)
    noise = discrete_gaussian(values, rho=rho, stream=_stream(rho)).value - values
    assert has_integer_weights(noise, sigma, 2)
    less = discrete_gaussian(values, rho=rho / 0.97**2, stream=_stream(rho)).value - values
    assert not has_integer_weights(less, sigma, 2)


def test_events_say_what_holds() -> None:
    assert discrete_laplace(1, sensitivity=3, epsilon=0.5).event == DiscreteLaplace(6.0, 3)
    assert discrete_laplace([1, 2], epsilon=0.5).event == DiscreteLaplace(2.0, 1)
    assert discrete_laplace([1, 2], sensitivity=3, epsilon=0.5).event == DiscreteLaplace(6.0, 3)
    assert isinstance(discrete_gaussian(1, sensitivity=3, rho=0.1).event, DiscreteGaussian)
    assert discrete_gaussian([1, 2], sensitivity=3, rho=0.1).event == ZeroConcentrated(
        0.1, "add-remove"
    )
    assert discrete_gaussian(1, sensitivity=1.5, rho=0.1).event == ZeroConcentrated(
        0.1, "add-remove"
    )
    assert discrete_gaussian(1, sensitivity=10**6, rho=0.1).event == ZeroConcentrated(
        0.1, "add-remove"
    )


@pytest.mark.parametrize("moves", [(1, 1), (2, 1), (1, -3), (4, 5), (1, 1, 1)])
@pytest.mark.parametrize("scale", [0.6, 2.0, 5.0])
def test_a_shared_move_tells_no_more_than_one_number_that_moves(
    scale: float, moves: tuple[int, ...]
) -> None:
    """By the masses themselves, for every ε."""
    k = np.arange(-60, 61)
    p, q = np.ones(1), np.ones(1)
    for move in moves:
        p = np.outer(p, np.exp(-abs(k) / scale)).ravel() * math.tanh(0.5 / scale)
        q = np.outer(q, np.exp(-abs(k - move) / scale)).ravel() * math.tanh(0.5 / scale)
    event = DiscreteLaplace(scale, sum(map(abs, moves)))
    for epsilon in np.linspace(0, sum(map(abs, moves)) / scale, 20):
        shared = np.maximum(p - math.exp(epsilon) * q, 0).sum()
        assert shared <= delta_of(event, float(epsilon)) + 1e-9


@settings(max_examples=10, deadline=None)
@given(st.floats(0.05, 2), st.floats(-9, -3), st.sampled_from([1, 2, 7]))
def test_the_accountant_finds_no_more_than_was_asked(
    epsilon: float, log_delta: float, sensitivity: int
) -> None:
    delta = 10.0**log_delta
    released = discrete_gaussian(5, sensitivity=sensitivity, epsilon=epsilon, delta=delta)
    assert 0.8 * epsilon < released.epsilon(delta) <= epsilon
    assert epsilon_of(discrete_laplace(5, epsilon=epsilon).event, delta, "basic") <= epsilon


def test_the_same_kind_comes_out() -> None:
    assert type(discrete_laplace(3, epsilon=1).value) is int
    assert discrete_gaussian(np.ones((2, 2), dtype=np.uint8), rho=1).value.dtype == np.int64
    series = pd.Series([1, 2], index=["a", "b"])
    assert discrete_laplace(series, epsilon=1).value.index.tolist() == ["a", "b"]


@pytest.mark.parametrize("value", [2**62 + 1, 2**63 - 1, 2**63, 2**64, 10**400])
def test_values_beyond_the_grid_are_clipped_and_not_refused(value: int) -> None:
    """Neighbours on both sides of a limit would be told apart by a refusal."""
    for one in (value, -value):
        edge = 2**62 if one > 0 else -(2**62)
        assert abs(discrete_laplace(one, epsilon=1).value - edge) < 100
        assert abs(discrete_gaussian([one, 1], rho=1).value[0] - edge) < 100


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="value must be integers; round them"):
        discrete_laplace([1.0], epsilon=1)
    with pytest.raises(InvalidArgument, match="value must be integers; round them"):
        discrete_gaussian([2**70, None], rho=1)
    with pytest.raises(InvalidArgument, match="sensitivity must be a whole number"):
        discrete_laplace(1, sensitivity=1.5, epsilon=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="delta must be given"):
        discrete_gaussian(1, epsilon=1)
