"""The central-limit form of Gaussian differential privacy: an approximation, not a bound.

T steps of Gaussian noise σ on Poisson samples of rate q tend to μ-GDP with

    μ = q·√(T·(e^{1/σ²} - 1))

as T grows while q·√T stays fixed (Bu, Dong, Long & Su 2020; Dong, Roth & Su 2022, Section 5).
Different phases add in squares, as do unsampled Gaussians, for which it is exact. At finite T the
truth may lie on either side, and by much when q·√T is large or σ small; the answer is an
``Approximation`` to say so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.accounting import gaussian_profile
from tacit.accounting.events import Gaussian, PoissonSampled
from tacit.accounting.normal_form import parts
from tacit.accounting.results import Approximation
from tacit.accounting.sensitivity import distance
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> Approximation:
    """The ε of the limiting μ-GDP at ``delta``; the truth may be larger.

    >>> from tacit.accounting.events import Repeated
    >>> run = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    >>> epsilon(run, 1e-5, "add-remove") < 0.9468668  # the truth
    True
    """
    return Approximation(gaussian_profile.epsilon(mu(event, adjacency), delta))


def delta(event: Event, epsilon: float, adjacency: Adjacency) -> Approximation:
    """The δ of the limiting μ-GDP at ``epsilon``; the truth may be larger."""
    return Approximation(gaussian_profile.delta(mu(event, adjacency), epsilon))


def mu(event: Event, adjacency: Adjacency) -> Approximation:
    """The μ of the limit.

    >>> from tacit.accounting.events import Repeated
    >>> round(mu(Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000), "add-remove"), 9)
    0.253957593
    """
    squares = [count * _mu_squared(part, adjacency) for part, count in parts(event, adjacency)]
    return Approximation(math.sqrt(math.fsum(squares)))


def _mu_squared(part: Event, adjacency: Adjacency) -> float:
    match part:
        case Gaussian(sigma, apart):
            return (distance(apart, adjacency) / sigma) ** 2
        case PoissonSampled(rate, Gaussian(sigma), None):
            if adjacency == "replace-one":
                reason = "its limit is known for adding, removing or zeroing a record only"
                raise UnsupportedEvent(part, "gdp-clt", reason)
            try:
                return rate * rate * math.expm1(1.0 / (sigma * sigma))
            except OverflowError:
                return math.inf
        case _:
            reason = "its central limit is implemented for Gaussians and Poisson sampled ones"
            raise UnsupportedEvent(part, "gdp-clt", reason)
