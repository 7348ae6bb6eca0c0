"""The rows of PEERS.md that are no Poisson-sampled Gaussian, and other closed-form truths."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import mpmath
import pytest

from tacit.accounting import (
    ApproxDp,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDp,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    bounds,
    delta,
    noise_multiplier,
)

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency


def binomial_delta(epsilon: mpmath.mpf, loss: float, steps: int) -> mpmath.mpf:
    """δ(ε) of ``steps`` binary randomised responses, summed at 40 digits."""
    with mpmath.workdps(40):
        e = mpmath.mpf(loss)
        truth = 1 / (1 + mpmath.exp(-e))
        total = mpmath.mpf(0)
        for right in range(steps + 1):
            here = (2 * right - steps) * e
            if here > epsilon:
                chance = (
                    mpmath.binomial(steps, right) * truth**right * (1 - truth) ** (steps - right)
                )
                total += chance * (1 - mpmath.exp(epsilon - here))
        return total


def test_randomised_response_h2() -> None:
    found = bounds(Repeated(RandomizedResponse(epsilon=0.1), 1000), delta=1e-6)
    assert found.width < 1e-9 * found.upper
    assert found.lower <= 19.34467144799 <= found.upper
    assert binomial_delta(found.upper, 0.1, 1000) <= 1e-6 <= binomial_delta(found.lower, 0.1, 1000)


def test_black_boxes_h3() -> None:
    found = bounds(Repeated(ApproxDp(0.1, 1e-9), 1000), delta=1e-5)
    assert pytest.approx(found.upper, abs=1e-8) == 17.868708005
    assert found.width < 1e-9 * found.upper
    with mpmath.workdps(40):
        survival = (1 - mpmath.mpf(1e-9)) ** 1000
        for end, sign in ((found.upper, 1), (found.lower, -1)):
            exact = 1 - survival + survival * binomial_delta(end, 0.1, 1000)
            assert sign * (mpmath.mpf(1e-5) - exact) >= 0


def test_laplace_h1() -> None:
    found = bounds(Repeated(Laplace(50), 10_000), delta=1e-6)
    assert found.lower <= 10.94991349076 <= found.upper
    assert found.width < 1e-8


def test_calibration_row_i() -> None:
    sigma = noise_multiplier(epsilon=2, delta=1e-5, sample_rate=0.01, steps=10_000)
    assert sigma == pytest.approx(2.12737543, abs=1e-8)
    run = Repeated(PoissonSampled(0.01, Gaussian(sigma)), 10_000)
    assert bounds(run, delta=1e-5).upper <= 2.0


@pytest.mark.parametrize("total", [1e-30, 1e-25, 1e-20, 1e-15, 1e-12, 1e-8, 1e-5, 1e-3, 1e-2])
@pytest.mark.parametrize(
    "event",
    [
        Repeated(PoissonSampled(0.01, Gaussian(1)), 1000),
        Repeated(PoissonSampled(0.01, Gaussian(4)), 10_000),
        Repeated(Gaussian(0.5), 10),
        Repeated(Laplace(50), 10_000),
        Repeated(RandomizedResponse(epsilon=0.1), 1000),
    ],
)
def test_every_delta_has_a_finite_answer(event: Event, total: float) -> None:
    found = bounds(event, delta=total)
    assert 0.0 <= found.lower <= found.upper < math.inf
    assert found.width <= 1e-7 * max(1.0, found.upper)


def direct_delta(
    atoms: list[tuple[mpmath.mpf, mpmath.mpf]], steps: int, epsilon: float
) -> mpmath.mpf:
    """δ(ε) of ``steps`` draws from (mass, loss) atoms, by enumeration."""
    total = mpmath.mpf(0)
    for drawn in product(atoms, repeat=steps):
        loss = sum(one[1] for one in drawn)
        if loss > epsilon:
            total += mpmath.fprod(one[0] for one in drawn) * (1 - mpmath.exp(epsilon - loss))
    return total


def sampled_response(
    loss: float, categories: int, rate: float, *, removed: bool
) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """(mass, loss) of Poisson-sampled randomised response in one direction."""
    e, q = mpmath.mpf(loss), mpmath.mpf(rate)
    truth = 1 / (1 + (categories - 1) * mpmath.exp(-e))
    lie = truth * mpmath.exp(-e)
    with_record = [truth, lie] + [lie] * (categories - 2)
    without = [lie, truth] + [lie] * (categories - 2)
    atoms = []
    for a, b in zip(with_record, without, strict=True):
        mixed = (1 - q) * b + q * a
        p, other = (mixed, b) if removed else (b, mixed)
        atoms.append((p, mpmath.log(p / other)))
    return atoms


@pytest.mark.parametrize(("categories", "steps"), [(2, 6), (4, 4)])
def test_sampled_randomised_response_by_enumeration(categories: int, steps: int) -> None:
    step = PoissonSampled(0.3, RandomizedResponse(epsilon=1.0, categories=categories))
    found = bounds(Repeated(step, steps), delta=1e-3)
    for end, sign in ((found.upper, 1), (found.lower, -1)):
        worst = max(
            direct_delta(sampled_response(1.0, categories, 0.3, removed=side), steps, end)
            for side in (True, False)
        )
        assert sign * (1e-3 - worst) >= -1e-18


def test_discrete_laplace_by_enumeration() -> None:
    ratio = mpmath.exp(-mpmath.mpf(1) / 2)
    whole = 1 / (1 + ratio)
    atoms = [
        (whole, mpmath.mpf(3) / 2),
        (whole * (1 - ratio) * ratio, mpmath.mpf(1) / 2),
        (whole * (1 - ratio) * ratio**2, -mpmath.mpf(1) / 2),
        (whole * ratio**3, -mpmath.mpf(3) / 2),
    ]
    found = bounds(Repeated(DiscreteLaplace(2.0, sensitivity=3), 5), delta=1e-2)
    assert direct_delta(atoms, 5, found.upper) <= 1e-2 <= direct_delta(atoms, 5, found.lower)
    assert found.width < 1e-9


def test_discrete_gaussian_by_summation() -> None:
    sigma = 2.0
    norm = mpmath.nsum(lambda x: mpmath.exp(-(x**2) / (2 * sigma**2)), [-mpmath.inf, mpmath.inf])
    atoms = [
        (mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * sigma**2)) / norm, (1 - 2 * mpmath.mpf(x)) / 8)
        for x in range(-30, 31)
    ]
    found = bounds(Repeated(DiscreteGaussian(sigma), 2), delta=1e-4)
    assert direct_delta(atoms, 2, found.upper) <= 1e-4 <= direct_delta(atoms, 2, found.lower)
    assert found.width < 1e-7


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (Repeated(PoissonSampled(0.1, Laplace(1.0)), 50), "add-remove"),
        (Repeated(Laplace(5.0), 20), "add-remove"),
        (Repeated(PoissonSampled(0.1, DiscreteGaussian(2.0)), 20), "add-remove"),
        (
            Composed(Repeated(Laplace(50), 50), PoissonSampled(0.01, Gaussian(2)), PureDp(0.1)),
            "zero-out",
        ),
    ],
)
def test_two_sided_where_promised(event: Event, adjacency: Adjacency) -> None:
    found = bounds(event, delta=1e-6, adjacency=adjacency)
    assert found.two_sided
    assert 0.0 < found.lower <= found.upper <= 1.02 * found.lower


def test_delta_inverts_epsilon() -> None:
    run = Repeated(PoissonSampled(0.01, Gaussian(4)), 10_000)
    assert delta(run, bounds(run, delta=1e-5).upper) == pytest.approx(1e-5, rel=1e-9)


def test_sampled_black_box_by_enumeration() -> None:
    """The (ε, δ) pair under Poisson sampling, with its infinite loss, against a direct sum."""
    e, fail, q, steps = mpmath.mpf(1), mpmath.mpf(1e-3), mpmath.mpf("0.25"), 3
    truth = (1 - fail) / (1 + mpmath.exp(-e))
    lie = truth * mpmath.exp(-e)
    p, without = [fail, truth, lie, mpmath.mpf(0)], [mpmath.mpf(0), lie, truth, fail]
    mixed = [(1 - q) * b + q * a for a, b in zip(p, without, strict=True)]
    found = bounds(Repeated(PoissonSampled(0.25, ApproxDp(1.0, 1e-3)), steps), delta=1e-2)
    for end, sign in ((found.upper, 1), (found.lower, -1)):
        directions = []
        for top, bottom in ((mixed, without), (without, mixed)):
            total = mpmath.mpf(0)
            for drawn in product(range(4), repeat=steps):
                a = mpmath.fprod(top[i] for i in drawn)
                b = mpmath.fprod(bottom[i] for i in drawn)
                total += max(mpmath.mpf(0), a - mpmath.exp(end) * b)
            directions.append(total)
        assert sign * (1e-2 - max(directions)) >= -1e-17


@pytest.mark.parametrize(
    "event",
    [
        SampledWithoutReplacement(1000, 100, PureDp(1.0)),
        SampledWithReplacement(1000, 1, PureDp(1.0)),
    ],
)
def test_one_fixed_size_sample_of_a_black_box(event: Event) -> None:
    """ln(1 + γ(e^ε - 1)) at δ → 0, and never below it for what the pair of that name attains."""
    rate = event.size / event.population  # type: ignore[union-attr]
    found = bounds(event, delta=1e-13, adjacency="replace-one")
    assert not found.two_sided
    assert found.lower == 0.0
    assert found.upper == pytest.approx(math.log1p(rate * math.expm1(1.0)), rel=1e-4)


def test_fixed_size_is_no_better_than_its_pieces() -> None:
    """Add-remove is the Poisson pair at the replace distance; replace-one is above that."""
    fixed = Repeated(SampledWithoutReplacement(10_000, 100, Gaussian(4.0)), 500)
    poisson = Repeated(PoissonSampled(0.01, Gaussian(2.0)), 500)
    one_way = bounds(fixed, delta=1e-5).upper
    assert one_way == bounds(poisson, delta=1e-5).upper
    both = bounds(fixed, delta=1e-5, adjacency="replace-one")
    assert one_way < both.upper < 1.5 * one_way
    assert both.lower == pytest.approx(one_way, rel=1e-8)  # of two data sets that differ so
    assert both.two_sided
    assert not both.attained


def test_truncated_poisson_costs_what_the_coupling_costs() -> None:
    capped = PoissonSampled(0.01, Gaussian(4.0), cap=170, population=10_000)
    free = bounds(Repeated(PoissonSampled(0.01, Gaussian(4.0)), 1000), delta=1e-5)
    found = bounds(Repeated(capped, 1000), delta=1e-5)
    assert free.lower < found.upper < 1.05 * free.upper
    assert 0.999 * free.lower < found.lower < free.upper
    tight = PoissonSampled(0.01, Gaussian(4.0), cap=90, population=10_000)
    assert 2.0 * free.upper < bounds(Repeated(tight, 1000), delta=1e-5).upper < math.inf


def test_truncated_poisson_is_monotone_in_its_cap() -> None:
    found = [
        bounds(Repeated(PoissonSampled(0.01, Gaussian(1.0), cap, 1000), 100), 1e-5)
        for cap in (16, 20, 25, 30, 33, 35, 38, 41, 45, 60)
    ]
    assert all(one.two_sided for one in found)
    assert [one.upper for one in found] == sorted((one.upper for one in found), reverse=True)
    assert found[0].upper < 5.10  # as published
    assert found[-3].width < 1e-8
    # dp-accounting has 17.904330 for this one.
    pair = [Repeated(PoissonSampled(0.5, Gaussian(1.0), 2, n), t) for n, t in ((4, 3), (3, 2))]
    assert 7.65 < bounds(Composed(*pair), 1e-6).upper < 17.15


def test_a_lower_end_far_below_the_upper_one_is_none() -> None:
    rare = Repeated(PoissonSampled(1e-5, Gaussian(1.0)), 100_000)
    found = bounds(rare, 1e-8, adjacency="replace-one")
    assert found.upper < 0.04
    assert found.two_sided == (found.lower > 0.5 * found.upper)
    assert found.two_sided or found.lower == 0.0
