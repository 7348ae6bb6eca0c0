"""The dominating pairs of sampled events.

- Poisson sampling, add-remove: (1-q)·Q + q·P against Q, and the reverse (Zhu, Dong & Wang 2022,
  Theorem 11). Zero-out is the same pair: the record's place is sampled alike and adds nothing.
- Poisson sampling of a Gaussian, replace-one: (1-q)·N(0) + q·N(1) against (1-q)·N(0) + q·N(-1)
  (Lebeda, Regehr, Kamath & Steinke 2024), for the distance 2; smaller ones are bounded by it, and
  those up to 1 by the pair of fixed-size sampling below, with the base at the distance 1.
- A group of k under Poisson sampling: the Binomial(k, q) mixture (Ganesh 2024).
- Fixed-size sampling, replace-one: for ε ≥ 0 the first pair above with the base at its replace
  distance, for ε < 0 its mirror image (Zhu et al. 2022, Theorem 11; Balle, Barthe & Gaboardi 2018,
  Theorems 9 and 10). Zero-out is a replacement by a record that adds nothing; of Gaussian noise
  more is known (``_zeroed``).
- Fixed-size sampling, add-remove: a sample with the record differs from one without it by a
  replacement, so the pair is the first one at rate size/population and the replace distance. With
  replacement, given the draws without the record, K ~ Binomial(size, 1/population) of them become
  the record: a mixture of K replacements (Ganesh 2024), or one with K shown.
- Black boxes, of which only a promise is known: by what the promise says of the samples with and
  without the record (``tacit.accounting.black_boxes``); where it says nothing of them, as if it
  were shown whether the record was drawn.
- Random allocation of Gaussians, add-remove and zero-out: ``allocation``. Where its noise is so
  small that allocation hides nothing, the Gaussian pair bounds it, for divergences are jointly
  convex; where steps are more than can be computed with, fewer bound it: the mean of more
  independent ratios is smaller in convex order.
- Truncated Poisson: a coupling with the untruncated one fails with some probability on either data
  set, which is charged to δ (``tacit.accounting.failures``); or as if it were shown whether the
  others fill the sample, of Gaussian and Laplace noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import betainc

from tacit.accounting.black_boxes import (
    Promise,
    concrete,
    held,
    is_direct,
    is_opaque,
    promise_of,
    sampled,
)
from tacit.accounting.events import (
    AboveThreshold,
    Adjacency,
    ApproxDp,
    BlackBox,
    Composed,
    DiscreteLaplace,
    Event,
    Gaussian,
    GaussianMixture,
    Laplace,
    NoisyMax,
    PoissonSampled,
    PureDp,
    RandomAllocation,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
)
from tacit.accounting.exact.allocation import (
    LEAST_SIGMA,
    MOST_NARROW,
    MOST_SPREAD,
    AllocationLoss,
)
from tacit.accounting.exact.atoms import sampled_atoms
from tacit.accounting.exact.closed_forms import LaplaceLoss
from tacit.accounting.exact.either import EitherLoss
from tacit.accounting.exact.folded import FoldedLoss
from tacit.accounting.exact.grid import composed_cells
from tacit.accounting.exact.lattice import MOST_LOSS, LatticeLoss
from tacit.accounting.exact.mean_ratio import LITTLE
from tacit.accounting.exact.mixture import MixturePair, MixtureSide
from tacit.accounting.exact.pairs import (
    Cells,
    DominatingPair,
    PairLoss,
    atoms,
    base_pair,
    black_box,
    distance_of,
    join,
    mixture_cells,
)
from tacit.accounting.exact.sampled_laplace import SampledLaplaceLoss
from tacit.accounting.failures import truncation_of
from tacit.accounting.normal_form import parts_of_simple
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable


_MANY_CELLS = 100_000
_NEGLIGIBLE = 1e-30  # beside the likeliest number of draws
_PLAIN = MixtureSide()


def poisson_part(
    event: PoissonSampled, adjacency: Adjacency, *, shown: bool = False
) -> DominatingPair | None:
    """The pair of Poisson sampling, truncated or not; None if it gives nothing away.

    If ``shown``, a truncated sample is bounded as if it were known whether the others fill it, and
    by its coupling otherwise.
    """
    if shown and event.cap is not None and event.population is not None:
        return _truncated(event, event.cap, event.population, adjacency)
    part = _uncapped(event.rate, event.event, adjacency)
    if part is None or event.cap is None or event.population is None:
        return part
    return replace(part, tight=False, coupling=truncation_of(event))


def _truncated(
    event: PoissonSampled, cap: int, population: int, adjacency: Adjacency
) -> DominatingPair | None:
    """A truncated sample of which it is known whether ``cap`` other records were sampled.

    If fewer were, the record joins them when it is sampled: the pair of untruncated sampling. Else
    it takes the place of another one, with a probability of ``rate``·cap/(k+1) if k others were
    sampled, at most t = ``rate``·cap/(cap+1): the pair of fixed-size sampling. How many others are
    sampled does not depend on the record, and divergences are jointly convex, so that the two may
    be told apart. (Ganesh 2025 has the mean of those probabilities for an exact number of records.)

    ``population`` is a bound: of fewer records fewer fill the sample. So what counts as the second
    pair must be no better than the first, which that at rate t may be (near ε = 0, or where a
    replacement moves no more than an addition). At ``rate`` itself it is the worse one; of Gaussian
    noise, so are shifts by 0, 1 and the distance with probabilities 1 - rate, rate - t and t: with
    a likelihood ratio that rises in x, tails decide, and theirs are above those of both pairs.
    """
    inner, rate = event.event, event.rate
    if not isinstance(inner, Gaussian | Laplace):
        return poisson_part(event, adjacency)
    full = min(1.0, float(betainc(cap, max(population - cap, 1), rate)) * (1.0 + 1e-9))
    distance = max(1.0, inner.replace_distance)
    room, swapped = _uncapped(rate, inner, adjacency), base_pair(inner, distance)
    if room is None or swapped is None:
        return room
    if isinstance(inner, Gaussian) and adjacency == "add-remove":
        taken = rate * (cap / (cap + 1.0))
        shifts = MixtureSide((1.0 - rate, rate - taken, taken), (0.0, 1.0, distance))
        worse = mixture_part(inner.sigma, shifts)
    elif adjacency == "add-remove":
        worse = _sampled_part(swapped, rate)
    else:
        worse = DominatingPair(PairLoss(lambda step: _mirrored(swapped.cells(step), rate)))

    def either(side: PairLoss, other: PairLoss) -> PairLoss:
        def joined(step: float) -> Cells:
            if isinstance(inner, Laplace):  # a sample's losses are finer than those of its base
                step = max(step, inner.replace_distance / inner.scale / _MANY_CELLS)
            return join(side.cells(step).scaled(1.0 - full), other.cells(step).scaled(full))

        if isinstance(side.loss, MixturePair) and isinstance(other.loss, MixturePair):
            return PairLoss(joined, EitherLoss((1.0 - full, full), (side.loss, other.loss)))
        return PairLoss(joined)

    backward = room.backward
    if backward is not None:
        backward = either(backward, worse.backward or worse.forward)
    return DominatingPair(either(room.forward, worse.forward), backward, tight=False)


def _uncapped(rate: float, inner: Event, adjacency: Adjacency) -> DominatingPair | None:
    if isinstance(inner, BlackBox) and adjacency != "add-remove":
        return _poisson_box(rate, inner, adjacency)
    if adjacency == "replace-one":
        return _poisson_replace_one(rate, concrete(inner, "replace-one"), inner)
    match inner:
        case Gaussian(sigma):
            return mixture_part(sigma, MixtureSide((1.0 - rate, rate), (0.0, 1.0)))
        case GaussianMixture(sigma, weights, shifts) if inner.describes(adjacency):
            scaled = tuple(rate * weight for weight in weights)
            return mixture_part(sigma, MixtureSide((1.0 - rate, *scaled), (0.0, *shifts)))
        case _:
            base = _single(inner, adjacency)
            if base is None:
                return None
            tight = not isinstance(inner, Repeated | Composed)
            return replace(_sampled_part(base, rate), tight=tight)


def _single(inner: Event, adjacency: Adjacency) -> PairLoss | None:
    """The pair of what is sampled, when the record is left out (which for zeros is the same)."""
    if isinstance(inner, Repeated | Composed):
        if adjacency != "add-remove" and is_opaque(inner):
            reason = "a sampled composition of black boxes is known under add-remove only"
            raise UnsupportedEvent(inner, "exact", reason)
        return _product(
            [
                (base_pair(concrete(part, "add-remove"), distance_of(part, adjacency)), count)
                for part, count in parts_of_simple(inner)
            ]
        )
    return base_pair(concrete(inner, "add-remove"), distance_of(inner, adjacency))


def _product(found: list[tuple[PairLoss | None, int]]) -> PairLoss | None:
    """The pair of a composition, for a sampler to act on: as cells that raise its profile."""
    pairs = [(pair, count) for pair, count in found if pair is not None]
    if not pairs:
        return None

    @lru_cache(maxsize=4)
    def cells(step: float) -> Cells:
        return composed_cells([(pair.cells, count) for pair, count in pairs], step)

    return PairLoss(cells)


def _poisson_box(rate: float, box: BlackBox, adjacency: Adjacency) -> DominatingPair | None:
    """A black box on a Poisson sample, replacing a record or zeroing it out."""
    across = promise_of(held(box, adjacency, "exact"))
    if across is None:
        raise UnsupportedEvent(PoissonSampled(rate, box), "exact", "it has no dominating pair")
    try:
        near = promise_of(held(box, "add-remove", "exact"))
    except UnsupportedEvent:
        return _shown(rate, across, tight=is_direct(box, adjacency))
    assert near is not None  # a promise of the same kind
    return _promise(sampled(rate, near, across))


def _shown(rate: float, loss: Promise, *, tight: bool) -> DominatingPair | None:
    """It is shown whether the record was drawn, with probability ``rate``; else there is no loss.

    Divergences are jointly convex, so that q times the box's profile is a bound. A box that tells
    the size of its sample attains it.
    """
    epsilon, failure = loss
    if epsilon == 0.0 and failure == 0.0:
        return None
    truth = rate * (1.0 - failure) / (1.0 + math.exp(-epsilon))
    lie = truth * math.exp(-epsilon)
    rest, failed = 1.0 - rate, rate * failure
    p, q = np.array([failed, truth, rest, lie, 0.0]), np.array([0.0, lie, rest, truth, failed])
    spread = LatticeLoss(0.0, epsilon, -1, np.array([lie, rest, truth]))
    if epsilon == 0.0:
        spread = LatticeLoss(0.0, 1.0, 0, np.array([1.0 - failed]))
    return DominatingPair(PairLoss(lambda _: atoms(p, q), spread, failed), tight=tight)


def mixture_part(sigma: float, side: MixtureSide) -> DominatingPair:
    """The mixture ``side`` against plain noise, and the reverse."""
    forward, backward = MixturePair(sigma, side, _PLAIN), MixturePair(sigma, _PLAIN, side)
    return DominatingPair(_of_mixture(forward), _of_mixture(backward))


def _of_mixture(pair: MixturePair) -> PairLoss:
    return PairLoss(lambda step: mixture_cells(pair, step), pair)


def _poisson_replace_one(rate: float, promised: Event, inner: Event) -> DominatingPair | None:
    """``promised`` is what ``inner`` promises when a record of its sample is replaced."""
    match promised:
        case Gaussian(_, distance) if distance <= 1.0:
            return _replaced(inner, rate)
        case Gaussian(sigma, distance) if distance <= 2.0:
            weights = (1.0 - rate, rate)
            pair = MixturePair(
                sigma, MixtureSide(weights, (0.0, 1.0)), MixtureSide(weights, (0.0, -1.0))
            )
            return DominatingPair(_of_mixture(pair), tight=distance == 2.0)
        case Laplace(scale, distance):
            return _promise(sampled(rate, Promise(1.0 / scale), Promise(distance / scale)))
        case DiscreteLaplace(scale, sensitivity, distance):
            unit = sensitivity / scale
            return _promise(sampled(rate, Promise(unit), Promise(distance * unit)))
        case RandomizedResponse():
            return _promise(sampled(rate, Promise(promised.loss), Promise(promised.loss)))
        case PureDp(across):
            near = promise_of(concrete(inner, "add-remove"))
            assert near is not None  # a choice of bounded loss has one under each adjacency
            return _promise(sampled(rate, near, Promise(across)))
        case _:
            event = PoissonSampled(rate, inner)
            raise UnsupportedEvent(event, "exact", "no pair is known under replace-one")


def _replaced(inner: Event, rate: float) -> DominatingPair | None:
    """Poisson sampling, replace-one, of a base whose replace distance is at most 1.

    Given who else is sampled, the output is μ = (1-q)·μ₀ + q·μ₁ on one data set and
    (1-q)·μ₀ + q·μ₂ on the other: without the record, with it, and with the other in its place.
    Balle, Barthe & Gaboardi 2018, Theorem 2: for e^ε' = 1 + q(e^ε - 1), ε ≥ 0 and β = e^(ε'-ε),
    D_ε'(μ‖μ') = q·D_ε(μ₁‖(1-β)·μ₀ + β·μ₂) ≤ q·[(1-β)·D_ε(μ₁‖μ₀) + β·D_ε(μ₁‖μ₂)], D being the
    hockey-stick divergence, convex in its second argument. μ₁ is at most at distance 1 from both
    μ₀ and μ₂, so that q times the base's profile at distance 1 is a bound; and it stays one when
    those who are sampled beside it vary, for D is jointly convex. For ε' < 0 the same holds of
    the reverse. Together that is the profile of fixed-size sampling.
    """
    base = base_pair(inner, 1.0)
    if base is None:
        return None
    loss = FoldedLoss(rate, 1.0 / inner.sigma) if isinstance(inner, Gaussian) else None
    return DominatingPair(
        PairLoss(lambda step: _mirrored(base.cells(step), rate), loss), tight=False
    )


def _promise(loss: Promise) -> DominatingPair | None:
    """An (ε, δ) that holds, and need not be attained."""
    pair = black_box(*loss)
    return None if pair is None else DominatingPair(pair, tight=False)


def _sampled_part(base: PairLoss, rate: float) -> DominatingPair:
    def forward(step: float) -> Cells:
        return base.cells(step).sampled(rate)

    def backward(step: float) -> Cells:
        return forward(step).reversed()

    return DominatingPair(
        _from_cells(forward, base, rate, reverse=False),
        _from_cells(backward, base, rate, reverse=True),
    )


def _from_cells(
    make: Callable[[float], Cells], base: PairLoss, rate: float, *, reverse: bool
) -> PairLoss:
    """A pair of two outputs is a lattice of two points, more are atoms; others stay cells."""
    if base.infinite > 0.0 or rate == 1.0:
        return PairLoss(make)
    if isinstance(base.loss, LaplaceLoss) and base.loss.distance <= MOST_LOSS:
        return PairLoss(make, SampledLaplaceLoss(base.loss.distance, rate, reverse=reverse))
    if not isinstance(base.loss, LatticeLoss) or base.loss.is_out_of_range:
        return PairLoss(make)
    if len(base.loss.masses) > 2:
        return PairLoss(make, sampled_atoms(base.loss, rate, reverse=reverse))
    cells = make(1.0)
    if len(cells.low) != 2 or not np.isfinite(cells.low).all():
        return PairLoss(make)  # a loss beyond floating-point numbers
    order = np.argsort(cells.low)
    first, last = cells.low[order].tolist()
    return PairLoss(make, LatticeLoss(first, last - first, 0, cells.p[order]))


def without_replacement_part(
    event: SampledWithoutReplacement, adjacency: Adjacency
) -> DominatingPair | None:
    """The pair of fixed-size sampling without replacement."""
    return _fixed_size(event, event.event, event.size / event.population, _ONCE, adjacency)


def attained_part(event: Event, adjacency: Adjacency) -> DominatingPair | None:
    """A pair of two actual neighbours, where the dominating one is that of none; None if unknown.

    Fixed-size sampling of Gaussian noise, on data sets in which all other records are alike, the
    replace distance away from the record. It is replaced by one more of them, or zeroed out
    (``_zeroed``); or added, to as many records as there are or to one less: the rate is then
    size/(population + 1), at least.

    Guarantee:
        No δ(ε) of the event, under composition too, is below that of the pair.
    """
    if not isinstance(event, SampledWithoutReplacement) or not isinstance(event.event, Gaussian):
        return None
    sigma, distance = event.event.sigma, event.event.replace_distance
    if adjacency == "add-remove":
        rate = event.size / (event.population + 1.0)
        return mixture_part(sigma / distance, MixtureSide((1.0 - rate, rate), (0.0, 1.0)))
    rate = event.size / event.population
    if adjacency == "replace-one":
        return mixture_part(sigma / distance, MixtureSide((1.0 - rate, rate), (0.0, 1.0)))
    if not 1.0 <= distance <= 2.0:
        return None  # a record that adds nothing is within 1 of every other
    pair = _zeroed_pair(sigma, distance, rate)
    other = replace(pair, numerator=pair.denominator, denominator=pair.numerator)
    return DominatingPair(_of_mixture(pair), _of_mixture(other))


def with_replacement_part(
    event: SampledWithReplacement, adjacency: Adjacency
) -> DominatingPair | None:
    """The pair of sampling with replacement: a record may be drawn several times."""
    chance = 1.0 / event.population
    rate = -math.expm1(event.size * math.log1p(-chance)) if event.population > 1 else 1.0
    return _fixed_size(event, event.event, rate, _draws(event.size, chance), adjacency)


def allocation_part(event: RandomAllocation, adjacency: Adjacency) -> DominatingPair | None:
    """The pair of one epoch of random allocation, one visit each."""
    inner = event.event
    if not isinstance(inner, Gaussian):
        raise UnsupportedEvent(event, "exact", "allocation is known for Gaussian steps only")
    if adjacency == "replace-one":
        reason = "allocation is known where a record is added, removed or zeroed out"
        raise UnsupportedEvent(event, "exact", reason)
    if inner.sigma < LEAST_SIGMA:
        return DominatingPair(_gaussian_pair(inner), tight=False)
    most = MOST_NARROW if inner.sigma >= LITTLE else MOST_SPREAD
    steps = min(event.steps, max(2, math.floor((most / inner.sigma) ** 2)))
    if inner.sigma * math.sqrt(steps) > most:
        return DominatingPair(_gaussian_pair(inner), tight=False)

    def cells(step: float) -> Cells:  # noqa: ARG001
        reason = "allocation composes with releases whose loss has a transform only"
        raise UnsupportedEvent(event, "exact", reason)

    forward, backward = (AllocationLoss(inner.sigma, steps, removed) for removed in (True, False))
    return DominatingPair(
        PairLoss(cells, forward), PairLoss(cells, backward), tight=steps == event.steps
    )


def _gaussian_pair(event: Gaussian) -> PairLoss:
    pair = base_pair(event, 1.0)
    assert pair is not None  # Gaussian noise always gives something away
    return pair


def _fixed_size(
    event: Event, inner: Event, rate: float, drawn: _Draws, adjacency: Adjacency
) -> DominatingPair | None:
    """The record is drawn with probability ``rate``. Beyond counting, its loss is infinite."""
    counts, beyond = drawn
    distance = max(1.0, distance_of(inner, "replace-one"))
    if adjacency == "zero-out" and drawn == _ONCE and isinstance(inner, Gaussian):
        return _zeroed(inner.sigma, distance, rate)
    if isinstance(inner, BlackBox | NoisyMax | AboveThreshold):
        inner = _largest_promise(event, inner, adjacency)
    bases = [(base_pair(inner, times * distance), weight) for times, weight in counts.items()]
    if any(base is None for base, _ in bases):
        return None
    cells = _revealed([(base, weight) for base, weight in bases if base is not None], beyond)
    if adjacency == "add-remove":
        if isinstance(inner, Gaussian):
            weights = (1.0 - rate, *(rate * weight for weight in counts.values()))
            side = MixtureSide(weights, (0.0, *map(float, counts)))
            part = _often(mixture_part(inner.sigma / distance, side), rate * beyond)
        else:
            part = _sampled_part(PairLoss(cells), rate)
        return replace(part, tight=False)
    loss = None
    if isinstance(inner, Gaussian) and drawn == _ONCE and rate < 1.0:
        loss = FoldedLoss(rate, distance / inner.sigma)
    return DominatingPair(PairLoss(lambda step: _mirrored(cells(step), rate), loss), tight=False)


def _largest_promise(event: Event, inner: Event, adjacency: Adjacency) -> Event:
    """What ``inner`` promises of samples that differ by a replaced record, or by a zeroed one."""
    related: tuple[Adjacency, ...] = ("replace-one",)
    if adjacency == "zero-out":
        related = ("replace-one", "zero-out")
    found = [promise_of(concrete(inner, one)) for one in related]
    losses = [loss for loss in found if loss is not None]
    if len(losses) < len(found):
        raise UnsupportedEvent(event, "exact", "it has no dominating pair that tacit knows")
    return ApproxDp(max(one.epsilon for one in losses), max(one.delta for one in losses))


def _revealed(bases: list[tuple[PairLoss, float]], beyond: float) -> Callable[[float], Cells]:
    """One of the pairs, chosen with its weight, or one that reveals all; the choice is shown."""
    told = _told(beyond)
    return lambda step: join(*(base.cells(step).scaled(weight) for base, weight in bases), told)


def _told(mass: float) -> Cells:
    """A part of both sides that tells them apart."""
    return atoms(np.array([mass, 0.0]), np.array([0.0, mass]))


def _often(part: DominatingPair, mass: float) -> DominatingPair:
    """A mixture that leaves out ``mass`` of its far side: there its outputs are not the other's.

    So its own loss is infinite. Where the other side is the true one they never come up, and what
    is left weighs that much less: of ln P/Q a hundredth of a millionth of its rounding.
    """
    if mass == 0.0 or part.backward is None:
        return part
    forward, backward, told = part.forward, part.backward, _told(mass)
    gone = Cells(told.p[:1], told.q[:1], told.low[:1], told.high[:1])
    return DominatingPair(
        PairLoss(lambda step: join(forward.cells(step), gone), forward.loss, mass),
        PairLoss(lambda step: join(backward.cells(step), gone.reversed()), backward.loss),
    )


def _zeroed(sigma: float, distance: float, rate: float) -> DominatingPair:
    """Gaussian noise on a sample of fixed size in which a record may be zeroed.

    Drawn, the record adds its own contribution (B) or nothing (C), 1 apart; undrawn, another record
    has its place (A), which may be ``distance`` away from B. The worst three lie on one line, A
    and C on the same side of B (``tacit.accounting.renyi.sampling``): at 0, distance and
    distance - 1. Where a zeroed record becomes itself, C is within 1 of both: a smaller loss. So
    the outputs that B makes likelier bound both directions for ε ≥ 0, and their mirror images do
    below.
    """
    pair = _zeroed_pair(sigma, distance, rate)

    def cells(step: float) -> Cells:
        above = mixture_cells(pair, step, start=distance - 0.5)
        rest = np.array([max(0.0, 1.0 - float(above.p.sum()) - float(above.q.sum()))])
        return join(above, above.reversed(), Cells(rest, rest, np.zeros(1), np.zeros(1)))

    loss = FoldedLoss(rate, distance / sigma, (distance - 1.0) / sigma) if rate < 1.0 else None
    return DominatingPair(PairLoss(cells, loss), tight=False)


def _zeroed_pair(sigma: float, distance: float, rate: float) -> MixturePair:
    weights = (1.0 - rate, rate)
    return MixturePair(
        sigma, MixtureSide(weights, (0.0, distance)), MixtureSide(weights, (0.0, distance - 1.0))
    )


def _mirrored(cells: Cells, rate: float) -> Cells:
    """Losses above 0 as if the record were removed, those below as if it were added.

    Both halves have the same total variation distance, so that they fit together at 0, where the
    rest of the mass lies.
    """
    top = cells.high > 0.0  # as a sampled loss is
    above = cells.kept(top).sampled(rate)
    below = cells.kept(~top).reversed().sampled(rate).reversed()
    rest = np.array([max(0.0, 1.0 - float(above.p.sum()) - float(below.p.sum()))])
    return join(
        Cells(above.p, above.q, np.maximum(above.low, 0.0), above.high),
        below,
        Cells(rest, rest, np.zeros(1), np.zeros(1)),
    )


class _Draws(NamedTuple):
    """How often a record is drawn, given that it is: by number, and more often than any of them."""

    counts: dict[int, float]
    beyond: float = 0.0


_ONCE = _Draws({1: 1.0})


def _draws(draws: int, chance: float) -> _Draws:
    """P(K = k | K ≥ 1) for K ~ Binomial(draws, chance), rounded to more draws.

    Every step of the recurrence and of the sums is off by a few roundings, by which P(K ≥ k) is
    raised: more draws are a larger loss, be their number shown or not. What lies beyond the last k
    is bounded by a geometric series, for the ratio of neighbours falls.
    """
    if chance == 1.0:
        return _Draws({draws: 1.0})
    odds = chance / (1.0 - chance)
    top = min(max(math.floor((draws + 1) * chance), 1), draws)
    masses, rest = {top: 1.0}, 0.0
    for k in range(top, 1, -1):  # k·P(K = k) = (draws - k + 1)·odds·P(K = k - 1)
        masses[k - 1] = masses[k] * k / ((draws - k + 1) * odds)
        if masses[k - 1] < _NEGLIGIBLE:
            break
    last = top
    while last < draws:
        ratio = (draws - last) * odds / (last + 1)
        if masses[last] < _NEGLIGIBLE and ratio < 0.5:
            rest = masses[last] * ratio / (1.0 - ratio)
            break
        masses[last + 1] = masses[last] * ratio
        last += 1
    total, margin = math.fsum(masses.values()), 1.0 + 2.0**-50 * (len(masses) + 1)
    beyond, counts = rest / total * margin, {}
    tail, above = rest, beyond
    for k in sorted(masses, reverse=True):
        tail += masses[k]
        at_least = min(1.0, tail / total * margin)
        if at_least > above:
            counts[k] = at_least - above
        above = at_least
    return _Draws(dict(sorted(counts.items())), beyond)
