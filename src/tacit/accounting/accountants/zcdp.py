"""Zero-concentrated and truncated concentrated privacy: one number ρ per release, which adds up.

A release is ρ-zCDP if its Rényi divergence of every order α > 1 is at most ρα (Bun & Steinke 2016),
and (ρ, ω)-tCDP if that holds for α < ω (Bun, Dwork, Rothblum & Steinke 2018). Compositions add the
ρ's and keep the smallest ω; the curve ρα is then converted at its best order.

Sampling has no theorem in zCDP. In tCDP there is one for uniformly random subsets of fixed size,
neighbours differing in one replaced record (Bun et al. 2018, on subsampling): with γ =
size/population,

    (ρ, ω)-tCDP becomes (13γ²ρ, ln(1/γ)/(4ρ))-tCDP
    if ρ, γ ≤ 0.1,  ln(1/γ) ≥ 3ρ(2 + log₂(1/ρ))  and  ω ≥ ln(1/γ)/(2ρ) ≥ 3.

Outside these conditions, for Poisson samples and for other adjacencies it says nothing, and the
event is refused.

Guarantee: both answers are upper bounds for every event that is accepted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tacit.accounting.accountants import Accountant
from tacit.accounting.black_boxes import concrete
from tacit.accounting.events import (
    AboveThreshold,
    ApproxDp,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    GaussianMixture,
    Laplace,
    PoissonSampled,
    PrivateSelection,
    PureDp,
    RandomizedResponse,
    RenyiCurve,
    SampledWithoutReplacement,
    TruncatedConcentrated,
    ZeroConcentrated,
    distance,
)
from tacit.accounting.failures import Failures
from tacit.accounting.normal_form import parts
from tacit.accounting.renyi.curves import delta_of_curve, epsilon_of_curve, linear
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event


class Concentrated(NamedTuple):
    """(ρ, ω)-tCDP, up to a failure of probability ``mass``; ω is infinite for plain zCDP.

    ``xi`` is added to ρα, as in (ξ, ρ)-zCDP.
    """

    rho: float
    omega: float = math.inf
    mass: float = 0.0
    xi: float = 0.0


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The smallest ε that the total ρ proves at a total ``delta``.

    >>> from tacit.accounting.events import Repeated
    >>> round(epsilon(Repeated(Gaussian(20.0), 1000), 1e-6, "add-remove"), 6)
    8.845889
    """
    total = concentrated(event, adjacency)
    curve = linear(total.rho, below=total.omega, xi=total.xi)
    return Failures(total.mass).epsilon(lambda left: epsilon_of_curve(curve, left), delta)


def delta(event: Event, epsilon: float, adjacency: Adjacency) -> float:
    """The smallest total δ that the total ρ proves at ``epsilon``; 1 if it proves none."""
    total = concentrated(event, adjacency)
    curve = linear(total.rho, below=total.omega, xi=total.xi)
    return Failures(total.mass).delta(lambda at: delta_of_curve(curve, at), epsilon)


def concentrated(event: Event, adjacency: Adjacency) -> Concentrated:
    """The (ρ, ω) of all of ``event``: the sum of the ρ's and the smallest ω.

    >>> concentrated(Gaussian(2.0), "add-remove").rho
    0.125
    """
    found = [
        (_of_part(concrete(part, adjacency, "zcdp"), adjacency), count)
        for part, count in parts(event, adjacency)
    ]
    log_kept = math.fsum(
        count * math.log1p(-one.mass) if one.mass < 1.0 else -math.inf for one, count in found
    )
    return Concentrated(
        math.fsum(count * one.rho for one, count in found),
        min((one.omega for one, _ in found), default=math.inf),
        -math.expm1(log_kept),
        math.fsum(count * one.xi for one, count in found),
    )


def _of_part(part: Event, adjacency: Adjacency) -> Concentrated:
    match part:
        case Gaussian(sigma, apart):
            return Concentrated(0.5 * (distance(apart, adjacency) / sigma) ** 2)
        case DiscreteGaussian(sigma, unit, apart):
            # As the continuous noise (Canonne, Kamath & Steinke 2020, Theorem 4).
            return Concentrated(0.5 * (distance(apart, adjacency) * unit / sigma) ** 2)
        case GaussianMixture(sigma, _, shifts) if part.describes(adjacency):
            # Convexity: no worse than the largest shift alone.
            return Concentrated(0.5 * (max(shifts) / sigma) ** 2)
        case Laplace(scale, apart):
            return _pure(distance(apart, adjacency) / scale)
        case DiscreteLaplace(scale, unit, apart):
            return _pure(distance(apart, adjacency) * unit / scale)
        case RandomizedResponse():
            return _pure(part.loss)
        case PureDp(loss):
            return _pure(loss)
        case ApproxDp(loss, failure):
            return Concentrated(_pure(loss).rho, mass=failure)
        case Exponential(loss):
            # Bounded range (Cesar & Rogers 2021).
            return Concentrated(loss * loss / 8.0)
        case ZeroConcentrated(rho):
            return Concentrated(rho, xi=part.xi)
        case TruncatedConcentrated(rho, omega):
            return Concentrated(rho, omega)
        case SampledWithoutReplacement():
            return _subsampled(part, adjacency)
        case _:
            raise UnsupportedEvent(part, "zcdp", _why_not(part))


def _pure(loss: float) -> Concentrated:
    """ε-differential privacy is ρ-zCDP for ρ = ε·tanh(ε/2) ≤ ε²/2.

    It suffices to look at the two-point pair, whose loss is ±ε with mean ρ; by Kearns & Saul's
    inequality (1998) ln E[e^{s·(loss - ρ)}] ≤ s²·ρ, so that (α-1)·D_α ≤ (α-1)·ρ + (α-1)²·ρ.
    """
    return Concentrated(loss * math.tanh(0.5 * loss))


def _why_not(part: Event) -> str:
    match part:
        case PoissonSampled():
            return "the subsampling theorem of tCDP is about fixed-size samples, not Poisson ones"
        case GaussianMixture():
            return "a mixture is known under add-remove only"
        case RenyiCurve():
            return "a Rényi curve at some orders bounds no ρ"
        case AboveThreshold():
            return "the Rényi curve of its Gaussian noise is no multiple of the order"
        case PrivateSelection():
            return "the random number of runs adds what no ρ bounds at orders near 1"
        case _:
            return "concentrated privacy has no theorem for it"


def _subsampled(part: SampledWithoutReplacement, adjacency: Adjacency) -> Concentrated:
    """The subsampling theorem, or a refusal that names the condition and its value."""
    inner = concentrated(part.event, "replace-one")
    rho, gamma = inner.rho, part.size / part.population
    if rho == 0.0 and inner.xi == 0.0:
        return inner
    if inner.xi > 0.0:
        raise UnsupportedEvent(part, "zcdp", "the subsampling theorem of tCDP needs xi = 0")
    ceiling = math.log(1.0 / gamma)
    needed = 3.0 * rho * (2.0 + math.log2(1.0 / rho))
    conditions = {
        f"adjacency is {adjacency!r}, not 'replace-one'": adjacency == "replace-one",
        f"rho = {rho:.6g} is above 0.1": rho <= 0.1,
        f"gamma = size/population = {gamma:.6g} is above 0.1": gamma <= 0.1,
        f"ln(1/gamma) = {ceiling:.6g} is below 3·rho·(2 + log2(1/rho)) = {needed:.6g}": (
            ceiling >= needed
        ),
        f"omega = {inner.omega:.6g} is below ln(1/gamma)/(2·rho) = {ceiling / (2 * rho):.6g}": (
            inner.omega >= ceiling / (2.0 * rho)
        ),
        f"ln(1/gamma)/(2·rho) = {ceiling / (2 * rho):.6g} is below 3": ceiling / (2.0 * rho) >= 3.0,
    }
    violated = [text for text, holds in conditions.items() if not holds]
    if violated:
        raise UnsupportedEvent(
            part, "zcdp", f"the subsampling theorem of tCDP needs more: {violated[0]}"
        )
    return Concentrated(13.0 * gamma * gamma * rho, ceiling / (4.0 * rho), inner.mass)


ZCDP = Accountant(epsilon, delta)
