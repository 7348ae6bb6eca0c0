"""The worst case of a Gaussian release with a likely outcome: bounds GNMax, and is attained."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.integrate import quad
from scipy.special import log_ndtr, logsumexp, ndtri
from scipy.stats import norm

from tacit.transfer import Votes, gaussian_votes
from tacit.transfer.rdp_cost import likely_outcome_rdp

ORDERS = [1.5, 2.0, 5.0, 12.0, 16.0, 40.0]


def outcome_logs(counts, sigma):
    """The logarithm of the probability that GNMax tells each class, by quadrature in logs."""
    nodes, weights = leggauss(400)
    x = 14.0 * nodes
    log_density = norm.logpdf(x) + np.log(14.0 * weights)
    result = []
    for place, own in enumerate(counts):
        others = [j for j in range(len(counts)) if j != place]
        below = sum(log_ndtr(x + (own - counts[j]) / sigma) for j in others)
        result.append(logsumexp(log_density + below))
    return np.array(result)


def neighbours(counts):
    for giving in range(len(counts)):
        for taking in range(len(counts)):
            if giving != taking and counts[giving] > 0:
                moved = list(counts)
                moved[giving] -= 1
                moved[taking] += 1
                yield moved


@pytest.mark.parametrize(
    ("counts", "sigma"),
    [
        ([14, 0], 2.0),
        ([12, 1, 1], 2.0),
        ([9, 5], 3.0),
        ([8, 7, 3], 4.0),
        ([30, 4, 2], 5.0),
        ([20, 15, 15], 3.0),
    ],
)
def test_it_bounds_gnmax_itself_on_every_neighbour(counts, sigma):
    log_q = gaussian_votes.log_q(Votes(np.array([counts])), sigma)
    bound = likely_outcome_rdp(log_q, sigma, ORDERS)[0]
    own = outcome_logs(counts, sigma)
    for moved in neighbours(counts):
        other = outcome_logs(moved, sigma)
        for order, most in zip(ORDERS, bound, strict=True):
            moment = logsumexp(order * own + (1 - order) * other)
            assert moment / (order - 1) <= most * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize("sigma", [5.0, 40.0, 150.0])
def test_it_is_never_above_the_published_theorem_and_often_far_below(sigma):
    log_q = -np.geomspace(0.11, 600.0, 300)
    ours = likely_outcome_rdp(log_q, sigma, ORDERS)
    published = gaussian_votes.data_dependent_rdp(log_q, sigma, ORDERS)
    assert (ours <= published * (1 + 1e-9)).all()
    assert (ours < 0.7 * published).mean() > 0.2


def moment_at(below, q, mu, order):
    """The moment when Gaussians with the interval drawn together are told, by quadrature."""
    u, v = ndtri(below), -ndtri(q - below)

    def tilted(x):
        return norm.pdf(x) * math.exp((order - 1) * (mu * x + mu**2 / 2))

    far = 12.0 + order * mu
    outside = quad(tilted, -far, u, epsabs=1e-14)[0] + quad(tilted, v, far, epsabs=1e-14)[0]
    inside = norm.cdf(v + mu) - norm.cdf(u + mu)
    return outside + (1 - q) ** order / inside ** (order - 1)


@pytest.mark.parametrize(("log_q", "sigma"), [(-5.66, 40.0), (-3.0, 40.0), (-2.0, 5.0)])
@pytest.mark.parametrize(
    "order",
    [pytest.param(2.0, marks=pytest.mark.slow), 8.0, pytest.param(16.0, marks=pytest.mark.slow)],
)
def test_it_is_attained(log_q, sigma, order):
    """Some release of this kind costs as much, so that no smaller bound could hold."""
    q, mu = math.exp(log_q), math.sqrt(2.0) / sigma
    shares = np.concatenate([np.geomspace(1e-9, 1e-2, 12), np.linspace(0.02, 0.6, 30)])
    most = max(moment_at(q * one, q, mu, order) for one in shares)
    found = likely_outcome_rdp([log_q], sigma, [order])[0, 0]
    assert found >= math.log(most) / (order - 1) * (1 - 2e-3)
    assert found <= math.log(most) / (order - 1) * 1.02


def test_it_grows_with_q_and_never_exceeds_the_data_independent_cost():
    log_q = np.log(np.linspace(1e-12, 0.99, 500))
    found = likely_outcome_rdp(log_q, 40.0, ORDERS)
    assert (np.diff(found, axis=0) >= -1e-12 * found[1:]).all()
    assert (found <= np.asarray(ORDERS) / 1600.0 * (1 + 1e-12)).all()
    assert found[-1] == pytest.approx(np.asarray(ORDERS) / 1600.0)


def test_votes_beyond_float64_cost_no_less_than_the_smallest_it_holds():
    far = likely_outcome_rdp([-1e6, -690.0], 40.0, [2.0, 64.0])
    assert (far[0] == far[1]).all()
    assert (far > 0.0).all()


def test_little_noise_at_a_large_order_has_the_data_independent_cost() -> None:
    sigma = 0.9428  # e^{α(α-1)/σ²} is beyond float64
    found = likely_outcome_rdp([-3.0], sigma, [32.0])
    assert found[0, 0] == pytest.approx(32.0 / sigma**2)
