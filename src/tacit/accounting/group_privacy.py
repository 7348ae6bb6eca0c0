"""Group privacy: what an event gives away about k records together."""

from __future__ import annotations

import math
from dataclasses import replace

from tacit._validation import whole
from tacit.accounting.black_boxes import amplified, held, promise_of
from tacit.accounting.events import (
    AboveThreshold,
    ApproxDp,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    GaussianMixture,
    Laplace,
    NoisyMax,
    PoissonSampled,
    PrivateSelection,
    PureDp,
    RandomizedResponse,
    Repeated,
    ZeroConcentrated,
    check_event,
)
from tacit.accounting.normal_form import simplify
from tacit.errors import UnsupportedEvent


def group(event: Event, size: int) -> Event:
    """The event as a group of ``size`` records sees it, under add-remove (or zero-out).

    Noise is ``size`` times weaker against the group: Gaussians keep their form at distance k, and
    Poisson sampling of one becomes the mixture over how many of the k were drawn, Binomial(k, q)
    (Ganesh 2024). Of a black box only (kε, k·e^{(k-1)ε}·δ) is known (Dwork & Roth 2014, Thm 2.2). A
    sampled black box must hold under add-remove, which one that names no adjacency is taken to do.

    Guarantee:
        A bound on the event for ``group(event, k)`` bounds ``event`` for data sets that differ in k
        records.

    >>> group(Gaussian(4.0), 2)
    Gaussian(sigma=2.0, replace_distance=2.0)
    >>> group(PureDp(0.1), 3).epsilon == 3 * 0.1
    True
    """
    return _group(simplify(check_event(event)), whole("size", size))


def _group(event: Event, k: int) -> Event:
    match event:
        case Gaussian(sigma, distance):
            return Gaussian(sigma / k, distance)
        case Laplace(scale, distance):
            return Laplace(scale / k, distance)
        case DiscreteGaussian(sigma, sensitivity, distance):
            return DiscreteGaussian(sigma, k * sensitivity, distance)
        case DiscreteLaplace(scale, sensitivity, distance):
            return DiscreteLaplace(scale, k * sensitivity, distance)
        case PureDp(epsilon) | Exponential(epsilon):
            return replace(event, epsilon=k * epsilon)
        case RandomizedResponse():
            return PureDp(k * event.loss)
        case ApproxDp():
            return _black_box(event, k)
        case NoisyMax():  # pure losses and ranges add up along the k records
            return replace(event, scale=event.scale / k)
        case AboveThreshold():
            return _group_of_sparse_vector(event, k)
        case PrivateSelection(base, runs):
            return PrivateSelection(_group(simplify(base), k), runs)
        case ZeroConcentrated(rho):
            return replace(event, rho=k * k * rho)  # Bun & Steinke 2016, Proposition 27
        case PoissonSampled(rate, inner) if event.cap is None:
            return _group_of_sampled(event, rate, inner, k)
        case Repeated(inner, times):
            return Repeated(_group(inner, k), times)
        case Composed():
            return Composed(*(_group(inner, k) for inner in event.events))
        case _ if k == 1:
            return event
        case _:
            raise UnsupportedEvent(event, "group", "no group bound is known for it")


def _group_of_sparse_vector(event: AboveThreshold, k: int) -> Event:
    """At k times the distance; a mixed group moves queries both ways, which only losses bear."""
    return replace(
        event,
        threshold_scale=event.threshold_scale / k,
        query_scale=event.query_scale / k,
        monotone=event.monotone and (k == 1 or event.noise == "laplace"),
    )


def _black_box(event: ApproxDp, k: int) -> Event:
    epsilon, delta = event.epsilon, event.delta
    log_delta = math.log(k) + (k - 1) * epsilon + math.log(delta) if delta > 0.0 else -math.inf
    return replace(event, epsilon=k * epsilon, delta=math.exp(min(log_delta, 0.0)))


def _group_of_sampled(event: PoissonSampled, rate: float, inner: Event, k: int) -> Event:
    """What is amplified is so when records are added or removed, and no other way."""
    match inner:
        case _ if k == 1:
            return event
        case Gaussian(sigma):
            weights = _binomial(k, rate)
            return GaussianMixture(sigma, weights, tuple(float(j) for j in range(k + 1)))
        case Laplace(scale):
            return PureDp(k * amplified(rate, 1.0 / scale), "add-remove")
        case RandomizedResponse():
            return PureDp(k * amplified(rate, inner.loss), "add-remove")
        case PureDp() | ApproxDp():
            loss = promise_of(held(inner, "add-remove", "group"))
            assert loss is not None  # a promise of the same kind
            once = ApproxDp(amplified(rate, loss.epsilon), rate * loss.delta, "add-remove")
            return PureDp(k * once.epsilon, "add-remove") if not loss.delta else _black_box(once, k)
        case _:
            raise UnsupportedEvent(event, "group", "no group bound is known for this sampling")


def _binomial(k: int, rate: float) -> tuple[float, ...]:
    weights = [math.comb(k, j) * rate**j * (1.0 - rate) ** (k - j) for j in range(1, k + 1)]
    return (1.0 - math.fsum(weights), *weights)
