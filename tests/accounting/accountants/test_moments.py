"""The moments accountant: the published numbers to ten digits."""

from __future__ import annotations

import math

import pytest

from tacit.accounting.accountants import moments, rdp
from tacit.accounting.events import (
    ApproxDp,
    Composed,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
    SampledWithReplacement,
    TruncatedConcentrated,
)
from tacit.errors import UnsupportedEvent


def run(rate: float, sigma: float, steps: int) -> Event:
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


@pytest.mark.parametrize(
    ("event", "epsilon"),
    [
        (run(0.01, 4.0, 10_000), 1.2585747413),
        (run(0.01, 2.0, 10_000), 2.7354454327),
        (run(256 / 60_000, 1.1, 14_062), 3.0090995257),
    ],
)
def test_oracles(event: Event, epsilon: float) -> None:
    found = moments.epsilon(event, 1e-5, "add-remove")
    assert found == pytest.approx(epsilon, abs=5.1e-11)
    assert moments.delta(event, found, "add-remove") == pytest.approx(1e-5, rel=1e-9)
    assert rdp.epsilon(event, 1e-5, "add-remove") < found


def test_the_tail_bound_of_a_gaussian() -> None:
    expected = min((k * (k + 1) / 8 + math.log(1e5)) / k for k in range(1, 33))
    assert moments.epsilon(Gaussian(2.0), 1e-5, "add-remove") == pytest.approx(expected)
    delta = min(math.exp(k * (k + 1) / 8 - k * 3.0) for k in range(1, 33))
    assert moments.delta(Gaussian(2.0), 3.0, "add-remove") == pytest.approx(delta)


def test_more_moments_help_when_little_is_released() -> None:
    event = run(0.001, 8.0, 10)
    assert moments.epsilon(event, 1e-5, "add-remove") == pytest.approx(math.log(1e5) / 32, rel=1e-3)
    assert moments.epsilon(event, 1e-5, "add-remove", max_moment=256) < 0.1


def test_failures_and_edges() -> None:
    assert moments.epsilon(Composed(), 1e-5, "add-remove") == 0.0
    assert moments.delta(Composed(), 0.0, "add-remove") == 0.0
    event = Composed(Laplace(5.0), ApproxDp(0.0, 4e-6))
    left = (1e-5 - 4e-6) / (1 - 4e-6)
    assert moments.epsilon(event, 1e-5, "add-remove") == pytest.approx(
        moments.epsilon(Laplace(5.0), left, "add-remove")
    )
    assert moments.epsilon(event, 3e-6, "add-remove") == math.inf
    assert moments.epsilon(TruncatedConcentrated(0.1, 1.5), 1e-5, "add-remove") == math.inf
    assert moments.delta(TruncatedConcentrated(0.1, 1.5), 9.0, "add-remove") == 1.0
    assert moments.delta(Gaussian(0.1), 0.0, "add-remove") == 1.0


def test_refusal_names_the_accountant() -> None:
    with pytest.raises(UnsupportedEvent, match="'moments' does not support SampledWithReplacement"):
        moments.epsilon(SampledWithReplacement(10, 2, Gaussian(1.0)), 1e-5, "add-remove")
