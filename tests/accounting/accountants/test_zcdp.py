"""Concentrated privacy: ρ's, the subsampling theorem and its conditions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.accounting.accountants import rdp, zcdp
from tacit.accounting.accountants.zcdp import concentrated
from tacit.accounting.events import (
    Adjacency,
    ApproxDp,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    GaussianMixture,
    Laplace,
    PoissonSampled,
    PureDp,
    RandomizedResponse,
    RenyiCurve,
    Repeated,
    SampledWithoutReplacement,
    TruncatedConcentrated,
    ZeroConcentrated,
)
from tacit.accounting.renyi.curves import linear, of_pair
from tacit.accounting.renyi.pairs import GaussianPair, two_gaussians
from tacit.accounting.renyi.profile import renyi_divergence
from tacit.errors import UnsupportedEvent


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    "event",
    [
        Gaussian(2.0),
        DiscreteGaussian(3.0, 2),
        GaussianMixture(2.0, (0.5, 0.5), (0.0, 1.0)),
        Laplace(1.5),
        DiscreteLaplace(2.0, 3),
        RandomizedResponse(1.3),
        PureDp(0.01),
        PureDp(6.0),
        Exponential(1.1),
        ZeroConcentrated(0.3),
    ],
)
def test_rho_bounds_every_order(event: Event, adjacency: Adjacency) -> None:
    if isinstance(event, GaussianMixture) and adjacency == "replace-one":
        with pytest.raises(UnsupportedEvent, match="under add-remove only"):
            concentrated(event, adjacency)
        return
    orders = 1.0 + np.geomspace(1e-4, 1e4, 60)
    rho = concentrated(event, adjacency).rho
    divergences = renyi_divergence(event, orders, adjacency, "rdp")
    assert np.all(divergences <= rho * orders * (1 + 1e-10))
    assert rho <= 60.0 * np.max(divergences / orders)


def test_pure_privacy_has_the_sharp_rho() -> None:
    assert concentrated(PureDp(2.0), "add-remove").rho == pytest.approx(2.0 * math.tanh(1.0))
    order = np.asarray([1.0 + 1e-7])
    sharp = renyi_divergence(PureDp(2.0), order, "add-remove", "rdp")[0]
    assert concentrated(PureDp(2.0), "add-remove").rho == pytest.approx(sharp, rel=1e-6)


def test_composition_adds_rho_and_keeps_the_smallest_omega() -> None:
    event = Composed(
        Repeated(TruncatedConcentrated(0.1, 9.0), 3), TruncatedConcentrated(0.2, 5.0), Gaussian(1.0)
    )
    total = concentrated(event, "add-remove")
    assert total.rho == pytest.approx(1.0)
    assert total.omega == 5.0
    assert zcdp.epsilon(event, 1e-5, "add-remove") == pytest.approx(
        rdp.epsilon(event, 1e-5, "add-remove"), rel=1e-6
    )


def test_gaussians_agree_with_rdp() -> None:
    event = Repeated(Gaussian(20.0), 1000)
    assert zcdp.epsilon(event, 1e-6, "add-remove") == pytest.approx(8.845889, abs=1e-6)
    assert zcdp.delta(event, 8.845889348, "add-remove") == pytest.approx(1e-6, rel=1e-6)


def test_failures_are_added() -> None:
    event = Repeated(ApproxDp(0.1, 1e-9), 1000)
    assert zcdp.epsilon(event, 0.9e-6, "add-remove") == math.inf
    pure = zcdp.epsilon(Repeated(PureDp(0.1), 1000), 9e-6, "add-remove")
    assert zcdp.epsilon(event, 1e-5, "add-remove") == pytest.approx(pure, rel=1e-6)


@pytest.mark.parametrize(("gamma", "rho"), [(0.1, 0.05), (0.01, 0.1), (1e-4, 0.02), (0.01, 1e-3)])
def test_the_subsampling_theorem_bounds_the_exact_curve(gamma: float, rho: float) -> None:
    step = SampledWithoutReplacement(10**6, round(gamma * 10**6), ZeroConcentrated(rho))
    found = concentrated(step, "replace-one")
    assert found.rho == pytest.approx(13.0 * gamma**2 * rho)
    assert found.omega == pytest.approx(math.log(1.0 / gamma) / (4.0 * rho))
    orders = np.geomspace(1.01, 0.999 * found.omega, 25)
    pair = GaussianPair(two_gaussians(gamma, math.sqrt(2.0 * rho)))
    exact = of_pair(pair, "folded", linear(math.inf))(orders)
    assert np.all(exact <= found.rho * orders)


SIZE = 10**4


@pytest.mark.parametrize(
    ("event", "adjacency", "reason"),
    [
        (
            SampledWithoutReplacement(10**6, SIZE, Gaussian(4.0)),
            "replace-one",
            r"rho = 0\.125 is above 0\.1",
        ),
        (
            SampledWithoutReplacement(10**4, 2000, Gaussian(9.0)),
            "replace-one",
            r"= 0\.2 is above 0\.1",
        ),
        (SampledWithoutReplacement(10**6, SIZE, Gaussian(9.0)), "add-remove", "not 'replace-one'"),
        (
            SampledWithoutReplacement(10**3, 10, TruncatedConcentrated(0.05, 10.0, "replace-one")),
            "replace-one",
            r"omega = 10 is below ln\(1/gamma\)/\(2·rho\) = 46\.0517",
        ),
        (PoissonSampled(0.01, Gaussian(9.0)), "replace-one", "fixed-size samples, not Poisson"),
        (RenyiCurve((2.0,), (1.0,)), "add-remove", "bounds no ρ"),
    ],
)
def test_outside_its_conditions_it_refuses(event: Event, adjacency: Adjacency, reason: str) -> None:
    with pytest.raises(UnsupportedEvent, match=reason) as refusal:
        zcdp.epsilon(Composed(Gaussian(1.0), event), 1e-5, adjacency)
    assert refusal.value.event == event
    assert refusal.value.accountant == "zcdp"


def test_a_sampled_run_converts() -> None:
    run = Repeated(SampledWithoutReplacement(10**6, SIZE, Gaussian(8.0)), 10**4)
    exact_order = zcdp.epsilon(run, 1e-5, "replace-one")
    assert rdp.epsilon(run, 1e-5, "replace-one") < exact_order < 5.0
