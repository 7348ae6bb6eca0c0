"""What each run is allowed, so that the whole search meets what was asked."""

from __future__ import annotations

import pytest

from tacit.accounting import (
    ApproxDp,
    Composed,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonRuns,
    PrivateSelection,
    PureDp,
    TruncatedNegativeBinomial,
    epsilon,
)
from tacit.errors import InvalidArgument, Uncalibratable
from tacit.selection import PrivateScore, PublicScore
from tacit.selection.terms import settle

RUNS = TruncatedNegativeBinomial.with_mean(10.0, 0.0)
PUBLIC = PublicScore(len)


@pytest.mark.parametrize("runs", [RUNS, TruncatedNegativeBinomial(1.0, 0.1), PoissonRuns(5.0)])
@pytest.mark.parametrize("score", [PUBLIC, PrivateScore(len, DiscreteLaplace(20.0))])
@pytest.mark.parametrize("event", [None, Gaussian])
def test_what_was_asked_is_met_and_used_up(runs, score, event) -> None:  # type: ignore[no-untyped-def]
    found = settle(runs, score, 2.0, 1e-6, "add-remove", event)
    assert 1.99 < found.epsilon <= 2.0
    assert found.epsilon == epsilon(found.event, 1e-6)
    assert found.single < found.epsilon
    if isinstance(score, PrivateScore) and event is not None:
        assert found.event.base == Composed(found.allowance.event, score.event)


def test_a_family_of_events_is_given_its_noise() -> None:
    found = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", Gaussian)
    noise = found.allowance.noise
    assert noise is not None
    assert found.event == PrivateSelection(Gaussian(noise), RUNS)
    assert found.allowance.epsilon == epsilon(Gaussian(noise), found.allowance.delta)
    twice = settle(RUNS, PUBLIC, 2.0, 1e-6, "replace-one", Gaussian).allowance.noise
    assert twice == pytest.approx(2 * noise, rel=1e-6)


def test_knowing_the_event_allows_more_than_knowing_epsilon() -> None:
    known = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", Gaussian).allowance
    share = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", None).allowance
    assert isinstance(share.event, ApproxDp)
    assert share.delta == pytest.approx(1e-7, rel=1e-6)
    assert share.epsilon == pytest.approx(1.0, rel=1e-5)  # (2 + η)·ε₀ for η = 0
    assert known.epsilon > 1.3 * share.epsilon
    pure = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", None, pure=True).allowance
    assert (pure.event, pure.delta) == (PureDp(pure.epsilon), 0.0)
    assert pure.epsilon >= share.epsilon


def test_a_fixed_event_must_fit() -> None:
    found = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", Gaussian(8.0))
    assert found.allowance.event == Gaussian(8.0)
    assert found.epsilon < 1.0
    with pytest.raises(InvalidArgument, match="event must let the search meet epsilon=2"):
        settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", Laplace(0.5))


def test_a_score_that_costs_too_much_is_refused() -> None:
    score = PrivateScore(len, DiscreteLaplace(0.5))
    with pytest.raises(Uncalibratable, match="score must leave something for training"):
        settle(RUNS, score, 2.0, 1e-6, "add-remove", None)
    with pytest.raises(Uncalibratable, match="choosing by it alone has epsilon="):
        settle(RUNS, score, 2.0, 1e-6, "add-remove", Gaussian)
    with pytest.raises(Uncalibratable, match="event must be able to meet epsilon=2"):
        settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", lambda _: PureDp(3.0))


def test_a_score_takes_its_part_of_a_run() -> None:
    plain = settle(RUNS, PUBLIC, 2.0, 1e-6, "add-remove", None).allowance
    pure = settle(RUNS, PrivateScore(len, PureDp(0.25)), 2.0, 1e-6, "add-remove", None).allowance
    assert pure.epsilon == pytest.approx(plain.epsilon - 0.25, rel=1e-6)
    assert pure.delta == pytest.approx(plain.delta)
    noisy = settle(RUNS, PrivateScore(len, Gaussian(20.0)), 2.0, 1e-6, "add-remove", None).allowance
    assert noisy.delta == pytest.approx(plain.delta / 2)
    own = epsilon(Gaussian(20.0), noisy.delta)
    assert noisy.epsilon == pytest.approx(plain.epsilon - own, rel=1e-6)
