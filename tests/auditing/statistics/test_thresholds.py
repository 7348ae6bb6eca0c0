"""The joint test against mpmath, against counting, and against draws from the worst mechanism."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import Gaussian, Laplace, profile
from tacit.auditing import (
    Scores,
    clopper_pearson,
    curve_p_value,
    every_threshold,
    every_threshold_gaussian,
    held_out_threshold,
)
from tacit.auditing.statistics.thresholds import (
    RankTests,
    joint_p_value,
    p_values,
    rank_tests,
    ranks_for,
)
from tacit.auditing.statistics.tradeoffs import GaussianTradeOff, PairsTradeOff
from tacit.errors import InvalidArgument

# ---- The joint test against mpmath, against counting, and against draws from the worst mechanism


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
    ("rank", "hits"),
    [
        pytest.param(333, 500_700, marks=pytest.mark.slow),
        (333, 501_400),
        (5, 9_000),
        pytest.param(500_000, 1_000_000, marks=pytest.mark.slow),
    ],
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


@pytest.mark.parametrize(
    ("epsilon", "delta"), [pytest.param(1.0, 0.0, marks=pytest.mark.slow), (0.5, 0.1)]
)
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
    """Shows membership outright with probability δ, else by randomised response."""
    truthful = math.exp(epsilon) / (1.0 + math.exp(epsilon))

    def side(count: int, sign: float) -> np.ndarray:
        outright = draw.random(count) < delta
        return sign * np.where(outright, 2.0, np.where(draw.random(count) < truthful, 1.0, -1.0))

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


# ---- Bounds over all thresholds: how much they find, and what they must not depend on


def laplace_scores(draw: np.random.Generator, trials: int) -> Scores:
    return Scores(1.0 + draw.laplace(size=trials), draw.laplace(size=trials))


@pytest.mark.parametrize(
    ("trials", "audits", "joint", "held_out"),
    [(1000, 60, 0.80, 0.72), (10_000, 25, 0.93, 0.90)],
)
def test_the_mean_bound_for_laplace(
    trials: int, audits: int, joint: float, held_out: float
) -> None:
    """ε is 1; JAX-Privacy's mean bounds are 0.745 and 0.910."""
    draw = np.random.default_rng(7)
    sets = [laplace_scores(draw, trials) for _ in range(audits)]
    assert np.mean([every_threshold(scores, 0.0).epsilon for scores in sets]) >= joint
    assert np.mean([held_out_threshold(scores, 0.0).epsilon for scores in sets]) >= held_out


def test_the_bound_is_where_the_p_value_is_the_failure_rate() -> None:
    scores = laplace_scores(np.random.default_rng(1), 300)
    tests = rank_tests(scores)
    for confidence in (0.95, 0.9999):
        found = every_threshold(scores, 0.01, confidence).epsilon
        curve = PairsTradeOff.of_pair(found, 0.01)
        assert joint_p_value(tests, curve) == pytest.approx(1.0 - confidence, rel=1e-5)
        mu = every_threshold_gaussian(scores, 1e-5, confidence).number("mu")
        assert joint_p_value(tests, GaussianTradeOff(mu)) == pytest.approx(
            1.0 - confidence, rel=1e-5
        )


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(2, 60), st.floats(0.1, 3.0))
def test_laws(seed: int, n_in: int, n_out: int, shift: float) -> None:
    draw = np.random.default_rng(seed)
    inside, outside = shift + draw.normal(size=n_in), draw.normal(size=n_out)
    found = every_threshold(Scores(inside, outside), 0.001).epsilon
    same = pytest.approx(found, abs=1e-6)
    assert every_threshold(Scores(np.exp(inside), np.exp(outside)), 0.001).epsilon == same
    assert every_threshold(Scores(-outside, -inside), 0.001).epsilon == same  # sides exchanged
    assert every_threshold(Scores(inside[::-1], np.sort(outside)), 0.001).epsilon == same
    assert every_threshold(Scores(inside + 0.5, outside), 0.001).epsilon >= found - 1e-6
    assert every_threshold(Scores(inside, outside), 0.1).epsilon <= found + 1e-6
    assert every_threshold(Scores(inside, outside), 0.001, 0.999).epsilon <= found + 1e-6


@pytest.mark.parametrize("trials", [100, 1000, 10_000])
def test_a_perfect_attack_shows_no_less_than_at_a_threshold_fixed_beforehand(trials: int) -> None:
    """What all thresholds cost, the joint test of both rates brings in again."""
    scores = Scores(np.arange(trials) + 0.5, -1.0 - np.arange(trials))
    fixed = clopper_pearson(scores.at(0.0), 0.0).epsilon
    found = every_threshold(scores, 0.0).epsilon
    assert fixed < found < math.log(2 * trials / math.log(20))  # all 2n right: p^2n = 0.05


def test_infinite_scores_are_ranked() -> None:
    scores = Scores(np.full(100, math.inf), np.full(100, -math.inf))
    assert every_threshold(scores, 0.0).epsilon > 2.5
    assert held_out_threshold(scores, 0.0).epsilon > 2.5


def test_nothing_is_found_where_nothing_is() -> None:
    same = np.arange(50.0)
    assert every_threshold(Scores(same, same), 0.0).epsilon == 0.0
    assert every_threshold(Scores([1.0], [0.0]), 0.0).epsilon == 0.0
    assert every_threshold(Scores(same + 100.0, same), 1.0).epsilon == 0.0


def test_a_true_curve_stands_and_a_false_one_falls() -> None:
    scores = laplace_scores(np.random.default_rng(2), 3000)
    assert curve_p_value(scores, profile(Laplace(1.0))) > 0.05
    assert curve_p_value(scores, profile(Laplace(1.4))) < 1e-4
    # A Gaussian with the same ε at δ = 1e-5 has another curve: less at ε = 0.
    assert curve_p_value(scores, profile(Gaussian(3.73))) < 1e-4


def test_the_numbers_say_where_it_was_found() -> None:
    found = every_threshold(laplace_scores(np.random.default_rng(1), 1000), 0.0)
    sides = {name for name, _ in found.numbers}
    assert {"tpr", "fpr"} <= sides or {"tnr", "fnr"} <= sides
    assert found.number("n_in") == 1000.0


def test_a_single_score_cannot_be_split() -> None:
    with pytest.raises(InvalidArgument, match="inside"):
        held_out_threshold(Scores([1.0], [0.0, 1.0]), 0.0)
    with pytest.raises(InvalidArgument, match="pilot"):
        held_out_threshold(Scores([1.0, 2.0], [0.0, 1.0]), 0.0, pilot=1.0)
