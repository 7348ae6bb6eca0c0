"""The Rényi profile of an event: its curve, and what Rényi divergences cannot express."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from tacit.accounting.black_boxes import concrete, moves, promise_of, pure_loss
from tacit.accounting.events import (
    AboveThreshold,
    ApproxDp,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    GaussianMixture,
    Laplace,
    LossDistribution,
    PoissonRuns,
    PoissonSampled,
    PrivateSelection,
    PureDp,
    RandomAllocation,
    RandomizedResponse,
    RenyiCurve,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedConcentrated,
    ZeroConcentrated,
    distance,
)
from tacit.accounting.exact.certificate import enclose_delta
from tacit.accounting.failures import truncation_of
from tacit.accounting.normal_form import parts
from tacit.accounting.renyi import curves
from tacit.accounting.renyi.curves import delta_of_curve, least_over_orders
from tacit.accounting.renyi.pairs import DiscreteLaplacePair, GaussianPair, two_point_pair
from tacit.accounting.renyi.sampling import (
    draw_of,
    mixture_bound,
    mixture_of,
    pure_pair_curve,
    response_pair,
    sampled_curve_only,
    sampled_pair_curve,
    sampled_promise,
    shown_curve,
)
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event, Runs, TruncatedNegativeBinomial
    from tacit.accounting.renyi.curves import Curve
    from tacit.accounting.renyi.sampling import SampledRate

    Array = NDArray[np.float64]

_ROUND_UP = 1.0 + 1e-12


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
    if not isinstance(part, AboveThreshold):  # more than its pure loss is known of it
        part = concrete(part, adjacency, accountant)
    match part:
        case PoissonSampled() | SampledWithoutReplacement():
            return _sampled(part, adjacency, accountant)
        case SampledWithReplacement():
            raise UnsupportedEvent(
                part, accountant, "no Rényi bound is implemented for sampling with replacement"
            )
        case RandomAllocation():
            raise UnsupportedEvent(
                part, accountant, "no Rényi bound is implemented for random allocation; use 'exact'"
            )
        case ApproxDp(loss, failure):
            return RenyiProfile(_two_point(loss), mass=failure)
        case AboveThreshold():
            return RenyiProfile(_sparse_vector(part, adjacency))
        case LossDistribution():
            reason = "it may have infinite losses; the exact accountant reads it"
            raise UnsupportedEvent(part, accountant, reason)
        case PrivateSelection():
            return RenyiProfile(_selection(part, adjacency, accountant))
        case GaussianMixture() if not part.describes(adjacency) and max(part.shifts) > 0.0:
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
            return curves.linear(rho, xi=part.xi)
        case TruncatedConcentrated(rho, omega):
            return curves.linear(rho, below=omega)
        case RenyiCurve():
            return curves.tabulated(part)
        case _:
            raise AssertionError(f"{part!r} is no part of a normal form")


def _sparse_vector(part: AboveThreshold, adjacency: Adjacency) -> Curve:
    curve, loss = sparse_vector(part, adjacency), pure_loss(part, adjacency)
    return curve if loss is None else curves.smallest(curve, _two_point(loss))


def _selection(part: PrivateSelection, adjacency: Adjacency, accountant: str) -> Curve:
    base = renyi_profile(part.base, adjacency, accountant)
    if base.mass > 0.0 or base.truncation > 0.0:
        reason = "its base may fail, which the Rényi theorem for selection does not cover"
        raise UnsupportedEvent(part, accountant, reason)

    def base_delta(epsilon: float) -> float:
        try:
            return enclose_delta(parts(part.base, adjacency), epsilon, adjacency).upper
        except UnsupportedEvent:
            return delta_of_curve(base.curve, epsilon)

    return selection(part.runs, base.curve, base_delta)


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


def _sampled_promise(draw: SampledRate, inner: Event, accountant: str) -> RenyiProfile | None:
    """The profile of a sampled (ε, δ) promise; None if it is something else."""
    promise = sampled_promise(draw, inner, accountant)
    if promise is None:
        return None
    curve = _two_point(promise.epsilon)
    if promise.delta > 0.0:
        return RenyiProfile(curve, mass=promise.delta)
    try:
        losses = [promise_of(concrete(inner, one)) for one in draw.inner_adjacencies]
    except UnsupportedEvent:  # of the samples without the record nothing is known
        return RenyiProfile(shown_curve(draw, curve))
    largest = max(loss.epsilon for loss in losses if loss is not None)
    by_pair = pure_pair_curve(draw, largest)
    return RenyiProfile(curves.smallest(curve, by_pair) if draw.three_laws else by_pair)


def _sampled_curve(
    draw: SampledRate, part: PoissonSampled | SampledWithoutReplacement, accountant: str
) -> RenyiProfile:
    try:
        seen = [renyi_profile(part.event, one, accountant) for one in draw.inner_adjacencies]
    except UnsupportedEvent:
        if not draw.may_be_shown:
            raise
        seen = [renyi_profile(part.event, draw.adjacency, accountant)]
    if any(one.truncation > 0.0 for one in seen):
        raise UnsupportedEvent(part, accountant, "a truncated Poisson sample lies inside a sample")
    base, mass = curves.largest(*(one.curve for one in seen)), max(one.mass for one in seen)
    if len(seen) < len(draw.inner_adjacencies):
        return RenyiProfile(shown_curve(draw, base), mass=mass)
    curve = sampled_curve_only(draw, base)
    ranges = [concrete(part.event, one, accountant) for one in draw.inner_adjacencies]
    bounded = [one.epsilon for one in ranges if isinstance(one, Exponential)]
    if len(bounded) == len(ranges):  # a choice of bounded range ε is ε-private as well
        curve = curves.smallest(curve, pure_pair_curve(draw, max(bounded)))
    return RenyiProfile(curve, mass=mass)


# ---- sparse vector and private selection


def sparse_vector(event: AboveThreshold, adjacency: Adjacency) -> Curve:
    """The curve of sparse vector beside its pure loss (Zhu & Wang 2020).

    Move the threshold's noise by d, so that every query below it stays below, and the noise of each
    query above it by at most h, so that it stays above (h is 2d, or d for monotone queries). Given
    the threshold's noise, the moment of order α of the answers is then at most

        Σ_a w_a · e^{(α-1)·D} · P(ν + (α-1)·shift ∈ A_a),

    over the possible sequences of answers a, where w_a ≤ 1 is the probability of its answers
    "below", and A_a what the noise ν of its answers "above" must hit. Laplace noise is bounded, so
    that it adds c·h/b₂ to the threshold's curve whatever the queries (their pure case).

    Gaussian noise: D = α·c·h²/2σ₂² and the shift has length √c·h. By Neyman and Pearson a set of
    probability p has at most g(p) = Φ(Φ⁻¹(p) + (α-1)·√c·h/σ₂) under the shifted law. g is concave,
    g(0) = 0 and Σ_a w_a·P(ν ∈ A_a) = 1, so that the sum is at most N·g(1/N), with N = Σ_{j≤c}
    C(length, j) sequences. (The length-capped theorem of the paper has N in its place.)
    """
    one, against = moves(event, adjacency)
    if event.noise == "laplace":
        threshold = curves.laplace(one / event.threshold_scale)
        added = event.cutoff * against / event.query_scale
        return lambda orders: (threshold(orders) + added) * _ROUND_UP
    assert event.length is not None  # checked by the event
    rho = 0.5 * (one / event.threshold_scale) ** 2
    rho += 0.5 * event.cutoff * (against / event.query_scale) ** 2
    shift = math.sqrt(event.cutoff) * against / event.query_scale
    log_count = _log_sequences(event.length, event.cutoff)

    def curve(orders: Array) -> Array:
        kappa = orders - 1.0
        place = float(ndtri_exp(-log_count))
        logs = np.minimum(0.0, log_ndtr(place + kappa * shift))
        spread = np.maximum(0.0, log_count + logs + 1e-12 * (1.0 + log_count))
        result: Array = (rho * orders + spread / kappa) * _ROUND_UP
        return result

    return curve


def _log_sequences(length: int, cutoff: int) -> float:
    """The logarithm of Σ_{j ≤ cutoff} C(length, j), the number of possible answers."""
    most = min(length, cutoff)
    logs = [
        math.lgamma(length + 1) - math.lgamma(j + 1) - math.lgamma(length - j + 1)
        for j in range(most + 1)
    ]
    return float(np.logaddexp.reduce(logs)) * (1.0 + 1e-12) + 1e-12


def selection(runs: Runs, base: Curve, base_delta: Callable[[float], float]) -> Curve:
    """The curve of a private selection whose base has the curve ``base`` and the δ(ε) given.

    Guarantee:
        Papernot & Steinke 2022, Theorem 2 for truncated negative binomial runs, and what
        ``_poisson`` proves for Poisson ones; any upper bounds on the base's curve and δ serve.
    """
    if isinstance(runs, PoissonRuns):
        return _poisson(runs.mean, base, base_delta)
    return _negative_binomial(runs, base)


def _negative_binomial(runs: TruncatedNegativeBinomial, base: Curve) -> Curve:
    """D(α) + (1+η)·min_λ {(1 - 1/λ)·D(λ) + ln(1/γ)/λ} + ln E[K]/(α-1), or a later order's."""
    depth = -math.log(runs.gamma)

    def second(orders: Array) -> Array:
        return (1.0 - 1.0 / orders) * base(orders) + depth / orders

    constant = (1.0 + runs.eta) * min(depth, least_over_orders(second))  # depth: at λ = 1
    log_mean = math.log(runs.mean)

    def curve(orders: Array) -> Array:
        return (base(orders) + constant + log_mean / (orders - 1.0)) * _ROUND_UP

    return curves.rising(curve)


def _poisson(mean: float, base: Curve, base_delta: Callable[[float], float]) -> Curve:
    """ln(1 + μ·e^{(α-1)·μ·δ(ln(α/(α-1)))}·(e^{(α-1)·D(α)} - 1))/(α-1).

    Order the outcomes y of a run by their score, ties at random. Let U and V be the chances, under
    P and Q, of a better one, and r = dP/dQ. An outcome is released with density μ·e^{-μU}·dU under
    P, so that the moment of the outcomes with a run is S = μ·∫ r^{α-1}·φ dU with
    φ = exp(-μ(αU - (α-1)V)). Since dV = dU/r, dφ = -μ·φ·(α - (α-1)/r) dU, whose integral says that
    the outcome without a run, e^-μ, is 1 - μ·∫ φ·(α - (α-1)/r) dU. Hence

        e^-μ + S = 1 + μ·∫ φ·(r^{α-1} - α + (α-1)/r) dU ≤ 1 + μ·(max φ)·(e^{(α-1)·D} - 1) ,

    for the bracket is nowhere negative, and its mean under P is the excess moment. Where P has no
    mass and Q has some, V grows without U, which adds (α-1)·φ dV to both sides. At last
    V - α/(α-1)·U ≤ δ(ln(α/(α-1))), which bounds φ. It sharpens Theorem 6 of Papernot & Steinke
    (2022), whose moment is μ·(max φ)·e^{(α-1)·D}.
    """

    def curve(orders: Array) -> Array:
        kappa = orders - 1.0
        deltas = np.asarray([base_delta(math.log1p(1.0 / one)) for one in kappa.tolist()])
        excess = curves.log_expm1(kappa * base(orders))
        grown = math.log(mean) + kappa * mean * deltas + excess
        result: Array = np.logaddexp(0.0, grown) / kappa * _ROUND_UP
        return result

    return curve
