"""Black boxes: releases of which a promise is all that is known, and for which neighbours it holds.

A box that promises something under its own adjacency, and is asked about under another one:

| own | asked: add-remove | asked: replace-one | asked: zero-out |
|---|---|---|---|
| add-remove | as promised | two steps | two steps |
| replace-one | refused | as promised | as promised |
| zero-out | refused | two steps | as promised |

Replacing a record is removing one and adding another, or zeroing one and un-zeroing another. A
record of zeros is a record, so that replacing covers zeroing. Neither says anything of data sets of
different sizes: a release that tells the number of records has both promises at ε = 0. What is not
named is taken to hold under the adjacency that is asked about.

**Sampling.** Given who else is sampled, neighbours release (1-q)A + qB and (1-q)A + qC: A when the
record is not drawn, B and C when it is (``tacit.accounting.renyi.sampling``). What the box promises
of A against B, and of B against C, is its promise under the adjacency that relates these samples:

| sampler | asked | A and B | B and C |
|---|---|---|---|
| Poisson | add-remove | add-remove | (C = A) |
| Poisson | replace-one, zero-out | add-remove | as asked |
| fixed size | add-remove | replace-one | (C = A) |
| fixed size | replace-one, zero-out | replace-one | as asked |
| k draws of one record, with replacement | replace-one, zero-out | k times replace-one | k times |

A sample of fixed size that misses the record has another one in its place. Under zero-out a sample
that missed the record differs from one with zeros in its place, for a box may tell how many records
it was given (Lebeda, Regehr, Kamath & Steinke 2024 show what is lost by overlooking such cases).

**Choices.** Noisy max and Laplace sparse vector are read as black boxes, under every adjacency.
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

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tacit.accounting.events import (
    AboveThreshold,
    ApproxDp,
    BlackBox,
    Composed,
    Exponential,
    LossDistribution,
    NoisyMax,
    PoissonSampled,
    PrivateSelection,
    PureDp,
    RandomAllocation,
    RenyiCurve,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedConcentrated,
    ZeroConcentrated,
    distance,
)
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import Adjacency, Event

_ROUND_UP = 1.0 + 2.0**-50
_STEPS: dict[tuple[Adjacency, Adjacency], int] = {
    ("add-remove", "replace-one"): 2,
    ("add-remove", "zero-out"): 2,
    ("replace-one", "zero-out"): 1,
    ("zero-out", "replace-one"): 2,
}
"""How many steps of the first adjacency lead from a data set to its neighbour under the second."""


class Promise(NamedTuple):
    """An (ε, δ) that a release is known to keep."""

    epsilon: float
    delta: float = 0.0


def named(event: Event, adjacency: Adjacency) -> Event:
    """``event`` with ``adjacency`` in each of its black boxes that names none.

    >>> named(Repeated(PureDp(1.0), 2), "zero-out")
    Repeated(event=PureDp(epsilon=1.0, adjacency='zero-out'), times=2)
    """

    def name(box: BlackBox) -> BlackBox:
        return box if box.adjacency is not None else replace(box, adjacency=adjacency)

    return _mapped(event, name)


def is_opaque(event: Event) -> bool:
    """Whether ``event`` holds a black box.

    >>> is_opaque(PoissonSampled(0.1, Composed(PureDp(1.0)))), is_opaque(Composed())
    (True, False)
    """
    found: list[BlackBox] = []

    def note(box: BlackBox) -> BlackBox:
        found.append(box)
        return box

    _mapped(event, note)
    return bool(found)


def _mapped(event: Event, change: Callable[[BlackBox], BlackBox]) -> Event:
    if isinstance(event, BlackBox):
        return change(event)
    match event:
        case Composed():
            inner = tuple(_mapped(one, change) for one in event.events)
            same = all(one is other for one, other in zip(inner, event.events, strict=True))
            return event if same else Composed(*inner)
        case PrivateSelection(base):
            changed = _mapped(base, change)
            return event if changed is base else replace(event, base=changed)
        case (
            Repeated()
            | PoissonSampled()
            | SampledWithoutReplacement()
            | SampledWithReplacement()
            | RandomAllocation()
        ):
            changed = _mapped(event.event, change)
            return event if changed is event.event else replace(event, event=changed)
        case _:
            return event


def held(box: BlackBox, adjacency: Adjacency, accountant: str) -> BlackBox:
    """What ``box`` promises under ``adjacency``.

    >>> held(PureDp(1.0, "add-remove"), "replace-one", "exact")
    PureDp(epsilon=2.0, adjacency='replace-one')

    Raises:
        UnsupportedEvent: if its own adjacency says nothing of such neighbours.
    """
    if is_direct(box, adjacency):
        return box
    assert box.adjacency is not None  # else it is direct
    steps = _STEPS.get((box.adjacency, adjacency))
    if steps is None:
        reason = (
            f"it holds under {box.adjacency!r}, which says nothing of samples or data sets that "
            f"differ here by {adjacency!r}; give the guarantee that it has under {adjacency!r}"
        )
        raise UnsupportedEvent(box, accountant, reason)
    return replace(box if steps == 1 else _twice(box, accountant), adjacency=adjacency)


def is_direct(box: BlackBox, adjacency: Adjacency) -> bool:
    """Whether ``adjacency`` is the box's own, so that its promise is what is asked."""
    return box.adjacency in (None, adjacency)


def _twice(box: BlackBox, accountant: str) -> BlackBox:
    """The promise over two steps.

    For (ε, δ): P(S) ≤ e^ε·(e^ε·R(S) + δ) + δ. Divergences: Mironov 2017, Proposition 11 with
    p = (2β-1)/β, that is, D_β(P‖R) ≤ 2β/(2β-1)·D_{2β-1}(P‖Q) + D_{2β}(Q‖R), of which ρα makes 4ρβ,
    and ξ at most 3ξ;
    in a table D_{2β-1} is read as D_{2β}, which is no smaller.
    """
    match box:
        case PureDp(epsilon) | Exponential(epsilon):
            return replace(box, epsilon=2.0 * epsilon)
        case ApproxDp():
            return replace(box, **_two_steps(Promise(box.epsilon, box.delta))._asdict())
        case ZeroConcentrated(rho):
            return replace(box, rho=4.0 * rho, xi=3.0 * box.xi)
        case TruncatedConcentrated(rho, omega) if omega > 2.0:
            return replace(box, rho=4.0 * rho, omega=0.5 * omega)
        case RenyiCurve() if box.orders[-1] > 2.0:
            known = [(a, d) for a, d in zip(box.orders, box.values, strict=True) if a > 2.0]
            values = tuple((2.0 * a - 1.0) / (a - 1.0) * d * _ROUND_UP for a, d in known)
            return replace(box, orders=tuple(0.5 * a for a, _ in known), values=values)
        case LossDistribution():
            reason = f"what two steps of {box.adjacency!r} cost does not follow from its loss"
            raise UnsupportedEvent(box, accountant, reason)
        case _:
            reason = f"two steps of {box.adjacency!r} need a Rényi order above 2, which it has not"
            raise UnsupportedEvent(box, accountant, reason)


def _two_steps(promise: Promise) -> Promise:
    grown = (1.0 + math.exp(min(promise.epsilon, 700.0))) * promise.delta * _ROUND_UP
    return Promise(2.0 * promise.epsilon, min(1.0, grown))


def moves(event: NoisyMax | AboveThreshold, adjacency: Adjacency) -> tuple[float, float]:
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


def pure_loss(event: NoisyMax | AboveThreshold, adjacency: Adjacency) -> float | None:
    """The pure ε under ``adjacency``; None for Gaussian noise, which has none.

    Guarantee:
        The event is ε-differentially private under that adjacency.

    >>> pure_loss(AboveThreshold(2.0, 8.0, cutoff=2), "add-remove")
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
    get the name of this one there, if they have none.

    >>> concrete(NoisyMax(2.0), "add-remove"), concrete(NoisyMax(2.0, "laplace"), "add-remove")
    (Exponential(epsilon=1.0), PureDp(epsilon=1.0))

    Raises:
        UnsupportedEvent: if it is a black box that promises nothing under ``adjacency``.
    """
    if isinstance(event, BlackBox):
        return held(event, adjacency, accountant)
    match event:
        case NoisyMax() | AboveThreshold():
            loss = pure_loss(event, adjacency)
            if loss is None:
                return event
            bounded_range = isinstance(event, NoisyMax) and event.noise == "gumbel"
            return Exponential(loss) if bounded_range else PureDp(loss)
        case (
            PoissonSampled()
            | SampledWithoutReplacement()
            | SampledWithReplacement()
            | RandomAllocation()
            | PrivateSelection()
        ):
            return named(event, adjacency)
        case _:
            return event


def promise_of(event: Event) -> Promise | None:
    """The (ε, δ) of a promise that is such a pair."""
    match event:
        case PureDp(epsilon):
            return Promise(epsilon)
        case ApproxDp(epsilon, delta):
            return Promise(epsilon, delta)
        case _:
            return None


def amplified(rate: float, epsilon: float) -> float:
    """ln(1 + rate·(e^ε - 1)), without overflow.

    >>> round(amplified(0.01, 1.0), 9)
    0.017036863
    """
    if epsilon < 500.0:
        return math.log1p(rate * math.expm1(epsilon))
    return max(0.0, epsilon * _ROUND_UP + math.log(rate + (1.0 - rate) * math.exp(-epsilon)))


def sampled(rate: float, near: Promise, across: Promise) -> Promise:
    """The promise of (1-q)A + qB against (1-q)A + qC.

    ``near`` relates A to B and A to C, ``across`` B to C. The smaller of two bounds counts:

    - with (ε, δ) the larger of both promises, (ln(1 + q(e^ε - 1)), qδ), because for β in [0, 1] the
      divergence of the mixtures is q times that of B from (1-β)A + βC, at ε (Balle, Barthe &
      Gaboardi 2018, Theorem 2, and the convexity of divergences);
    - with (ε, δ) the first alone and r = (1-q + q·e^ε)/(1-q + q·e^-ε), (ln r, qδ(1 + r·e^-ε)): by
      B ≤ e^ε·A + δ the one mixture is at most (1-q + q·e^ε)A + qδ, and by A ≤ e^ε·C + δ the other
      at least (1-q + q·e^-ε)A - qδ·e^-ε.

    Guarantee:
        Both hold for every mechanism that keeps the promises.

    >>> round(sampled(0.01, Promise(1.0), Promise(2.0)).epsilon, 6)
    0.023378
    """
    larger = max(near.epsilon, across.epsilon)
    by_mixing = Promise(amplified(rate, larger) * _ROUND_UP, rate * max(near.delta, across.delta))
    fall = rate * math.expm1(-near.epsilon)
    if fall <= -1.0:  # nothing is left of A
        return by_mixing
    log_ratio = (amplified(rate, near.epsilon) - math.log1p(fall)) * _ROUND_UP
    both = 1.0 + math.exp(min(log_ratio - near.epsilon, 700.0))
    return min(by_mixing, Promise(log_ratio, min(1.0, rate * near.delta * both * _ROUND_UP)))
