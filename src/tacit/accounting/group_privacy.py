"""Group privacy: what an event gives away about k records together."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

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
    SampledWithoutReplacement,
    ZeroConcentrated,
    check_event,
)
from tacit.accounting.normal_form import simplify
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import Adjacency


_SMALL = 64  # records of a group, up to which the law of those drawn is written out
_NEGLIGIBLE = math.exp(-150.0)

Law = tuple[tuple[float, ...], tuple[float, ...], float]
"""How many of a group are drawn: probabilities, numbers, and the probability left out."""


def group(event: Event, size: int) -> Event:
    """The event as a group of ``size`` records sees it, under add-remove (or zero-out).

    Noise is ``size`` times weaker against the group: Gaussians keep their form at distance k, and
    Poisson sampling of one becomes the mixture over how many of the k were drawn, Binomial(k, q)
    (Ganesh 2024). In a sample of fixed size they are hypergeometric, and take the places of others;
    in a truncated one they are bounded so. What is drawn of discrete Gaussian noise is bounded as
    if all k were drawn together. These hold under add-remove only. Of a black box only
    (kε, k·e^{(k-1)ε}·δ) is known (Dwork & Roth 2014, Thm 2.2). A sampled black box must hold under
    add-remove, which one that names no adjacency is taken to do.

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
            # Bun & Steinke 2016, Proposition 27.
            steps = k * math.fsum(1.0 / i for i in range(1, k + 1)) if event.xi > 0.0 else 1.0
            return replace(event, rho=k * k * rho, xi=steps * event.xi)
        case _ if k == 1:
            return event
        case PoissonSampled(rate, inner) if event.cap is None:
            return _group_of_sampled(event, rate, inner, k)
        case PoissonSampled(rate, Gaussian(sigma, distance)):
            # Where the sample is full, each takes the place of another: as in a fixed-size sample.
            return _mixture(sigma / max(1.0, distance), _binomial(k, rate))
        case SampledWithoutReplacement():
            return _group_of_fixed_size(event, k)
        case Repeated(inner, times):
            return Repeated(_group(inner, k), times)
        case Composed():
            return Composed(*(_group(inner, k) for inner in event.events))
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
        case Gaussian(sigma):
            return _mixture(sigma, _binomial(k, rate), adjacency=None)
        case DiscreteGaussian(sigma, sensitivity):
            # As if all k were drawn whenever one is: H_c of a mixture with plain noise is the
            # drawn chance times a divergence that grows with the distance.
            drawn = -math.expm1(k * math.log1p(-rate))
            return PoissonSampled(drawn, DiscreteGaussian(sigma, k * sensitivity))
        case Laplace(scale):
            return PureDp(k * amplified(rate, 1.0 / scale), "add-remove")
        case DiscreteLaplace(scale, sensitivity):
            return PureDp(k * amplified(rate, sensitivity / scale), "add-remove")
        case RandomizedResponse():
            return PureDp(k * amplified(rate, inner.loss), "add-remove")
        case PureDp() | ApproxDp():
            loss = promise_of(held(inner, "add-remove", "group"))
            assert loss is not None  # a promise of the same kind
            once = ApproxDp(amplified(rate, loss.epsilon), rate * loss.delta, "add-remove")
            return PureDp(k * once.epsilon, "add-remove") if not loss.delta else _black_box(once, k)
        case _:
            raise UnsupportedEvent(event, "group", "no group bound is known for this sampling")


def _group_of_fixed_size(event: SampledWithoutReplacement, k: int) -> Event:
    """Given a sample without the group, J of its records are replaced by members of the group.

    J is hypergeometric. Of a pure loss, k single steps are known.
    """
    rate = event.size / event.population
    match event.event:
        case Gaussian(sigma, distance) if k <= event.population:
            return _mixture(sigma / max(1.0, distance), _hypergeometric(event, k))
        case Laplace(scale, distance):
            return PureDp(k * amplified(rate, max(1.0, distance) / scale), "add-remove")
        case DiscreteLaplace(scale, sensitivity, distance):
            loss = max(1.0, distance) * sensitivity / scale
            return PureDp(k * amplified(rate, loss), "add-remove")
        case RandomizedResponse() as inner:
            return PureDp(k * amplified(rate, inner.loss), "add-remove")
        case _:
            raise UnsupportedEvent(event, "group", "no group bound is known for this sampling")


def _mixture(sigma: float, law: Law, adjacency: Adjacency | None = "add-remove") -> Event:
    """Σ_j weight_j·N(j, σ²) against N(0, σ²); what the law leaves out is charged as a failure."""
    weights, shifts, left = law
    mixture = GaussianMixture(sigma, weights, shifts, adjacency)
    return mixture if left == 0.0 else Composed(mixture, ApproxDp(0.0, left, adjacency))


def _binomial(k: int, rate: float) -> Law:
    if k <= _SMALL:
        weights = [math.comb(k, j) * rate**j * (1.0 - rate) ** (k - j) for j in range(1, k + 1)]
        return (1.0 - math.fsum(weights), *weights), tuple(map(float, range(k + 1))), 0.0
    odds = rate / (1.0 - rate)
    mode = min(k, math.floor((k + 1) * rate))
    return _law(mode, 0, k, lambda j: odds * (k - j) / (j + 1))


def _hypergeometric(event: SampledWithoutReplacement, k: int) -> Law:
    """How many of k among ``population`` records a sample of ``size`` holds."""
    n, size = event.population, event.size
    first, last = max(0, size + k - n), min(k, size)
    mode = min(max((size + 1) * (k + 1) // (n + 2), first), last)
    return _law(
        mode, first, last, lambda j: (k - j) * (size - j) / ((j + 1) * (n - k - size + j + 1))
    )


def _law(mode: int, first: int, last: int, ratio: Callable[[int], float]) -> Law:
    """Probabilities about ``mode``, from the ratios P(j+1)/P(j), which fall as j grows.

    Those below e^-150 of the largest are left out: the next ratio bounds each by a geometric
    series.
    """
    upward, downward, left = [1.0], [], 0.0
    for j in range(mode, last):
        upward.append(upward[-1] * ratio(j))
        if upward[-1] < _NEGLIGIBLE:
            left += upward.pop() / (1.0 - min(ratio(j), 0.5))
            break
    below = 1.0
    for j in range(mode - 1, first - 1, -1):
        below /= ratio(j)
        if below < _NEGLIGIBLE:
            left += below / (1.0 - min(1.0 / ratio(j), 0.5))
            break
        downward.append(below)
    masses = [*reversed(downward), *upward]
    total = math.fsum(masses)
    start = mode - len(downward)
    shifts = tuple(float(start + i) for i in range(len(masses)))
    return tuple(mass / total for mass in masses), shifts, 2.0 * left / total
