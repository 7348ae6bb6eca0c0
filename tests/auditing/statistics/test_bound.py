"""The value that an audit ends in."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.accounting import gaussian_profile
from tacit.auditing import (
    Guesses,
    LowerBound,
    Rates,
    Scores,
    Verdict,
    clopper_pearson,
    every_threshold,
    gaussian_scores,
    judge,
    one_run,
)
from tacit.auditing.statistics.bound import failure_rate, last_refuted, pair_for
from tacit.errors import InvalidArgument

# ---- The value that an audit ends in

BOUND = LowerBound(1.5, 1e-5, 0.95, "by hand", "nothing", (("mu", 0.4), ("n_in", 10)))


def test_it_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(BOUND)) == BOUND
    assert len({BOUND, dataclasses.replace(BOUND)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        BOUND.epsilon = 2.0  # type: ignore[misc]


def test_it_says_what_it_is() -> None:
    assert BOUND.number("mu") == 0.4
    for part in ("1.5", "1e-05", "95%", "by hand", "nothing"):
        assert part in BOUND.describe()


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, float("nan")])
def test_a_confidence_is_a_probability(confidence: float) -> None:
    with pytest.raises(InvalidArgument, match="confidence"):
        failure_rate(confidence)


# ---- Claims and verdicts

RATES = Rates(tp=500, n_in=1000, fp=10, n_out=1000)


def estimate(confidence: float) -> LowerBound:
    return clopper_pearson(RATES, 1e-5, confidence)


@pytest.mark.parametrize(
    ("claimed", "contradicted", "words"),
    [
        (2.0, True, "the evidence contradicts the claim epsilon = 2"),
        (3.0, False, "not enough evidence (below 99.99%) against the claim epsilon = 3"),
        (4.0, False, "no evidence against the claim epsilon = 4"),
    ],
)
def test_verdicts(claimed: float, contradicted: bool, words: str) -> None:
    verdict = judge(claimed, estimate)
    assert verdict.contradicted is contradicted
    assert verdict.exit_status == int(contradicted)
    assert verdict.describe().startswith(words)
    assert verdict.shown == estimate(0.95)
    assert verdict.decisive == estimate(0.9999)


def test_the_words_of_the_issue() -> None:
    found = LowerBound(0.613, 1e-5, 0.95, "LiRA", "nothing")
    assert Verdict(2.0, found, found).describe() == (
        "no evidence against the claim epsilon = 2 at delta = 1e-05; the strongest attack shows "
        "epsilon >= 0.613 at 95% confidence (LiRA; it assumes nothing)"
    )


def test_the_strongest_of_several_pays_for_the_choice() -> None:
    weak = Rates(tp=50, n_in=1000, fp=50, n_out=1000)
    verdict = judge(1.0, [estimate, lambda at: clopper_pearson(weak, 1e-5, at)])
    assert verdict.shown.epsilon == pytest.approx(estimate(0.975).epsilon)
    assert verdict.shown.confidence == 0.95
    assert verdict.decisive.epsilon == pytest.approx(estimate(0.99995).epsilon)


def test_many_attacks_on_nothing_do_not_contradict() -> None:
    draw = np.random.default_rng(31)
    attacks = [Scores(draw.normal(size=100), draw.normal(size=100)) for _ in range(20)]
    verdict = judge(
        0.1, [lambda at, scores=scores: every_threshold(scores, 0.0, at) for scores in attacks]
    )
    assert not verdict.contradicted


def test_estimates_at_different_deltas_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="delta"):
        judge(1.0, [estimate, lambda at: clopper_pearson(RATES, 0.0, at)])
    with pytest.raises(InvalidArgument, match="estimates"):
        judge(1.0, [])
    with pytest.raises(InvalidArgument, match="claimed"):
        judge(-1.0, estimate)


# ---- The largest refuted value, from the safe side


@pytest.mark.parametrize("end", [1e-6, 0.3, 1.0, 77.7, 699.0])
def test_it_ends_on_the_refuted_side(end: float) -> None:
    found = last_refuted(lambda value: value <= end, 700.0)
    assert found <= end <= found + 2e-9 * max(1.0, 2.0 * end)


def test_ends_of_the_range() -> None:
    assert last_refuted(lambda _: False, 700.0) == 0.0
    assert last_refuted(lambda _: True, 700.0) == 700.0
    assert last_refuted(lambda _: True, 0.5) == 0.5


# ---- Group privacy in the bounds: against induction, and against what one change says

DELTA = 1e-5


@given(st.floats(0.0, 3.0), st.floats(0.0, 1e-4), st.integers(1, 6))
def test_one_change_after_the_other(epsilon: float, delta: float, changes: int) -> None:
    """P ≤ e^ε Q + δ, and Q by the same of the next: δ_k = e^ε δ_(k-1) + δ."""
    total = 0.0
    for _ in range(changes):
        total = math.exp(epsilon) * total + delta
    found = pair_for(epsilon, delta, changes)
    assert found == pytest.approx((changes * epsilon, min(1.0, total)), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 20.0, 699.0, 1e6])
def test_nothing_overflows(epsilon: float) -> None:
    assert pair_for(epsilon, 0.0, 3) == (3 * epsilon, 0.0)
    assert pair_for(epsilon, 1.0, 3)[1] == 1.0
    assert 0.0 < pair_for(epsilon, 1e-300, 3)[1] <= 1.0


def test_without_delta_twice_the_changes_are_half_of_epsilon() -> None:
    draw = np.random.default_rng(1)
    scores = Scores(2.0 + draw.laplace(size=500), draw.laplace(size=500))
    guesses = Guesses(canaries=300, made=100, right=95)
    for one, two in (
        (every_threshold(scores, 0.0), every_threshold(scores, 0.0, changes=2)),
        (one_run(guesses, 0.0), one_run(guesses, 0.0, changes=2)),
    ):
        assert two.epsilon == pytest.approx(0.5 * one.epsilon, abs=1e-6)


def test_with_delta_it_is_less() -> None:
    draw = np.random.default_rng(1)
    scores = Scores(4.0 + draw.laplace(size=500), draw.laplace(size=500))
    guesses = Guesses(canaries=300, made=100, right=100)
    assert every_threshold(scores, 1e-3, changes=2).epsilon < (
        0.5 * every_threshold(scores, 1e-3).epsilon
    )
    assert one_run(guesses, 1e-3, changes=2).epsilon < 0.5 * one_run(guesses, 1e-3).epsilon


def test_a_gaussians_distance_is_shared() -> None:
    draw = np.random.default_rng(1)
    scores = Scores(1.0 + draw.normal(size=1000), draw.normal(size=1000))
    one, two = gaussian_scores(scores, DELTA), gaussian_scores(scores, DELTA, changes=2)
    assert two.number("mu") == pytest.approx(0.5 * one.number("mu"))
    assert two.epsilon == pytest.approx(gaussian_profile.epsilon(two.number("mu"), DELTA))


def test_scores_that_are_not_gaussian_fall_back_with_the_same_changes() -> None:
    draw = np.random.default_rng(1)
    scores = Scores(3.0 + draw.laplace(size=1000), draw.laplace(size=1000))
    found = gaussian_scores(scores, DELTA, changes=2)
    assert found.method.startswith("every threshold")
    assert found.epsilon == pytest.approx(every_threshold(scores, DELTA, changes=2).epsilon)


@pytest.mark.slow
def test_the_bounds_are_bounds() -> None:
    """400 audits of a Gaussian mechanism at twice its distance."""
    mu, trials, audits = 0.7, 200, 400
    truth, draw = gaussian_profile.epsilon(mu, DELTA), np.random.default_rng(5)
    missed = np.zeros(2)
    for _ in range(audits):
        scores = Scores(mu + draw.normal(size=trials), -mu + draw.normal(size=trials))
        missed[0] += gaussian_scores(scores, DELTA, changes=2).epsilon > truth
        missed[1] += every_threshold(scores, DELTA, changes=2).epsilon > truth
    assert (binom.sf(missed - 1, audits, 0.05) > 0.01).all()
    assert missed[0] >= 5  # of 20: it is not far below


@pytest.mark.parametrize("changes", [0, -1, 1.5])
def test_refusals(changes: int) -> None:
    draw = np.random.default_rng(1)
    scores = Scores(draw.normal(size=100), draw.normal(size=100))
    for bound in (every_threshold, gaussian_scores):
        with pytest.raises(InvalidArgument, match="changes"):
            bound(scores, DELTA, changes=changes)
    with pytest.raises(InvalidArgument, match="changes"):
        one_run(Guesses(canaries=3, made=2, right=1), DELTA, changes=changes)
