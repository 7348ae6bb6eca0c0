"""Exposure by rank, by a sample and by a law, against brute force and against its law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tacit.auditing.secrets import (
    Space,
    combined_p_value,
    exposure_by_extrapolation,
    exposure_by_rank,
    exposure_by_sampling,
    exposure_of_rank,
    log_perplexities,
    random_exposure,
)
from tacit.errors import InvalidArgument

from .models import chain

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
    with pytest.raises(InvalidArgument, match="rank must be at most the size 10"):
        exposure_of_rank(11, 10)
    with pytest.raises(InvalidArgument, match="p_values must hold at least one"):
        combined_p_value([])
