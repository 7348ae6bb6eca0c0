"""The joint test against mpmath, against counting, and against draws from the worst mechanism."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from tacit.auditing import Scores
from tacit.auditing.statistics.ranks import (
    RankTests,
    joint_p_value,
    p_values,
    rank_tests,
    ranks_for,
)
from tacit.auditing.statistics.tradeoffs import GaussianTradeOff, PairsTradeOff


def one_test(rank: int, others: int, hits: int, trials: int) -> RankTests:
    numbers = (np.array([float(number)]) for number in (rank, others, hits, trials))
    return RankTests(*numbers, forward=np.array([True]))


def by_integration(rank: int, others: int, hits: int, trials: int, epsilon: float) -> float:
    """E[P(Bin(trials, TPR(X)) ≥ hits)] for (ε, 0), with 20 digits and the binomial sum as it is."""
    with mp.workdps(20):
        growth = mp.exp(epsilon)

        def integrand(x: mp.mpf) -> mp.mpf:
            rate = min(growth * x, 1 - (1 - x) / growth)
            density = x**rank * (1 - x) ** (others - rank - 1) / mp.beta(rank + 1, others - rank)
            return density * sum(
                mp.binomial(trials, k) * rate**k * (1 - rate) ** (trials - k)
                for k in range(hits, trials + 1)
            )

        kink = 1 / (1 + growth)
        places = [kink * i / 4 for i in range(4)] + [kink + (1 - kink) * i / 4 for i in range(5)]
        return float(mp.quad(integrand, places))


@pytest.mark.parametrize(
    ("rank", "others", "hits", "trials", "epsilon"),
    [
        (0, 20, 8, 15, 0.0),
        (0, 20, 15, 15, 1.0),
        (3, 20, 12, 15, 0.5),
        (5, 12, 30, 40, 0.7),
        (6, 12, 12, 12, 2.0),
        (2, 60, 9, 10, 1.3),
    ],
)
def test_p_values_agree_with_twenty_digits(
    rank: int, others: int, hits: int, trials: int, epsilon: float
) -> None:
    found = p_values(one_test(rank, others, hits, trials), PairsTradeOff.of_pair(epsilon, 0.0))
    truth = by_integration(rank, others, hits, trials, epsilon)
    assert float(found[0]) == pytest.approx(truth, rel=1e-7)


@pytest.mark.parametrize(
    ("others", "hits", "trials"), [(100, 7, 50), (10**6, 9, 100), (30, 9, 10**6)]
)
def test_without_a_difference_it_is_counting(others: int, hits: int, trials: int) -> None:
    """All orders are equally likely: the best ``hits`` are all of one side."""
    truth = math.exp(sum(math.log((trials - i) / (trials + others - i)) for i in range(hits)))
    found = p_values(one_test(0, others, hits, trials), PairsTradeOff.of_pair(0.0, 0.0))
    assert float(found[0]) == pytest.approx(truth, rel=1e-6, abs=3e-14)


@pytest.mark.parametrize(
    ("rank", "hits"), [(333, 500_700), (333, 501_400), (5, 9_000), (500_000, 1_000_000)]
)
def test_a_million_trials_against_few_or_many(rank: int, hits: int) -> None:
    """The integral by a plain sum over 200,001 places instead of a Gauss rule."""
    from scipy.stats import beta, binom  # noqa: PLC0415

    others, trials = (1000, 10**6) if rank < 1000 else (10**6, 10**6)
    curve = GaussianTradeOff(0.435)
    chances = (np.arange(200_000) + 0.5) / 200_000
    truth = np.mean(
        binom.sf(hits - 1, trials, curve.tpr(beta.ppf(chances, rank + 1, others - rank)))
    )
    found = float(p_values(one_test(rank, others, hits, trials), curve)[0])
    assert found == pytest.approx(float(truth), rel=2e-3, abs=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.5, 0.1)])
def test_the_worst_mechanism_attains_the_p_values(epsilon: float, delta: float) -> None:
    """Each test alone refuses the truth as often as its p-value says, for the worst mechanism."""
    draw, curve = np.random.default_rng(3), PairsTradeOff.of_pair(epsilon, delta)
    found = np.array(
        [
            p_values(rank_tests(worst_scores(draw, epsilon, delta, 60, 80)), curve)
            for _ in range(1500)
        ]
    )
    for level in (0.05, 0.3):
        refused = np.mean(found <= level, axis=0)
        assert np.all(refused <= level + 4.0 * math.sqrt(level / 1500))
        assert np.max(refused) > 0.6 * level  # counts are whole: a level is not quite reached


def worst_scores(
    draw: np.random.Generator, epsilon: float, delta: float, n_in: int, n_out: int
) -> Scores:
    """Tells membership outright with probability δ, else by randomised response."""
    truthful = math.exp(epsilon) / (1.0 + math.exp(epsilon))

    def side(count: int, sign: float) -> np.ndarray:
        told = draw.random(count) < delta
        return sign * np.where(told, 2.0, np.where(draw.random(count) < truthful, 1.0, -1.0))

    return Scores(side(n_in, 1.0), side(n_out, -1.0))


def test_hits_are_counted_on_both_sides() -> None:
    tests = rank_tests(Scores([5.0, 4.0, 1.0], [3.0, 2.0, 0.0, -1.0]))
    above = {
        int(r): int(h) for r, h, f in zip(tests.rank, tests.hits, tests.forward, strict=True) if f
    }
    below = {
        int(r): int(h)
        for r, h, f in zip(tests.rank, tests.hits, tests.forward, strict=True)
        if not f
    }
    assert above == {0: 2, 1: 2, 2: 3}  # above 3, above 2, above 0
    assert below == {0: 2, 1: 4}  # below 1, below 4


def test_ties_are_broken_evenly() -> None:
    """A score that says next to nothing: half of either side comes before the other."""
    nothing = np.append(np.zeros(9999), 1.0)
    tests = rank_tests(Scores(nothing, nothing))
    middle = tests.rank == 5000.0
    assert np.all(np.abs(tests.hits[middle] - 5000.0) < 500.0)
    assert joint_p_value(tests, PairsTradeOff.of_pair(0.0, 0.0)) > 1e-6


def test_ties_are_broken_anew_for_other_scores() -> None:
    """A fixed order would favour the same side in every audit of one size."""
    draw = np.random.default_rng(4)
    leads = []
    for _ in range(60):
        tests = rank_tests(Scores(draw.integers(0, 2, 100), draw.integers(0, 2, 100)))
        leads.append(float(tests.hits[tests.forward & (tests.rank == 50.0)][0]) - 50.0)
    assert min(leads) < 0.0 < max(leads)
    assert abs(np.mean(leads)) < 5.0 * np.std(leads) / math.sqrt(60)


@pytest.mark.parametrize("trials", [1, 50, 1000])
def test_scores_that_are_all_equal_say_nothing(trials: int) -> None:
    tests = rank_tests(Scores(np.full(trials, 7.0), np.full(trials, 7.0)))
    assert joint_p_value(tests, PairsTradeOff.of_pair(0.0, 0.0)) == 1.0


@pytest.mark.parametrize("trials", [1, 2, 3, 10, 1000, 10**6])
def test_ranks_lie_within_the_trials(trials: int) -> None:
    ranks = ranks_for(trials)
    assert ranks[0] == 0
    assert ranks[-1] < trials
    assert np.all(np.diff(ranks) > 0)
    assert len(ranks) < 40


def test_p_values_grow_with_the_guarantee_and_fall_with_the_hits() -> None:
    loose = [
        float(p_values(one_test(5, 50, 30, 50), PairsTradeOff.of_pair(e, 0.0))[0])
        for e in (0, 1, 2, 9)
    ]
    assert loose == sorted(loose)
    assert loose[-1] == pytest.approx(1.0, abs=1e-6)
    strong = [
        float(p_values(one_test(5, 50, h, 50), GaussianTradeOff(1.0))[0]) for h in (0, 10, 30, 50)
    ]
    assert strong == sorted(strong, reverse=True)
    assert strong[0] == 1.0
