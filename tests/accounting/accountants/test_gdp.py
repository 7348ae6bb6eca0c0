"""Exact Gaussian differential privacy."""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from tacit.accounting.accountants import gdp
from tacit.accounting.events import (
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    GaussianMixture,
    Laplace,
    PoissonSampled,
    Repeated,
)
from tacit.errors import UnsupportedEvent


@pytest.mark.parametrize(
    ("event", "delta", "truth"),
    [
        (Repeated(Gaussian(20.0), 1000), 1e-6, 8.306225050),
        (Repeated(Gaussian(0.5), 10), 1e-12, 63.81873029),
        (Gaussian(3.7306316348), 1e-5, 1.0),
    ],
)
def test_known_answers(event: Event, delta: float, truth: float) -> None:
    assert gdp.epsilon(event, delta, "add-remove") == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-5, 0.1])
def test_never_below_forty_digits(delta: float) -> None:
    event = Composed(Gaussian(3.0), Repeated(Gaussian(7.0), 5))
    epsilon = gdp.epsilon(event, delta, "add-remove")
    with mp.workdps(400):
        mu = mp.sqrt(mp.mpf(1) / 9 + mp.mpf(5) / 49)
        e = mp.mpf(epsilon)
        truth = (
            mp.erfc((e / mu - mu / 2) / mp.sqrt(2))
            - mp.exp(e) * mp.erfc((e / mu + mu / 2) / mp.sqrt(2))
        ) / 2
    assert truth <= delta
    assert truth >= delta * (1 - 1e-8)
    assert truth <= gdp.delta(event, epsilon, "add-remove") <= truth * (1 + 1e-8)


def test_replacing_doubles_mu_and_compositions_add_squares() -> None:
    assert gdp.mu(Gaussian(4.0), "replace-one") == pytest.approx(0.5)
    assert gdp.mu(Gaussian(4.0), "zero-out") == pytest.approx(0.25)
    assert gdp.mu(Composed(Gaussian(1 / 3), Gaussian(1 / 4)), "add-remove") == pytest.approx(5.0)
    assert gdp.mu(GaussianMixture(2.0, (1.0,), (3.0,)), "add-remove") == pytest.approx(1.5)


def test_edges() -> None:
    assert gdp.epsilon(Composed(), 1e-5, "add-remove") == 0.0
    assert gdp.delta(Composed(), 0.0, "add-remove") == 0.0
    assert gdp.epsilon(Gaussian(1.0), 0.9, "add-remove") == 0.0
    assert math.isfinite(gdp.epsilon(Repeated(Gaussian(0.01), 10**6), 1e-30, "add-remove"))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (PoissonSampled(0.1, Gaussian(1.0)), "'gdp-clt' approximates it"),
        (Laplace(1.0), "only Gaussian noise is exactly"),
        (DiscreteGaussian(1.0), "only Gaussian noise is exactly"),
        (GaussianMixture(1.0, (0.5, 0.5), (0.0, 1.0)), "only Gaussian noise is exactly"),
    ],
)
def test_refusals(event: Event, reason: str) -> None:
    with pytest.raises(UnsupportedEvent, match=reason) as refusal:
        gdp.epsilon(Composed(Gaussian(1.0), event), 1e-5, "add-remove")
    assert refusal.value.event == event
