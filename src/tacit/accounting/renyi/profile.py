"""The Rényi profile of an event: its curve, and what Rényi divergences cannot express."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc

from tacit.accounting.black_boxes import loss_of
from tacit.accounting.choices import concrete, pure_loss
from tacit.accounting.conversion import delta_of_curve
from tacit.accounting.events import (
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
    SampledWithReplacement,
    SparseVector,
    TruncatedConcentrated,
    ZeroConcentrated,
)
from tacit.accounting.exact.certify import enclose_delta
from tacit.accounting.normal_form import parts
from tacit.accounting.renyi import choices, curves
from tacit.accounting.renyi.gaussian_pairs import GaussianPair
from tacit.accounting.renyi.pairs import (
    DiscreteLaplacePair,
    two_point_pair,
)
from tacit.accounting.renyi.sampling import (
    draw_of,
    mixture_bound,
    mixture_of,
    pure_pair_curve,
    response_pair,
    sampled_curve_only,
    sampled_pair_curve,
    sampled_promise,
    told_curve,
)
from tacit.accounting.sensitivity import distance
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.renyi.curves import Curve
    from tacit.accounting.renyi.sampling import Draw

    Array = NDArray[np.float64]


@dataclass(frozen=True)
class RenyiProfile:
    """What is known of a release.

    Attributes:
        curve: An upper bound on the Rényi divergence at each order, given that no failure occurs.
        mass: The probability of a failure, after which anything may be revealed. An (ε, δ) release
            is an ε-private one that fails with probability δ (Kairouz, Oh & Viswanath 2015).
        truncation: The total variation distance, summed over the releases, to the mechanism that
            ``curve`` describes: the chance that a truncated Poisson sample was cut.
    """

    curve: Curve
    mass: float = 0.0
    truncation: float = 0.0


def renyi_divergence(event: Event, orders: Array, adjacency: Adjacency, accountant: str) -> Array:
    """An upper bound on the Rényi divergence between neighbours at each of ``orders``, all above 1.

    It is infinite where none is known, and everywhere if the event may fail with some probability
    (``ApproxDp``, truncated Poisson): ``renyi_profile`` keeps that probability apart.

    Guarantee: no value is below the true divergence of either direction. The quadratures behind
    it err by less than e^-70, and results are rounded up by 1e-12 to cover their rounding.

    >>> renyi_divergence(Gaussian(2.0), np.array([2.0, 8.0]), "add-remove", "rdp")
    array([0.25, 1.  ])

    Args:
        event: The event.
        orders: The orders α.
        adjacency: Which data sets are neighbours.
        accountant: The name to put into the message if the event is not supported.
    """
    profile = renyi_profile(event, adjacency, accountant)
    if profile.mass > 0.0 or profile.truncation > 0.0:
        return np.full_like(orders, np.inf)
    return profile.curve(orders)


def renyi_profile(event: Event, adjacency: Adjacency, accountant: str) -> RenyiProfile:
    """The Rényi profile of all of ``event``: curves add up, as do failures (in the logarithm)."""
    found = [
        (_of_part(part, adjacency, accountant), count) for part, count in parts(event, adjacency)
    ]
    log_kept = math.fsum(
        count * math.log1p(-one.mass) if one.mass < 1.0 else -math.inf for one, count in found
    )
    return RenyiProfile(
        curves.total(tuple((one.curve, count) for one, count in found)),
        mass=-math.expm1(log_kept),
        truncation=math.fsum(count * one.truncation for one, count in found),
    )


def _of_part(part: Event, adjacency: Adjacency, accountant: str) -> RenyiProfile:
    if not isinstance(part, SparseVector):  # more than its pure loss is known of it
        part = concrete(part, adjacency, accountant)
    match part:
        case PoissonSampled() | SampledWithoutReplacement():
            return _sampled(part, adjacency, accountant)
        case SampledWithReplacement():
            raise UnsupportedEvent(
                part, accountant, "no Rényi bound is implemented for sampling with replacement"
            )
        case ApproxDp(loss, failure):
            return RenyiProfile(_two_point(loss), mass=failure)
        case SparseVector():
            return RenyiProfile(_sparse_vector(part, adjacency))
        case PrivateSelection():
            return RenyiProfile(_selection(part, adjacency, accountant))
        case GaussianMixture() if adjacency == "replace-one" and max(part.shifts) > 0.0:
            raise UnsupportedEvent(part, accountant, "a mixture is known under add-remove only")
        case _:
            return RenyiProfile(_plain_curve(part, adjacency))


def _plain_curve(part: Event, adjacency: Adjacency) -> Curve:
    """The curve of an event that is not sampled."""
    match part:
        case Gaussian(sigma, apart):
            return curves.linear(0.5 * (distance(apart, adjacency) / sigma) ** 2)
        case DiscreteGaussian(sigma, unit, apart):
            # At most the continuous value (Canonne, Kamath & Steinke 2020, Proposition 5).
            return curves.linear(0.5 * (distance(apart, adjacency) * unit / sigma) ** 2)
        case Laplace(scale, apart):
            return curves.laplace(distance(apart, adjacency) / scale)
        case DiscreteLaplace(scale, unit, apart):
            steps = round(distance(apart, adjacency) * unit)
            pair = DiscreteLaplacePair(scale, rate=1.0, to=steps)
            return curves.of_pair(pair, "forward", _two_point(steps / scale))
        case GaussianMixture() if max(part.shifts) == 0.0:
            return curves.linear(0.0)
        case GaussianMixture():
            return curves.of_pair(GaussianPair(mixture_of(part)), "either", mixture_bound(part))
        case RandomizedResponse():
            return curves.of_pair(response_pair(part), "forward", curves.linear(math.inf))
        case PureDp(loss):
            return _two_point(loss)
        case Exponential(loss):
            return curves.bounded_range(loss)
        case ZeroConcentrated(rho):
            return curves.linear(rho)
        case TruncatedConcentrated(rho, omega):
            return curves.linear(rho, below=omega)
        case RenyiCurve():
            return curves.tabulated(part)
        case _:
            raise AssertionError(f"{part!r} is no part of a normal form")


def _sparse_vector(part: SparseVector, adjacency: Adjacency) -> Curve:
    curve, loss = choices.sparse_vector(part, adjacency), pure_loss(part, adjacency)
    return curve if loss is None else curves.smallest(curve, _two_point(loss))


def _selection(part: PrivateSelection, adjacency: Adjacency, accountant: str) -> Curve:
    base = renyi_profile(part.base, adjacency, accountant)
    if base.mass > 0.0 or base.truncation > 0.0:
        reason = "its base may fail, which the Rényi theorem for selection does not cover"
        raise UnsupportedEvent(part, accountant, reason)

    def base_delta(epsilon: float) -> float:
        try:
            return enclose_delta(part.base, epsilon, adjacency).upper
        except UnsupportedEvent:
            return delta_of_curve(base.curve, epsilon)

    return choices.selection(part.runs, base.curve, base_delta)


def _two_point(loss: float) -> Curve:
    return curves.of_pair(two_point_pair(loss), "forward", curves.linear(math.inf))


def _sampled(
    part: PoissonSampled | SampledWithoutReplacement, adjacency: Adjacency, accountant: str
) -> RenyiProfile:
    draw = draw_of(part, adjacency)
    if draw.rate == 0.0:
        return RenyiProfile(curves.linear(0.0))
    by_pair = sampled_pair_curve(draw, part.event)
    if by_pair is not None:
        found = RenyiProfile(by_pair)
    else:
        found = _sampled_promise(draw, part.event, accountant) or _sampled_curve(
            draw, part, accountant
        )
    return replace(found, truncation=truncation_of(part))


def _sampled_promise(draw: Draw, inner: Event, accountant: str) -> RenyiProfile | None:
    """The profile of a sampled (ε, δ) promise; None if it is something else."""
    promise = sampled_promise(draw, inner, accountant)
    if promise is None:
        return None
    curve = _two_point(promise.epsilon)
    if promise.delta > 0.0:
        return RenyiProfile(curve, mass=promise.delta)
    try:
        losses = [loss_of(concrete(inner, one)) for one in draw.inner_adjacencies]
    except UnsupportedEvent:  # of the samples without the record nothing is known
        return RenyiProfile(told_curve(draw, curve))
    largest = max(loss.epsilon for loss in losses if loss is not None)
    by_pair = pure_pair_curve(draw, largest)
    return RenyiProfile(curves.smallest(curve, by_pair) if draw.three_laws else by_pair)


def _sampled_curve(
    draw: Draw, part: PoissonSampled | SampledWithoutReplacement, accountant: str
) -> RenyiProfile:
    try:
        seen = [renyi_profile(part.event, one, accountant) for one in draw.inner_adjacencies]
    except UnsupportedEvent:
        if not draw.may_be_told:
            raise
        seen = [renyi_profile(part.event, draw.adjacency, accountant)]
    if any(one.truncation > 0.0 for one in seen):
        raise UnsupportedEvent(part, accountant, "a truncated Poisson sample lies inside a sample")
    base, mass = curves.largest(*(one.curve for one in seen)), max(one.mass for one in seen)
    if len(seen) < len(draw.inner_adjacencies):
        return RenyiProfile(told_curve(draw, base), mass=mass)
    curve = sampled_curve_only(draw, base)
    ranges = [concrete(part.event, one, accountant) for one in draw.inner_adjacencies]
    bounded = [one.epsilon for one in ranges if isinstance(one, Exponential)]
    if len(bounded) == len(ranges):  # a choice of bounded range ε is ε-private as well
        curve = curves.smallest(curve, pure_pair_curve(draw, max(bounded)))
    return RenyiProfile(curve, mass=mass)


def truncation_of(part: Event) -> float:
    """The chance that a truncated Poisson sample is cut: P[Binomial(population, rate) > cap]."""
    if not isinstance(part, PoissonSampled) or part.cap is None or part.population is None:
        return 0.0
    if part.cap >= part.population:
        return 0.0
    return min(
        1.0, float(betainc(part.cap + 1.0, part.population - part.cap, part.rate)) * (1 + 1e-9)
    )
