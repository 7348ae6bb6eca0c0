"""p-values: uniform where nothing is wrong, tiny where something is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tacit.auditing.replay import significance

DRAW = np.random.default_rng(11)


def test_variance_p_value_is_the_chi_square_tail_doubled() -> None:
    values = np.full(10, 1.5)
    assert significance.variance_p_value(values) == pytest.approx(2 * stats.chi2.sf(22.5, 10))


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_noise_that_is_5_percent_off_stands_out_among_as_many_entries_as_a_run_has(
    factor: float,
) -> None:
    assert significance.variance_p_value(factor * DRAW.standard_normal(24_000)) < 1e-7


def test_one_column_without_noise_stands_out() -> None:
    columns = DRAW.standard_normal((60, 500))
    assert significance.variances_p_value(columns) > 1e-6
    columns[:, 7] *= 0.1
    assert significance.variances_p_value(columns) < 1e-7


@pytest.mark.parametrize(
    "values",
    [
        DRAW.laplace(size=20_000) / np.sqrt(2),
        DRAW.uniform(-np.sqrt(3), np.sqrt(3), 20_000),
        np.clip(DRAW.standard_normal(20_000), -3, 3),
    ],
    ids=["Laplace", "uniform", "cut off"],
)
def test_what_is_no_bell_curve_stands_out(values: np.ndarray) -> None:
    assert significance.shape_p_value(values) < 1e-7
    assert significance.shape_p_value(DRAW.standard_normal(20_000)) > 1e-6


def test_the_cosine_of_two_directions_has_its_exact_law() -> None:
    pairs = DRAW.standard_normal((400, 2, 5))
    p_values = [significance.cosines_p_value(one[None], other[None]) for one, other in pairs]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-6
    # In three dimensions the square of the cosine is that of a uniform height: P(|c| > t) = 1 - t.
    found = significance.cosines_p_value(
        np.array([[1.0, 0, 0]]), np.array([[0.9, np.sqrt(0.19), 0]])
    )
    assert found == pytest.approx(0.1)


def test_a_row_that_comes_again_with_the_other_sign_stands_out() -> None:
    rows = DRAW.standard_normal((50, 30))
    assert significance.cosines_p_value(rows) > 1e-6
    assert significance.cosines_p_value(np.concatenate([rows, -rows[:1]])) < 1e-12
    assert significance.cosines_p_value(rows, rows[3:4]) < 1e-12


def test_rows_of_zeros_are_like_nothing() -> None:
    assert significance.cosines_p_value(np.zeros((3, 4))) == 1.0


def test_counts_are_judged_on_both_sides() -> None:
    assert significance.counts_p_value(0, 20, 0.5) == pytest.approx(2 * 0.5**20)
    assert significance.counts_p_value(20, 20, 0.5) == pytest.approx(2 * 0.5**20)
    assert significance.counts_p_value(10, 20, 0.5) == 1.0


def test_many_scores_are_corrected_for_their_number() -> None:
    assert significance.normal_p_value(np.array([3.0])) == pytest.approx(2 * stats.norm.sf(3))
    assert significance.normal_p_value(np.array([3.0, 0.0])) == pytest.approx(4 * stats.norm.sf(3))
    assert significance.normal_p_value(np.array([])) == 1.0
    assert significance.corrected([0.01, 0.5]) == pytest.approx(0.02)
