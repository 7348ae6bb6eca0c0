"""GNMax: issue 7's oracles, 40 digits on random votes, and the truth by integration."""

from __future__ import annotations

import math
import time

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr

from tacit.accounting import Gaussian, Repeated, delta, epsilon
from tacit.errors import InvalidArgument
from tacit.transfer import Votes, gaussian_votes

ORDERS = [2, 4, 8, 16, 32, 64]


def padded(*rows):
    return Votes(np.array([list(row) + [0] * (10 - len(row)) for row in rows]))


PUBLISHED = [
    (
        [250],
        40.0,
        -10.0192282943,
        [
            1.52735726276e-5,
            1.66698968485e-5,
            2.05891332994e-5,
            3.68135066549e-5,
            2.03454987624e-4,
            0.0109336922741,
        ],
    ),
    (
        [200, 30, 20],
        40.0,
        -5.65994597848,
        [
            8.79657829668e-4,
            9.37488164713e-4,
            1.08564173149e-3,
            1.5836261396e-3,
            4.56504949682e-3,
            0.0320573112219,
        ],
    ),
    ([150, 60, 40], 40.0, -2.20949878495, [order / 1600 for order in ORDERS]),
    ([240, 10], 20.0, -35.7504931809, [4.87212341586e-16]),
]


@pytest.mark.parametrize(("counts", "sigma", "log_q", "rdp"), PUBLISHED)
def test_published_figures(counts, sigma, log_q, rdp):
    found = gaussian_votes.log_q(padded(counts), sigma)
    assert found[0] == pytest.approx(log_q, rel=1e-11)
    curve = gaussian_votes.data_dependent_rdp(found, sigma, ORDERS[: len(rdp)])
    assert curve[0] == pytest.approx(rdp, rel=1e-9, abs=0.0)


def truth_log_q(counts, sigma):
    with mp.workdps(40):
        ranked = sorted(counts, reverse=True)
        q = sum(mp.erfc((ranked[0] - one) / (2 * mp.mpf(sigma))) / 2 for one in ranked[1:])
        return mp.log(min(q, 1 - mp.mpf(1) / len(counts)))


def truth(log_q, sigma, order):
    """Papernot et al. 2018, Theorem 6 with Proposition 10, as printed; and whether it was used."""
    with mp.workdps(40 + int(-log_q)):  # 40 digits of a moment that differs from 1 by about q
        log_q, variance = mp.mpf(log_q), mp.mpf(sigma) ** 2
        q, order = mp.exp(log_q), mp.mpf(order)
        plain = order / variance
        mu2 = mp.mpf(sigma) * mp.sqrt(-log_q)
        mu1 = mu2 + 1
        eps1, eps2 = mu1 / variance, mu2 / variance
        if not (order < mu1 and mu2 > 1 and -log_q > eps2):
            return float(plain), False
        if q > mp.exp((mu2 - 1) * eps2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1)) ** mu2:
            return float(plain), False
        a = (1 - q) / (1 - (q * mp.exp(eps2)) ** (1 - 1 / mu2))
        b = mp.exp(eps1) / q ** (1 / (mu1 - 1))
        moment = (1 - q) * a ** (order - 1) + q * b ** (order - 1)
        found = mp.log(moment) / (order - 1)
        return float(min(found, plain)), found < plain


@pytest.mark.parametrize("sigma", [3.0, 20.0, 40.0, 150.0])
@pytest.mark.parametrize("queries", [20, pytest.param(40, marks=pytest.mark.slow)])
def test_random_votes_agree_with_forty_digits(sigma, queries):
    rng = np.random.default_rng(int(sigma))
    votes = Votes(rng.multinomial(250, rng.dirichlet([0.1] * 10, queries)))
    orders = [1.001, 1.5, 2.0, 7.3, 33.0, 200.0]
    log_q = gaussian_votes.log_q(votes, sigma)
    found = gaussian_votes.data_dependent_rdp(log_q, sigma, orders)
    used = 0
    for row, counts in enumerate(votes.counts.tolist()):
        exact_q = truth_log_q(counts, sigma)
        assert log_q[row] == pytest.approx(float(exact_q), rel=1e-13)
        for column, order in enumerate(orders):
            exact, gained = truth(log_q[row], sigma, order)
            assert found[row, column] == pytest.approx(exact, rel=1e-11, abs=1e-305)
            used += gained
    assert used > queries / 2 or sigma == 150.0  # the theorem, not only its fall-back, was compared


@pytest.mark.parametrize("sigma", [0.4, 1.0, 5.0])
def test_small_noise_and_every_condition(sigma):
    """Each of the four conditions decides somewhere on this grid."""
    logs = -np.concatenate([np.geomspace(1e-3, 1e3, 60), [1.0 / sigma**2]])
    orders = np.array([1.01, 1.9, 4.0, 30.0, 500.0])
    found = gaussian_votes.data_dependent_rdp(logs, sigma, orders)
    for row, log_q in enumerate(logs.tolist()):
        for column, order in enumerate(orders.tolist()):
            exact, _ = truth(log_q, sigma, order)
            assert found[row, column] == pytest.approx(exact, rel=1e-11, abs=1e-305)


def test_a_divergence_no_double_can_hold_is_not_zero():
    found = gaussian_votes.data_dependent_rdp([-1e6], 4.0, [1.5, 2.0])
    assert (found > 0.0).all()


def test_the_curve_never_exceeds_what_is_charged_and_falls_with_agreement():
    logs = np.linspace(-30.0, -0.2, 400)
    found = gaussian_votes.data_dependent_rdp(logs, 40.0, ORDERS)
    assert (found <= gaussian_votes.data_independent_rdp(40.0, ORDERS)).all()
    assert (np.diff(found, axis=0) >= 0.0).all()


def win_probabilities(counts, sigma):
    """The law of the answer, by numerical integration."""
    counts = np.asarray(counts, dtype=float)
    x = np.linspace(counts.min() - 12 * sigma, counts.max() + 12 * sigma, 100_001)
    z = (x[:, None] - counts) / sigma
    density, below = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) / sigma, ndtr(z)
    return [
        np.trapezoid(density[:, j] * np.delete(below, j, axis=1).prod(axis=1), x)
        for j in range(len(counts))
    ]


@pytest.mark.parametrize("counts", [[23, 1, 1], [20, 4, 1], [14, 8, 3]])
@pytest.mark.parametrize(("source", "target"), [(0, 1), (1, 0), (0, 2), (2, 1)])
def test_the_bound_holds_for_the_mechanism_itself(counts, source, target):
    sigma, orders = 5.0, np.array([1.5, 2.0, 4.0, 8.0])
    other = list(counts)
    other[source] -= 1
    other[target] += 1
    p, q = (np.asarray(win_probabilities(one, sigma)) for one in (counts, other))
    divergence = [np.log(np.sum(p**a * q ** (1 - a))) / (a - 1) for a in orders]
    log_q = gaussian_votes.log_q(Votes(np.array([counts])), sigma)
    assert np.log(1 - p.max()) <= log_q[0] + 1e-9
    assert (divergence <= gaussian_votes.data_dependent_rdp(log_q, sigma, orders)[0] + 1e-9).all()


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
def test_charge_is_gdp_of_the_votes_distance_for_each_adjacency(adjacency):
    charged = gaussian_votes.charge(40.0, 286)
    votes = Repeated(Gaussian(40.0, replace_distance=math.sqrt(2.0)), 286)
    expected = epsilon(votes, 1e-5, adjacency="replace-one")
    assert epsilon(charged, 1e-5, adjacency=adjacency) == pytest.approx(expected, rel=1e-9)
    mu = math.sqrt(2 * 286) / 40.0
    assert delta(charged, 1.0, adjacency=adjacency) == pytest.approx(
        ndtr(mu / 2 - 1 / mu) - math.e * ndtr(-mu / 2 - 1 / mu), rel=1e-9
    )


def test_total_is_the_weighted_sum_of_the_rows():
    rng = np.random.default_rng(3)
    logs, weights = -rng.exponential(8.0, 300) - 0.1, rng.random(300)
    rows = gaussian_votes.data_dependent_rdp(logs, 40.0, ORDERS)
    assert gaussian_votes.data_dependent_total(logs, 40.0, ORDERS) == pytest.approx(rows.sum(0))
    weighted = gaussian_votes.data_dependent_total(logs, 40.0, ORDERS, weights)
    assert weighted == pytest.approx(weights @ rows)
    for bad in (weights[:-1], -weights):
        with pytest.raises(InvalidArgument, match="weights"):
            gaussian_votes.data_dependent_total(logs, 40.0, ORDERS, bad)


def test_ten_thousand_queries_at_three_hundred_orders_take_a_second():
    rng = np.random.default_rng(0)
    votes = Votes(rng.multinomial(250, rng.dirichlet([0.05] * 10, 10_000)))
    orders = np.linspace(1.5, 60.0, 300)
    start = time.process_time()
    log_q = gaussian_votes.log_q(votes, 40.0)
    assert gaussian_votes.data_dependent_rdp(log_q, 40.0, orders).shape == (10_000, 300)
    assert time.process_time() - start < 2.0  # 0.2 s on an idle core
