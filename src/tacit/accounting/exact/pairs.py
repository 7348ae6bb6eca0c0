"""From events to dominating pairs: the losses whose sum bounds what an event gives away.

A pair (P, Q) dominates a mechanism if its δ(ε) is nowhere below that of any two neighbouring data
sets; pairs compose (Zhu, Dong & Wang 2022, Theorem 10). Where P and Q are the outputs on two actual
neighbours, the pair is tight and the answer two-sided. Sources:

- Poisson sampling, add-remove: (1-q)·Q + q·P against Q, and the reverse (ibid., Theorem 11). Zero-out
  is the same pair, for the record's place is sampled alike and contributes nothing.
- Poisson sampling of a Gaussian, replace-one: (1-q)·N(0) + q·N(1) against (1-q)·N(0) + q·N(-1)
  (Lebeda, Regehr, Kamath & Steinke 2024, for the distance 2; smaller distances are bounded by it).
- A group of k under Poisson sampling: the Binomial(k, q) mixture (Ganesh 2024).
- Fixed-size sampling, replace-one: for ε ≥ 0 the pair above with the base at its replace distance,
  for ε < 0 its mirror image (Zhu et al. 2022, Theorem 11; Balle, Barthe & Gaboardi 2018, Theorems 9
  and 10). Add-remove: the sample with the record differs from one without it by a replacement, so
  the pair is that of Poisson sampling at rate size/population with the base at its replace distance.
- Truncated Poisson: a coupling with the untruncated one fails with probability P(Bin(n, q) > cap)
  on either data set, which adds (1 + e^ε) times that to δ (Chua et al. 2024).
- (ε, δ)-DP: randomised response that fails with probability δ (Kairouz, Oh & Viswanath 2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtrc

from tacit.accounting.events import (
    Adjacency,
    ApproxDp,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    GaussianMixture,
    Laplace,
    PoissonSampled,
    PureDp,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
)
from tacit.accounting.exact.cells import (
    Cells,
    atoms,
    between_lattice_losses,
    join,
    laplace_cells,
    mixture_cells,
)
from tacit.accounting.exact.closed_form import GaussianLoss, LaplaceLoss
from tacit.accounting.exact.lattice_loss import LatticeLoss
from tacit.accounting.exact.mixture import MixtureLoss
from tacit.accounting.exact.mixture_nodes import MixturePair, Side
from tacit.accounting.normal_form import parts
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGEST_DISCRETE = 20_000.0


@dataclass(frozen=True, eq=False)
class PairLoss:
    """One direction of a dominating pair.

    Attributes:
        cells: Cuts the pair into cells over which the loss changes by at most the given step.
        loss: The loss with its transform, if it has one.
        infinite: The probability of an infinite loss, which ``loss`` leaves out.
    """

    cells: Callable[[float], Cells]
    loss: GaussianLoss | LaplaceLoss | MixtureLoss | LatticeLoss | None = None
    infinite: float = 0.0


Direction = tuple[tuple[PairLoss, int], ...]
"""One direction of a composition: its pairs and how often each occurs."""


@dataclass(frozen=True, eq=False)
class Part:
    """Both directions of a dominating pair (``backward`` is None where they are alike).

    Attributes:
        forward: The loss of P against Q under P.
        backward: The loss of Q against P under Q, or None.
        tight: Whether actual neighbours attain the pair.
        coupling: Total variation distance to the real mechanism, which the pair leaves out.
    """

    forward: PairLoss
    backward: PairLoss | None = None
    tight: bool = True
    coupling: float = 0.0


@dataclass(frozen=True, eq=False)
class Decomposition:
    """An event as independent dominating pairs."""

    parts: tuple[tuple[Part, int], ...]

    @property
    def tight(self) -> bool:
        """Whether the composition of the pairs is attained."""
        return all(part.tight for part, _ in self.parts)

    @property
    def coupling(self) -> float:
        """Total variation distance to the real composition."""
        return math.fsum(count * part.coupling for part, count in self.parts)

    def directions(self) -> list[Direction]:
        """The compositions whose larger δ(ε) counts."""
        forward = tuple((part.forward, count) for part, count in self.parts)
        if all(part.backward is None for part, _ in self.parts):
            return [forward]
        backward = tuple((part.backward or part.forward, count) for part, count in self.parts)
        return [forward, backward]


def decompose(event: Event, adjacency: Adjacency) -> Decomposition:
    """The dominating pairs of ``event``.

    Raises:
        UnsupportedEvent: if a part of it has none that we know.
    """
    found = [(_part(part, adjacency), count) for part, count in parts(event)]
    return Decomposition(tuple((part, count) for part, count in found if part is not None))


def _part(event: Event, adjacency: Adjacency) -> Part | None:
    match event:
        case PoissonSampled():
            return _poisson(event, adjacency)
        case SampledWithoutReplacement(population, size, inner):
            return _fixed_size(event, inner, size / population, {1: 1.0}, adjacency)
        case SampledWithReplacement(population, size, inner):
            counts = _binomial(size, 1.0 / population)
            rate = -math.expm1(size * math.log1p(-1.0 / population)) if population > 1 else 1.0
            return _fixed_size(event, inner, rate, counts, adjacency)
        case GaussianMixture(sigma, weights, shifts):
            return _mixture_part(sigma, Side(weights, shifts))
        case _:
            pair = _base(event, _distance(event, adjacency))
            return None if pair is None else Part(pair)


def _distance(event: Event, adjacency: Adjacency) -> float:
    """How far the neighbour moves the noiseless answer, in units of one record's contribution."""
    match event:
        case Gaussian() | Laplace() | DiscreteGaussian() | DiscreteLaplace():
            return event.replace_distance if adjacency == "replace-one" else 1.0
        case _:
            return 1.0


def _base(event: Event, distance: float) -> PairLoss | None:
    """The pair of an event without sampling; None if it gives nothing away.

    For black boxes ``distance`` is a group size k: k·ε, and δ grows as group privacy says.
    """
    match event:
        case Gaussian(sigma):
            mu = distance / sigma
            pair = MixturePair(1.0 / mu, Side((1.0,), (1.0,)), Side())
            return PairLoss(lambda step: mixture_cells(pair, step), GaussianLoss(mu))
        case Laplace(scale):
            loss = LaplaceLoss(distance / scale)
            return PairLoss(lambda step: laplace_cells(loss.distance, step), loss)
        case DiscreteGaussian(sigma, sensitivity) if sigma <= _LARGEST_DISCRETE:
            return _lattice_pair(_discrete_gaussian(sigma, round(sensitivity * distance)))
        case DiscreteLaplace(scale, sensitivity):
            return _lattice_pair(_discrete_laplace(scale, round(sensitivity * distance)))
        case RandomizedResponse() if event.loss > 0.0:
            if distance > 1.0:
                return _black_box(distance * event.loss, 0.0)
            return _lattice_pair(_randomized_response(event.loss, event.categories))
        case PureDp(epsilon):
            return _black_box(distance * epsilon, 0.0)
        case ApproxDp(epsilon, delta):
            grown = distance * math.exp((distance - 1.0) * epsilon) * delta
            return _black_box(distance * epsilon, min(1.0, grown))
        case RandomizedResponse():
            return None
        case _:
            raise UnsupportedEvent(event, "exact", "it has no dominating pair that tacit knows")


def _lattice_pair(loss: LatticeLoss) -> PairLoss:
    return PairLoss(lambda step: between_lattice_losses(loss.masses, loss.losses), loss)  # noqa: ARG005


def _black_box(epsilon: float, delta: float) -> PairLoss | None:
    """(ε, δ)-DP: with probability δ everything is told, else randomised response at ε."""
    if epsilon == 0.0 and delta == 0.0:
        return None
    truth = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    lie = (1.0 - delta) * math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    p, q = np.array([delta, truth, lie, 0.0]), np.array([0.0, lie, truth, delta])
    spacing = 2.0 * epsilon if epsilon > 0.0 else 1.0
    loss = LatticeLoss(-epsilon, spacing, 0, np.array([lie, truth]))
    if epsilon == 0.0:
        loss = LatticeLoss(0.0, 1.0, 0, np.array([1.0 - delta]))
    return PairLoss(lambda step: atoms(p, q), loss, delta)  # noqa: ARG005


def _randomized_response(epsilon: float, categories: int) -> LatticeLoss:
    truth = 1.0 / (1.0 + (categories - 1) * math.exp(-epsilon))
    lie = truth * math.exp(-epsilon)
    if categories == 2:
        return LatticeLoss(-epsilon, 2.0 * epsilon, 0, np.array([lie, truth]))
    return LatticeLoss(0.0, epsilon, -1, np.array([lie, (categories - 2) * lie, truth]))


def _discrete_laplace(scale: float, shift: int) -> LatticeLoss:
    """Losses (shift - 2x)/scale for x = 0…shift; what lies beyond has the loss of the ends."""
    ratio = math.exp(-1.0 / scale)
    whole = 1.0 / (1.0 + ratio)
    inner = whole * -math.expm1(-1.0 / scale) * ratio ** np.arange(shift, -1.0, -1.0)
    inner[0], inner[-1] = whole * ratio**shift, whole
    return LatticeLoss(-shift / scale, 2.0 / scale, 0, inner)


def _discrete_gaussian(sigma: float, shift: int) -> LatticeLoss:
    """Losses (shift² - 2·shift·x)/2σ² for integers x, which fall as x grows."""
    variance = sigma * sigma
    radius = math.ceil(30.0 * sigma) + 5 * shift + 10
    x = np.arange(radius, -radius - 1, -1)
    masses = np.exp(-0.5 * x.astype(float) ** 2 / variance)
    masses /= masses.sum()
    rate = (2 * radius + 1) / (2.0 * variance)
    log_end = -0.5 * radius * radius / variance
    return LatticeLoss(
        offset=0.5 * shift * shift / variance,
        spacing=shift / variance,
        first=-radius,
        masses=masses,
        log_tail=(log_end, rate, log_end, rate),
        mass_error=256.0 * 2.0**-53 * (1.0 + 450.0),
    )


def _poisson(event: PoissonSampled, adjacency: Adjacency) -> Part | None:
    part = _uncapped(event.rate, event.event, adjacency)
    if part is None or event.cap is None or event.population is None:
        return part
    records = event.population + (1 if adjacency == "add-remove" else 0)
    overflow = float(bdtrc(event.cap, records, event.rate))
    return replace(part, tight=False, coupling=overflow)


def _uncapped(rate: float, inner: Event, adjacency: Adjacency) -> Part | None:
    sampled = Side((1.0 - rate, rate), (0.0, 1.0))
    if adjacency == "replace-one":
        return _poisson_replace_one(rate, inner)
    match inner:
        case Gaussian(sigma):
            return _mixture_part(sigma, sampled)
        case GaussianMixture(sigma, weights, shifts):
            scaled = tuple(rate * weight for weight in weights)
            return _mixture_part(sigma, Side((1.0 - rate, *scaled), (0.0, *shifts)))
        case _:
            base = _single_or_composed(inner, adjacency)
            return None if base is None else _sampled_part(base, rate)


def _single_or_composed(inner: Event, adjacency: Adjacency) -> PairLoss | None:
    if not isinstance(inner, Repeated | Composed):
        return _base(inner, _distance(inner, adjacency))
    raise UnsupportedEvent(inner, "exact", "sampling a composition is only known for Gaussians")


def _mixture_part(sigma: float, side: Side) -> Part:
    forward, backward = MixturePair(sigma, side, Side()), MixturePair(sigma, Side(), side)
    return Part(_of_mixture(forward), _of_mixture(backward))


def _of_mixture(pair: MixturePair) -> PairLoss:
    return PairLoss(lambda step: mixture_cells(pair, step), MixtureLoss(pair))


def _poisson_replace_one(rate: float, inner: Event) -> Part | None:
    match inner:
        case Gaussian(sigma, distance) if distance <= 2.0:
            weights = (1.0 - rate, rate)
            pair = MixturePair(sigma, Side(weights, (0.0, 1.0)), Side(weights, (0.0, -1.0)))
            return Part(_of_mixture(pair), tight=distance == 2.0)
        case Laplace(scale, distance):
            return _amplified(max(distance, 1.0) / scale, 0.0, rate)
        case DiscreteLaplace(scale, sensitivity, distance):
            return _amplified(max(distance, 1.0) * sensitivity / scale, 0.0, rate)
        case RandomizedResponse():
            return _amplified(inner.loss, 0.0, rate)
        case PureDp(epsilon):
            return _amplified(epsilon, 0.0, rate)
        case ApproxDp(epsilon, delta):
            return _amplified(epsilon, delta, rate)
        case _:
            event = PoissonSampled(rate, inner)
            raise UnsupportedEvent(event, "exact", "no pair is known under replace-one")


def _amplified(epsilon: float, delta: float, rate: float) -> Part | None:
    """ln(1 + q(e^ε - 1)) and qδ (Balle, Barthe & Gaboardi 2018): valid, not attained."""
    pair = _black_box(math.log1p(rate * math.expm1(epsilon)), rate * delta)
    return None if pair is None else Part(pair, tight=False)


def _sampled_part(base: PairLoss, rate: float) -> Part:
    def forward(step: float) -> Cells:
        return base.cells(step).sampled(rate)

    def backward(step: float) -> Cells:
        return forward(step).reversed()

    return Part(_from_cells(forward, base), _from_cells(backward, base))


def _from_cells(make: Callable[[float], Cells], base: PairLoss) -> PairLoss:
    """A pair of two outputs is a lattice of two points; others stay cells."""
    two_outputs = isinstance(base.loss, LatticeLoss) and len(base.loss.masses) == 2
    if not two_outputs or base.infinite > 0.0:
        return PairLoss(make)
    cells = make(1.0)
    keep = np.isfinite(cells.low)
    order = np.argsort(cells.low[keep])
    loss, mass = cells.low[keep][order], cells.p[keep][order]
    return PairLoss(make, LatticeLoss(float(loss[0]), float(loss[1] - loss[0]), 0, mass))


def _fixed_size(
    event: Event, inner: Event, rate: float, counts: dict[int, float], adjacency: Adjacency
) -> Part | None:
    """``counts``: how often the record is drawn, given that it is, with probabilities."""
    distance = max(1.0, _distance(inner, "replace-one"))
    bases = [(_base(inner, times * distance), weight) for times, weight in counts.items()]
    if any(base is None for base, _ in bases):
        return None
    cells = _revealed([(base, weight) for base, weight in bases if base is not None])
    if adjacency == "add-remove":
        if counts != {1: 1.0}:
            reason = "sampling with replacement has no pair under add-remove; use replace-one"
            raise UnsupportedEvent(event, "exact", reason)
        if isinstance(inner, Gaussian):
            part = _mixture_part(inner.sigma / distance, Side((1.0 - rate, rate), (0.0, 1.0)))
        else:
            part = _sampled_part(PairLoss(cells), rate)
        return replace(part, tight=False)
    return Part(PairLoss(lambda step: _mirrored(cells(step), rate)), tight=False)


def _revealed(bases: list[tuple[PairLoss, float]]) -> Callable[[float], Cells]:
    """One of the pairs, chosen with its weight; the choice is told."""
    return lambda step: join(*(base.cells(step).scaled(weight) for base, weight in bases))


def _mirrored(cells: Cells, rate: float) -> Cells:
    """Losses above 0 as if the record were removed, those below as if it were added.

    Both halves have the same total variation distance, so that they fit together at 0, where the
    rest of the mass lies.
    """
    above = cells.sampled(rate)
    below = cells.reversed().sampled(rate).reversed()
    top, bottom = above.high > 0.0, below.high <= 0.0
    rest = np.array([max(0.0, 1.0 - float(above.p[top].sum()) - float(below.p[bottom].sum()))])
    return join(
        Cells(above.p[top], above.q[top], np.maximum(above.low[top], 0.0), above.high[top]),
        Cells(below.p[bottom], below.q[bottom], below.low[bottom], below.high[bottom]),
        Cells(rest, rest, np.zeros(1), np.zeros(1)),
    )


def _binomial(draws: int, chance: float) -> dict[int, float]:
    """P(K = k | K ≥ 1) for K ~ Binomial(draws, chance); what is left goes to the largest k."""
    from scipy.special import bdtr, gammaln

    hit = -math.expm1(draws * math.log1p(-chance)) if chance < 1.0 else 1.0
    counts: dict[int, float] = {}
    k = 0
    while k < draws and (k < draws * chance + 2 or counts[k] > 1e-30):
        k += 1
        choose = gammaln(draws + 1) - gammaln(k + 1) - gammaln(draws - k + 1)
        rest = (draws - k) * math.log1p(-chance) if chance < 1.0 else (0.0 if k == draws else -math.inf)
        counts[k] = math.exp(choose + k * math.log(chance) + rest) / hit
    counts[k] += max(0.0, 1.0 - math.fsum(counts.values()))
    return counts
