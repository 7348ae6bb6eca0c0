"""Gaussian differential privacy, exactly, where it holds: compositions of Gaussian mechanisms.

A Gaussian of distance r and noise σ is (r/σ)-GDP, and a composition of μ_i-GDP releases is μ-GDP
with μ² = Σμ_i² (Dong, Roth & Su 2022, Corollary 3.3), both tightly. The δ of μ-GDP is that of one
Gaussian (their Corollary 2.13; ``tacit.accounting.gaussian_profile``).

Guarantee: both answers are the tight ones, rounded up by 1e-12 (relative) to cover their rounding.
Anything but Gaussians is refused: for a sampled Gaussian no μ holds, and ``gdp-clt`` only
approximates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.accounting import gaussian_profile
from tacit.accounting.events import Gaussian, GaussianMixture, PoissonSampled
from tacit.accounting.normal_form import parts
from tacit.accounting.sensitivity import distance
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
        case GaussianMixture() if adjacency == "replace-one":
            reason = "a mixture is known under add-remove only"
        case GaussianMixture(sigma, _, shifts) if len(set(shifts)) == 1:
            return shifts[0] / sigma
        case PoissonSampled(event=Gaussian()):
            reason = "a sampled Gaussian is not μ-GDP for any useful μ; 'gdp-clt' approximates it"
        case _:
            reason = "only Gaussian noise is exactly μ-GDP"
    raise UnsupportedEvent(part, "gdp", reason)
