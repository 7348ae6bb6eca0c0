"""The votes' noise: its law, exactly, on the grid; ties; and a test that tells a wrong sigma."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import kstest, laplace, norm

from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream, rounded_gaussian
from tacit.transfer import vote_noise

DRAWS = 200_000


def deviations(drawn, moment, spread):
    """By how many standard errors the mean of abs(noise) misses ``moment``."""
    return (np.abs(drawn).mean() * vote_noise.STEP - moment) / (spread / math.sqrt(DRAWS))


@pytest.mark.parametrize(("sigma", "off"), [(40.0, 1.0), (150.0, 1.0), (40.0, 1.02), (40.0, 0.98)])
def test_gaussian_noise_has_its_sigma_and_two_per_cent_more_or_less_is_noticed(sigma, off):
    drawn = vote_noise.gaussian(off * sigma, DRAWS, UnsafeSeededStream(1, "noise"))
    missed = deviations(drawn, sigma * math.sqrt(2 / math.pi), sigma * math.sqrt(1 - 2 / math.pi))
    assert (abs(missed) < 5.0) == (off == 1.0)
    if off == 1.0:
        assert kstest(drawn * vote_noise.STEP, norm(scale=sigma).cdf).pvalue > 1e-6


@pytest.mark.parametrize("off", [1.0, 1.02, 0.98])
def test_laplace_noise_has_its_scale_and_two_per_cent_more_or_less_is_noticed(off):
    drawn = vote_noise.laplace(off * 20.0, DRAWS, UnsafeSeededStream(2, "noise"))
    assert (abs(deviations(drawn, 20.0, 20.0)) < 5.0) == (off == 1.0)
    if off == 1.0:
        assert kstest(drawn * vote_noise.STEP, laplace(scale=20.0).cdf).pvalue > 1e-6


def test_noise_is_the_exact_law_of_the_scale_in_steps():
    drawn = vote_noise.gaussian(3.0, 50, UnsafeSeededStream(3, "noise"))
    scale = 3.0 * (1.0 + 2.0**-50) * 2.0**24
    assert (drawn == rounded_gaussian(scale, 50, UnsafeSeededStream(3, "noise"))).all()


def test_adding_counts_commutes_with_rounding():
    """What makes it post-processing: whole counts are whole numbers of steps."""
    reals = np.random.default_rng(4).normal(0.0, 40.0 * 2.0**24, 1000)
    counts = np.arange(1000)
    rounded = np.array([round(Fraction(one)) for one in reals])
    together = [
        math.floor(Fraction(one) + int(count) * 2**24 + Fraction(1, 2))
        for one, count in zip(reals, counts, strict=True)
    ]
    assert (rounded + (counts << vote_noise.BITS) == together).all()


def losing_chance(lead, sigma):
    """That the rounded noisy count of another class reaches the first one's, on a grid of votes."""
    k = np.arange(-60, 61)
    law = norm.cdf((k + 0.5) / sigma) - norm.cdf((k - 0.5) / sigma)
    difference = np.convolve(law, law[::-1])  # of two noises, from -120 to 120
    return float(difference[120 + lead :].sum())


@pytest.mark.parametrize("lead", [0, 1, 3, 8])
@pytest.mark.parametrize("sigma", [0.6, 2.0, 5.0])
def test_ties_are_covered_by_a_step_less_of_a_lead_and_not_without(lead, sigma):
    """On a grid so coarse (a step is one vote) that ties are frequent."""
    truth = losing_chance(lead, sigma)
    assert truth <= norm.sf((lead - 1) / (math.sqrt(2) * sigma)) + 1e-12
    assert truth > norm.sf(lead / (math.sqrt(2) * sigma))


def test_the_first_class_wins_ties():
    counts = np.array([4, 7, 7])
    assert vote_noise.winner(counts, np.zeros(3, dtype=np.int64)) == 1
    assert vote_noise.winner(counts, np.array([3 << 24, 0, 0])) == 0
    assert vote_noise.winner(counts, np.array([(3 << 24) - 1, 0, 1])) == 2


def test_of_two_classes_half_the_difference_decides():
    counts = np.array([7, 4])
    edge = 3 << 23  # half of three votes
    assert [vote_noise.second_wins(counts, one) for one in (edge - 1, edge, edge + 1)] == [0, 0, 1]


@pytest.mark.parametrize("threshold", [200.0, 200.1, 199.99999999])
def test_a_threshold_is_compared_exactly(threshold):
    counts = np.array([190, 60])
    edge = math.ceil(Fraction(threshold) * 2**24) - (190 << 24)
    assert vote_noise.passes(counts, edge, threshold)
    assert not vote_noise.passes(counts, edge - 1, threshold)


@pytest.mark.parametrize("draw", [vote_noise.gaussian, vote_noise.laplace])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, 2.0**21])
def test_scales_that_cannot_be_drawn_are_refused(draw, scale):
    with pytest.raises(InvalidArgument, match=r"sigma|scale"):
        draw(scale, 3, UnsafeSeededStream(0, "noise"))
