"""Laplace and Gaussian noise: the law, the sensitivity, the kinds, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import Gaussian
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.mechanisms import gaussian, laplace
from tacit.mechanisms.release import laplace_event
from tacit.randomness import UnsafeSeededStream

from .laws import is_gaussian, is_laplace

_MANY = 200_000


def _stream(name: object = "noise") -> UnsafeSeededStream:
    return UnsafeSeededStream(0, str(name))


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1.0, 1.0), (3.0, 0.2), (1e-6, 5.0)])
def test_laplace_has_its_law_and_no_less_noise(sensitivity: float, epsilon: float) -> None:
    # A row of numbers that each move by the sensitivity, so that one call gives many draws.
    values = np.linspace(-1, 1, _MANY)
    released = laplace(values, sensitivity=sensitivity, epsilon=epsilon, stream=_stream(epsilon))
    noise = released.value - values
    assert is_laplace(noise, sensitivity / epsilon)
    assert not is_laplace(0.97 * noise, sensitivity / epsilon)
    assert not is_laplace(1.03 * noise, sensitivity / epsilon)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"), [(1.0, 1e-5, 3.730631634), (4.0, 1e-9, 1.5806)]
)
def test_gaussian_has_its_law_and_no_less_noise(epsilon: float, delta: float, sigma: float) -> None:
    values = np.linspace(-1, 1, _MANY)
    released = gaussian(values, sensitivity=2, epsilon=epsilon, delta=delta, stream=_stream(delta))
    noise = released.value - values
    assert is_gaussian(noise, 2 * released.event.sigma)
    assert not is_gaussian(0.97 * noise, 2 * released.event.sigma)
    assert not is_gaussian(1.03 * noise, 2 * released.event.sigma)
    if delta == 1e-5:  # Balle & Wang 2018
        assert released.event.sigma == pytest.approx(sigma, rel=1e-8)


def test_gaussian_by_the_classical_formula_and_by_zcdp() -> None:
    classical = gaussian(0.0, sensitivity=1, epsilon=0.5, delta=1e-5, calibration="classical")
    assert classical.event.sigma == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 0.5)
    assert classical.epsilon(1e-5) < 0.5
    assert gaussian(0.0, sensitivity=3, rho=0.125).event.sigma == pytest.approx(2.0)
    assert laplace(0.0, sensitivity=3, rho=0.125).event.scale == pytest.approx(2.0)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
def test_gaussian_noise_of_the_multiplier_asked_for(adjacency: Any) -> None:
    """In units of what neighbours move, whichever they are: the event says so exactly."""
    values = np.linspace(-1, 1, _MANY)
    released = gaussian(
        values, sensitivity=2, noise_multiplier=3, adjacency=adjacency, stream=_stream(adjacency)
    )
    moved = 1.0 if adjacency == "replace-one" else 2.0
    assert released.event == Gaussian(3.0, moved)
    assert released.epsilon(1e-5) == pytest.approx(epsilon_of(Gaussian(3.0), 1e-5), rel=1e-12)
    noise = released.value - values
    assert is_gaussian(noise, 6.0)
    assert not is_gaussian(0.97 * noise, 6.0)


@given(epsilon=st.floats(1e-6, 1e3), adjacency=st.sampled_from(["add-remove", "replace-one"]))
def test_the_accountant_finds_no_more_than_was_asked(epsilon: float, adjacency: str) -> None:
    event = laplace_event(epsilon, 2.0, adjacency)  # type: ignore[arg-type]
    assert epsilon_of(event, 1e-9, "basic", adjacency) <= epsilon  # type: ignore[arg-type]
    found = epsilon_of(event, 1e-9, "basic", adjacency)  # type: ignore[arg-type]
    assert found == pytest.approx(epsilon, rel=1e-12)


@given(epsilon=st.floats(1e-2, 30), log_delta=st.floats(-12, -1.1))
def test_so_for_gaussian_noise(epsilon: float, log_delta: float) -> None:
    delta = 10.0**log_delta
    released = gaussian(0.0, sensitivity=1, epsilon=epsilon, delta=delta)
    assert epsilon * (1 - 1e-9) < released.epsilon(delta) <= epsilon


def test_replace_one_is_not_off_by_two() -> None:
    """The sensitivity is that of the adjacency: what neighbours move, whichever they are."""
    for adjacency in ("add-remove", "replace-one", "zero-out"):
        released = laplace(0.0, sensitivity=2, epsilon=1, adjacency=adjacency)  # type: ignore[arg-type]
        assert epsilon_of(released.event, 1e-12, "basic", adjacency) == 1.0  # type: ignore[arg-type]
    both = laplace(0.0, sensitivity=2, epsilon=1)
    assert epsilon_of(both.event, 1e-12, "basic", "replace-one") == 2.0


def test_the_same_kind_comes_out() -> None:
    for value in (3, 3.0, np.float32(3), np.asarray(3)):
        assert type(laplace(value, sensitivity=1, epsilon=1).value) is float
    array = gaussian(np.ones((2, 3)), sensitivity=1, rho=1).value
    assert isinstance(array, np.ndarray)
    assert array.shape == (2, 3)
    series = pd.Series([1, 2], index=["a", "b"], name="counts")
    noisy = laplace(series, sensitivity=1, epsilon=1).value
    assert isinstance(noisy, pd.Series)
    assert noisy.index.equals(series.index)
    assert noisy.name == "counts"
    frame = pd.DataFrame({"x": [1.0], "y": [2.0]}, index=["row"])
    shaken = gaussian(frame, sensitivity=1, rho=1).value
    assert isinstance(shaken, pd.DataFrame)
    assert shaken.columns.equals(frame.columns)


def test_bounds_clip_and_say_how_far_neighbours_move() -> None:
    released = laplace(1e300, bounds=(0, 10), epsilon=1e4, stream=_stream())
    assert released.value == pytest.approx(10, abs=0.1)
    assert laplace(math.inf, bounds=(0, 10), epsilon=1e4).value == pytest.approx(10, abs=0.1)
    noise = laplace(np.zeros(_MANY), bounds=(-1, 1), epsilon=_MANY, stream=_stream()).value
    assert is_laplace(noise, 2.0)  # 2 each, and all may move together
    noise = gaussian(np.zeros(_MANY), bounds=(-1, 1), rho=_MANY / 2, stream=_stream()).value
    assert is_gaussian(noise, 2.0)


def test_what_is_released_lies_on_a_grid() -> None:
    values = laplace(np.full(1000, math.pi), sensitivity=1, epsilon=1).value
    assert np.array_equal(values % 2.0**-30, np.zeros(1000))


def test_no_seed_sets_the_noise() -> None:
    found = set()
    for _ in range(3):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        found.add(laplace(0.0, sensitivity=1, epsilon=1).value)
    assert len(found) == 3


@pytest.mark.parametrize("value", [2.0**200, -1.7e308])
def test_values_beyond_the_grid_are_clipped_and_not_refused(value: float) -> None:
    """Neighbours on both sides of a limit would be told apart by a refusal."""
    for mechanism, asked in ((laplace, {"epsilon": 1}), (gaussian, {"rho": 1})):
        found = mechanism(value, sensitivity=1, **asked).value  # type: ignore[operator]
        assert math.isfinite(found)
        assert math.copysign(found, value) == found


def test_with_bounds_nothing_is_refused() -> None:
    value = [math.nan, math.inf, 10**400, None, "x", pd.NA]
    found = laplace(value, bounds=(0, 4), sensitivity=1e-9, epsilon=1).value
    assert found == pytest.approx([2, 4, 4, 2, 2, 2], abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"value": math.nan, "sensitivity": 1, "epsilon": 1}, "value must be finite"),
        ({"value": [1.0, math.inf], "sensitivity": 1, "epsilon": 1}, "value must be finite"),
        ({"value": "x", "sensitivity": 1, "epsilon": 1}, "value must be numbers that .* got str"),
        ({"value": 1.0, "epsilon": 1}, "sensitivity must be given, or bounds"),
        ({"value": 1.0, "sensitivity": 0, "epsilon": 1}, "sensitivity must be a positive"),
        ({"value": 1.0, "sensitivity": 1}, "give either epsilon or rho"),
        ({"value": 1.0, "sensitivity": 1, "epsilon": 1, "rho": 1}, "give either epsilon or rho"),
        ({"value": 1.0, "sensitivity": 1, "epsilon": -1}, "epsilon must be a positive .* got -1"),
        ({"value": 1.0, "bounds": (1, 1), "epsilon": 1}, "bounds must be finite, the lower"),
        ({"value": 1.0, "bounds": (0, math.inf), "epsilon": 1}, "bounds must be finite"),
        ({"value": 1.0, "bounds": (0,), "epsilon": 1}, "bounds must be a lower and an upper"),
        ({"value": 10**400, "sensitivity": 1, "epsilon": 1}, "value must be numbers that float64"),
        ({"value": 1.0, "sensitivity": 1, "epsilon": 1, "unit": "row"}, "unit must be one of"),
        ({"value": 1.0, "sensitivity": 1, "epsilon": 1, "adjacency": "x"}, "adjacency must be"),
        ({"value": 1.0, "sensitivity": 1, "epsilon": 1, "budget": 3}, "budget must be a budget"),
    ],
)
def test_refusals(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        laplace(**arguments)  # type: ignore[arg-type]


def test_refusals_of_gaussian() -> None:
    with pytest.raises(InvalidArgument, match="delta must be given with epsilon"):
        gaussian(1.0, sensitivity=1, epsilon=1)
    with pytest.raises(InvalidArgument, match="give epsilon, epsilon and delta, or rho"):
        gaussian(1.0, sensitivity=1, delta=1e-5, rho=1)
    with pytest.raises(InvalidArgument, match="epsilon must be below 1"):
        gaussian(1.0, sensitivity=1, epsilon=2, delta=1e-5, calibration="classical")
    with pytest.raises(InvalidArgument, match="epsilon and delta must be given"):
        gaussian(1.0, sensitivity=1, rho=1, calibration="classical")
    with pytest.raises(InvalidArgument, match="calibration must be"):
        gaussian(1.0, sensitivity=1, rho=1, calibration="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="noise_multiplier=2 must be given alone, got eps"):
        gaussian(1.0, sensitivity=1, noise_multiplier=2, rho=1)
    with pytest.raises(InvalidArgument, match=r"noise_multiplier must be a positive .* got -2"):
        gaussian(1.0, sensitivity=1, noise_multiplier=-2)
    with pytest.raises(InvalidArgument, match="epsilon and delta must be given"):
        gaussian(1.0, sensitivity=1, noise_multiplier=2, calibration="classical")
    assert "3.14" not in _message(3.14, math.nan)


def _message(*values: float) -> str:
    with pytest.raises(InvalidArgument) as refused:
        laplace(list(values), sensitivity=1, epsilon=1)
    return str(refused.value)
