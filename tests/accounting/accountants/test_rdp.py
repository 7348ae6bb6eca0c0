"""Rényi accounting: the peers' table, fixed-size samples, failures and truncated samples."""

from __future__ import annotations

import math

import pytest

from tacit.accounting.accountants import exact, gdp, rdp
from tacit.accounting.events import (
    ApproxDp,
    Composed,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDp,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
)
from tacit.accounting.renyi.curves import epsilon_of_curve, total
from tacit.accounting.renyi.sampling import fixed_size_gaussian
from tacit.errors import UnsupportedEvent


def run(rate: float, sigma: float, steps: int) -> Event:
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


ROWS = {
    "a": (run(0.01, 4.0, 10_000), 1e-5, 1.0355, 0.9468668008),
    "b": (run(0.01, 5.0, 1_000), 1e-6, 0.27106, 0.2490260117),
    "c": (run(256 / 60_000, 1.1, 14_062), 1e-5, 2.5966, 2.381596921),
    "d": (run(4096 / 50_000, 3.0, 2_468), 1e-5, 7.0458, 6.529280107),
    "e": (run(1.0, 20.0, 1_000), 1e-6, 8.8459, 8.306225050),
    "f": (run(1e-4, 0.8, 10**6), 1e-8, 1.7374, 1.001769440),
    "h1": (Repeated(Laplace(50.0), 10_000), 1e-6, 11.638, 10.9499134908),
    "h2": (Repeated(RandomizedResponse(0.1), 1_000), 1e-6, 20.450, 19.344671),
    "k1": (run(0.01, 1.0, 1_000), 1e-12, 4.35, 3.914298156),
    "k2": (run(0.1, 0.7, 1_000), 1e-5, 58.07, 54.02418463),
    "k3": (run(1.0, 0.5, 10), 1e-12, 65.73, 63.81873029),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_peers_table(name: str) -> None:
    event, delta, best_peer, truth = ROWS[name]
    found = rdp.epsilon(event, delta, "add-remove")
    assert truth < found < best_peer + 5e-3
    if name in "abcdef" or name.startswith("h"):
        assert found < best_peer + 1e-3
    assert rdp.delta(event, found, "add-remove") == pytest.approx(delta, rel=1e-6)


def test_the_oracle_of_row_b() -> None:
    assert rdp.epsilon(run(0.01, 5.0, 1_000), 1e-6, "add-remove") <= 0.27106


@pytest.mark.parametrize(
    ("distance", "published", "low", "high"),
    [(1.0, 2.221058, 0.946, 1.3), (2.0, 5.136833, 2.56, 2.79)],
)
def test_sampling_without_replacement_oracles(
    distance: float, published: float, low: float, high: float
) -> None:
    """The published theorem as published, and the folded pair, which is sharper."""
    theorem = total(((fixed_size_gaussian(0.01, distance / 4.0), 10**4),))
    assert epsilon_of_curve(theorem, 1e-5) == pytest.approx(published, abs=1e-6)
    step = SampledWithoutReplacement(10**6, 10**4, Gaussian(4.0, replace_distance=distance))
    found = rdp.epsilon(Repeated(step, 10**4), 1e-5, "replace-one")
    assert low < exact.epsilon(Repeated(step, 10**4), 1e-5, "replace-one") < found < high


def test_poisson_replacing_stays_above_the_truth() -> None:
    found = rdp.epsilon(run(0.01, 4.0, 10_000), 1e-5, "replace-one")
    assert 1.993120 < found < 2.2


def test_monotone_in_everything() -> None:
    def epsilon(rate: float, sigma: float, steps: int, delta: float) -> float:
        return rdp.epsilon(run(rate, sigma, steps), delta, "add-remove")

    base = epsilon(0.02, 1.5, 500, 1e-6)
    assert epsilon(0.021, 1.5, 500, 1e-6) > base
    assert epsilon(0.02, 1.6, 500, 1e-6) < base
    assert epsilon(0.02, 1.5, 510, 1e-6) > base
    assert epsilon(0.02, 1.5, 500, 2e-6) < base


def test_gaussians_stay_above_the_exact_answer() -> None:
    event = Repeated(Gaussian(3.0), 7)
    for delta in (1e-300, 1e-30, 1e-5, 0.1):
        assert gdp.epsilon(event, delta, "add-remove") <= rdp.epsilon(event, delta, "add-remove")


def test_failures_are_added_to_delta() -> None:
    event = Repeated(ApproxDp(0.1, 1e-9), 1000)
    found = rdp.epsilon(event, 1e-5, "add-remove")
    assert 17.868708 < found < 20.0
    left = 1e-5 - 1e-6
    assert found == pytest.approx(
        rdp.epsilon(Repeated(PureDp(0.1), 1000), left, "add-remove"), rel=1e-5
    )
    assert rdp.epsilon(event, 0.99e-6, "add-remove") == math.inf
    assert rdp.delta(event, 1e3, "add-remove") == pytest.approx(1e-6, rel=1e-3)


def test_a_cut_sample_is_charged() -> None:
    plain = run(0.01, 4.0, 1000)
    cut = [
        Repeated(PoissonSampled(0.01, Gaussian(4.0), cap=cap, population=50_000), 1000)
        for cap in (700, 650, 640, 600)
    ]
    epsilons = [rdp.epsilon(event, 1e-5, "add-remove") for event in (plain, *cut)]
    assert epsilons == sorted(epsilons)
    assert epsilons[1] == pytest.approx(epsilons[0], rel=1e-6)
    assert epsilons[3] > 1.01 * epsilons[0]
    assert epsilons[4] == math.inf


def test_extremes() -> None:
    assert rdp.epsilon(Composed(), 1e-5, "add-remove") == 0.0
    assert rdp.delta(Composed(), 0.0, "add-remove") == 0.0
    assert 9e6 < rdp.epsilon(Repeated(PureDp(10.0), 10**6), 1e-5, "add-remove") <= 1e7
    assert math.isfinite(rdp.epsilon(run(0.01, 4.0, 10**6), 1e-30, "add-remove"))
    assert rdp.delta(Gaussian(1e-3), 0.5, "add-remove") == 1.0


def test_refusal_names_event_and_accountant() -> None:
    with pytest.raises(UnsupportedEvent, match="'rdp' does not support SampledWithReplacement"):
        rdp.epsilon(SampledWithReplacement(10, 2, Gaussian(1.0)), 1e-5, "add-remove")
