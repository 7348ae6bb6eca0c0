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
    ids=["Laplace", "uniform", "truncated"],
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


def test_sizes_lengths_and_counts_become_standard_normal() -> None:
    draw = np.random.default_rng(5)
    scores = {
        "sizes": significance.magnitudes(draw.standard_normal(4_000)),
        "lengths": significance.length_scores(draw.chisquare(7, 4_000), 7),
        "counts": significance.count_scores(draw.binomial(48, 0.26, 4_000), 48, 0.26),
    }
    for values in scores.values():
        assert stats.kstest(values, "norm").pvalue > 1e-3
        assert significance.spread_p_value(values) > 1e-3
    # The larger the number, the larger the score; also where a tail is far below rounding.
    far = significance.length_scores(np.array([1e-30, 7.0, 500.0]), 7)
    assert far[0] < -10.0
    assert abs(far[1]) < 0.5
    assert far[2] > 10.0


def test_a_zero_on_a_grid_is_no_sign_of_anything() -> None:
    assert significance.magnitudes(np.zeros(1))[0] == pytest.approx(stats.norm.ppf(1e-5))


def test_a_spread_that_is_too_small_or_too_large_stands_out() -> None:
    draw = np.random.default_rng(6)
    scores = draw.standard_normal(200)
    assert significance.spread_p_value(scores) > 1e-3
    assert significance.spread_p_value(scores + 5.0) == pytest.approx(
        significance.spread_p_value(scores)
    )
    assert significance.spread_p_value(0.5 * scores) < 1e-7
    assert significance.spread_p_value(2.0 * scores) < 1e-7
    assert significance.spread_p_value(scores[:1]) == 1.0


def test_links_between_rows_are_pooled_over_disjoint_pairs() -> None:
    draw = np.random.default_rng(7)
    rows = draw.standard_normal((101, 40))
    linked = rows[1:] + 0.2 * rows[:-1]
    assert significance.lag_p_value(rows, 1) > 1e-3
    assert significance.lag_p_value(linked, 1) < 1e-7
    assert significance.lag_p_value(linked, 2) > 1e-3
    assert significance.lag_p_value(rows[:2], 3) == 1.0
    # In three dimensions P(|cosine| > t) = 1 - t.
    pair = np.array([[1.0, 0, 0], [0.9, np.sqrt(0.19), 0]])
    assert significance.lag_p_value(pair, 1) == pytest.approx(0.1)


def test_lots_that_come_again_stand_out_wherever_they_are() -> None:
    draw = np.random.default_rng(8)
    one, other = (draw.uniform(size=(9, 12)) < 0.3 for _ in range(2))
    assert significance.same_rows_p_value(one, other, 0.3) > 1e-3
    other[4:7] = one[1:4]
    # 3 lots in a row, of 12 units each: ((0.09 + 0.49)^12)^3, and 81 places.
    assert significance.same_rows_p_value(one, other, 0.3) == pytest.approx(81 * 0.58**36)
    assert significance.same_rows_p_value(one[:0], other, 0.3) == 1.0
    assert significance.same_rows_p_value(one, one, 1.0) == 1.0
