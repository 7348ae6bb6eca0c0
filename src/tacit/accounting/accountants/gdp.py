"""Gaussian differential privacy: exact for compositions of Gaussians, and as a central limit.

A Gaussian of distance r and noise σ is (r/σ)-GDP, and a composition of μ_i-GDP releases is μ-GDP
with μ² = Σμ_i² (Dong, Roth & Su 2022, Corollary 3.3), both tightly. The δ of μ-GDP is that of one
Gaussian (their Corollary 2.13; ``tacit.accounting.gaussian_profile``).

Guarantee of ``gdp``: both answers are the tight ones, rounded up by 1e-12 (relative) to cover their
rounding. Anything but Gaussians is refused: for a sampled Gaussian no μ holds.

``gdp-clt`` is an approximation, not a bound. T steps of Gaussian noise σ on Poisson samples of rate
q tend to μ-GDP with

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
from tacit.accounting.accountants import Accountant, Approximation
from tacit.accounting.events import Gaussian, GaussianMixture, PoissonSampled, distance
from tacit.accounting.normal_form import parts
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event

_ROUND_UP = 1.0 + 1e-12


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The tight ε at a total ``delta``.

    >>> from tacit.accounting.events import Repeated
    >>> round(epsilon(Repeated(Gaussian(20.0), 1000), 1e-6, "add-remove"), 9)
    8.30622505
    """
    return gaussian_profile.epsilon(mu(event, adjacency), delta) * _ROUND_UP


def delta(event: Event, epsilon: float, adjacency: Adjacency) -> float:
    """The tight total δ at ``epsilon``.

    >>> round(delta(Gaussian(1.0), 1.0, "add-remove"), 9)
    0.126936738
    """
    return min(1.0, gaussian_profile.delta(mu(event, adjacency), epsilon) * _ROUND_UP)


def mu(event: Event, adjacency: Adjacency) -> float:
    """The μ of a composition of Gaussians.

    >>> round(mu(Gaussian(4.0), "replace-one"), 12)
    0.5
    """
    squares = [count * _mu_of_part(part, adjacency) ** 2 for part, count in parts(event, adjacency)]
    return math.sqrt(math.fsum(squares)) * (1.0 + 1e-15)


def _mu_of_part(part: Event, adjacency: Adjacency) -> float:
    match part:
        case Gaussian(sigma, apart):
            return distance(apart, adjacency) / sigma
        case GaussianMixture() if not part.describes(adjacency):
            reason = "a mixture is known under add-remove only"
        case GaussianMixture(sigma, _, shifts) if len(set(shifts)) == 1:
            return shifts[0] / sigma
        case PoissonSampled(event=Gaussian()):
            reason = "a sampled Gaussian is not μ-GDP for any useful μ; 'gdp-clt' approximates it"
        case _:
            reason = "only Gaussian noise is exactly μ-GDP"
    raise UnsupportedEvent(part, "gdp", reason)


def clt_epsilon(event: Event, delta: float, adjacency: Adjacency) -> Approximation:
    """The ε of the limiting μ-GDP at ``delta``; the truth may be larger.

    >>> from tacit.accounting.events import Repeated
    >>> run = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    >>> clt_epsilon(run, 1e-5, "add-remove") < 0.9468668  # the truth
    True
    """
    return Approximation(gaussian_profile.epsilon(clt_mu(event, adjacency), delta))


def clt_delta(event: Event, epsilon: float, adjacency: Adjacency) -> Approximation:
    """The δ of the limiting μ-GDP at ``epsilon``; the truth may be larger."""
    return Approximation(gaussian_profile.delta(clt_mu(event, adjacency), epsilon))


def clt_mu(event: Event, adjacency: Adjacency) -> Approximation:
    """The μ of the limit.

    >>> from tacit.accounting.events import Repeated
    >>> round(clt_mu(Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000), "add-remove"), 9)
    0.253957593
    """
    squares = [count * _clt_mu_squared(part, adjacency) for part, count in parts(event, adjacency)]
    return Approximation(math.sqrt(math.fsum(squares)))


def _clt_mu_squared(part: Event, adjacency: Adjacency) -> float:
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


GDP = Accountant(epsilon, delta)
GDP_CLT = Accountant(clt_epsilon, clt_delta)
