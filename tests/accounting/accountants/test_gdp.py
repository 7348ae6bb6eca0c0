"""Gaussian differential privacy, exact and as a central limit."""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from tacit.accounting.accountants import Approximation, gdp
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


# ---- the central-limit form says that it is an approximation, and is one


RUN = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)


def test_it_understates_the_known_truth_and_says_so() -> None:
    found = gdp.clt_epsilon(RUN, 1e-5, "add-remove")
    assert isinstance(found, Approximation)
    assert isinstance(gdp.clt_delta(RUN, 1.0, "add-remove"), Approximation)
    assert "not a bound" in repr(found)
    assert found == pytest.approx(0.9424, abs=1e-4)
    assert found < 0.9468668  # the truth


def test_mu() -> None:
    expected = 0.01 * math.sqrt(10_000 * math.expm1(1.0 / 16.0))
    assert gdp.clt_mu(RUN, "add-remove") == pytest.approx(expected)
    phases = Composed(RUN, Repeated(PoissonSampled(0.02, Gaussian(3.0)), 500), Gaussian(2.0))
    squares = expected**2 + 0.02**2 * 500 * math.expm1(1.0 / 9.0) + 0.25
    assert gdp.clt_mu(phases, "zero-out") == pytest.approx(math.sqrt(squares))


def test_without_sampling_it_is_exact() -> None:
    event = Repeated(Gaussian(9.0), 30)
    assert gdp.clt_epsilon(event, 1e-7, "replace-one") == pytest.approx(
        gdp.epsilon(event, 1e-7, "replace-one")
    )


def test_tiny_noise_does_not_overflow() -> None:
    assert gdp.clt_epsilon(PoissonSampled(0.1, Gaussian(0.01)), 1e-5, "add-remove") == math.inf


@pytest.mark.parametrize(
    ("event", "adjacency", "reason"),
    [
        (RUN, "replace-one", "adding, removing or zeroing"),
        (Laplace(1.0), "add-remove", "Gaussians and Poisson sampled ones"),
        (
            PoissonSampled(0.1, Gaussian(1.0), cap=2, population=9),
            "add-remove",
            "Poisson sampled ones",
        ),
    ],
)
def test_refusals_of_the_limit(event: Event, adjacency: str, reason: str) -> None:
    with pytest.raises(UnsupportedEvent, match=reason):
        gdp.clt_epsilon(event, 1e-5, adjacency)  # type: ignore[arg-type]
