"""Trade-off curves: against the accountant, and that tpr and fpr are inverse to one another."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.accounting import Gaussian, Laplace, PoissonSampled, PureDp, Repeated, profile
from tacit.auditing.statistics.tradeoffs import GaussianTradeOff, PairsTradeOff, TradeOff

CURVES = [
    GaussianTradeOff(0.3),
    GaussianTradeOff(3.0),
    PairsTradeOff.of_pair(1.0, 0.0),
    PairsTradeOff.of_pair(2.0, 0.05),
    PairsTradeOff.of_curve(profile(Laplace(1.0))),
]
RATES = np.concatenate((np.geomspace(1e-6, 0.5, 40), 1.0 - np.geomspace(1e-6, 0.5, 40)))


@pytest.mark.parametrize("curve", CURVES, ids=str)
def test_curves_are_their_own_mirror_image_and_meet_it_at_the_kink(curve: TradeOff) -> None:
    np.testing.assert_allclose(curve.fpr(1.0 - RATES), 1.0 - curve.tpr(RATES), atol=1e-12)
    assert float(curve.tpr(np.array(curve.kink))) == pytest.approx(1.0 - curve.kink, abs=1e-9)


@pytest.mark.parametrize("curve", CURVES, ids=str)
def test_fpr_inverts_tpr_where_it_rises(curve: TradeOff) -> None:
    reached = curve.tpr(RATES)
    rising = (reached > 0.0) & (reached < 1.0 - 1e-9)
    np.testing.assert_allclose(curve.fpr(reached)[rising], RATES[rising], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("curve", CURVES, ids=str)
def test_attacks_gain_and_never_beyond_one(curve: TradeOff) -> None:
    rates = np.sort(RATES)
    reached = curve.tpr(rates)
    assert np.all(np.diff(reached) >= -1e-15)
    assert np.all((reached >= rates - 1e-15) & (reached <= 1.0))


@pytest.mark.parametrize(
    "event", [Gaussian(1.0), Laplace(2.0), Repeated(PoissonSampled(0.05, Gaussian(1.0)), 20)]
)
def test_the_pairs_of_an_event_stay_on_the_safe_side_of_its_curve(
    event: Gaussian | Laplace | Repeated,
) -> None:
    curve = profile(event)
    pairs = PairsTradeOff.of_curve(curve)
    for fpr in (1e-4, 0.01, 0.1, 0.4, 0.9):
        allowed = float(pairs.tpr(np.array(fpr)))
        best = 1.0 - curve.tradeoff(fpr)
        assert best - 1e-9 <= allowed + 1e-9
        assert allowed <= best + 5e-3 * best


def test_the_pairs_of_a_gaussian_are_above_the_gaussian_curve() -> None:
    pairs, truth = PairsTradeOff.of_curve(profile(Gaussian(1.0))), GaussianTradeOff(1.0)
    slack = pairs.tpr(RATES) - truth.tpr(RATES)
    assert np.all(slack >= -1e-12)
    assert np.max(slack) < 1e-3


def test_pure_privacy_is_one_pair() -> None:
    pairs, pair = PairsTradeOff.of_curve(profile(PureDp(1.0))), PairsTradeOff.of_pair(1.0, 0.0)
    np.testing.assert_allclose(pairs.tpr(RATES), pair.tpr(RATES), atol=1e-6)


def test_an_epsilon_beyond_the_range_of_exp_allows_everything() -> None:
    pair = PairsTradeOff.of_pair(1e6, 0.0)
    assert float(pair.tpr(np.array(1e-9))) == 1.0
