"""Private selection against its published figures and against the true law of small examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tacit.accounting import (
    ApproxDp,
    Composed,
    Gaussian,
    NoisyMax,
    PoissonRuns,
    PoissonSampled,
    PrivateSelection,
    PureDp,
    RandomizedResponse,
    RenyiFilter,
    Repeated,
    TruncatedNegativeBinomial,
    bounds,
    calibrate,
    compare,
    delta,
    epsilon,
    from_json,
    group,
    to_json,
)
from tacit.accounting.renyi.profile import renyi_profile
from tacit.errors import InvalidArgument, UnsupportedEvent

LAWS = (
    TruncatedNegativeBinomial(1.0, 0.1),
    TruncatedNegativeBinomial(0.0, 0.02),
    TruncatedNegativeBinomial(0.5, 0.3),
    TruncatedNegativeBinomial(-0.4, 0.01),
    PoissonRuns(5.0),
    PoissonRuns(0.7),
)


@pytest.mark.parametrize(
    ("mean", "eta", "by_profile", "by_renyi"),
    [
        (10, 1, 1.983, 2.271),
        (10, 0, 1.729, 1.902),
        (100, 1, 2.567, 2.824),
        (100, 0, 2.075, 2.238),
    ],
)
def test_the_published_figures(mean: int, eta: int, by_profile: float, by_renyi: float) -> None:
    """Gaussian base of σ = 4 at δ = 1e-6, whose own ε is 1.0607."""
    assert epsilon(Gaussian(4.0), 1e-6) == pytest.approx(1.0607, abs=5e-5)
    event = PrivateSelection(Gaussian(4.0), TruncatedNegativeBinomial.with_mean(mean, eta))
    found = bounds(event, 1e-6)
    assert found.upper == epsilon(event, 1e-6) == pytest.approx(by_profile, abs=5.1e-4)
    assert (found.method, found.two_sided) == ("selection profile", False)
    # One of the four was rounded from an order off the best one, by 6e-4.
    assert by_renyi - 7e-4 < epsilon(event, 1e-6, "rdp") < by_renyi + 5e-4


def probabilities(runs: TruncatedNegativeBinomial | PoissonRuns, largest: int) -> np.ndarray:
    """P(K = k) for k = 0, …, from the definitions."""
    k = np.arange(largest + 1)
    if isinstance(runs, PoissonRuns):
        logs = k * math.log(runs.mean) - runs.mean - np.array([math.lgamma(one + 1) for one in k])
        return np.exp(logs)
    rising = np.cumprod((k[1:-1] + runs.eta) / (k[1:-1] + 1.0))
    weights = np.concatenate([[0.0, 1.0], rising]) * (1.0 - runs.gamma) ** k
    return weights / weights.sum()


def selected(base: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """The law of the best of K draws from ``base`` (outcomes in order of score), and of no draw."""
    below = np.concatenate([[0.0], np.cumsum(base)])
    below[-1] = 1.0
    powers = below[:, None] ** np.arange(len(chances))
    generating = powers @ chances
    return np.concatenate([np.diff(generating), [chances[0]]])


def truth(p: np.ndarray, q: np.ndarray, at: float) -> float:
    sums = (np.maximum(a - math.exp(at) * b, 0.0).sum() for a, b in ((p, q), (q, p)))
    return float(max(sums))


@pytest.mark.parametrize("runs", LAWS)
@pytest.mark.parametrize(
    "order",
    [
        (0, 1, 2),
        pytest.param((2, 1, 0), marks=pytest.mark.slow),
        pytest.param((1, 0, 2), marks=pytest.mark.slow),
    ],
)
def test_the_true_law_of_a_selection_is_within_both_bounds(
    runs: TruncatedNegativeBinomial | PoissonRuns, order: tuple[int, ...]
) -> None:
    """Randomised response with three answers, scored in some order: everything can be summed."""
    base = RandomizedResponse(epsilon=0.5, categories=3)
    truth_, lie = base.probability, (1 - base.probability) / 2
    first, second = np.array([truth_, lie, lie]), np.array([lie, truth_, lie])
    chances = probabilities(runs, 4000)
    p, q = (selected(law[list(order)], chances) for law in (first, second))
    event = PrivateSelection(base, runs)
    for at in (0.0, 0.3, 0.6, 1.0, 1.4):
        assert truth(p, q, at) <= delta(event, at) * (1.0 + 1e-9)
        assert truth(p, q, at) <= delta(event, at, "rdp") * (1.0 + 1e-9)
    orders = np.array([1.2, 2.0, 5.0, 20.0, 100.0])
    curve = renyi_profile(event, "add-remove", "rdp").curve(orders)
    for a, b in ((p, q), (q, p)):
        moments = np.logaddexp.reduce(
            orders[:, None] * np.log(a[a > 0]) + (1 - orders[:, None]) * np.log(b[a > 0]), axis=1
        )
        assert np.all(moments / (orders - 1.0) <= curve * (1.0 + 1e-9))


@pytest.mark.parametrize("runs", LAWS)
def test_gaussian_scores_by_quadrature(runs: TruncatedNegativeBinomial | PoissonRuns) -> None:
    """The largest of K draws of N(0, 1) against N(μ, 1): a selection whose law is a density."""
    mu = 0.5
    x = np.linspace(-9.0, 10.0, 40_001)
    chances = probabilities(runs, 3000)
    k = np.arange(len(chances))
    weights = (k * chances)[1:]

    def density(shift: float) -> np.ndarray:
        below = norm.cdf(x - shift)
        slope = np.polynomial.polynomial.polyval(below, weights)
        return norm.pdf(x - shift) * slope

    one, other = density(0.0), density(mu)
    event = PrivateSelection(Gaussian(1 / mu), runs)
    for at in (0.5, 1.0, 2.0, 3.0):
        for a, b in ((one, other), (other, one)):
            true = float(np.trapezoid(np.maximum(a - math.exp(at) * b, 0.0), x))
            assert true <= delta(event, at) + 1e-9
    # The bound is not idle: it is met within a factor by some selection.
    true = float(np.trapezoid(np.maximum(other - math.exp(2.0) * one, 0.0), x))
    assert delta(event, 2.0) < 1.0 or true > 1e-4


def test_a_pure_base_gives_a_pure_selection() -> None:
    for eta in (0.0, 1.0, 2.0):
        event = PrivateSelection(PureDp(0.3), TruncatedNegativeBinomial(eta, 0.05))
        assert epsilon(event, 1e-12, "basic") == pytest.approx((2 + eta) * 0.3, rel=1e-9)
        assert epsilon(event, 1e-12) <= (2 + eta) * 0.3 * (1 + 1e-9)


def test_a_base_that_may_fail_goes_by_its_profile() -> None:
    event = PrivateSelection(ApproxDp(0.5, 1e-8), TruncatedNegativeBinomial(1.0, 0.1))
    expected = 0.5 + 2.0 * math.log(math.exp(0.5) + 9e-8)
    assert epsilon(event, 1e-6) == pytest.approx(expected, rel=1e-6)
    assert math.isinf(epsilon(event, 5e-8))  # ten runs may fail ten times as often
    with pytest.raises(UnsupportedEvent, match=r"PrivateSelection.*its base may fail"):
        epsilon(event, 1e-6, "rdp")


@settings(max_examples=12, deadline=None)
@given(
    st.floats(0.8, 20.0),
    st.floats(1.5, 300.0),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([1e-9, 1e-6, 1e-3]),
)
def test_laws(sigma: float, mean: float, eta: float, at: float) -> None:
    runs = TruncatedNegativeBinomial.with_mean(mean, eta)
    event = PrivateSelection(Gaussian(sigma), runs)
    here = epsilon(event, at)
    assert epsilon(Gaussian(sigma), at) < here <= epsilon(event, at, "rdp")
    assert epsilon(PrivateSelection(Gaussian(sigma * 1.1), runs), at) < here
    more = TruncatedNegativeBinomial.with_mean(mean * 1.1, eta)
    assert epsilon(PrivateSelection(Gaussian(sigma), more), at) > here * (1.0 - 1e-9)
    assert delta(event, here) <= at * (1.0 + 1e-6)


def test_training_runs_can_be_selected_and_composed() -> None:
    run = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    event = PrivateSelection(run, TruncatedNegativeBinomial.with_mean(10, 0.0))
    alone = epsilon(event, 1e-5)
    assert 0.9469 < alone < 3 * 0.9469
    both = Composed(event, Gaussian(5.0))
    rows = {row.accountant: row for row in compare(both, 1e-5)}
    assert {name for name, row in rows.items() if row.note} == {"zcdp", "gdp", "gdp-clt"}
    assert alone < rows["exact"].epsilon < alone + epsilon(Gaussian(5.0), 1e-6)
    assert epsilon(Repeated(event, 1), 1e-5) == epsilon(Composed(event), 1e-5) == alone
    assert RenyiFilter(4.0, 1e-5).after(event).affords(Gaussian(5.0))


def test_adjacency_reaches_the_base() -> None:
    runs = TruncatedNegativeBinomial(1.0, 0.1)
    one = epsilon(PrivateSelection(Gaussian(8.0), runs), 1e-6, adjacency="replace-one")
    assert one == epsilon(PrivateSelection(Gaussian(4.0), runs), 1e-6)
    chosen = PrivateSelection(NoisyMax(8.0), runs)
    assert epsilon(chosen, 1e-6) < epsilon(chosen, 1e-6, adjacency="replace-one")
    assert group(PrivateSelection(Gaussian(8.0), runs), 2) == PrivateSelection(Gaussian(4.0), runs)


def test_noise_can_be_calibrated() -> None:
    runs = TruncatedNegativeBinomial.with_mean(20, 0.0)
    sigma = calibrate(lambda x: PrivateSelection(Gaussian(x), runs), epsilon=2, delta=1e-6)
    assert 1.99 < epsilon(PrivateSelection(Gaussian(sigma), runs), 1e-6) <= 2.0


@pytest.mark.parametrize("runs", LAWS)
def test_json(runs: TruncatedNegativeBinomial | PoissonRuns) -> None:
    event = Repeated(PrivateSelection(Composed(Gaussian(1 / 3), PureDp(0.1)), runs), 2)
    assert from_json(to_json(event)) == event
    assert hash(from_json(to_json(event))) == hash(event)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PrivateSelection("train", PoissonRuns(3)), "event must be a tacit.accounting"),
        (lambda: PrivateSelection(Gaussian(1), 10), "runs must be .* got 10"),
        (lambda: from_json('{"kind": "PoissonRuns", "mean": 3}'), "an event needs a kind among"),
        (
            lambda: from_json(
                '{"kind": "PrivateSelection", "base": {"kind": "PureDp", "epsilon": 1},'
                ' "runs": {"kind": "PoissonRuns"}}'
            ),
            "PoissonRuns needs the fields",
        ),
    ],
)
def test_refusals(make: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()  # type: ignore[operator]
