"""Sensitivities against brute force over all participations, and norms against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tacit.accounting import FixedEpochs, MinimumSeparation, sensitivity, toeplitz_sensitivity
from tacit.accounting.factorization import (
    buffered_coefficients,
    column_norms,
    inverse_coefficients,
    inverse_sensitivity,
    normalised_sensitivity,
)
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

Matrix = Any


def patterns(steps: int, participation: FixedEpochs | MinimumSeparation) -> Iterator[list[int]]:
    """All steps that a record may take part in."""
    apart = participation.separation
    if isinstance(participation, FixedEpochs):
        for start in range(min(apart, steps)):
            yield list(range(start, steps, apart))
        return
    for count in range(1, participation.most + 1):
        for chosen in combinations(range(steps), count):
            if all(b - a >= apart for a, b in pairwise(chosen)):
                yield list(chosen)


def by_force(matrix: Matrix, participation: FixedEpochs | MinimumSeparation) -> float:
    """The largest norm of ΣC e_i u_i over all patterns and u_i = ±1: gradients of one dimension."""
    worst = 0.0
    for chosen in patterns(len(matrix), participation):
        columns = matrix[:, chosen]
        if (columns.T @ columns >= 0.0).all():
            worst = max(worst, float(np.linalg.norm(columns.sum(1))))
            continue
        signs = np.array(list(product((1.0, -1.0), repeat=len(chosen))))
        worst = max(worst, float(np.linalg.norm(columns @ signs.T, axis=0).max()))
    return worst


def dense(coefficients: Any, steps: int) -> Matrix:
    """A lower triangular Toeplitz matrix."""
    matrix = np.zeros((steps, steps))
    for band, one in enumerate(coefficients[:steps]):
        matrix += one * np.eye(steps, k=-band)
    return matrix


def random_strategies(count: int) -> Iterator[tuple[int, Any, Any, bool]]:
    random = np.random.default_rng(1)
    for at in range(count):
        steps = int(random.integers(1, 13))
        apart = int(random.integers(1, steps + 1))
        if at % 2:
            participation: Any = FixedEpochs(apart)
        else:
            participation = MinimumSeparation(apart, int(random.integers(1, 5)))
        bands = int(random.integers(1, steps + 1))
        signed = at % 3 == 0
        matrix = np.tril(random.normal(size=(steps, steps)))
        matrix = matrix * (np.subtract.outer(np.arange(steps), np.arange(steps)) < bands)
        yield steps, matrix if signed else np.abs(matrix), participation, signed


def test_dense_strategies_by_brute_force() -> None:
    equal = 0
    for _, matrix, participation, _ in random_strategies(300):
        found, truth = sensitivity(matrix, participation), by_force(matrix, participation)
        assert found.value >= truth
        if found.exact:
            equal += 1
            assert found.value <= truth * (1.0 + 1e-12) + 1e-300
    assert equal > 150


def test_toeplitz_strategies_by_brute_force() -> None:
    random = np.random.default_rng(2)
    exact = 0
    for at, (steps, _, participation, signed) in enumerate(random_strategies(400)):
        own = random.normal(size=int(random.integers(1, steps + 1)))
        own = own if signed else np.abs(own)
        if at % 4 < 2:
            own = np.sort(np.abs(own))[::-1].copy()  # as in the theorem for minimum separation
        found = toeplitz_sensitivity(own, steps, participation)
        truth = by_force(dense(own, steps), participation)
        assert found.value >= truth
        if found.exact:
            exact += 1
            assert found.value <= truth * (1.0 + 1e-12)
    assert exact > 250


def test_a_bound_that_forgets_a_participation_is_seen() -> None:
    """The comparison can fail: one participation less, or signs left in, are below the truth."""
    own = np.array([1.0, 0.8, 0.5, 0.2])
    truth = by_force(dense(own, 9), FixedEpochs(2))
    assert toeplitz_sensitivity(own, 9, MinimumSeparation(2, 4)).value < truth
    mixed = np.array([1.0, -0.8, 0.5])
    truth = by_force(dense(mixed, 9), FixedEpochs(1))
    assert np.linalg.norm(dense(mixed, 9).sum(1)) < 0.9 * truth


def test_columns_divided_by_their_norms_by_brute_force() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        steps, apart = int(random.integers(1, 13)), int(random.integers(1, 6))
        own = [1.0, *np.abs(random.normal(size=int(random.integers(0, steps)))).tolist()]
        matrix = dense(np.array(own), steps)
        matrix /= np.linalg.norm(matrix, axis=0)
        found = normalised_sensitivity(own, steps, FixedEpochs(apart))
        truth = by_force(matrix, FixedEpochs(apart))
        assert truth <= found.value <= truth * (1.0 + 1e-12)
        assert found.exact


def test_column_norms_are_rounded_up_to_the_bit() -> None:
    random = np.random.default_rng(4)
    for _ in range(50):
        own = [1.0, *random.normal(size=int(random.integers(1, 30))).tolist()]
        for count, norm in enumerate(column_norms(own), 1):
            square = sum((Fraction(one) ** 2 for one in own[:count]), Fraction(0))
            assert Fraction(norm) ** 2 >= square
            assert Fraction(math.nextafter(norm, 0.0)) ** 2 < square


def test_sensitivities_are_not_below_exact_arithmetic() -> None:
    own = [Fraction(1), *(Fraction(1, 3 + k) for k in range(20))]
    floats = [float(one) for one in own]
    exact = [Fraction(one) for one in floats]
    moved = [Fraction(0)] * 60
    for at in range(0, 60, 7):
        for band, one in enumerate(exact[: 60 - at]):
            moved[at + band] += one
    square = sum((one**2 for one in moved), Fraction(0))
    found = toeplitz_sensitivity(floats, 60, FixedEpochs(7)).value
    assert square <= Fraction(found) ** 2 <= square * (1 + Fraction(1, 10**12))


def test_strategies_given_by_their_inverse() -> None:
    """C found from C⁻¹ is that of exact arithmetic, and its sensitivity not below it."""
    inverse = [1.0, -0.6, -0.2, -0.1]
    exact = [Fraction(1)]
    for at in range(1, 50):
        terms = (Fraction(-inverse[k]) * exact[at - k] for k in range(1, min(at, 3) + 1))
        exact.append(sum(terms, Fraction(0)))
    found = inverse_coefficients(inverse, 50)
    assert max(abs(Fraction(float(a)) / b - 1) for a, b in zip(found, exact, strict=True)) < 1e-14
    square = sum((one**2 for one in exact), Fraction(0))
    comes_to = inverse_sensitivity(found, FixedEpochs(50), terms=4)
    assert (Fraction(comes_to.sensitivity) * Fraction(comes_to.norm)) ** 2 >= square
    assert comes_to.sensitivity < 1.0 + 1e-12


def test_buffers_are_the_series_of_their_inverse() -> None:
    scales, decays = [-0.3, -0.25], [0.9, 0.3]
    series = [1.0] + [sum(w * d**k for w, d in zip(scales, decays, strict=True)) for k in range(99)]
    expected = inverse_coefficients(series, 100)
    np.testing.assert_allclose(buffered_coefficients(scales, decays, 100), expected, rtol=1e-13)


@pytest.mark.parametrize("wrong", [[[1.0, 2.0], [0.0, 1.0]], [[1.0, 0.0]], [[math.nan]]])
def test_what_is_no_strategy_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="lower triangular"):
        sensitivity(wrong, FixedEpochs(1))


def test_a_strategy_that_grows_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="do not grow"):
        inverse_sensitivity(inverse_coefficients([1.0, -3.0], 400), FixedEpochs(9), terms=2)
