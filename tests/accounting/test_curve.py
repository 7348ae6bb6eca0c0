"""The privacy curve where its ε is beyond the range of exp or infinite, and of a Rényi curve."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tacit.accounting import (
    ApproxDp,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    PrivacyCurve,
    PureDp,
    RenyiCurve,
    Repeated,
    ZeroConcentrated,
    delta,
    gaussian_profile,
    profile,
)
from tacit.accounting import curve as curves
from tacit.accounting.accountants import Accountant, composition, exact


@pytest.mark.parametrize("sigma", [2.0, 0.02, 1e-3, 1e-6])
def test_the_mu_of_a_gaussian_is_its_own_however_loud(sigma: float) -> None:
    fit = PrivacyCurve(Gaussian(sigma)).mu()
    assert 1.0 <= fit.mu * sigma < 1.03
    assert 0.0 <= fit.regret < 1e-3


@pytest.mark.parametrize("event", [PureDp(800.0), PureDp(1e4), ApproxDp(1e4, 1e-12), Laplace(1e-3)])
def test_the_gaussian_covers_a_loud_curve(event: PureDp | ApproxDp | Laplace) -> None:
    curve = PrivacyCurve(event)
    fit = curve.mu()
    assert math.isfinite(fit.mu)
    last = curve.epsilon(1e-10)
    for place in (0.0, 0.3 * last, 0.7 * last, 0.999 * last):
        assert gaussian_profile.delta(fit.mu, place) >= curve.delta(place) - 1e-12


@pytest.mark.parametrize("event", [PureDp(1.0), Laplace(2.0)])
def test_the_gaussian_covers_the_curve_between_the_points(event: PureDp | Laplace) -> None:
    curve = PrivacyCurve(event)
    fit = curve.mu()
    for place in (0.0, 0.123, 0.31, 0.47, 0.499):
        assert gaussian_profile.delta(fit.mu, place) >= curve.delta(place) * (1.0 - 1e-12)


def test_a_gaussian_covers_every_chord_and_no_less_does() -> None:
    """Where the μ of one chord serves for the next it is not searched for: the largest is found."""
    event = PoissonSampled(0.05, Gaussian(1.0))
    found = curves.covering_mu(lambda epsilon: delta(event, epsilon), 2.0)
    points = [(place / 32.0, delta(event, place / 32.0)) for place in range(65)]
    needed = [
        min(curves._least_mu(room) for room in curves._rooms(*chord)) for chord in pairwise(points)
    ]
    assert found == pytest.approx(max(needed), rel=1e-9)
    assert max(needed) > 1.01 * needed[0]


def test_no_gaussian_covers_failures() -> None:
    curve = PrivacyCurve(ApproxDp(1.0, 1e-5))
    fit = curve.mu(1e-10)
    assert fit.mu == math.inf
    # Against a Gaussian that hides nothing: (1 - δ(ε))/(1 + e^ε), largest at 0 here.
    assert fit.regret == pytest.approx(0.5 * (1.0 - curve.delta(0.0)), rel=1e-9)
    assert math.isfinite(curve.mu(1e-4).mu)


def test_one_renyi_curve_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Composition theorems convert the same curve, many times over: they are not asked."""
    for accountant in ("ADVANCED", "BASIC"):
        monkeypatch.setattr(composition, accountant, Accountant(_not_asked, _not_asked))
    curve = PrivacyCurve(RenyiCurve((2.0, 4.0, 8.0, 16.0, 32.0), (0.1, 0.2, 0.4, 0.8, 1.6)))
    assert curve.tradeoff(0.1) == pytest.approx(0.8107643, abs=1e-6)
    assert PrivacyCurve(ZeroConcentrated(0.5)).epsilon(1e-5) == pytest.approx(4.728387, abs=1e-6)


def _not_asked(*_: object) -> float:
    raise AssertionError("a composition theorem was asked about a single curve")


@pytest.mark.parametrize(
    ("event", "epsilon", "truth"),
    [
        (PureDp(1.0), 1.0, 0.0),
        (PureDp(0.5), 0.5, 0.0),
        (Repeated(PureDp(0.1), 10), 1.0, 0.0),
        (ApproxDp(1.0, 1e-6), 1.0, 1e-6),
    ],
)
def test_delta_is_sharp_where_epsilon_is_the_largest_loss(
    event: Event, epsilon: float, truth: float
) -> None:
    found = PrivacyCurve(event).delta(epsilon)
    assert truth <= found <= truth + 1e-7


@pytest.mark.parametrize(
    "event",
    [
        Repeated(PoissonSampled(0.01, Gaussian(1.0)), 1000),
        pytest.param(Repeated(PoissonSampled(0.1, Gaussian(1.0)), 5), marks=pytest.mark.slow),
        pytest.param(Repeated(PoissonSampled(1e-5, Gaussian(0.7)), 10**5), marks=pytest.mark.slow),
    ],
)
def test_many_points_at_the_price_of_a_few_say_what_each_one_says(
    monkeypatch: pytest.MonkeyPatch, event: Event
) -> None:
    """μ took more than a second for a few steps: 65 certificates, one by one."""
    curve = profile(event)
    asked = []
    single = exact.delta

    def counted(*arguments: Any) -> float:
        asked.append(arguments)
        return single(*arguments)

    monkeypatch.setattr(exact, "delta", counted)
    found = curve.mu(), curve.power(1e-4), curve.tradeoff(0.1)
    assert not asked
    monkeypatch.setattr(exact, "sketch", lambda *_: None)
    slowly = curve.power(1e-4), curve.tradeoff(0.1)
    assert asked
    assert slowly[0] <= found[1] <= slowly[0] * (1.0 + 1e-7)
    assert slowly[1] * (1.0 - 1e-7) <= found[2] <= slowly[1] * (1.0 + 1e-12)
    for epsilon in np.linspace(0.0, curve.epsilon(1e-10), 7).tolist():
        most = gaussian_profile.delta(found[0].mu, epsilon)
        assert curve.delta(epsilon) <= most * (1.0 + 1e-9)
