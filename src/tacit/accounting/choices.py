"""Noisy max and Laplace sparse vector as events that every accountant knows.

With b the noise's scale and d the most that neighbours move one score, shifting the winner's noise
shows that noisy max is (2d/b)-private, and (d/b)-private if all scores move the same way (Dwork &
Roth 2014, Section 3.3, for Laplace noise; McKenna & Sheldon 2020 and Ding et al. 2021 for
exponential noise, which is permute-and-flip). The argument needs only that the noise's density
falls by at most e^{-t/b} over a distance t upwards. With Gumbel noise it is the exponential
mechanism, and that loss also bounds its range (Durfee & Rogers 2019; Dong, Durfee & Rogers 2020).

Permute-and-flip is no bounded-range mechanism at its ε: with two candidates at equal scores, and
neighbours that part them by 2d, its loss is ε for the one and -ln(2 - e^{-ε}) for the other.

Sparse vector with Laplace noise b₁ on the threshold and b₂ on the queries is private with
d/b₁ + 2·c·d/b₂, and d/b₁ + c·d/b₂ for monotone queries (Lyu, Su & Li 2017, Theorems 4 and 5).

Replacing a record is removing one and adding another: scores that were monotone then move by at
most 1 either way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.accounting.events import (
    Exponential,
    NoisyMax,
    PoissonSampled,
    PureDp,
    SampledWithoutReplacement,
    SampledWithReplacement,
    SparseVector,
)
from tacit.accounting.sensitivity import distance

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event


def moves(event: NoisyMax | SparseVector, adjacency: Adjacency) -> tuple[float, float]:
    """How far neighbours move a score, and how far they can move it against another one.

    >>> moves(NoisyMax(1.0), "add-remove"), moves(NoisyMax(1.0, monotone=True), "add-remove")
    ((1.0, 2.0), (1.0, 1.0))
    """
    apart = distance(event.replace_distance, adjacency)
    if not event.monotone:
        return apart, 2.0 * apart
    if adjacency != "replace-one":
        return apart, apart
    return min(apart, 1.0), 2.0 * min(apart, 1.0)


def pure_loss(event: NoisyMax | SparseVector, *adjacencies: Adjacency) -> float | None:
    """The pure ε, the largest over the adjacencies; None for Gaussian noise, which has none.

    Guarantee:
        The event is ε-differentially private under each of the adjacencies.

    >>> pure_loss(SparseVector(2.0, 8.0, cutoff=2), "add-remove")
    1.0
    """
    losses = []
    for adjacency in adjacencies:
        one, against = moves(event, adjacency)
        match event:
            case NoisyMax():
                losses.append(against / event.scale)
            case SparseVector(noise="laplace"):
                queries = event.cutoff * against / event.query_scale
                losses.append(one / event.threshold_scale + queries)
            case SparseVector():
                return None
    return max(losses)


def concrete(event: Event, *adjacencies: Adjacency) -> Event:
    """``event`` with choices written as what they promise, also inside of samplers.

    >>> concrete(NoisyMax(2.0), "add-remove"), concrete(NoisyMax(2.0, "laplace"), "add-remove")
    (Exponential(epsilon=1.0), PureDp(epsilon=1.0))
    """
    match event:
        case NoisyMax() | SparseVector():
            loss = pure_loss(event, *adjacencies)
            if loss is None:
                return event
            bounded_range = isinstance(event, NoisyMax) and event.noise == "gumbel"
            return Exponential(loss) if bounded_range else PureDp(loss)
        case PoissonSampled():
            inner: tuple[Adjacency, ...] = ("add-remove",)
            if "replace-one" in adjacencies:
                inner = ("add-remove", "replace-one")
            return _with_inner(event, concrete(event.event, *inner))
        case SampledWithoutReplacement() | SampledWithReplacement():
            return _with_inner(event, concrete(event.event, "replace-one", "zero-out"))
        case _:
            return event


def _with_inner(
    event: PoissonSampled | SampledWithoutReplacement | SampledWithReplacement, inner: Event
) -> Event:
    return event if inner is event.event else replace(event, event=inner)
