"""Optimised strategies beside JAX-Privacy's, their derivatives, and errors by dense matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.accounting import FixedEpochs, noise_multiplier, toeplitz_sensitivity
from tacit.accounting.factorization import column_norms, inverse_coefficients
from tacit.accounting.strategies import (
    Schedule,
    Workload,
    anticorrelated,
    banded,
    buffered,
    inverse_banded,
    mean_squared_error,
    normalised_error,
    series,
    square_root,
)
from tacit.errors import InvalidArgument

# JAX-Privacy 2.0.0, float64: the mean squared error of prefix sums of its optimised strategies
# (toeplitz.optimize_banded_toeplitz, columns normalised; buffered_toeplitz.optimize, mean error).
# `benchmarks/correlated_noise.py` runs it again.
JAX_BANDED = {
    (500, 2): 127.8361764, (500, 4): 67.0682086, (500, 8): 37.0216333, (500, 16): 22.0681844,
    (500, 32): 14.5153236, (2000, 2): 504.2326871, (2000, 4): 257.0363991,
    (2000, 8): 134.0864887, (2000, 16): 72.8213644, (2000, 32): 41.9906361,
}  # fmt: skip
JAX_ANY_BANDED = {
    (500, 4): 66.7559690, (500, 16): 21.6787956, (2000, 4): 256.5704926, (2000, 16): 72.1520435,
}  # fmt: skip
JAX_BUFFERED = {
    (500, 1): 8.0762724, (500, 5): 51.2917248, (500, 20): 377.2217865,
    (2000, 1): 10.7168720, (2000, 5): 66.5991713, (2000, 20): 456.8485622,
}  # fmt: skip
PLAIN = Workload()


def of_columns(coefficients: tuple[float, ...], steps: int) -> Any:
    norms, bands = np.array(column_norms(coefficients)), len(coefficients)
    return norms[np.minimum(bands, steps - np.arange(steps)) - 1]


@pytest.mark.parametrize(
    ("steps", "bands"),
    [
        case if case[0] == 500 or case[1] == 16 else pytest.param(*case, marks=pytest.mark.slow)
        for case in JAX_BANDED
    ],
)
def test_banded_strategies_are_as_good_as_jax_privacys(steps: int, bands: int) -> None:
    found = banded(steps, bands, PLAIN)
    error = normalised_error(found, of_columns(found, steps), PLAIN)
    assert error == pytest.approx(JAX_BANDED[steps, bands], rel=1e-6)
    if (steps, bands) in JAX_ANY_BANDED:  # whose rows all have coefficients of their own
        assert math.sqrt(error / JAX_ANY_BANDED[steps, bands]) < 1.01


def buffered_error(steps: int, epochs: int, most: int = 4) -> float:
    scales, decays = map(np.array, buffered(steps, most, steps // epochs, PLAIN))
    inverse = series(scales, decays, steps)
    strategy = inverse_coefficients(inverse, steps)
    found = toeplitz_sensitivity(strategy, steps, FixedEpochs(steps // epochs))
    assert found.exact
    return mean_squared_error(inverse, PLAIN) * found.value**2


@pytest.mark.parametrize(
    "epochs", [*(pytest.param(one, marks=pytest.mark.slow) for one in (1, 5)), 20]
)
def test_buffered_strategies_are_as_good_as_jax_privacys(epochs: int) -> None:
    assert buffered_error(500, epochs) < 1.0001 * JAX_BUFFERED[500, epochs]


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 5, 20])
def test_long_buffered_strategies_are_as_good_as_jax_privacys(epochs: int) -> None:
    assert buffered_error(2000, epochs) < 1.0001 * JAX_BUFFERED[2000, epochs]


def workload_matrix(workload: Workload, steps: int) -> Any:
    """A by running SGD: what a unit gradient in one step moves the models by."""
    rates = workload.rates(steps)
    matrix = np.zeros((steps, steps))
    for start in range(steps):
        velocity = model = 0.0
        for step in range(start, steps):
            velocity = workload.momentum * velocity + (step == start)
            model += rates[step] * velocity
            matrix[step, start] = model
    return matrix


def lower(coefficients: Any, steps: int) -> Any:
    return sum(one * np.eye(steps, k=-at) for at, one in enumerate(coefficients[:steps]))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_errors_and_derivatives_by_dense_matrices(momentum: float, schedule: Schedule) -> None:
    workload, steps = Workload(momentum, schedule), 23
    own = np.random.default_rng(5).normal(size=steps)
    matrix = workload_matrix(workload, steps)
    error, derivatives = workload.error(own)
    assert error == pytest.approx(np.square(matrix @ lower(own, steps)).sum() / steps, rel=1e-12)
    for at in range(steps):
        moved = own.copy()
        moved[at] += 1e-6
        change = (workload.error(moved)[0] - error) / 1e-6
        assert derivatives[at] == pytest.approx(change, rel=1e-4, abs=1e-4)
    norms = np.linspace(1.0, 2.0, steps)
    inverse = np.diag(norms) @ np.linalg.inv(lower([1.0, 0.5, 0.2], steps))
    expected = np.square(matrix @ inverse).sum() / steps
    assert normalised_error([1.0, 0.5, 0.2], norms, workload) == pytest.approx(expected, rel=1e-12)


def test_the_square_root_with_momentum() -> None:
    root = lower(square_root(Workload(0.8), 12), 12)
    expected = workload_matrix(Workload(0.8), 12)
    np.testing.assert_allclose(root @ root, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "workload", [PLAIN, Workload(0.9), Workload(0.9, "cosine"), Workload(0.0, "linear")]
)
def test_what_is_optimised_is_better_than_its_beginning(workload: Workload) -> None:
    steps, bands, apart = 120, 5, 12
    found, start = banded(steps, bands, workload), tuple(square_root(workload, bands))
    errors = [normalised_error(one, of_columns(one, steps), workload) for one in (found, start)]
    assert errors[0] < errors[1]
    assert min(found) >= 0.0

    def error(inverse: Any) -> float:
        padded = np.concatenate([inverse, np.zeros(steps - bands)])
        whole = toeplitz_sensitivity(
            inverse_coefficients(inverse, steps), steps, FixedEpochs(apart)
        )
        return mean_squared_error(padded, workload) * whole.value**2

    other = inverse_banded(steps, bands, apart, workload)
    assert error(other) < error(inverse_coefficients(start, bands))
    assert max(other[1:]) <= 0.0
    assert -sum(other[1:]) < 1.0
    assert 0.0 < anticorrelated(steps, apart, workload) < 1.0


def test_the_gain_of_few_epochs_and_small_lots() -> None:
    """Lots of 512 of 50,000, 1,953 steps, ε = 8: 16 bands have .562 of the usual error."""
    steps, bands, lot, examples = 1953, 16, 512, 50_000
    alone = noise_multiplier(epsilon=8, delta=1e-5, sample_rate=lot / examples, steps=steps)
    sigma = noise_multiplier(
        epsilon=8, delta=1e-5, sample_rate=bands * lot / examples, steps=-(-steps // bands)
    )
    found = banded(steps, bands, PLAIN)
    error = normalised_error(found, of_columns(found, steps), PLAIN)
    ratio = sigma / alone * math.sqrt(error / ((steps + 1) / 2))
    assert ratio == pytest.approx(0.5622, abs=2e-4)


@pytest.mark.parametrize("wrong", [{"momentum": 1.0}, {"momentum": -0.1}, {"schedule": "step"}])
def test_wrong_workloads_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Workload(**wrong)
