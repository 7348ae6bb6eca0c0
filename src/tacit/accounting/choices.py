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

from typing import TYPE_CHECKING

from tacit.accounting.black_boxes import held, named
from tacit.accounting.events import (
    BlackBox,
    Exponential,
    NoisyMax,
    PoissonSampled,
    PrivateSelection,
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


def pure_loss(event: NoisyMax | SparseVector, adjacency: Adjacency) -> float | None:
    """The pure ε under ``adjacency``; None for Gaussian noise, which has none.

    Guarantee:
        The event is ε-differentially private under that adjacency.

    >>> pure_loss(SparseVector(2.0, 8.0, cutoff=2), "add-remove")
    1.0
    """
    one, against = moves(event, adjacency)
    if isinstance(event, NoisyMax):
        return against / event.scale
    if event.noise != "laplace":
        return None
    return one / event.threshold_scale + event.cutoff * against / event.query_scale


def concrete(event: Event, adjacency: Adjacency, accountant: str = "exact") -> Event:
    """``event`` as what it promises under ``adjacency``: choices written as black boxes.

    Inside of samplers choices stay what they are, for there other adjacencies count; black boxes
    get the name of this one there, if they have none (``tacit.accounting.black_boxes``).

    >>> concrete(NoisyMax(2.0), "add-remove"), concrete(NoisyMax(2.0, "laplace"), "add-remove")
    (Exponential(epsilon=1.0), PureDp(epsilon=1.0))

    Raises:
        UnsupportedEvent: if it is a black box that promises nothing under ``adjacency``.
    """
    if isinstance(event, BlackBox):
        return held(event, adjacency, accountant)
    match event:
        case NoisyMax() | SparseVector():
            loss = pure_loss(event, adjacency)
            if loss is None:
                return event
            bounded_range = isinstance(event, NoisyMax) and event.noise == "gumbel"
            return Exponential(loss) if bounded_range else PureDp(loss)
        case (
            PoissonSampled()
            | SampledWithoutReplacement()
            | SampledWithReplacement()
            | PrivateSelection()
        ):
            return named(event, adjacency)
        case _:
            return event
