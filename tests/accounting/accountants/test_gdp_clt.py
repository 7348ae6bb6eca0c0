"""The central-limit form says that it is an approximation, and is one."""

from __future__ import annotations

import math

import pytest

from tacit.accounting.accountants import Approximation, gdp
from tacit.accounting.events import Composed, Event, Gaussian, Laplace, PoissonSampled, Repeated
from tacit.errors import UnsupportedEvent

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
def test_refusals(event: Event, adjacency: str, reason: str) -> None:
    with pytest.raises(UnsupportedEvent, match=reason):
        gdp.clt_epsilon(event, 1e-5, adjacency)  # type: ignore[arg-type]
