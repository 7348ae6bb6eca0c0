"""Random allocation: brackets against 20-digit references, an FFT of S's law, and samples of it."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from tacit.accounting import (
    Composed,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomAllocation,
    Repeated,
    bounds,
    calibrate,
    delta,
    epsilon,
    from_json,
    to_json,
)
from tacit.accounting.exact import allocation
from tacit.accounting.exact.allocation import (
    AllocationLoss,
    TiltedAllocation,
)
from tacit.accounting.exact.mean_ratio import (
    line_of,
    log1p_less,
    log_moments,
    moment_error,
    on_ray,
    remainder,
    spacing,
)
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting import Adjacency, Event

_REFERENCE = json.loads((Path(__file__).parents[1] / "reference/allocation.json").read_text())
_SETTINGS: list[dict[str, Any]] = _REFERENCE["settings"]


def event_of(setting: dict[str, Any]) -> RandomAllocation:
    return RandomAllocation(setting["steps"], Gaussian(setting["sigma"]), setting["epochs"])


def name_of(setting: dict[str, Any]) -> str:
    sigma, steps, epochs = setting["sigma"], setting["steps"], setting["epochs"]
    return f"s={sigma:.3g},t={steps},E={epochs},d={setting['delta']:.1e}"


# ---- the reference


def test_enough_settings_are_recorded() -> None:
    assert len(_SETTINGS) >= 130


_OFTEN = [
    pytest.param(one, marks=() if at % 4 == 0 else pytest.mark.slow, id=name_of(one))
    for at, one in enumerate(_SETTINGS)
]


@pytest.mark.parametrize("setting", _OFTEN)
def test_the_reference_lies_within(setting: dict[str, Any]) -> None:
    found = bounds(event_of(setting), delta=setting["delta"])
    assert found.two_sided or setting["epsilon"] == "0"
    assert Decimal(found.lower) <= Decimal(setting["epsilon"]) <= Decimal(found.upper)
    assert found.width <= 1e-6
    assert epsilon(event_of(setting), setting["delta"]) <= found.upper * (1 + 1e-12)


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "total", "truth"),
    [
        (1.0, 8, 1, 1e-8, 3.71852081541),
        (1.0, 64, 1, 1e-8, 1.79866178827),
        (0.65, 98, 20, 1e-5, 7.32460267502),
        (0.6, 234, 3, 1e-6, 4.11757308977),
    ],
)
def test_the_issues_figures(
    sigma: float, steps: int, epochs: int, total: float, truth: float
) -> None:
    found = bounds(RandomAllocation(steps, Gaussian(sigma), epochs), delta=total)
    assert found.upper == pytest.approx(truth, abs=2e-10)
    assert found.width < 1e-9


@pytest.mark.parametrize(
    "setting", [one for one in _SETTINGS if one["steps"] >= 1_000], ids=name_of
)
def test_many_steps_either_way(setting: dict[str, Any]) -> None:
    """One large loss may decide, which no power of S that can be had is apt for."""
    for way, name in (("remove-only", "epsilon_remove"), ("add-only", "epsilon_add")):
        found = bounds(event_of(setting), setting["delta"], way)  # type: ignore[arg-type]
        assert found.two_sided
        assert Decimal(found.lower) <= Decimal(setting[name]) <= Decimal(found.upper)
        assert found.width <= 5e-7


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs"), [(1.24, 4_422, 95), (0.86, 9_552, 23), (7.39, 62, 16)]
)
def test_what_is_between_the_settings_of_a_grid_has_its_digits_too(
    sigma: float, steps: int, epochs: int
) -> None:
    found = bounds(RandomAllocation(steps, Gaussian(sigma), epochs), delta=1e-8)
    assert found.two_sided
    assert found.width <= 1e-6


# ---- an oracle of another kind: the law of S by Fourier transform, and its convolutions


def density(sigma: float, steps: int, nodes: NDArray[np.float64]) -> NDArray[np.float64]:
    """P's density of ln S at the nodes: the inverse Fourier transform of E[S²·exp(iωS)]."""
    shift = min(0.5 * math.pi * sigma, 0.8)
    z = np.arange(-10.0, 10.0, 0.05)
    weights = 0.05 / math.sqrt(2.0 * math.pi) * np.exp(-0.5 * (z + 1j * shift) ** 2)
    x = np.exp((z + 1j * shift) / sigma - 0.5 / sigma**2)

    def phi(omega: NDArray[np.float64]) -> NDArray[np.complex128]:
        parts = np.array_split(omega, max(1, len(omega) // 2000))
        return np.concatenate([np.exp(1j * np.outer(one, x)) @ weights for one in parts])

    last = 24.0 * sigma * math.sqrt(steps)
    omega = np.arange(0.0, last, math.pi / math.exp(nodes[-1] + 0.7))
    grow = math.exp(sigma**-2)
    base, one, two = (phi(omega * factor / steps) for factor in (1.0, grow, grow**2))
    found = (grow * two * base ** (steps - 1) + (steps - 1) * one**2 * base ** (steps - 2)) / steps
    found[0] *= 0.5
    step = omega[1] / math.pi
    return np.array(
        [step * float((found * np.exp(-1j * omega * math.exp(l))).real.sum()) for l in nodes]
    )


def delta_by_fourier(sigma: float, steps: int, epochs: int, losses: float) -> float:
    """δ(ε) of the composed law of ln S under P, by a fast Fourier transform."""
    spread = 1.0 / (sigma * math.sqrt(steps))
    grid = 0.3 * spread
    top = 0.5 / sigma**2 + 7.6 / sigma - math.log(steps)
    first = math.floor((-0.5 / sigma**2 - 9.0 * spread) / grid)
    last = math.ceil(max(top, math.log(1.0 + 14.0 * spread) + 12.0 * spread) / grid)
    nodes = (grid * np.arange(first, last + 1)).astype(np.float64)
    masses = np.maximum(density(sigma, steps, nodes), 0.0) * grid
    assert masses.sum() == pytest.approx(1.0, abs=1e-10)
    size = 1 << math.ceil(math.log2(epochs * len(nodes)))
    composed = np.fft.irfft(np.fft.rfft(masses, size) ** epochs, size)
    place = grid * (epochs * first + np.arange(size))
    # Above ε the integrand has a kink, which the rule smooths: a contour through a small tilt does.
    tilt, period = 0.5, 90.0
    u = (
        2.0
        * math.pi
        / period
        * np.arange(math.ceil(9.0 / (spread * math.sqrt(epochs)) * period / 6.28))
    )
    values = np.array(
        [(composed * np.exp((tilt + 1j * one) * (place - losses))).sum() for one in u]
    )
    kernel = values / ((tilt + 1j * u) * (tilt + 1.0 + 1j * u))
    kernel[0] *= 0.5
    return float(2.0 / period * kernel.real.sum())


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "total"),
    [
        (1.0, 64, 1, 1e-6),
        (1.5, 30, 8, 1e-5),
        pytest.param(1.0, 16, 1, 1e-5, marks=pytest.mark.slow),
        pytest.param(0.9, 20, 3, 1e-5, marks=pytest.mark.slow),
    ],
)
def test_a_fourier_transform_of_the_law_agrees(
    sigma: float, steps: int, epochs: int, total: float
) -> None:
    found = bounds(RandomAllocation(steps, Gaussian(sigma), epochs), delta=total)
    assert delta_by_fourier(sigma, steps, epochs, found.upper) == pytest.approx(total, rel=2e-6)


def sampled_delta(
    sigma: float, steps: int, epochs: int, loss: float, tilts: tuple[float, float]
) -> tuple[float, float]:
    """δ(ε) under P by sampling, with its standard error.

    The record's Z is moved up by the first tilt in one epoch, or by the second in all.
    """
    random, values, ways = np.random.default_rng(3), [], (0.4, 0.5, 0.1)
    size = 1_000_000 // (steps * epochs)
    for _ in range(200_000 // size):
        z = random.standard_normal((size, epochs, steps))
        z[:, :, 0] += 1.0 / sigma
        way, epoch = random.choice(3, size, p=ways), random.integers(epochs, size=size)
        rows = np.arange(size)[way == 0]
        z[rows, epoch[rows], 0] += tilts[0]
        z[way == 1, :, 0] += tilts[1]
        base, one, every = (
            np.log(np.exp(a * z - 0.5 * a * a).mean(axis=2))
            for a in (1.0 / sigma, 1.0 / sigma + tilts[0], 1.0 / sigma + tilts[1])
        )
        odds = ways[0] * np.exp(one - base).mean(axis=1) + ways[2]
        odds += ways[1] * np.exp((every - base).sum(axis=1))
        values.append(-np.expm1(np.minimum(loss - base.sum(axis=1), 0.0)) / odds)
    found = np.concatenate(values)
    return float(found.mean()), float(found.std()) / math.sqrt(len(found))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "total", "tilts", "other"),
    # The last is the three-digit figure that was published for the setting: it is too small.
    [
        (1.0, 8, 1, 1e-8, (5.5, 4.0), None),
        (0.6, 234, 3, 1e-6, (4.0, 2.0), 4.08),
        (0.65, 98, 20, 1e-5, (3.5, 1.2), 7.27),
    ],
)
def test_samples_agree(
    sigma: float,
    steps: int,
    epochs: int,
    total: float,
    tilts: tuple[float, float],
    other: float | None,
) -> None:
    loss = epsilon(RandomAllocation(steps, Gaussian(sigma), epochs), total)
    mean, error = sampled_delta(sigma, steps, epochs, loss, tilts)
    assert abs(mean - total) < 5.0 * error
    if other is not None:
        mean, error = sampled_delta(sigma, steps, epochs, other, tilts)
        assert mean - total > 4.0 * error


# ---- moments


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 8), (0.5, 100), (3.0, 1000), (0.45, 20)])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_complex_orders_meet_the_whole_moments(sigma: float, steps: int, order: int) -> None:
    loss = AllocationLoss(sigma, steps, removed=True)
    tilted = TiltedAllocation(loss, order - 1.0, 5.0 / loss.spread)
    error = tilted.log_mgf_error
    assert (
        abs(tilted.log_mgf - log_moments(sigma, steps)[order]) <= error.quadrature + error.rounding
    )


@pytest.mark.parametrize(("sigma", "steps", "tilt"), [(1.0, 8, 3.0), (2.0, 64, 30.0)])
def test_negative_orders_meet_an_integral_over_the_real_line(
    sigma: float, steps: int, tilt: float
) -> None:
    loss = AllocationLoss(sigma, steps, removed=False)
    found = TiltedAllocation(loss, tilt, 2.0 * tilt).log_mgf
    z = np.linspace(-10.0, 10.0, 801)
    weight = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * 0.025
    x = np.exp(z / sigma - 0.5 / sigma**2)
    y = np.linspace(math.log(tilt) - 14.0, math.log(tilt) + 6.0, 3000)
    log_power = steps * np.log(np.exp(-np.outer(np.exp(y) / steps, x)) @ weight)
    total = np.exp(log_power + tilt * y - math.lgamma(tilt)).sum() * (y[1] - y[0])
    assert found == pytest.approx(math.log(total), abs=1e-10)


def test_kernels_keep_their_digits() -> None:
    """What exp(-u) and ln(1 + q) have beyond their first terms, against 80 digits."""
    random = np.random.default_rng(0)
    u = 10.0 ** random.uniform(-9, 2.5, 150) * np.exp(1j * math.pi * (random.random(150) - 0.5))
    q = 10.0 ** random.uniform(-9, 0.5, 150) * np.exp(2j * math.pi * random.random(150))
    found, sizes = log1p_less(q)
    with mpmath.workdps(80):
        for degree in (0, 1, 2):
            for at, value in zip(u.tolist(), remainder(u, degree).tolist(), strict=True):
                z = mpmath.mpc(at)
                less = sum((-z) ** k / mpmath.factorial(k) for k in range(degree + 1))
                exact = mpmath.exp(-z) - less
                assert abs(exact - value) <= 40 * 2.0**-53 * abs(exact)
        for at, value, size in zip(q.tolist(), found.tolist(), sizes.tolist(), strict=True):
            exact = mpmath.log(1 + mpmath.mpc(at)) - at
            assert abs(exact - value) <= 4 * 2.0**-53 * size


@pytest.mark.parametrize("sigma", [0.15, 0.3, 0.6, 1.0, 5.0])
@pytest.mark.parametrize("order", [0, 4])
def test_the_nodes_reach_far_enough_for_two_moments(sigma: float, order: int) -> None:
    """A record that is added has no power of S, and yet E[X] and E[X²] are taken for known."""
    _, widest = spacing(sigma, order, 0.7)
    line = line_of(sigma, order, 0.7, widest / sigma)
    for power in (0, 1, 2):
        total = (line.weights * np.exp(power * line.log_x)).sum()
        expected = math.exp(0.5 * power * (power - 1) / sigma**2)
        assert abs(total / expected - 1.0) < 1e-13


def exact_transform(sigma: float, steps: int, order: int, s: mpmath.mpc) -> mpmath.mpc:
    """E[S^n·exp(-sS)] in the digits of mpmath, by the trapezoid rule over a line of its own."""
    spread, shift = mpmath.mpf(sigma), mpmath.mpf(min(0.45 * math.pi * sigma, 0.7))
    step = 2 * mpmath.pi * shift / (75 + 2 * shift**2)
    sums = [mpmath.mpc(0)] * (order + 1)
    far = 12.5
    for j in range(math.floor(-far / step), math.ceil((far + order / sigma) / step) + 1):
        z = mpmath.mpc(step * j, shift)
        x = mpmath.exp(z / spread - 1 / (2 * spread**2)) / steps
        weight = mpmath.exp(-z * z / 2 - s * x) * step / mpmath.sqrt(2 * mpmath.pi)
        for k in range(order + 1):
            sums[k] += weight
            weight *= x / (k + 1)
    found = [mpmath.mpc(1)]
    for k in range(1, order + 1):
        terms = ((steps * j - (k - j)) * sums[j] / sums[0] * found[k - j] for j in range(1, k + 1))
        found.append(sum(terms) / k)
    return found[-1] * mpmath.factorial(order) * sums[0] ** steps


@pytest.mark.parametrize(
    ("sigma", "steps", "order", "eta", "most"),
    [
        (0.8, 10_000, 4, 0.0, 2e-13),
        (1.0, 10_000, 10, 0.0, 2e-13),
        (0.4, 10, 2, 0.0, 1e-12),
        (4.0, 100, 10, 0.0, 1e-11),
        (0.8, 10_000, 0, 0.3, 2e-12),
        (1.3, 50, 0, 0.1, 1e-11),
    ],
)
def test_transforms_of_s_are_within_their_rounding(
    sigma: float, steps: int, order: int, eta: float, most: float
) -> None:
    """On both sides of |s| = t, where it is another sum, and where X varies much or little."""
    loss = AllocationLoss(sigma, steps, removed=order > 0)
    ray = allocation._Ray(loss, order, 0.35 if order else 20.0, eta, 5.0 / loss.spread, 0.0, 37.0)
    last = math.log(steps) + 1.0 if steps < 200 else 0.5 * math.log(steps) + 1.8
    direction, random = complex(math.sin(eta), -math.cos(eta)), np.random.default_rng(3)
    for row in ray._rows(round(-3.0 / ray.step), round(last / ray.step)):
        found, bound = on_ray(sigma, steps, order, eta, row, -direction * np.exp(row.y))
        for at in random.choice(len(row.y), 2, replace=False).tolist():
            with mpmath.workdps(32):
                s = mpmath.exp(mpmath.mpf(float(row.y[at]))) * mpmath.expj(mpmath.mpf(eta))
                truth = exact_transform(sigma, steps, order, s * mpmath.mpc(0, -1))
                off = float(abs(truth - complex(found[at])))
            assert off <= bound[at] <= most * abs(found[at])


@pytest.mark.parametrize(("sigma", "steps"), [(0.5, 10), (0.8, 10_000), (4.0, 1_000)])
def test_whole_moments_are_within_their_rounding(sigma: float, steps: int) -> None:
    known = log_moments(sigma, steps)
    most = min(len(known) - 1, 24)
    with mpmath.workdps(40):
        variance = 1 / mpmath.mpf(sigma) ** 2
        series = [
            mpmath.exp(variance * k * (k - 1) / 2) / mpmath.factorial(k) / mpmath.mpf(steps) ** k
            for k in range(most + 1)
        ]
        found = [mpmath.mpf(1)]
        for k in range(1, most + 1):
            terms = ((steps * j - (k - j)) * series[j] * found[k - j] for j in range(1, k + 1))
            found.append(sum(terms) / k)
        for m, one in enumerate(found):
            off = abs(mpmath.log(one * mpmath.factorial(m)) - float(known[m]))
            assert off <= moment_error(sigma, steps, m) < 1e-12


# ---- what holds of it


def test_it_lies_between_what_is_known() -> None:
    """More steps hide more; it is below no allocation at all, and epochs add up."""
    found = [epsilon(RandomAllocation(t, Gaussian(1.0)), 1e-6) for t in (1, 2, 5, 20, 100)]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(epsilon(Gaussian(1.0), 1e-6), rel=1e-9)
    once, twice = (RandomAllocation(20, Gaussian(1.0), n) for n in (1, 2))
    assert epsilon(Repeated(once, 2), 1e-6) == epsilon(twice, 1e-6)
    assert epsilon(once, 1e-6) < epsilon(twice, 1e-6)


def test_delta_is_the_inverse_of_epsilon() -> None:
    event = RandomAllocation(50, Gaussian(0.8), 4)
    assert delta(event, epsilon(event, 1e-6)) == pytest.approx(1e-6, rel=1e-8)


def test_visits_are_bounded_by_blocks() -> None:
    visits = RandomAllocation(10, Gaussian(1.0), 2, visits=3)
    blocks = Composed(RandomAllocation(3, Gaussian(1.0), 4), RandomAllocation(4, Gaussian(1.0), 2))
    found = bounds(visits, 1e-5)
    assert not found.two_sided
    assert found.upper == pytest.approx(epsilon(blocks, 1e-5), rel=1e-9)
    everybody = RandomAllocation(4, Gaussian(2.0), 3, visits=4)
    assert epsilon(everybody, 1e-5) == pytest.approx(epsilon(Repeated(Gaussian(2.0), 12), 1e-5))


def test_what_has_no_theorem_is_bounded_without_allocation() -> None:
    cases: tuple[tuple[Event, Event, Adjacency], ...] = (
        (RandomAllocation(10, Laplace(2.0), 3), Repeated(Laplace(2.0), 3), "add-remove"),
        (RandomAllocation(10, Gaussian(2.0), 3), Repeated(Gaussian(2.0), 3), "replace-one"),
        (RandomAllocation(10, Gaussian(0.1)), Gaussian(0.1), "add-remove"),
    )
    for event, looser, adjacency in cases:
        found = bounds(event, 1e-5, adjacency)
        assert not found.two_sided
        assert found.upper == pytest.approx(epsilon(looser, 1e-5, adjacency=adjacency))


def test_it_composes_with_other_releases() -> None:
    epochs, rest = (
        RandomAllocation(30, Gaussian(1.0), 2),
        Repeated(PoissonSampled(0.1, Gaussian(3.0)), 9),
    )
    both = bounds(Composed(epochs, rest), 1e-5)
    assert both.two_sided
    assert (
        epsilon(epochs, 1e-5)
        < both.lower
        <= both.upper
        < epsilon(epochs, 5e-6) + epsilon(rest, 5e-6)
    )


def test_noise_for_a_budget() -> None:
    sigma = calibrate(lambda s: RandomAllocation(98, Gaussian(s), 20), epsilon=8, delta=1e-5)
    assert 8 * (1 - 1e-9) < epsilon(RandomAllocation(98, Gaussian(sigma), 20), 1e-5) <= 8


def test_an_event_is_a_value() -> None:
    event = RandomAllocation(98, Gaussian(0.65), 20)
    assert from_json(to_json(event)) == event
    with pytest.raises(InvalidArgument, match="visits must be at most steps = 3, got 4"):
        RandomAllocation(3, Gaussian(1.0), visits=4)


# ---- brute force: few steps, by integrals over what was released


def call(forward: NDArray[np.float64], sigma: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """E[(X - k)₊], X = exp(Z/σ - 1/2σ²), at k = ``forward``: Black and Scholes."""
    log_k = np.log(np.maximum(forward, 1e-300))
    above = 0.5 / sigma - sigma * log_k
    inside = ndtr(above) - forward * ndtr(above - 1.0 / sigma)
    return np.where(forward > 0.0, inside, 1.0 - forward)


def delta_by_integrals(sigma: float, steps: int, loss: float, *, removed: bool) -> float:
    """δ(ε) of 2 or 3 steps: over the first outputs by the trapezoid rule, the last in closed form.

    Removed it is E[(S - e^ε)₊], added E[(1 - e^ε·S)₊] = e^ε·(E[(S - e^-ε)₊] - 1 + e^-ε).
    """
    step = 0.0005 if steps == 2 else 0.03  # the price bends sharply where it meets its tangent
    z = np.arange(-10.0, 13.0, step)
    weights = step / math.sqrt(2.0 * math.pi) * np.exp(-0.5 * z * z)
    x = np.exp(z / sigma - 0.5 / sigma**2)
    strike = math.exp(loss if removed else -loss)
    if steps == 2:
        price = float(weights @ call(2.0 * strike - x, sigma)) / 2.0
    else:
        table = call(3.0 * strike - np.add.outer(x, x), sigma)
        price = float(weights @ table @ weights) / 3.0
    return price if removed else (price - 1.0 + strike) / strike


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
def test_few_steps_are_integrals(sigma: float, steps: int) -> None:
    event, close = RandomAllocation(steps, Gaussian(sigma)), 1e-7 if steps == 2 else 1e-4
    for loss in (0.05, 0.5, 1.5):
        removed, added = (
            delta_by_integrals(sigma, steps, loss, removed=way) for way in (True, False)
        )
        found = delta(event, loss, adjacency="remove-only")
        assert found == pytest.approx(removed, rel=close, abs=1e-11)
        found = delta(event, loss, adjacency="add-only")
        assert found == pytest.approx(added, rel=close, abs=1e-11)


def test_what_a_record_does_may_depend_on_what_was_released() -> None:
    """The second move, of any length and sign, after the first output: none is worse than 1."""
    sigma, loss = 1.0, 0.3
    z = np.arange(-9.0, 9.0, 0.005)
    weights = 0.005 / math.sqrt(2.0 * math.pi) * np.exp(-0.5 * z * z)
    x = np.exp(z / sigma - 0.5 / sigma**2)
    most = delta(RandomAllocation(2, Gaussian(sigma)), loss, adjacency="remove-only")
    random = np.random.default_rng(0)
    moves = [np.clip(np.cumsum(0.01 * random.standard_normal(len(z))), -1, 1) for _ in range(20)]
    moves += [np.ones(len(z)), np.where(z > 0.5, 1.0, 1e-6), np.where(z < 0.5, -1.0, 1e-6)]
    found = []
    for move in moves:
        scale = sigma / np.maximum(np.abs(move), 1e-6)
        inner = call(2.0 * math.exp(loss) - x, scale)
        found.append(float(weights @ inner) / 2.0)
    assert max(found) == pytest.approx(most, rel=1e-7)
    assert max(found[:-3]) <= most * (1.0 + 1e-9)
    assert min(found) < 0.8 * most
