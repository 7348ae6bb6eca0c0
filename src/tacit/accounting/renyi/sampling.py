"""Rényi curves of sampled releases: which pair of laws is the worst, and how it is read.

A sampler shows the mechanism a sample that holds the differing record with probability γ. Given
the rest of the sample, neighbours release (1-γ)A + γB and (1-γ)A + γC: A when the record is not
drawn, B and C when it is. Divergences are jointly convex, so the worst A, B, C bound the whole.
For c ≥ 1 the hockey-stick divergence is (Balle, Barthe & Gaboardi 2018, Theorem 2)

    H_c((1-γ)A + γB ‖ (1-γ)A + γC) = γ·H_{c'}(B ‖ (1-β)A + βC),   c' ≥ c and β in [0, 1] given by
    c, γ.

**Worst positions.** Let A and C lie within distances a and b of B. H_{c'}(B‖(1-β)A + βC) is the
mean under B of a convex function of (1-β)·dA/dB + β·dC/dB. Among all joint laws with given
marginals such a mean is largest when the two summands rise and fall together (they are comonotone:
Dhaene et al. 2002), and it grows with each marginal in the convex order, that is, with each
distance. For noise with a log-concave density on a line, both ratios are monotone, so they do so
exactly when A and C lie on the same side of B, at the full distances. The ratio between two
Gaussian laws in any dimension is distributed as on a line; for multivariate Laplace noise the line
is the worst case by convention. So for all c ≥ 1 and in both directions the bound is H_c of one
collinear pair:

- Poisson, replacing a record: a = 1 and b = r, the replace distance: B at 1, A at 0, C at 1 - r.
  For r = 2 the pair is its own mirror image and dominates outright. (Distances under 1 are read as
  1, which is valid; by the triangle inequality none is above 2.)
- Fixed-size samples, replacing a record: undrawn, the record's place is taken by another one, so
  a = b = r: B at r, A and C at 0 (as in Zhu, Dong & Wang 2022, Theorem 11).
- Zeroing a record of a fixed-size sample: as replacing it, at distance max(r, 1).

A black box may tell how many records it was given: for it, zeroing a record of a Poisson sample is
a third law too. If it promises nothing of A against B, as when it holds under replace-one alone, it
is bounded as if it were told who was drawn: exp((α-1)·D_α) is jointly convex, so that it is at most
1-γ + γ times the box's own.

Else C = A, in which case the mixture itself is the worst pair in both directions: B at 1 for
Poisson samples, adding, removing or zeroing a record; B at r for fixed-size samples, adding or
removing one, because the sample that misses it holds another record in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.black_boxes import Loss, is_opaque, loss_of, sampled
from tacit.accounting.choices import concrete
from tacit.accounting.events import (
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GaussianMixture,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
)
from tacit.accounting.renyi import amplification
from tacit.accounting.renyi.curves import Curve, linear, of_pair, smallest
from tacit.accounting.renyi.gaussian_pairs import GaussianPair, Mixture, two_gaussians
from tacit.accounting.renyi.pairs import (
    DiscreteLaplacePair,
    FinitePair,
    LaplacePair,
    sampled_log_ratio,
    two_point_pair,
)
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.renyi.excess import Reading

    Array = NDArray[np.float64]

Noise = Gaussian | Laplace | DiscreteGaussian | DiscreteLaplace


@dataclass(frozen=True)
class Draw:
    """A sampler under an adjacency: its rate, and which of the cases above it is."""

    rate: float
    fixed_size: bool
    adjacency: Adjacency
    opaque: bool = False
    """Whether black boxes are sampled."""

    @property
    def three_laws(self) -> bool:
        """Whether B and C are different laws, each present with probability ``rate``."""
        zeros_differ = self.fixed_size or self.opaque
        return self.adjacency == "replace-one" or (zeros_differ and self.adjacency == "zero-out")

    @property
    def may_be_told(self) -> bool:
        """Whether a bound on B against C alone, with all of it told, is one on the sample."""
        return self.opaque and self.three_laws and not self.fixed_size

    @property
    def inner_adjacencies(self) -> tuple[Adjacency, ...]:
        """The adjacencies that relate A, B and C, as the sampled mechanism sees them."""
        if self.fixed_size:
            return ("replace-one", "zero-out") if self.adjacency == "zero-out" else ("replace-one",)
        return ("add-remove", self.adjacency) if self.three_laws else ("add-remove",)

    def positions(self, replace_distance: float) -> tuple[float, float]:
        """B and C, in units of one record's contribution, with A at 0."""
        if self.fixed_size:
            return max(replace_distance, 1.0 if self.adjacency == "zero-out" else 0.0), 0.0
        if self.three_laws:
            return 1.0, 1.0 - min(max(replace_distance, 1.0), 2.0)
        return 1.0, 0.0


def draw_of(event: PoissonSampled | SampledWithoutReplacement, adjacency: Adjacency) -> Draw:
    """How ``event`` draws its sample."""
    opaque = is_opaque(event.event)
    if isinstance(event, PoissonSampled):
        return Draw(event.rate, False, adjacency, opaque)
    return Draw(event.size / event.population, True, adjacency, opaque)


def sampled_promise(draw: Draw, inner: Event, accountant: str) -> Loss | None:
    """The (ε, δ) of a sampled release that promises such a pair; None for any other."""
    if isinstance(inner, Repeated | Composed):
        return None
    try:
        found = [loss_of(concrete(inner, one, accountant)) for one in draw.inner_adjacencies]
    except UnsupportedEvent:
        if not draw.may_be_told:
            raise
        across = loss_of(concrete(inner, draw.adjacency, accountant))
        return None if across is None else Loss(across.epsilon, draw.rate * across.delta)
    losses = [loss for loss in found if loss is not None]
    if not losses or len(losses) < len(found):
        return None
    return sampled(draw.rate, losses[0], losses[-1])


def sampled_pair_curve(draw: Draw, base: Event) -> Curve | None:
    """The curve of a sampled ``base`` whose dominating pair is known; None for any other."""
    match base:
        case Gaussian() | Laplace() | DiscreteGaussian() | DiscreteLaplace():
            return _sampled_noise(draw, base, *draw.positions(base.replace_distance))
        case GaussianMixture() if max(base.shifts) == 0.0:
            return linear(0.0)
        case GaussianMixture() if not draw.three_laws and not draw.fixed_size:
            # Elsewhere it is not said which of A, B and C is the mixture: its curve must do.
            pair = GaussianPair(_sampled_mixture(draw.rate, base))
            return of_pair(pair, "either", mixture_bound(base))
        case RandomizedResponse():
            return of_pair(response_pair(base, draw.rate), _reading(draw), linear(math.inf))
        case _:
            return None


def pure_pair_curve(draw: Draw, loss: float) -> Curve:
    """The curve of a sampled mechanism all of whose laws are within ``loss`` of each other."""
    return of_pair(two_point_pair(loss, draw.rate), _reading(draw), linear(math.inf))


def _reading(draw: Draw) -> Reading:
    return "folded" if draw.three_laws else "either"


def told_curve(draw: Draw, base: Curve) -> Curve:
    """The curve of a sampled mechanism that tells who was drawn: ln(1-γ + γ·e^{(α-1)D})/(α-1)."""

    def curve(orders: Array) -> Array:
        found = sampled_log_ratio(draw.rate, (orders - 1.0) * base(orders))
        result: Array = np.maximum(found, 0.0) / (orders - 1.0) * (1.0 + 1e-12)
        return result

    return curve


def sampled_curve_only(draw: Draw, base: Curve) -> Curve:
    """The curve of a sampled mechanism of which ``base`` is all that is known.

    By convexity sampling never hurts, so that the base curve itself is a bound too.
    """
    if draw.three_laws:
        return smallest(amplification.three_laws_general(draw.rate, base), base)
    return smallest(amplification.poisson_general(draw.rate, base), base)


def _sampled_noise(draw: Draw, noise: Noise, to: float, origin: float) -> Curve:
    match noise:
        case Gaussian(sigma):
            if draw.three_laws and draw.fixed_size:
                shift = to / sigma
                published = amplification.fixed_size_gaussian(draw.rate, shift)
                return smallest(published, linear(0.5 * shift * shift))
            return _gaussian(draw, to / sigma, origin / sigma, lattice=0.0)
        case DiscreteGaussian(sigma, sensitivity):
            unit = sensitivity / sigma
            return _gaussian(draw, to * unit, origin * unit, lattice=1.0 / sigma)
        case Laplace(scale):
            pair = LaplacePair(draw.rate, to / scale, origin / scale)
            return _laplace(draw, pair, (to - origin) / scale)
        case DiscreteLaplace(scale, unit):
            start, end = round(origin * unit), round(to * unit)
            lattice_pair = DiscreteLaplacePair(scale, draw.rate, end, start)
            return _laplace(draw, lattice_pair, (end - start) / scale)


def _gaussian(draw: Draw, to: float, origin: float, lattice: float) -> Curve:
    """Two Gaussian mixtures.

    Where C = A, removing the record is the worse direction (Mironov, Talwar & Zhang 2019, Theorem
    5 and Corollary 7), for the continuous noise; where C mirrors B, the two directions agree.
    """
    reading: Reading = "either" if lattice else "forward"
    second = Mixture((1.0,), (0.0,))
    if origin < 0.0:
        second = two_gaussians(draw.rate, origin)
    if draw.three_laws:
        reading = "forward" if origin == -to else "folded"
    pair = GaussianPair(two_gaussians(draw.rate, to), second, lattice)
    # A, B and C are pairwise within the curve of two Gaussians at the largest distance.
    return of_pair(pair, reading, sampled_curve_only(draw, linear(0.5 * (to - origin) ** 2)))


def _laplace(draw: Draw, pair: LaplacePair | DiscreteLaplacePair, loss: float) -> Curve:
    """Noise of bounded loss; with too many nodes, any mechanism of that loss."""
    return of_pair(pair, _reading(draw), pure_pair_curve(draw, loss))


def response_pair(event: RandomizedResponse, rate: float = 1.0) -> FinitePair:
    """The answers that the truth makes likelier or less likely; the others say nothing."""
    truth = -math.log1p((event.categories - 1) * math.exp(-event.loss))
    return FinitePair((event.loss, -event.loss), (truth - event.loss, truth), rate)


def mixture_of(event: GaussianMixture) -> Mixture:
    """The event's mixture in units of its noise, its weights adding up to 1."""
    total = math.fsum(event.weights)
    return Mixture(
        tuple(weight / total for weight in event.weights),
        tuple(shift / event.sigma for shift in event.shifts),
    )


def mixture_bound(event: GaussianMixture) -> Curve:
    """The curve of the largest shift alone, which bounds the mixture's by convexity."""
    return linear(0.5 * (max(event.shifts) / event.sigma) ** 2)


def _sampled_mixture(rate: float, event: GaussianMixture) -> Mixture:
    full = mixture_of(event)
    weights = (1.0 - rate, *(rate * np.asarray(full.weights)).tolist())
    return Mixture(weights, (0.0, *full.shifts))
