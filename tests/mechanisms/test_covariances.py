"""Second moments: exact sums, sensitivities of every row, the law of the noise, covariances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from tacit.accounting import Gaussian
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.mechanisms import covariance
from tacit.mechanisms.covariances import APART, Moments
from tacit.randomness import UnsafeSeededStream

from .laws import is_gaussian

Rows = NDArray[np.float64]
_ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(
    arrays(np.float64, (3, 4), elements=st.one_of(_ANY, st.floats(-2, 2))),
    st.one_of(st.floats(1e-3, 1e3), st.floats(1e-300, 1e300)),
    st.booleans(),
)
@settings(deadline=None)
def test_no_row_moves_the_products_by_more_than_is_paid_for(
    rows: Rows, norm: float, constant: bool
) -> None:
    moments = Moments(4, norm, constant)
    one, both, other = (
        moments._products(data, None).astype(object) for data in (rows[:1], rows[:2], rows[[0, 2]])
    )

    def length(matrix: NDArray[np.object_]) -> float:
        return math.sqrt(float((matrix**2).sum()))

    assert length(both - one) <= moments.most
    assert length(both - other) <= APART * moments.most
    assert moments.most <= 2 ** (36 + constant) * (1 + 1e-4)


def test_the_bound_is_reached() -> None:
    rows = np.asarray([[3.0, 4.0], [4.0, -3.0]])
    moments = Moments(2, 1.0)
    one, other = (moments._products(rows[[k]], None).astype(float) for k in (0, 1))
    assert np.linalg.norm(one) == pytest.approx(moments.most, rel=1e-4)
    assert np.linalg.norm(one - other) == pytest.approx(APART * moments.most, rel=1e-4)


def test_products_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(70_000, 3))
    moments = Moments(3, 2.0)
    found = moments._products(rows, None)
    assert np.array_equal(found, moments._products(rng.permutation(rows), None))
    steps = [
        [round(x * 2**18) for x in (row / max(2.0, np.linalg.norm(row))).tolist()]
        for row in rows[:300]
    ]
    exact = [[sum(s[i] * s[j] for s in steps) for j in range(3)] for i in range(3)]
    assert np.abs(moments._products(rows[:300], None) - exact).max() <= 2**10  # ties of rounding


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e200])
def test_an_odd_row_leaves_all_others_as_they_are(odd: float) -> None:
    """Rows whose entries are half-way between two whole numbers: how they were rounded shows."""
    rng = np.random.default_rng(0)
    halves = (2 * rng.integers(2**10, 2**14, (4_000, 20)) + 0.5) * 2.0**-18
    halves[:, 0] = rng.uniform(0.3, 0.6, len(halves))
    moments = Moments(20, 1.0)
    less = moments._products(halves, None)
    more = moments._products(np.vstack([halves, [odd] + [0.0] * 19]), None)
    own = np.zeros((20, 20))
    own[0, 0] = 2.0**36 * (odd == 1e200)
    assert np.array_equal(more - less, own)


def test_a_sum_over_any_number_of_rows_does_not_wrap_around() -> None:
    many = np.broadcast_to(1.0, (2**27 + 1, 1))
    assert Moments(1, 1.0)._products(many, None, 16).tolist() == [[2**47 + 2**20]]


@pytest.mark.parametrize("constant", [False, True])
def test_the_noise_is_symmetric_and_has_its_law(constant: bool) -> None:
    """σ on the diagonal, σ/√2 off it: in Frobenius norm, σ in every direction."""
    columns, sigma, norm = 500 - constant, 3.0, 2.0
    moments = Moments(columns, norm, constant)
    stream = UnsafeSeededStream(0, f"moments {constant}")
    unit = sigma * norm**2 * (1 + constant)
    diagonal = []
    for _ in range(60):
        noise = moments.noisy(np.zeros((0, columns)), Gaussian(sigma), stream)
        assert np.array_equal(noise, noise.T)
        diagonal.append(np.diag(noise))
    above = noise[np.triu_indices(500, 1)]
    for drawn, scale in ((np.concatenate(diagonal), unit), (above, unit / math.sqrt(2))):
        assert is_gaussian(drawn, scale * (1 + 2e-4))
        assert not is_gaussian(0.97 * drawn, scale * (1 + 2e-4))


@pytest.mark.parametrize(
    ("count", "less"), [(1_500, 0.85), pytest.param(4_000, 0.91, marks=pytest.mark.slow)]
)
def test_every_direction_has_the_same_noise(count: int, less: float) -> None:
    """The attacker's best statistic for any unit row x is x'Mx, of deviation σ, and not of less."""
    moments, stream = Moments(3, 1.0), UnsafeSeededStream(0, "directions")
    nobody = np.zeros((0, 3))
    draws = np.stack([moments.noisy(nobody, Gaussian(2.0), stream) for _ in range(count)])
    for x in np.asarray([[1, 0, 0], [1, 1, 0], [1, -2, 3]], dtype=float):
        along = np.einsum("i,nij,j->n", x, draws, x) / (x @ x)
        assert is_gaussian(along, 2.0)
        assert not is_gaussian(less * along, 2.0)


def test_the_covariance() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200_000, 3)) @ rng.normal(size=(3, 3)) * 0.05 + [0.1, -0.2, 0.3]
    for asked in ({"epsilon": 1.0, "delta": 1e-6}, {"rho": 0.1}):
        for adjacency in ("add-remove", "replace-one"):
            found = covariance(rows, norm=1, adjacency=adjacency, **asked)  # type: ignore[arg-type]
            assert np.allclose(found.value, np.cov(rows.T), atol=1e-3)
    assert np.allclose(
        covariance(rows, norm=1, count=200_000, rho=1).value, np.cov(rows.T), atol=1e-3
    )
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    found = covariance(frame, norm=1, rho=1).value
    assert isinstance(found, pd.DataFrame)
    assert found.columns.tolist() == found.index.tolist() == ["a", "b", "c"]


def test_rows_that_are_not_finite_count_as_nothing() -> None:
    rows = np.asarray([[0.6, 0.8], [math.nan, 1.0], [math.inf, 0.0], [1e308, 1e308], [0.0, 0.0]])
    steps = Moments(2, 1.0)._products(rows, None) * 2.0**-36
    half = 0.5 * np.ones((2, 2))
    assert np.allclose(steps, np.outer(rows[0], rows[0]) + half, atol=1e-5)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
def test_the_accountant_finds_no_more_than_was_asked(adjacency: str) -> None:
    event = covariance(np.ones((9, 2)), norm=1, epsilon=0.5, delta=1e-6, adjacency=adjacency).event  # type: ignore[arg-type]
    found = epsilon_of(event, 1e-6, adjacency=adjacency)  # type: ignore[arg-type]
    assert 0.4999999 < found <= 0.5
    assert event.replace_distance == APART


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_multiplier_asked_for_is_the_event(adjacency: Any) -> None:
    none, count = np.zeros((0, 500)), 10**6
    found = covariance(none, norm=2, count=count, noise_multiplier=5, adjacency=adjacency)
    assert found.event == Gaussian(5.0, math.sqrt(2.0))
    # Of no rows there is noise alone: σ/√2 of 2·norm² off the diagonal.
    above = found.value[np.triu_indices(500, 1)] * count
    assert np.std(above) == pytest.approx(5 * 8 / math.sqrt(2), rel=0.03)


def test_refusals() -> None:
    with pytest.raises(TypeError, match="norm"):
        covariance(np.ones((3, 2)), rho=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="rows must be a 2-D array or a DataFrame"):
        covariance(np.ones(3), norm=1, rho=1)
    with pytest.raises(InvalidArgument, match="norm must be a positive"):
        covariance(np.ones((3, 2)), norm=0, rho=1)
    with pytest.raises(InvalidArgument, match="delta must be given"):
        covariance(np.ones((3, 2)), norm=1, epsilon=1)
    with pytest.raises(InvalidArgument, match="epsilon \\(or rho\\) must be larger, or noise_m"):
        covariance(np.ones((3, 2)), norm=1, rho=1e-18)
