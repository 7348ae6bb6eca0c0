"""What is added to δ for failures and for samples that were cut."""

from __future__ import annotations

import math

import pytest

from tacit.accounting import Gaussian, PoissonSampled
from tacit.accounting.exact.certificate import decompose
from tacit.accounting.failures import Failures, truncation_of


def solve_epsilon(delta: float) -> float:
    return -math.log(delta) if delta > 0.0 else math.inf


def solve_delta(epsilon: float) -> float:
    return math.exp(-epsilon)


def test_without_failures_nothing_changes() -> None:
    assert Failures().epsilon(solve_epsilon, 1e-3) == -math.log(1e-3)
    assert Failures().delta(solve_delta, 4.0) == math.exp(-4.0)


def test_a_failure_takes_its_mass_from_delta() -> None:
    failures = Failures(mass=4e-4)
    left = (1e-3 - 4e-4) / (1 - 4e-4)
    assert failures.epsilon(solve_epsilon, 1e-3) == pytest.approx(-math.log(left))
    assert failures.delta(solve_delta, -math.log(left)) == pytest.approx(1e-3)
    assert failures.epsilon(solve_epsilon, 3e-4) == math.inf
    assert Failures(mass=1.0).epsilon(solve_epsilon, 0.5) == math.inf


def test_truncation_is_charged_at_the_answer() -> None:
    failures = Failures(truncation=1e-9)
    epsilon = failures.epsilon(solve_epsilon, 1e-3)
    total = solve_delta(epsilon) + (1 + math.exp(epsilon)) * 1e-9
    assert total <= 1e-3
    assert total == pytest.approx(1e-3, rel=1e-6)
    assert failures.delta(solve_delta, epsilon) == pytest.approx(1e-3, rel=1e-6)


def test_too_much_truncation_is_refused_by_infinity() -> None:
    assert Failures(truncation=1e-4).epsilon(solve_epsilon, 1e-3) == math.inf


def test_with_truncation_a_larger_epsilon_is_never_worse() -> None:
    failures = Failures(truncation=1e-6)
    deltas = [failures.delta(solve_delta, epsilon) for epsilon in (0.0, 1.0, 5.0, 7.0, 30.0, 1e4)]
    assert deltas[3] < deltas[2] < deltas[1]
    # Beyond the best ε the formula alone would grow without bound; the best smaller ε serves.
    assert deltas[4] < 1.2 * deltas[3]
    assert deltas[5] < 0.1


def test_a_sample_is_cut_with_the_chance_that_its_population_gives() -> None:
    cut = PoissonSampled(0.5, Gaussian(50.0), cap=8, population=10)
    chance = (10 + 1) / 2**10  # nine or ten heads of ten
    assert chance <= truncation_of(cut) <= chance * (1 + 2e-9)
    assert truncation_of(PoissonSampled(0.5, Gaussian(50.0), cap=10, population=10)) == 0.0
    assert truncation_of(PoissonSampled(0.5, Gaussian(50.0))) == 0.0


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
def test_the_population_holds_every_neighbour_and_is_counted_once(adjacency: str) -> None:
    cut = PoissonSampled(0.5, Gaussian(50.0), cap=8, population=10)
    found = decompose(((cut, 1),), adjacency)  # type: ignore[arg-type]
    assert found.failures.charge(1.0) == pytest.approx((1 + math.e) * 11 / 2**10, rel=1e-8)
