"""Rényi divergences of every event against 40-digit references, in both directions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting import epsilon
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
    PoissonRuns,
    PoissonSampled,
    PrivateSelection,
    PureDp,
    RandomizedResponse,
    RenyiCurve,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedConcentrated,
    TruncatedNegativeBinomial,
    ZeroConcentrated,
)
from tacit.accounting.renyi.curves import tabulated
from tacit.accounting.renyi.profile import renyi_divergence, renyi_profile, selection
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from numpy.typing import NDArray

mp.mp.dps = 40
EXACT = 5e-12  # values are rounded up by 1e-12


def divergence(event: Event, order: float, adjacency: Adjacency = "add-remove") -> float:
    return float(renyi_divergence(event, np.asarray([order]), adjacency, "rdp")[0])


def assert_is(found: float, truth: mp.mpf, tolerance: float = EXACT) -> None:
    """Equal to ``tolerance``, and never below the truth."""
    relative = mp.mpf(found) / truth - 1
    assert -1e-14 < relative < tolerance


def poisson_gaussian(rate: float, sigma: float, order: float, *, reverse: bool = False) -> mp.mpf:
    q, s, a = mp.mpf(rate), 1 / mp.mpf(sigma), mp.mpf(order)
    power = 1 - a if reverse else a

    def integrand(z: mp.mpf) -> mp.mpf:
        return (1 - q + q * mp.exp(s * z - s * s / 2)) ** power * mp.npdf(z)

    reach = abs(power) * s
    low, high = (-reach - 14, 14) if reverse else (-14, reach + 14)
    return mp.log(mp.quad(integrand, mp.linspace(low, high, int(high - low) // 6 + 2))) / (a - 1)


@pytest.mark.parametrize(
    ("rate", "sigma", "order"),
    [
        (0.01, 4.0, 9.3),
        (1e-4, 0.8, 1.7),
        (0.5, 1.0, 1.001),
        (1e-5, 20.0, 60.5),
        (0.08, 3.0, 4.25),
        (0.9, 0.7, 3.5),
    ],
)
def test_poisson_gaussian_at_real_orders(rate: float, sigma: float, order: float) -> None:
    found = divergence(PoissonSampled(rate, Gaussian(sigma)), order)
    assert_is(found, poisson_gaussian(rate, sigma, order))
    # Adding a record is the smaller direction (Mironov, Talwar & Zhang 2019), so removal bounds it.
    assert poisson_gaussian(rate, sigma, order, reverse=True) <= found


@pytest.mark.parametrize("rate", [1e-5, 0.01, 0.7])
@pytest.mark.parametrize("sigma", [0.3, 1.1, 40.0])
@pytest.mark.parametrize("order", [2, 5, 33, 150])
def test_poisson_gaussian_at_whole_orders(rate: float, sigma: float, order: int) -> None:
    q, s = mp.mpf(rate), 1 / mp.mpf(sigma)
    moment = mp.fsum(
        mp.binomial(order, j) * (1 - q) ** (order - j) * q**j * mp.exp(j * (j - 1) * s * s / 2)
        for j in range(order + 1)
    )
    with mp.workdps(60):
        assert_is(
            divergence(PoissonSampled(rate, Gaussian(sigma)), float(order)),
            mp.log(moment) / (order - 1),
        )


def test_poisson_gaussian_means_the_same_when_a_record_is_zeroed() -> None:
    event = PoissonSampled(0.02, Gaussian(2.0))
    assert divergence(event, 7.5, "zero-out") == divergence(event, 7.5, "add-remove")


@pytest.mark.parametrize("distance", [1.0, math.sqrt(2.0), 2.0])
def test_poisson_gaussian_replacing_a_record(distance: float) -> None:
    rate, sigma, order = 0.05, 1.3, 3.7
    q, s, a = mp.mpf(rate), 1 / mp.mpf(sigma), mp.mpf(order)
    back = (1 - mp.mpf(distance)) * s

    def first(z: mp.mpf) -> mp.mpf:
        return 1 - q + q * mp.exp(s * z - s * s / 2)

    def second(z: mp.mpf) -> mp.mpf:
        return 1 - q + q * mp.exp(back * z - back * back / 2)

    def excess(power: mp.mpf, t: mp.mpf) -> mp.mpf:
        return t**power - 1 - power * (t - 1)

    def integrand(z: mp.mpf) -> mp.mpf:
        t = first(z) / second(z)
        return mp.npdf(z) * second(z) * (excess(a, t) + excess(1 - a, t))

    edge = s * (2 - mp.mpf(distance)) / 2
    truth = mp.log1p(mp.quad(integrand, mp.linspace(edge, 2 * a * s + 14, 14))) / (a - 1)
    event = PoissonSampled(rate, Gaussian(sigma, replace_distance=distance))
    assert_is(divergence(event, order, "replace-one"), truth)


def laplace_pair_moment(rate: float, scale: float, order: float, *, reverse: bool) -> mp.mpf:
    """E over the noise around 0 of the sampled ratio to a power, piece by piece."""
    q, b, a = mp.mpf(rate), mp.mpf(scale), mp.mpf(order)
    power = 1 - a if reverse else a

    def integrand(x: mp.mpf) -> mp.mpf:
        ratio = 1 - q + q * mp.exp((abs(x) - abs(x - 1)) / b)
        return ratio**power * mp.exp(-abs(x) / b) / (2 * b)

    return mp.quad(integrand, [-80 * b, -10 * b, 0, mp.mpf(1) / 2, 1, 1 + 10 * b, 1 + 80 * b])


@pytest.mark.parametrize(
    ("rate", "scale", "order"), [(0.01, 1.0, 6.5), (0.3, 0.2, 2.2), (1e-3, 5.0, 50.0)]
)
def test_poisson_laplace_takes_the_worse_direction(rate: float, scale: float, order: float) -> None:
    both = [laplace_pair_moment(rate, scale, order, reverse=flag) for flag in (False, True)]
    truth = mp.log(max(both)) / (mp.mpf(order) - 1)
    assert_is(divergence(PoissonSampled(rate, Laplace(scale)), order), truth)


@pytest.mark.parametrize("scale", [0.05, 1.0, 50.0, 1e5])
@pytest.mark.parametrize("order", [1.0001, 1.5, 8.0, 4000.0])
def test_laplace_closed_form(scale: float, order: float) -> None:
    with mp.workdps(60):
        a, b = mp.mpf(order), mp.mpf(scale)
        moment = a / (2 * a - 1) * mp.exp((a - 1) / b) + (a - 1) / (2 * a - 1) * mp.exp(-a / b)
        truth = mp.log(moment) / (a - 1)
        assert_is(divergence(Laplace(scale), order), truth)


@pytest.mark.parametrize("order", [1.01, 3.3, 500.0])
@pytest.mark.parametrize("loss", [1e-4, 0.5, 12.0])
def test_pure_and_randomised_response(order: float, loss: float) -> None:
    with mp.workdps(60):
        a, e = mp.mpf(order), mp.mpf(loss)
        moment = (mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))
        truth = mp.log(moment) / (a - 1)
        assert_is(divergence(PureDp(loss), order), truth)
        assert_is(divergence(RandomizedResponse(loss), order), truth)
        lie = 1 / (mp.exp(e) + 4)
        five = lie * (mp.exp(a * e) + mp.exp((1 - a) * e) + 3)
        assert_is(divergence(RandomizedResponse(loss, categories=5), order), mp.log(five) / (a - 1))


def lattice_moments(
    weight: dict[int, mp.mpf], shift: int, rate: float, order: float
) -> tuple[mp.mpf, mp.mpf]:
    """E_Q[t^α] and its reverse for noise with these probabilities, shifted and mixed."""
    q, a = mp.mpf(rate), mp.mpf(order)
    both = [
        (p, 1 - q + q * weight[x - shift] / p) for x, p in weight.items() if x - shift in weight
    ]
    return mp.fsum(p * t**a for p, t in both), mp.fsum(p * t ** (1 - a) for p, t in both)


@pytest.mark.parametrize(("sigma", "unit"), [(0.6, 1), (2.0, 3)])
def test_poisson_discrete_gaussian_is_a_sum_over_the_lattice(sigma: float, unit: int) -> None:
    rate, order = 0.1, 2.6
    weight = {x: mp.exp(-(mp.mpf(x) ** 2) / (2 * mp.mpf(sigma) ** 2)) for x in range(-60, 61)}
    total = mp.fsum(weight.values())
    moments = lattice_moments({x: p / total for x, p in weight.items()}, unit, rate, order)
    truth = mp.log(max(moments)) / (mp.mpf(order) - 1)
    assert_is(divergence(PoissonSampled(rate, DiscreteGaussian(sigma, unit)), order), truth)


@pytest.mark.parametrize(("scale", "unit", "rate"), [(0.7, 1, 0.2), (3.0, 4, 0.05), (3.0, 2, 1.0)])
def test_discrete_laplace_is_a_sum_over_the_lattice(scale: float, unit: int, rate: float) -> None:
    order = 3.4
    weight = {x: mp.exp(-abs(mp.mpf(x)) / mp.mpf(scale)) for x in range(-400, 401)}
    total = mp.fsum(weight.values())
    moments = lattice_moments({x: p / total for x, p in weight.items()}, unit, rate, order)
    truth = mp.log(max(moments)) / (mp.mpf(order) - 1)
    assert_is(divergence(PoissonSampled(rate, DiscreteLaplace(scale, unit)), order), truth)


@pytest.mark.parametrize("rate", [1e-14, 1 - 1e-9])
def test_rates_next_to_nothing_and_to_everything(rate: float) -> None:
    order, loss = 5.5, 40.0
    with mp.workdps(60):
        a, q, e = mp.mpf(order), mp.mpf(rate), mp.mpf(loss)
        likely = 1 / (1 + mp.exp(-e))
        up, down = 1 - q + q * mp.exp(e), 1 - q + q * mp.exp(-e)
        moments = [likely * (mp.exp(-e) * up**k + down**k) for k in (a, 1 - a)]
        truth = mp.log(max(moments)) / (a - 1)
    assert_is(divergence(PoissonSampled(rate, PureDp(loss)), order), truth)


@pytest.mark.parametrize("reverse", [False, True])
def test_gaussian_mixture_in_both_directions(reverse: bool) -> None:
    weights, shifts, sigma, order = (0.1, 0.6, 0.3), (0.0, 1.0, 2.5), 1.5, 2.8
    a = mp.mpf(order)

    def integrand(z: mp.mpf) -> mp.mpf:
        moved = [mp.mpf(shift) / sigma for shift in shifts]
        ratio = mp.fsum(
            mp.mpf(weight) * mp.exp(s * z - s * s / 2)
            for weight, s in zip(weights, moved, strict=True)
        )
        return ratio ** (1 - a if reverse else a) * mp.npdf(z)

    truth = mp.log(mp.quad(integrand, mp.linspace(-20, 20, 7))) / (a - 1)
    found = divergence(GaussianMixture(sigma, weights, shifts), order)
    assert found >= truth * (1 - mp.mpf(10) ** -14)
    if not reverse:  # the larger direction here
        assert_is(found, truth)


def test_a_mixture_that_moves_nothing_reveals_nothing() -> None:
    still = GaussianMixture(2.0, (0.5, 0.5), (0.0, 0.0))
    for adjacency in ("add-remove", "replace-one"):
        assert divergence(still, 3.0, adjacency) == 0.0
        assert divergence(PoissonSampled(0.1, still), 3.0, adjacency) == 0.0


def test_sampled_mixture_is_a_mixture() -> None:
    pair = GaussianMixture(2.0, (0.25, 0.75), (0.0, 1.0))
    flat = GaussianMixture(2.0, (0.925, 0.075), (0.0, 1.0))
    assert divergence(PoissonSampled(0.1, pair), 6.2) == pytest.approx(
        divergence(flat, 6.2), rel=1e-11
    )


@pytest.mark.parametrize("loss", [1e-3, 0.5, 4.0])
@pytest.mark.parametrize("order", [1.2, 3.0, 64.0])
def test_bounded_range_is_the_worst_two_point_pair(loss: float, order: float) -> None:
    a, e = mp.mpf(order), mp.mpf(loss)

    def moment(t: mp.mpf) -> mp.mpf:
        p = (mp.exp(e) - mp.exp(t)) / mp.expm1(e)
        return p * mp.exp((a - 1) * t) + (1 - p) * mp.exp((a - 1) * (t - e))

    grid = [e * k / 400 for k in range(401)]
    best = max(grid, key=moment)
    found = divergence(Exponential(loss), order)
    truth = mp.log(moment(best)) / (a - 1)
    assert -1e-13 < mp.mpf(found) / truth - 1 < 1e-3
    assert found <= order * loss * loss / 8 * (1 + 1e-11)


def test_concentrated_events() -> None:
    assert divergence(ZeroConcentrated(0.3), 5.0) == pytest.approx(1.5)
    assert divergence(TruncatedConcentrated(0.3, 6.0), 5.0) == pytest.approx(1.5)
    assert divergence(TruncatedConcentrated(0.3, 6.0), 6.0) == math.inf


def test_a_tabulated_curve_bounds_the_one_it_was_taken_from() -> None:
    orders = (1.5, 2.0, 4.0, 16.0)
    event = RenyiCurve(orders, tuple(divergence(Laplace(1.0), order) for order in orders))
    for order in (1.1, 1.5, 1.7, 2.0, 3.0, 4.0, 9.0, 16.0):
        truth = divergence(Laplace(1.0), order)
        assert divergence(event, order) >= truth * (1 - 1e-14)
        if order in orders:
            assert divergence(event, order) == pytest.approx(truth, rel=1e-12)
    assert divergence(event, 3.0) < divergence(Laplace(1.0), 4.0)  # sharper than monotonicity
    assert divergence(event, 16.1) == math.inf


def test_a_tabulated_value_never_exceeds_a_later_one() -> None:
    assert divergence(RenyiCurve((2.0, 3.0), (5.0, 1.0)), 2.0) == 1.0


@pytest.mark.parametrize(
    "base", [ZeroConcentrated(0.125), Composed(Gaussian(3.0), Gaussian(2.0, 1.0))]
)
@pytest.mark.parametrize("order", [2.0, 5.5, 20.0])
def test_sampling_a_curve_bounds_sampling_the_gaussian_behind_it(base: Event, order: float) -> None:
    sigma = 2.0 if isinstance(base, ZeroConcentrated) else (1.0 / 9.0 + 1.0 / 4.0) ** -0.5
    exact = divergence(PoissonSampled(0.05, Gaussian(sigma)), order)
    bound = divergence(PoissonSampled(0.05, base), order)
    assert exact <= bound * (1 + 1e-11)
    assert bound < divergence(base, order)


def test_fixed_size_adding_is_poisson_at_the_replace_distance() -> None:
    fixed = SampledWithoutReplacement(1000, 10, Gaussian(4.0, replace_distance=2.0))
    assert divergence(fixed, 5.5) == divergence(PoissonSampled(0.01, Gaussian(2.0)), 5.5)


def test_fixed_size_zeroing_is_replacing_at_no_less_than_one() -> None:
    near = SampledWithoutReplacement(1000, 10, Gaussian(4.0, replace_distance=0.5))
    unit = SampledWithoutReplacement(1000, 10, Gaussian(4.0, replace_distance=1.0))
    assert divergence(near, 5.5, "zero-out") == divergence(unit, 5.5, "replace-one")
    assert divergence(near, 5.5, "replace-one") < divergence(near, 5.5, "zero-out")


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
def test_events_that_are_their_own_pair_ignore_the_adjacency(adjacency: Adjacency) -> None:
    for event in (PureDp(0.3), RandomizedResponse(0.3, categories=4), ZeroConcentrated(0.1)):
        assert divergence(event, 3.0, adjacency) == divergence(event, 3.0)


def test_replacing_moves_noise_by_the_replace_distance() -> None:
    assert divergence(Gaussian(4.0, 2.0), 3.0, "replace-one") == pytest.approx(3.0 / 8.0)
    assert divergence(Laplace(4.0, 2.0), 3.0, "replace-one") == divergence(Laplace(2.0), 3.0)
    assert divergence(DiscreteLaplace(4.0, 3, 2.0), 3.0, "replace-one") == divergence(
        DiscreteLaplace(4.0, 6), 3.0
    )


def test_composition_adds() -> None:
    parts = (PoissonSampled(0.1, Gaussian(2.0)), Laplace(3.0), PureDp(0.1))
    whole = Composed(Repeated(parts[0], 3), Repeated(Composed(*parts[1:]), 2))
    expected = 3 * divergence(parts[0], 4.4) + 2 * sum(divergence(part, 4.4) for part in parts[1:])
    assert divergence(whole, 4.4) == pytest.approx(expected, rel=1e-14)
    assert divergence(Composed(), 4.4) == 0.0


def test_failures_are_kept_apart() -> None:
    event = Composed(Repeated(ApproxDp(0.1, 1e-3), 5), PoissonSampled(0.5, ApproxDp(0.2, 1e-2)))
    profile = renyi_profile(event, "add-remove", "rdp")
    assert profile.mass == pytest.approx(1 - (1 - 1e-3) ** 5 * (1 - 5e-3), rel=1e-12)
    order = np.asarray([3.0])
    pure = Composed(Repeated(PureDp(0.1), 5), PureDp(math.log1p(0.5 * math.expm1(0.2))))
    assert profile.curve(order) == pytest.approx(renyi_divergence(pure, order, "add-remove", "rdp"))
    assert divergence(event, 3.0) == math.inf


def test_truncated_poisson_is_charged_its_chance_of_being_cut() -> None:
    event = PoissonSampled(0.1, Gaussian(2.0), cap=3, population=10)
    tail = sum(math.comb(10, k) * 0.1**k * 0.9 ** (10 - k) for k in range(4, 11))
    profile = renyi_profile(Repeated(event, 7), "add-remove", "rdp")
    assert profile.truncation == pytest.approx(7 * tail, rel=1e-8)
    assert profile.truncation >= 7 * tail
    assert divergence(event, 2.0) == math.inf


@pytest.mark.parametrize(
    "event",
    [
        Exponential(4.3),
        Laplace(0.7),
        RandomizedResponse(1.2, categories=3),
        PoissonSampled(0.9, PureDp(4.3)),
        PoissonSampled(0.01, Laplace(2.0)),
        PoissonSampled(0.01, Gaussian(0.8)),
    ],
)
def test_divergences_rise_with_the_order_up_to_the_largest(event: Event) -> None:
    found = renyi_divergence(event, 1.0 + np.geomspace(1e-9, 1e15, 100), "add-remove", "rdp")
    assert found[0] > 0.0
    assert np.all(np.diff(found) >= -1e-7 * found[1:])


def test_huge_and_tiny_settings_stay_finite() -> None:
    for event in (
        PureDp(1e7),
        PoissonSampled(0.5, PureDp(1e7)),
        PoissonSampled(0.5, Laplace(1e-7)),
        PoissonSampled(1e-12, Gaussian(0.01)),
        PoissonSampled(0.3, Gaussian(1e-3)),
        PoissonSampled(0.5, DiscreteLaplace(10.0, 10**6)),
        SampledWithoutReplacement(10, 9, Gaussian(1e-2)),
    ):
        found = renyi_divergence(
            event, np.asarray([1.0 + 1e-9, 1.5, 7.7, 1e4]), "add-remove", "rdp"
        )
        assert np.all(np.isfinite(found))
        assert np.all(found >= 0.0)
        assert np.all(np.diff(found) >= -1e-6 * found[1:])


def test_refusals_name_the_event_and_the_accountant() -> None:
    drawn = SampledWithReplacement(10, 2, Gaussian(1.0))
    with pytest.raises(
        UnsupportedEvent, match=r"'odd' does not support SampledWithReplacement\(pop"
    ):
        renyi_divergence(Composed(Gaussian(1.0), drawn), np.asarray([2.0]), "add-remove", "odd")
    nested = PoissonSampled(
        0.5, Composed(Laplace(1.0), PoissonSampled(0.1, Gaussian(1.0), cap=3, population=9))
    )
    with pytest.raises(UnsupportedEvent, match="truncated Poisson sample lies inside a sample"):
        renyi_divergence(nested, np.asarray([2.0]), "add-remove", "rdp")


def _moment_of_selection(
    p: NDArray[np.float64], q: NDArray[np.float64], mean: float, order: float
) -> float:
    """E[t^α] of the best of a Poisson number of runs, outcomes in falling order of score."""
    better_p, better_q = np.cumsum(p) - p, np.cumsum(q) - q
    released = np.exp(-mean * better_p) * -np.expm1(-mean * p)
    other = np.exp(-mean * better_q) * -np.expm1(-mean * q)
    return math.exp(-mean) + float((released**order * other ** (1.0 - order)).sum())


def test_poisson_runs_by_enumeration() -> None:
    """The proof's bound against random pairs, of which some come close: it would not bear less."""
    random = np.random.default_rng(7)
    closest = 0.0
    for _ in range(2000):
        p, q = random.dirichlet(np.full(4, 0.7), 2)
        mean, order = float(random.uniform(0.3, 12.0)), float(random.uniform(1.05, 8.0))
        level = order / (order - 1.0)
        moment = float((p**order * q ** (1.0 - order)).sum())
        gap = float(np.maximum(q - level * p, 0.0).sum())
        curve = RenyiCurve((order,), (math.log(moment) / (order - 1.0),))
        found = selection(PoissonRuns(mean), tabulated(curve), lambda _, gap=gap: gap)  # type: ignore[misc]
        bound = float(found(np.array([order]))[0]) * (order - 1.0)
        truth = math.log(_moment_of_selection(p, q, mean, order))
        assert truth <= bound * (1 + 1e-9) + 1e-12
        closest = max(closest, truth / bound)
    assert closest > 0.9


def test_curves_of_selections_rise() -> None:
    orders = 1.0 + np.geomspace(1e-3, 1e4, 60)
    for runs in (TruncatedNegativeBinomial(0.5, 0.01), PoissonRuns(1.0), PoissonRuns(20.0)):
        found = renyi_divergence(PrivateSelection(Gaussian(5.0), runs), orders, "add-remove", "rdp")
        assert (np.diff(found) >= -1e-9 * found[1:]).all()
    once = PrivateSelection(Gaussian(5.0), TruncatedNegativeBinomial(0.5, 1.0))
    assert epsilon(once, 1e-6) == epsilon(Gaussian(5.0), 1e-6)
