"""Confident-GNMax: issue 7's oracles, and what a run costs against what it is expected to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from tacit.accounting import epsilon
from tacit.errors import InvalidArgument
from tacit.transfer import ConfidentGNMax, Votes, confident_votes, gaussian_votes

MNIST = ConfidentGNMax(threshold=200.0, screening_sigma=150.0, sigma=40.0)
SVHN = ConfidentGNMax(threshold=300.0, screening_sigma=200.0, sigma=40.0)
# tensorflow/privacy, research/pate_2018/ICLR2018/smooth_sensitivity_table.py
PUBLISHED_ORDERS = np.concatenate(
    [np.arange(2, 100 + 1, 0.5), np.logspace(np.log10(100), np.log10(500), num=100)]
)


def published_epsilon(rdp, delta):
    return float(np.min(rdp - math.log(delta) / (PUBLISHED_ORDERS - 1.0)))


@pytest.fixture(name="votes")
def three_hundred_queries():
    lost = np.arange(300) % 60
    return Votes(np.stack([250 - lost, lost] + [np.zeros_like(lost)] * 8, axis=1))


def test_published_thresholds():
    votes = Votes(np.array([[250, 0], [200, 50]]))
    found = confident_votes.log_answered(votes, MNIST)
    assert found == pytest.approx([-0.461149090921, -0.69314718056], abs=1e-11)


def test_q_is_of_the_less_likely_outcome():
    votes = Votes(np.array([[250, 0], [200, 50], [150, 100]]))
    log_p = confident_votes.log_answered(votes, MNIST)
    other = np.log(-np.expm1(log_p))
    assert confident_votes.log_q(votes, MNIST) == pytest.approx(np.minimum(log_p, other))


def test_a_screening_is_gnmax_at_sigma_times_root_two():
    votes = Votes(np.array([[900, 100], [510, 490]]))
    setting = ConfidentGNMax(threshold=500.0, screening_sigma=50.0, sigma=40.0)
    found = confident_votes.data_dependent_rdp(votes, setting, [2.0, 16.0])
    log_q = log_ndtr([-8.0, -0.2])
    expected = gaussian_votes.data_dependent_rdp(log_q, 50.0 * math.sqrt(2.0), [2.0, 16.0])
    assert found == pytest.approx(expected)
    assert found[1] == pytest.approx(confident_votes.data_independent_rdp(setting, [2.0, 16.0]))
    assert found[0, 0] < 1e-9


def bernoulli_divergence(p, q, order):
    terms = order * np.log([p, 1 - p]) + (1 - order) * np.log([q, 1 - q])
    return np.logaddexp(*terms) / (order - 1)


@pytest.mark.parametrize("largest", [10, 20, 29, 40])
def test_the_bound_holds_for_the_screening_itself(largest):
    setting = ConfidentGNMax(threshold=20.0, screening_sigma=4.0, sigma=10.0)
    votes = Votes(np.array([[largest, 50 - largest]])) if largest > 25 else None
    votes = votes or Votes(np.array([[largest] + [5] * ((50 - largest) // 5)]))
    for order in (1.5, 2.0, 6.0, 12.0):
        bound = confident_votes.data_dependent_rdp(votes, setting, [order])[0, 0]
        p = math.exp(log_ndtr((largest - 20) / 4))
        for other in (largest - 1, largest + 1):
            q = math.exp(log_ndtr((other - 20) / 4))
            assert bernoulli_divergence(p, q, order) <= bound + 1e-12


def test_expected_cost_as_published_and_as_we_convert_it(votes):
    published = confident_votes.expected_data_dependent_cost(votes, MNIST, PUBLISHED_ORDERS)
    assert published_epsilon(published, 1e-5) == pytest.approx(0.9069, abs=5e-5)
    ours = confident_votes.expected_data_dependent_epsilon(votes, MNIST, 1e-5)
    assert ours == pytest.approx(0.717907, abs=5e-7)


def test_a_run_pays_for_each_screening_and_each_answer_it_made(votes):
    orders = [2.0, 10.0, 30.0]
    answered = np.random.default_rng(5).random(300) < 0.5
    screening = confident_votes.data_dependent_rdp(votes, MNIST, orders).sum(axis=0)
    log_q = gaussian_votes.log_q(votes, MNIST.sigma)
    answers = gaussian_votes.data_dependent_rdp(log_q, MNIST.sigma, orders)
    found = confident_votes.data_dependent_cost(votes, MNIST, orders, answered)
    assert found == pytest.approx(screening + answers[answered].sum(axis=0))
    none = confident_votes.data_dependent_cost(votes, MNIST, orders, np.zeros(300, dtype=bool))
    assert none == pytest.approx(screening)
    every = confident_votes.data_dependent_cost(votes, MNIST, orders, np.ones(300, dtype=bool))
    expected = confident_votes.expected_data_dependent_cost(votes, MNIST, orders)
    assert (none < expected).all()
    assert (expected < every).all()


def test_the_expectation_is_the_mean_over_runs(votes):
    rng = np.random.default_rng(6)
    chance = np.exp(confident_votes.log_answered(votes, MNIST))
    runs = [
        confident_votes.data_dependent_cost(votes, MNIST, [8.0], rng.random(300) < chance)[0]
        for _ in range(400)
    ]
    expected = confident_votes.expected_data_dependent_cost(votes, MNIST, [8.0])[0]
    assert abs(np.mean(runs) - expected) < 5.0 * np.std(runs) / math.sqrt(400)


@pytest.mark.parametrize(
    ("setting", "screened", "answered", "delta", "published", "rdp", "exact"),
    [
        (MNIST, 640, 286, 1e-5, 3.1753, 2.75789, 2.5426),
        (SVHN, 8500, 3098, 1e-6, 12.675, 11.83706, 11.138),
    ],
)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_data_independent_figures(
    setting, screened, answered, delta, published, rdp, exact, adjacency
):
    curve = screened * confident_votes.data_independent_rdp(setting, PUBLISHED_ORDERS)
    curve = curve + answered * gaussian_votes.data_independent_rdp(setting.sigma, PUBLISHED_ORDERS)
    assert published_epsilon(curve, delta) == pytest.approx(published, rel=2e-5)
    run = setting.declared(queries=screened, answers=answered)
    assert epsilon(run, delta, "rdp", adjacency) == pytest.approx(rdp, abs=6e-6)
    assert epsilon(run, delta, "gdp", adjacency) == pytest.approx(exact, rel=2e-5)
    assert epsilon(run, delta, "exact", adjacency) == pytest.approx(
        epsilon(run, delta, "gdp", adjacency), rel=1e-9
    )


@pytest.mark.parametrize("answered", [np.ones(299, dtype=bool), np.ones(300)])
def test_answered_marks_each_query(votes, answered):
    with pytest.raises(InvalidArgument, match="300 truth values"):
        confident_votes.data_dependent_cost(votes, MNIST, [2.0], answered)


def coin_divergence(lead, other, order):
    """Of two coins with heads where a normal number is below ``lead`` and below ``other``."""
    heads, tails = (order * norm.logcdf(s * lead) for s in (1, -1))
    heads, tails = (
        one + (1 - order) * norm.logcdf(s * other) for one, s in ((heads, 1), (tails, -1))
    )
    return np.logaddexp(heads, tails) / (order - 1)


@pytest.mark.parametrize("threshold", [20.0, 20.3, 0.0])
def test_no_screening_costs_more_than_the_worst_one(threshold):
    setting = ConfidentGNMax(threshold=threshold, screening_sigma=3.0, sigma=1.0)
    orders = [1.5, 4.0, 16.0]
    bound = confident_votes.worst_rdp(setting, orders, 40)
    assert (bound <= confident_votes.data_independent_rdp(setting, orders)).all()
    largest = np.zeros(3)
    for count in range(41):
        for other in (count - 1, count + 1):
            lead, moved = ((one - threshold) / 3.0 for one in (count, other))
            found = [coin_divergence(lead, moved, order) for order in orders]
            assert (found <= bound * (1 + 1e-7)).all()
            largest = np.maximum(largest, found)
    assert bound == pytest.approx(largest, rel=1e-6)


def test_a_screening_tells_two_thirds_of_its_gaussian():
    found = confident_votes.worst_rdp(ConfidentGNMax(), [12.0], 250)
    assert found[0] / (12.0 / 45000.0) == pytest.approx(2.0 / math.pi, rel=2e-2)
