"""One sampled release against its closed form in high precision, as far as there are numbers."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting import Gaussian, GaussianMixture, PoissonSampled, Repeated, bounds, delta
from tacit.accounting.exact.closed_forms import GaussianProfile, MixtureProfile
from tacit.accounting.exact.mean_ratio import RealLine
from tacit.accounting.exact.mixture import MixturePair, MixtureSide


def _truth(rate: float, sigma: float, epsilon: float, *, added: bool) -> mp.mpf:
    with mp.workdps(60):
        q, s, e = mp.mpf(rate), mp.mpf(sigma), mp.mpf(epsilon)
        edge = mp.expm1(-e if added else e) + q
        if edge <= 0:
            return mp.mpf(0)
        x = mp.log(edge / q) * s * s + mp.mpf(1) / 2
        side = -1 if added else 1
        still, moved = (mp.erfc(side * (x - m) / (s * mp.sqrt(2))) / 2 for m in (0, 1))
        sampled = (1 - q) * still + q * moved
        return still - mp.exp(e) * sampled if added else sampled - mp.exp(e) * still


def _profile(rate: float, sigma: float, *, added: bool) -> MixtureProfile:
    sides = MixtureSide((1.0 - rate, rate), (0.0, 1.0)), MixtureSide()
    return MixtureProfile(MixturePair(sigma, *(sides[::-1] if added else sides)))


@pytest.mark.parametrize(
    ("rate", "sigma", "epsilon", "added"),
    [
        (0.42624009112762795, 4.461535369787749, 2.0973580430457086, False),
        (1.2809438376787025e-07, 1.9715150780635624, 0.774736960273176, False),
        (0.5920398000080853, 5.16452071440987, 3.4448227599263204, False),
        (0.9984845962841239, 26.364706026888065, 1.1351819581008735, True),
        (0.9999981120481095, 23774.737472184544, 0.0015198154873772248, True),
        (0.1, 0.04, 750.0, False),
        (0.1, 1.0, 600.0, False),
        (0.1, 1.0, 0.1053, True),
        (0.1, 1.0, 0.2, True),
        (0.3, 1.0, 0.0, True),
    ],
)
def test_a_tail_s_rounding_grows_with_its_distance(
    rate: float, sigma: float, epsilon: float, added: bool
) -> None:
    found = _profile(rate, sigma, added=added).enclose(epsilon)
    assert found.lower <= _truth(rate, sigma, epsilon, added=added) <= found.upper


@pytest.mark.parametrize("added", [False, True])
def test_many_places_of_many_releases(added: bool) -> None:
    random = np.random.default_rng(17)
    for _ in range(60):
        rate, sigma = float(random.uniform(0.01, 1.0)), float(10.0 ** random.uniform(-1.0, 2.0))
        epsilon = float(abs(0.5 / sigma**2 + random.uniform(-3.0, 30.0) / sigma))
        truth = _truth(rate, sigma, epsilon, added=added)
        found = _profile(rate, sigma, added=added).enclose(epsilon)
        assert found.lower <= truth <= found.upper
        assert found.errors.above <= 1e-9 * max(1.0, epsilon) * abs(found.slope) + 1e-290


def test_a_delta_too_small_for_a_number_is_not_nothing() -> None:
    assert GaussianProfile(0.01).enclose(1.0).upper > 0.0
    for count in (1, 2, 3):
        run = Repeated(PoissonSampled(0.1, Gaussian(1.0)), count)
        assert 0.0 < delta(run, 800.0, adjacency="remove-only") < 1e-280
        assert delta(run, 800.0, adjacency="add-only") < 1e-280


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_largest_loss_bounds_the_epsilon_of_the_least_delta(count: int) -> None:
    run = Repeated(PoissonSampled(0.1, Gaussian(1.0)), count)
    largest = -count * math.log1p(-0.1)
    assert bounds(run, 1e-300, "add-only").upper <= largest * (1.0 + 1e-11)
    assert bounds(run, 1e-300, "remove-only").upper > 30.0


@pytest.mark.parametrize("rate", [1e-15, 2.3722481758655325e-12, 0.3, 1.0 - 1e-12])
def test_the_largest_loss_has_the_digits_of_the_rate(rate: float) -> None:
    with mp.workdps(40):
        truth = -mp.log1p(-mp.mpf(rate))
    found = bounds(PoissonSampled(rate, Gaussian(0.1)), 0.0, "add-only")
    assert found.lower <= truth <= found.upper <= truth * (1.0 + 1e-11)
    assert _profile(rate, 0.1, added=True).pair.largest == pytest.approx(float(truth), rel=1e-15)


@pytest.mark.parametrize("count", [8, 16, 54])
def test_a_group_that_is_seldom_left_out_has_its_largest_loss(count: int) -> None:
    # Nobody of the group is drawn with a probability that 1 less the others has not the digits of.
    weights = tuple(math.comb(count, k) * 0.5**count for k in range(count + 1))
    event = GaussianMixture(0.1, weights, tuple(map(float, range(count + 1))))
    largest = count * math.log(2.0)
    found = bounds(event, delta=1e-9, adjacency="add-only")
    assert found.lower <= largest * (1.0 + 1e-12)
    assert largest - 1e-6 <= found.upper <= largest * (1.0 + 1e-11)
    # Next to no noise: the record's absence shows, with the loss of a group that was left out.
    assert delta(event, largest - 0.5, adjacency="add-only") >= -math.expm1(-0.5) * 0.999


@pytest.mark.parametrize(("sigma", "shift"), [(0.2, 3.9), (0.3, 3.9), (0.05, 2.1), (0.5, 20.0)])
def test_a_shift_far_above_the_noise_is_seen(sigma: float, shift: float) -> None:
    # Of quiet noise the loss is flat at ±1, where its direction was looked for: ε was called 0.
    event = GaussianMixture(sigma, (0.5, 0.5), (0.0, shift))
    assert delta(event, 1.0, adjacency="remove-only") >= 0.4999
    assert delta(event, 0.5, adjacency="add-only") >= 0.17
    found = bounds(event, delta=1e-5)
    # The half that is shifted shows by a loss of about ln ½ + (m²/2 ± z·m·σ)/σ².
    assert found.lower >= 0.5 * (shift / sigma) ** 2
    assert found.width <= 1e-8 * found.upper
    sampled = PoissonSampled(0.5, event)
    assert bounds(sampled, delta=1e-5).lower >= 0.5 * (shift / sigma) ** 2


@pytest.mark.parametrize("still", [0.7, 0.3, 1e-9, 1e-17])
def test_a_likelihood_ratio_far_below_one_keeps_its_digits(still: float) -> None:
    weights = still, 0.25, 0.75 - still
    side, x = MixtureSide(weights, (0.0, 1.0, 2.0)), np.linspace(-90.0, 30.0, 41)
    with mp.workdps(40):
        truth = [
            mp.log(sum(weights[m] * mp.exp(m * mp.mpf(at) - mp.mpf(m * m) / 2) for m in range(3)))
            for at in x.tolist()
        ]
    found = side.log_ratio(x, 1.0)
    alone = [side.log_ratio_at(at, 1.0) for at in x.tolist()]
    turned, _ = side.turned(side.terms(x, 1.0), 0.0)
    for at, right in enumerate(map(float, truth)):
        for one in (found[at], alone[at], turned[at]):
            assert one == pytest.approx(right, rel=1e-13, abs=1e-14)


@pytest.mark.parametrize("variance", [0.01, 1.0])
def test_a_likelihood_ratio_off_the_axis_keeps_its_small_terms(variance: float) -> None:
    weights, shifts, angle = (0.7, 0.1, 0.2), (0.0, 1.0, 4.5), 0.3
    x = np.linspace(-3.0, 8.0, 23)
    side = MixtureSide(weights, shifts)
    log_size, turned = side.turned(side.terms(x, variance), angle)
    found = log_size + 1j * turned
    with mp.workdps(40):
        for at, one in zip(x.tolist(), found.tolist(), strict=True):
            place = mp.mpc(at, variance * angle)
            terms = [
                w * mp.exp((m * place - mp.mpf(m) ** 2 / 2) / variance)
                for w, m in zip(weights, shifts, strict=True)
            ]
            truth = complex(mp.log(mp.fsum(terms)))
            assert one.real == pytest.approx(truth.real, rel=1e-12, abs=1e-14)
            # On the branch that is real at angle 0, which is that of the logarithm here.
            assert abs(one.imag - truth.imag) < 1e-12


def test_the_weight_of_the_largest_term_may_be_next_to_nothing() -> None:
    """As that of all of a large group is; its square underflowed."""
    side, x, angle = MixtureSide((1.0, 1e-250), (0.0, 40.0)), np.array([0.0, 29.0, 40.0]), 0.01
    log_size, turned = side.turned(side.terms(x, 1.0), angle)
    with mp.workdps(40):
        for at, size, arg in zip(x.tolist(), log_size.tolist(), turned.tolist(), strict=True):
            truth = mp.log(1 + mp.mpf(1e-250) * mp.exp(40 * mp.mpc(at, angle) - 800))
            assert abs(size - float(truth.real)) <= 1e-12 * max(1.0, abs(size))
            assert abs(arg - float(truth.imag)) <= 1e-12


def test_chords_of_large_powers_of_s_are_not_capped() -> None:
    y = np.array([6.0, 6.5, 7.0])
    line = RealLine(5.0, 2, y, np.zeros(3))
    for z in (0.5, 20.0, 3000.0):
        with mp.workdps(30):
            truth = mp.log((mp.exp(7 * mp.mpf(z)) - mp.exp(6 * mp.mpf(z))) / z)
        assert line._plain(z, y, np.zeros(3)) == pytest.approx(float(truth), rel=1e-12)
