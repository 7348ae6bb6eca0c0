"""Smooth sensitivity: every possible vote of a small crowd, and the published code's figures."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from tacit.errors import InvalidArgument
from tacit.transfer import Votes, gaussian_votes, rdp_cost, smooth_sensitivity, vote_noise
from tacit.transfer.smooth_sensitivity import release_rdp, staircase

TEACHERS = 14


def crowd(classes):
    """All votes of a small crowd, how many votes apart they are, and their staircase."""
    rows = [one for one in product(range(TEACHERS + 1), repeat=classes) if sum(one) == TEACHERS]
    counts = np.array(rows)
    apart = np.abs(counts[:, None, :] - counts[None, :, :]).sum(axis=2) // 2
    return Votes(counts), apart


# Noise and orders at which the cost of agreeing votes is below the data-independent one.
SMALL = [(2, 2.0, 2.0), (3, 1.0, 1.5), (3, 2.0, 2.0), (3, 2.5, 5.0), (4, 1.5, 3.0)]


@pytest.mark.parametrize(("classes", "sigma", "order"), SMALL)
def test_bounds_hold_for_every_vote_of_a_small_crowd(classes, sigma, order):
    votes, apart = crowd(classes)
    stairs = staircase(sigma=sigma, order=order, teachers=TEACHERS, classes=classes)
    costs = smooth_sensitivity.data_dependent_costs(votes, stairs)
    assert costs.min() < 0.5 * costs.max()
    change = np.abs(costs[:, None] - costs[None, :])
    local = np.where(apart == 1, change, 0.0).max(axis=1)
    found = np.stack(
        [
            smooth_sensitivity.local_sensitivities(Votes(row[np.newaxis]), stairs)
            for row in votes.counts
        ]
    )
    for far in range(TEACHERS + 1):
        truth = np.where(apart <= far, local[np.newaxis, :], 0.0).max(axis=1)
        assert (found[:, far] >= truth).all()
    # Smooth: no more than a neighbour's at the next distance.
    one, other = np.nonzero(apart == 1)
    assert (found[one, :-1] <= found[other, 1:]).all()
    assert (np.diff(found, axis=1) >= 0.0).all()
    smooth = np.array([smooth_sensitivity.smooth_sensitivity(row, 0.1) for row in found])
    assert (smooth[one] <= math.exp(0.1) * smooth[other] * (1 + 1e-12)).all()
    assert (smooth >= local).all()


@pytest.mark.parametrize(("classes", "sigma", "order"), SMALL)
def test_the_staircase_is_a_valid_and_close_cost(classes, sigma, order):
    votes, _ = crowd(classes)
    stairs = staircase(sigma=sigma, order=order, teachers=TEACHERS, classes=classes)
    costs = smooth_sensitivity.data_dependent_costs(votes, stairs)
    log_q = gaussian_votes.log_q(votes, sigma)
    exact = gaussian_votes.data_dependent_rdp(log_q, sigma, [order])[:, 0]
    assert (costs >= exact * (1 - 1e-12)).all()
    assert np.quantile(costs / exact, 0.9) < 1.1
    assert (np.diff(stairs.costs) <= 0.0).all()  # C5, by construction


@pytest.mark.parametrize(("classes", "sigma", "order"), SMALL)
@pytest.mark.parametrize("rdp", [gaussian_votes.data_dependent_rdp, rdp_cost.likely_outcome_rdp])
def test_costs_count_ties_as_lost(classes, sigma, order, rdp):
    """A step of the noise's grid less of each lead, and the cost still covers it."""
    votes, _ = crowd(classes)
    stairs = staircase(
        sigma=sigma,
        order=order,
        teachers=TEACHERS,
        classes=classes,
        rdp=rdp,
    )
    gaps = (votes.gaps() - vote_noise.STEP) / (math.sqrt(2.0) * sigma)
    log_q = np.minimum(logsumexp(norm.logsf(gaps), axis=1), math.log1p(-1.0 / classes))
    exact = rdp(log_q, sigma, [order])[:, 0]
    assert (smooth_sensitivity.data_dependent_costs(votes, stairs) >= exact * (1 - 1e-12)).all()


# tensorflow/privacy, research/pate_2018/smooth_sensitivity.py, commit 03035d5:
# compute_local_sensitivity_bounds_gnmax(votes, 250, sigma, order)[[0, 1, 5, 20, 50, 100]]
PUBLISHED = [
    (
        40.0,
        16.0,
        [250],
        [5.708480e-06, 6.155212e-06, 8.331716e-06, 2.657060e-05, 2.467681e-04, 7.284720e-04],
    ),
    (
        40.0,
        16.0,
        [200, 30, 20],
        [1.758579e-04, 1.868199e-04, 2.369101e-04, 5.254826e-04, 7.284720e-04, 7.284720e-04],
    ),
    (
        40.0,
        16.0,
        [240, 10],
        [1.221113e-05, 1.318872e-05, 1.797924e-05, 5.807416e-05, 4.464562e-04, 7.284720e-04],
    ),
    (40.0, 16.0, [130, 110, 10], [0.0, 0.0, 0.0, 0.0, 7.284720e-04, 7.284720e-04]),
    (
        20.0,
        8.0,
        [150, 60, 40],
        [2.352607e-04, 2.823407e-04, 5.579771e-04, 2.866690e-03, 2.866690e-03, 2.866690e-03],
    ),
    (
        20.0,
        8.0,
        [200, 30, 20],
        [2.135455e-09, 3.096756e-09, 1.337267e-08, 1.796485e-06, 1.139066e-03, 2.866690e-03],
    ),
]


@pytest.mark.parametrize(("sigma", "order", "counts", "published"), PUBLISHED)
def test_local_sensitivities_are_close_to_the_published_ones(sigma, order, counts, published):
    votes = Votes(np.array([counts + [0] * (10 - len(counts))]))
    stairs = staircase(sigma=sigma, order=order, teachers=250, classes=10)
    found = smooth_sensitivity.local_sensitivities(votes, stairs)[[0, 1, 5, 20, 50, 100]]
    # The staircase costs a little more, as its cells are wider than points.
    assert found == pytest.approx(published, rel=0.03, abs=1e-15)


def test_queries_add_up_and_unanswered_ones_do_not_count():
    rng = np.random.default_rng(4)
    counts = rng.multinomial(50, rng.dirichlet([0.3] * 4, 70))
    counts[10:20] = counts[0]
    stairs = staircase(sigma=6.0, order=4.0, teachers=50, classes=4)
    answered = rng.random(70) < 0.6
    each = [
        smooth_sensitivity.local_sensitivities(Votes(row[np.newaxis]), stairs) for row in counts
    ]
    found = smooth_sensitivity.local_sensitivities(Votes(counts), stairs, answered)
    assert found == pytest.approx(np.sum(np.asarray(each)[answered], axis=0), rel=1e-12)
    assert found.shape == (51,)


def integrated(sigma, wide, narrow, mean, order):
    """The Rényi divergence of two Gaussians, by quadrature."""
    # Completing the square: the integrand is a Gaussian about this place.
    spread = order / wide**2 - (order - 1) / narrow**2
    centre, width = -(order - 1) * mean / narrow**2 / spread, sigma / math.sqrt(spread)
    x = np.linspace(centre - 12 * width, centre + 12 * width, 4001)
    log_p, log_q = norm.logpdf(x, 0.0, sigma * wide), norm.logpdf(x, mean, sigma * narrow)
    logs = order * log_p - (order - 1) * log_q
    return float(logsumexp(logs) + math.log(x[1] - x[0])) / (order - 1)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.49])
@pytest.mark.parametrize("sigma", [1.0, 8.0])
def test_cost_of_the_release_is_the_worst_pair_of_gaussians(share, sigma):
    order = 16.0
    beta = share / order
    found = release_rdp(noise_multiplier=sigma, smoothness=beta, order=order)
    narrow = math.exp(-beta)
    assert found == pytest.approx(integrated(sigma, 1.0, narrow, narrow, order), rel=1e-9)
    for ratio in (math.exp(0.5 * beta), math.exp(-0.5 * beta), math.exp(beta), 1.0):
        for mean in (0.0, 0.5 * min(1.0, ratio), min(1.0, ratio)):
            assert integrated(sigma, 1.0, ratio, mean, order) <= found * (1 + 1e-9)


def test_the_published_cost_of_the_release_is_not_one():
    """Theorem 23 of Papernot et al. 2018, against two Gaussians that it speaks of."""
    order, sigma = 16.0, 5.0
    beta = 0.4 / order
    published = order * math.exp(2 * beta) / sigma**2
    published += (-0.5 * math.log(1 - 2 * order * beta) + beta * order) / (order - 1)
    narrow = math.exp(-beta)
    assert integrated(sigma, 1.0, narrow, narrow, order) > 1.8 * published


def test_no_smoothness_is_the_gaussian_and_too_much_has_no_cost():
    tiny = release_rdp(noise_multiplier=3.0, smoothness=1e-9, order=4.0)
    assert tiny == pytest.approx(4.0 / 18.0, rel=1e-6)
    assert release_rdp(noise_multiplier=3.0, smoothness=0.3, order=4.0) == math.inf


@pytest.mark.parametrize("name", ["noise_multiplier", "smoothness", "order"])
def test_release_refuses(name):
    good = {"noise_multiplier": 3.0, "smoothness": 0.01, "order": 4.0}
    with pytest.raises(InvalidArgument, match=name):
        release_rdp(**(good | {name: 0.0}))
    with pytest.raises(InvalidArgument, match="order"):
        release_rdp(**(good | {"order": 1.0}))


def test_votes_of_another_crowd_are_refused():
    stairs = staircase(sigma=6.0, order=4.0, teachers=50, classes=4)
    with pytest.raises(InvalidArgument, match="50 teachers on 4 classes"):
        smooth_sensitivity.data_dependent_costs(Votes(np.array([[40, 10]])), stairs)
    with pytest.raises(InvalidArgument, match="truth values"):
        smooth_sensitivity.local_sensitivities(Votes(np.array([[50, 0, 0, 0]])), stairs, [1])
