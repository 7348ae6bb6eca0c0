"""Few steps, all of whose sums are listed, against sums over all draws in 30 digits."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest

from tacit.accounting import (
    Composed,
    DiscreteGaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    bounds,
)
from tacit.accounting.accountants.exact import delta_interval
from tacit.accounting.exact import counts, smoothing
from tacit.accounting.exact.atoms import AtomLoss, AtomProfile
from tacit.accounting.exact.counts import paired_sums
from tacit.accounting.exact.leaps import without_leaps

if TYPE_CHECKING:
    from tacit.accounting.events import Neighbours


def atoms(losses: list[float], shares: list[float]) -> AtomLoss:
    """Q has these shares of these losses, and one loss besides that makes P and Q add up to 1."""
    left = 1.0 - math.fsum(q * math.exp(loss) for loss, q in zip(losses, shares, strict=True))
    rest = 1.0 - math.fsum(shares)
    values = np.array([math.log(left / rest), *losses])
    masses = np.array([rest, *shares]) * np.exp(values)
    return AtomLoss(values, masses, np.full(len(values), 4e-16), 1e-16 * abs(values), losses[-1])


def truth(parts: list[tuple[AtomLoss, int]], epsilon: float) -> mpmath.mpf:
    """Over all multisets of draws."""
    with mpmath.workdps(30):
        laws = []
        for loss, count in parts:
            pairs = [(mpmath.mpf(float(a)), mpmath.mpf(float(b)))
                     for a, b in zip(loss.losses, loss.masses, strict=True)]  # fmt: skip
            law = []
            for draws in combinations_with_replacement(range(len(pairs)), count):
                p = mpmath.mpf(math.factorial(count))
                for one in set(draws):
                    times = draws.count(one)
                    p *= pairs[one][1] ** times / math.factorial(times)
                law.append((mpmath.fsum(pairs[one][0] for one in draws), p))
            laws.append(law)
        level, total = mpmath.mpf(epsilon), mpmath.mpf(0)
        for combined in product(*laws):
            loss = mpmath.fsum(one[0] for one in combined)
            if loss > level:
                p = mpmath.fprod(one[1] for one in combined)
                total += p * -mpmath.expm1(level - loss)
        return total


ONE = atoms([0.05, 0.7, 3.0], [0.3, 0.15, 0.005])
OTHER = atoms([0.33, 1.1], [0.3, 0.1])


@pytest.mark.parametrize(
    "parts", [[(ONE, 1)], [(ONE, 2)], [(ONE, 7)], [(ONE, 3), (OTHER, 4)], [(ONE, 1), (OTHER, 1)]]
)
def test_sums_in_two_halves_are_all_sums(parts: list[tuple[AtomLoss, int]]) -> None:
    found = paired_sums(tuple(parts), 1.5)
    assert found is not None
    for epsilon in (0.0, 0.37, 1.9, 2.6):
        exact, at = truth(parts, epsilon), found.enclose(epsilon)
        assert at.lower <= exact <= at.upper
        assert at.estimate == pytest.approx(float(exact), rel=1e-11)
        assert at.errors.below < 1e-11 * at.estimate + 1e-18


def test_what_is_left_out_of_a_list_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [(ONE, 12)]
    exact = truth(parts, 2.0)
    monkeypatch.setattr(counts, "_RARE", 1e-4)
    found = paired_sums(tuple(parts), 1.0)
    assert found is not None
    at = found.enclose(2.0)
    assert at.estimate < exact * (1 - 1e-5)
    assert exact <= at.upper


def test_one_release_of_atoms() -> None:
    profile = AtomProfile(ONE)
    for epsilon in (0.0, 0.05, 0.6, 2.9, 3.0, 3.1):
        at = profile.enclose(epsilon)
        assert at.lower <= truth([(ONE, 1)], epsilon) <= at.upper
        assert at.errors.below <= 1e-14
    assert profile.enclose(profile.guess(0.02)).estimate == pytest.approx(0.02, rel=1e-9)


@pytest.mark.parametrize(("count", "epsilon"), [(3, 0.2), (6, 0.3)])
def test_leaps_and_what_is_no_leap_add_up(count: int, epsilon: float) -> None:
    loss = atoms([0.03, 0.06, 2.5, 4.0], [0.3, 0.2, 1e-5, 1e-5])
    found = without_leaps(loss, count, epsilon, math.log(1e-9))
    assert found is not None
    rest, leaps = found
    assert list(rest.losses) == list(loss.losses[:3])
    at, others = leaps.enclose(epsilon), truth([(rest, count)], epsilon)
    exact = truth([(loss, count)], epsilon)
    assert abs(others + at.estimate - exact) <= at.errors.above <= 2e-9
    # One step's probability for all of them is not enough.
    assert abs(others + at.estimate / count - exact) > 1e3 * at.errors.above


def test_a_loss_that_others_may_undo_is_no_leap() -> None:
    loss = atoms([0.5, 1.2], [0.2, 0.1])
    assert without_leaps(loss, 20, 1.0, math.log(1e-9)) is None


@pytest.mark.parametrize("seed", range(8))
def test_a_list_and_an_integral_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods that share no sum; the integral goes by its sieve, and by leaps."""
    draw = np.random.default_rng(seed)
    inner = (
        DiscreteGaussian(float(draw.uniform(0.3, 0.34))),
        RandomizedResponse(float(draw.uniform(0.5, 3.0)), categories=3),
    )[seed // 2 % 2]
    count = int(draw.integers(60, 120))
    event = Repeated(PoissonSampled(float(10 ** draw.uniform(-3, -1)), inner), count)
    way: Neighbours = "add-only" if seed % 2 else "remove-only"
    target = float(10 ** draw.uniform(-9, -4))
    listed = bounds(event, target, way)
    assert listed.method == "counted"
    monkeypatch.setattr(smoothing, "paired_sums", lambda *_: None)
    found = bounds(event, target, way)
    assert found.method == "smoothed"
    assert found.lower <= listed.upper
    assert listed.lower <= found.upper
    assert found.width <= 1e-5 * max(1.0, found.upper)
    assert listed.width <= 1e-8 * max(1.0, listed.upper)


def test_small_losses_keep_their_digits() -> None:
    loss = atoms([1e-6, 3e-6, 7e-6], [0.3, 0.1, 1e-4])
    found = paired_sums(((loss, 5),), 1e6)
    assert found is not None
    for epsilon in (0.0, 4.3e-6, 1.91e-5):
        exact, at = truth([(loss, 5)], epsilon), found.enclose(epsilon)
        assert at.lower <= exact <= at.upper
        assert at.errors.below <= 1e-8 * at.estimate


def test_one_release_far_in_the_tail() -> None:
    sigma, rate, target = 10.318306380100713, 0.08360342782105054, 2.4529281059153857e-12

    def exact(level: float) -> mpmath.mpf:
        with mpmath.workdps(30):
            square, q = 2 * mpmath.mpf(sigma) ** 2, mpmath.mpf(rate)
            plain = {x: mpmath.exp(-(mpmath.mpf(x) ** 2) / square) for x in range(-260, 262)}
            total = mpmath.fsum(plain.values())
            grown = mpmath.exp(mpmath.mpf(level))
            terms = ((1 - q - grown) * plain[x] + q * plain[x - 1] for x in range(-259, 262))
            return mpmath.fsum(term for term in terms if term > 0) / total

    found = bounds(PoissonSampled(rate, DiscreteGaussian(sigma)), target, "remove-only")
    assert exact(found.upper) <= target <= exact(found.lower)
    assert found.width <= 1e-13


def test_rounding_is_no_infinite_loss() -> None:
    noise = PoissonSampled(1e-4, DiscreteGaussian(147.6)), PoissonSampled(2e-4, Laplace(0.28))
    assert delta_interval(Composed(*noise), 1.0, "remove-only").lower == 0.0
