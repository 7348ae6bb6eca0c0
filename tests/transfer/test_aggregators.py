"""LNMax, GNMax and Confident-GNMax: what they declare, and that they tell what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import laplace, norm

from tacit.accounting import Gaussian, Laplace, delta, epsilon
from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream
from tacit.transfer import ConfidentGNMax, GNMax, LNMax

DRAWS = 40_000
COUNTS = np.array([120, 100, 30])


def winning(law):
    """The probability that each class has the largest noisy count, by quadrature."""

    def chance(place):
        def density(x):
            others = [law.cdf(x - one) for j, one in enumerate(COUNTS) if j != place]
            return law.pdf(x - COUNTS[place]) * math.prod(others)

        return quad(density, -2000, 3000, points=list(COUNTS), limit=400)[0]

    return np.array([chance(place) for place in range(3)])


def shares(aggregator, counts=COUNTS):
    drawn = aggregator.answer_noise(DRAWS, len(counts), UnsafeSeededStream(5, "answers"))
    told = [aggregator.respond(counts, one) for one in drawn]
    return np.bincount(told, minlength=len(counts)) / DRAWS


def close(found, truth):
    return (np.abs(found - truth) <= 5.5 * np.sqrt(truth * (1 - truth) / DRAWS) + 1e-4).all()


@pytest.mark.parametrize(
    ("aggregator", "law"),
    [
        (LNMax(gamma=0.05), laplace(scale=20.0)),
        (GNMax(sigma=40.0), norm(scale=40.0)),
        (ConfidentGNMax(sigma=25.0), norm(scale=25.0)),
    ],
)
def test_classes_are_told_as_often_as_the_law_says(aggregator, law):
    assert close(shares(aggregator), winning(law))


def test_noise_of_a_wrong_sigma_would_be_noticed():
    assert not close(shares(GNMax(sigma=40.0 * 1.1)), winning(norm(scale=40.0)))


@pytest.mark.parametrize(
    ("aggregator", "chance"),
    [
        (GNMax(sigma=40.0, binary=True), norm.sf(30.0 / 40.0)),
        (ConfidentGNMax(sigma=40.0, binary=True), norm.sf(30.0 / 40.0)),
        (LNMax(gamma=0.05, binary=True), laplace.sf(30.0 / 20.0)),
    ],
)
def test_two_classes_can_be_told_by_one_count(aggregator, chance):
    """155 against 95 votes: the second class is 30 below half."""
    found = shares(aggregator, np.array([155, 95]))
    assert close(found, np.array([1 - chance, chance]))


def test_screening_passes_as_often_as_the_law_says():
    aggregator = ConfidentGNMax(threshold=150.0, screening_sigma=60.0)
    drawn = aggregator.screening_noise(DRAWS, UnsafeSeededStream(6, "screening"))
    share = np.mean([aggregator.passes(COUNTS, one) for one in drawn])
    assert close(share, norm.sf(0.5))
    assert not close(share, norm.sf(30.0 / 54.0))


def test_what_is_charged_is_how_far_one_vote_moves():
    assert LNMax(gamma=0.1).declared(queries=7).times == 14
    assert LNMax(gamma=0.1, binary=True).answer == Laplace(10.0, replace_distance=1.0)
    assert GNMax(sigma=40.0, binary=True).answer == Gaussian(40.0, replace_distance=1.0)
    assert GNMax(sigma=40.0).answer == Gaussian(40.0 / math.sqrt(2.0), replace_distance=1.0)
    confident = ConfidentGNMax(binary=True)
    assert confident.charges.both == (Gaussian(150.0, 1.0), Gaussian(40.0, 1.0))
    assert LNMax().screening is None
    assert GNMax().screening is None


@pytest.mark.parametrize("lead", [-6, 0, 1, 5, 9])
def test_one_binary_answer_is_within_its_charge(lead):
    """Its two outcomes on neighbours, against the event's curve; half of it is too little."""
    aggregator = GNMax(sigma=1.5, binary=True)
    p, q = (norm.cdf(one / 2 / 1.5) for one in (lead, lead + 2))
    for eps in (0.0, 0.1, 0.4, 1.0):
        apart = max(p - math.exp(eps) * q, q - math.exp(eps) * p)
        apart = max(apart, (1 - p) - math.exp(eps) * (1 - q))
        assert apart <= delta(aggregator.answer, eps, adjacency="replace-one") + 1e-12
    if lead == 0:
        assert q - p > delta(Gaussian(3.0, 1.0), 0.0, adjacency="replace-one")


def test_published_data_independent_figures():
    run = ConfidentGNMax().declared(queries=640, answers=286)
    assert epsilon(run, 1e-5, adjacency="replace-one") == pytest.approx(2.5426, rel=2e-5)
    assert epsilon(run, 1e-5, adjacency="add-remove") == pytest.approx(2.5426, rel=2e-5)


def test_binary_analysis_is_that_of_a_wider_sigma():
    assert GNMax(sigma=3.0, binary=True).analysed_sigma == pytest.approx(3.0 * math.sqrt(2.0))
    assert ConfidentGNMax(sigma=3.0).analysed_sigma == 3.0


@pytest.mark.parametrize("name", ["threshold", "screening_sigma", "sigma"])
@pytest.mark.parametrize("value", [math.inf, -1.0, math.nan])
def test_numbers_of_an_aggregator_are_finite(name, value):
    with pytest.raises(InvalidArgument, match=name):
        ConfidentGNMax(**{name: value})


def test_numbers_of_the_others_are_checked_too():
    with pytest.raises(InvalidArgument, match="gamma"):
        LNMax(gamma=0.0)
    with pytest.raises(InvalidArgument, match="1/gamma"):
        LNMax(gamma=1e-9)
    with pytest.raises(InvalidArgument, match="sigma"):
        GNMax(sigma=2.0**21)
    with pytest.raises(InvalidArgument, match="binary"):
        GNMax(binary=1)
