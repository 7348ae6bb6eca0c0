"""Exposure by rank, by a sample and by a law, against brute force and against its law."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from tacit.auditing.secrets import (
    SkewNormal,
    Space,
    combined_p_value,
    exposure_bound,
    exposure_by_extrapolation,
    exposure_by_rank,
    exposure_by_sampling,
    exposure_of_rank,
    fit_skew_normal,
    log_perplexities,
    random_exposure,
)
from tacit.auditing.secrets.exposure import gap_p_value, largest_gap
from tacit.errors import InvalidArgument

from .models import chain

# ---- Exposure by rank, by a sample and by a law, against brute force and against its law

SPACE = Space((0,), ((0, 1, 2, 3, 4),) * 4)
VALUES = log_perplexities(chain(5, seed=0), SPACE, SPACE.every())


def test_the_rank_by_sorting() -> None:
    order = sorted(VALUES.tolist())
    for place in (0, 1, 17, 300, 624):
        found = exposure_by_rank(order[place], VALUES)
        assert found.bits == pytest.approx(math.log2(625) - math.log2(place + 1))
        assert found.p_value == pytest.approx((place + 1) / 625)
        assert found.most == pytest.approx(math.log2(625))


def test_ties_count_against_exposure() -> None:
    assert exposure_by_rank(1.0, [1.0, 1.0, 1.0, 5.0]).p_value == 0.75
    assert exposure_by_sampling(1.0, [1.0, 1.0, 5.0]).p_value == 0.75


def test_a_secret_that_the_model_never_saw_has_the_exponential_law() -> None:
    draw = np.random.default_rng(1)
    ranked = [exposure_by_rank(value, VALUES).bits for value in draw.choice(VALUES, 4000)]
    sampled = [
        exposure_by_sampling(draw.choice(VALUES), draw.choice(VALUES, 500)).bits
        for _ in range(2000)
    ]
    assert np.mean(ranked) == pytest.approx(1.0 / math.log(2.0), abs=0.1)
    assert np.mean(sampled) == pytest.approx(1.0 / math.log(2.0), abs=0.15)
    for bits in (1.0, 3.0, 5.0):
        for found in (ranked, sampled):
            share = np.mean(np.array(found) >= bits)
            assert share < 2.0**-bits + 5.0 * math.sqrt(2.0**-bits / len(found))


def test_a_sample_comes_near_the_rank() -> None:
    sample = np.random.default_rng(2).choice(VALUES, 20_000)
    for value in np.quantile(VALUES, [0.01, 0.1, 0.5]):
        exact, near = exposure_by_rank(value, VALUES), exposure_by_sampling(value, sample)
        assert near.bits == pytest.approx(exact.bits, abs=0.5)


def test_a_sample_sees_no_further_than_its_size() -> None:
    found = exposure_by_sampling(-1.0, np.arange(1023.0))
    assert found.bits == found.most == 10.0


def test_extrapolation_meets_the_law_in_the_tail() -> None:
    law = stats.skewnorm(3.0, loc=40.0, scale=6.0)
    sample = law.rvs(size=50_000, random_state=3)
    for share in (0.1, 1e-3, 1e-6):
        found = exposure_by_extrapolation(float(law.ppf(share)), sample, size=10**9)
        assert found.holds
        assert found.bits == pytest.approx(-math.log2(share), rel=0.06)
        assert found.method == "skew-normal"


def test_extrapolation_ends_at_the_largest_exposure() -> None:
    sample = np.random.default_rng(4).normal(50.0, 2.0, size=2000)
    assert exposure_by_extrapolation(0.0, sample, size=1024).bits == 10.0


def test_a_law_that_does_not_fit_is_said_not_to_hold() -> None:
    draw = np.random.default_rng(5)
    two = np.concatenate([draw.normal(-3.0, size=2000), draw.normal(3.0, size=2000)])
    assert not exposure_by_extrapolation(-8.0, two, size=10**6).holds


def test_several_secrets_together_by_scipy() -> None:
    for values in ([0.3], [0.01, 0.5], [0.9, 0.2, 0.04, 0.6]):
        expected = stats.combine_pvalues(values, method="fisher").pvalue
        assert combined_p_value(values) == pytest.approx(expected, rel=1e-12)
    assert combined_p_value([0.0, 1.0]) == 0.0


def test_random_secrets_together_are_rarely_rejected() -> None:
    draw = np.random.default_rng(6)
    found = [
        combined_p_value(
            exposure_by_sampling(draw.choice(VALUES), draw.choice(VALUES, 300)).p_value
            for _ in range(8)
        )
        for _ in range(400)
    ]
    assert np.mean(np.array(found) < 0.1) < 0.1 + 5.0 * math.sqrt(0.09 / 400)
    assert np.mean(np.array(found) < 0.1) > 0.1 - 5.0 * math.sqrt(0.09 / 400)


def test_quantiles_of_chance() -> None:
    assert random_exposure(0.01) == pytest.approx(6.644, abs=1e-3)
    assert random_exposure(0.0) == math.inf


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="none is as low"):
        exposure_by_rank(1.0, [2.0, 3.0])
    with pytest.raises(InvalidArgument, match="without NaN"):
        exposure_by_sampling(1.0, [2.0, math.nan])
    with pytest.raises(InvalidArgument, match="secret must be a log-perplexity, got NaN"):
        exposure_by_sampling(math.nan, [2.0, 3.0])
    with pytest.raises(InvalidArgument, match="secret must be a log-perplexity, got NaN"):
        exposure_by_extrapolation(math.nan, np.arange(200.0), size=1000)
    with pytest.raises(InvalidArgument, match="anything masked"):
        exposure_by_sampling(1.0, np.ma.masked_equal([2.0, 9.0], 9.0))
    with pytest.raises(InvalidArgument, match="rank must be at most the size 10"):
        exposure_of_rank(11, 10)
    with pytest.raises(InvalidArgument, match="p_values must hold at least one"):
        combined_p_value([])


# ---- The skew normal law against SciPy and mpmath


@pytest.mark.parametrize(
    "shape",
    [
        -20.0,
        pytest.param(-2.0, marks=pytest.mark.slow),
        pytest.param(0.0, marks=pytest.mark.slow),
        2.0,
        pytest.param(20.0, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("z", [-12.0, -6.0, -1.0, 0.02, 0.5, 6.0])
def test_the_far_tail_by_mpmath(shape: float, z: float) -> None:
    with mpmath.workdps(20):

        def density(x: mpmath.mpf) -> mpmath.mpf:
            return 2 * mpmath.npdf(x) * mpmath.ncdf(shape * x)

        steps = [0.0, *(1e-4 * 2.0**power for power in range(18))]
        expected = mpmath.log(mpmath.quad(density, [z - step for step in reversed(steps)]))
    found = SkewNormal(5.0, 2.0, shape).log_cdf(5.0 + 2.0 * z)
    assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-11)


def test_the_distribution_by_scipy() -> None:
    x = np.linspace(-3.0, 9.0, 50)
    for shape in (-4.0, 0.0, 2.5):
        expected = stats.skewnorm.cdf(x, shape, loc=1.0, scale=2.0)
        np.testing.assert_allclose(SkewNormal(1.0, 2.0, shape).cdf(x), expected, atol=1e-10)


def test_the_ends() -> None:
    law = SkewNormal(0.0, 1.0, 1.0)
    assert law.log_cdf(np.inf) == 0.0
    assert law.log_cdf(-np.inf) == -np.inf


@pytest.mark.parametrize("shape", [-6.0, -2.0, 2.0, 6.0])
def test_a_fit_finds_the_law_as_scipy_does(shape: float) -> None:
    sample = stats.skewnorm.rvs(shape, loc=50.0, scale=4.0, size=5000, random_state=7)
    law = fit_skew_normal(sample)
    ours, theirs = (
        float(np.sum(stats.skewnorm.logpdf(sample, *parameters)))
        for parameters in ((law.shape, law.location, law.scale), stats.skewnorm.fit(sample))
    )
    assert ours >= theirs - 1e-3  # no less likely than what SciPy finds
    assert law.location == pytest.approx(50.0, abs=0.3)
    assert law.scale == pytest.approx(4.0, rel=0.05)
    assert law.shape == pytest.approx(shape, rel=0.15)


def test_a_normal_sample_is_fitted_as_well() -> None:
    sample = np.random.default_rng(2).normal(30.0, 3.0, size=5000)
    law = fit_skew_normal(sample)
    assert gap_p_value(largest_gap(sample, law), len(sample)) > 0.05
    x = np.linspace(20.0, 40.0, 50)
    np.testing.assert_allclose(law.cdf(x), stats.norm.cdf(x, 30.0, 3.0), atol=0.02)


def test_the_gap_by_scipy() -> None:
    sample, law = np.random.default_rng(3).normal(size=400), SkewNormal(0.1, 1.1, 0.0)
    expected = stats.kstest(sample, lambda x: stats.norm.cdf(x, 0.1, 1.1))
    assert largest_gap(sample, law) == pytest.approx(expected.statistic, abs=1e-12)
    assert gap_p_value(expected.statistic, 400) == pytest.approx(expected.pvalue, rel=0.03)


def test_another_law_is_rejected() -> None:
    draw = np.random.default_rng(4)
    two = np.concatenate([draw.normal(-3.0, size=2000), draw.normal(3.0, size=2000)])
    for sample in (two, draw.standard_t(2, size=4000), draw.uniform(size=4000)):
        assert gap_p_value(largest_gap(sample, fit_skew_normal(sample)), len(sample)) < 1e-3


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least 100 finite numbers"):
        fit_skew_normal(np.arange(99.0))
    with pytest.raises(InvalidArgument, match="at least 100 finite numbers"):
        fit_skew_normal(np.full(200, np.inf))
    with pytest.raises(InvalidArgument, match="constant"):
        fit_skew_normal(np.full(200, 3.0))


# ---- The bound on ε from exposed secrets: its arithmetic, and that it is valid


def test_the_formula() -> None:
    found = exposure_bound([1e-6, 0.4, 0.1], 1e-5, 0.99)
    assert found.epsilon == pytest.approx(math.log((0.01 / 3 - 1e-5) / 1e-6))
    assert found.number("secrets") == 3


def test_it_says_nothing_where_delta_explains_all() -> None:
    assert exposure_bound([1e-9] * 8, 1e-2, 0.95).epsilon == 0.0
    assert exposure_bound([1.0], 0.0).epsilon == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
def test_it_holds_for_the_worst_mechanism(epsilon: float) -> None:
    # Such a mechanism gives the secret away (p-value 1/1000) as often as ε allows, to each of 5.
    draw = np.random.default_rng(0)
    least = 1e-3
    chance = math.exp(epsilon) * least
    wrong = 0
    for _ in range(2000):
        p = np.where(draw.random(5) < chance, least, draw.uniform(least, 1.0, size=5))
        wrong += exposure_bound(p, 0.0).epsilon > epsilon + 1e-9
    assert wrong / 2000 < 0.05 + 5.0 * math.sqrt(0.05 * 0.95 / 2000)


def test_bad_p_values_are_refused() -> None:
    for values in ([], [0.0]):
        with pytest.raises(InvalidArgument, match="at least one, and none may be 0"):
            exposure_bound(values, 1e-5)
