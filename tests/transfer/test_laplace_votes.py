"""LNMax: issue 7's oracles, 40 digits on random votes, and the truth by integration."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting import PureDp, Repeated, epsilon
from tacit.errors import InvalidArgument
from tacit.transfer import Votes, laplace_votes


def padded(*rows):
    return Votes(np.array([list(row) + [0] * (10 - len(row)) for row in rows]))


def test_published_figures():
    log_q = laplace_votes.log_q(padded([140, 110]), 0.1)
    assert np.exp(log_q[0]) == pytest.approx(0.0622604443788, abs=1e-12)
    found = laplace_votes.data_dependent_log_moments(log_q, 0.1, [1, 2, 4, 8])[0]
    expected = [0.0273961969743, 0.0571461330154, 0.125335530636, 0.310466865766]
    assert found == pytest.approx(expected, abs=1e-11)


def truth(counts, gamma, order):
    """Papernot et al. 2017, as printed."""
    with mp.workdps(40):
        g, l = mp.mpf(gamma), mp.mpf(order) - 1
        ranked = sorted(counts, reverse=True)
        gaps = [ranked[0] - one for one in ranked[1:]]
        q = sum((2 + g * gap) / (4 * mp.exp(g * gap)) for gap in gaps)
        q = min(q, 1 - mp.mpf(1) / len(counts))
        choices = [2 * g**2 * l * (l + 1), 2 * g * l]
        if q <= 1 / (mp.exp(2 * g) + 1):
            ratio = (1 - q) / (1 - mp.exp(2 * g) * q)
            choices.append(mp.log((1 - q) * ratio**l + q * mp.exp(2 * g * l)))
        return float(mp.log(q)), float(min(choices) / l)


@pytest.mark.parametrize("gamma", [0.02, 0.1, 0.7])
def test_random_votes_agree_with_forty_digits(gamma):
    rng = np.random.default_rng(7)
    votes = Votes(rng.multinomial(250, rng.dirichlet([0.15] * 10, 40)))
    orders = [1.001, 1.5, 2.0, 7.3, 40.0, 900.0]
    log_q = laplace_votes.log_q(votes, gamma)
    found = laplace_votes.data_dependent_rdp(log_q, gamma, orders)
    gained = 0
    for row, counts in enumerate(votes.counts.tolist()):
        for column, order in enumerate(orders):
            exact_q, exact = truth(counts, gamma, order)
            assert log_q[row] == pytest.approx(exact_q, rel=1e-13)
            assert found[row, column] == pytest.approx(exact, rel=1e-11)
            gained += exact < 0.9 * min(2 * gamma, 2 * gamma**2 * order)
    assert gained >= 10  # the theorem, not only its fall-back, was compared


def test_large_q_falls_back():
    log_q = laplace_votes.log_q(padded([126, 124]), 0.1)
    found = laplace_votes.data_dependent_log_moments(log_q, 0.1, [1.0, 100.0])
    assert found[0] == pytest.approx([0.04, 20.0], rel=1e-15)


def win_probabilities(counts, gamma):
    """The law of the answer, by numerical integration."""
    counts = np.asarray(counts, dtype=float)
    x = np.linspace(counts.min() - 60 / gamma, counts.max() + 60 / gamma, 400_001)
    z = gamma * (x[:, None] - counts)
    density = 0.5 * gamma * np.exp(-np.abs(z))
    below = np.where(z < 0, 0.5 * np.exp(z), 1 - 0.5 * np.exp(-z))
    return [
        np.trapezoid(density[:, j] * np.delete(below, j, axis=1).prod(axis=1), x)
        for j in range(len(counts))
    ]


@pytest.mark.parametrize("counts", [[19, 5, 1], [14, 8, 3]])
@pytest.mark.parametrize("neighbour", [(0, 1), (1, 0), (2, 1), (0, 2)])
def test_the_bound_holds_for_the_mechanism_itself(counts, neighbour):
    gamma, orders = 0.3, np.array([1.5, 2.0, 5.0, 20.0])
    source, target = neighbour
    other = list(counts)
    other[source] -= 1
    other[target] += 1
    p, q = (np.asarray(win_probabilities(one, gamma)) for one in (counts, other))
    divergence = [np.log(np.sum(p**a * q ** (1 - a))) / (a - 1) for a in orders]
    log_q = laplace_votes.log_q(Votes(np.array([counts])), gamma)
    assert np.log(1 - p.max()) <= log_q[0] + 1e-9
    assert (divergence <= laplace_votes.data_dependent_rdp(log_q, gamma, orders)[0] + 1e-9).all()
    charged = laplace_votes.charge(gamma)
    losses = np.abs(np.log(p / q))
    assert losses.max() <= epsilon(charged, 1e-12, adjacency="add-remove") + 1e-6


def test_charge_is_pure_and_tighter_than_its_pure_loss_in_a_composition():
    for adjacency in ("add-remove", "replace-one", "zero-out"):
        one = epsilon(laplace_votes.charge(0.05), 1e-15, adjacency=adjacency)
        assert one == pytest.approx(0.1, rel=1e-6)
        many = epsilon(laplace_votes.charge(0.05, 100), 1e-5, adjacency=adjacency)
        assert many < 0.7 * epsilon(Repeated(PureDp(0.1), 100), 1e-5)


@pytest.mark.parametrize("bad", [{"gamma": 0.0}, {"gamma": -1.0}, {"gamma": 0.1, "queries": 0}])
def test_charge_refuses(bad):
    with pytest.raises(InvalidArgument):
        laplace_votes.charge(**bad)


def test_moments_are_positive():
    with pytest.raises(InvalidArgument, match="moments"):
        laplace_votes.data_dependent_log_moments([-3.0], 0.1, [0.0])
