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
is bounded as if it showed who was drawn: exp((α-1)·D_α) is jointly convex, so that it is at most
1-γ + γ times the box's own.

Else C = A, in which case the mixture itself is the worst pair in both directions: B at 1 for
Poisson samples, adding, removing or zeroing a record; B at r for fixed-size samples, adding or
removing one, because the sample that misses it holds another record in its place.

**Of a curve alone.** Where only a Rényi curve of the release is known, there are theorems for what
sampling makes of it. They hold at whole orders and need the base curve at all whole orders up to
the one asked for; between whole orders (α-1)·D_α is convex and its linear interpolation is an upper
bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from tacit.accounting.black_boxes import Promise, concrete, is_opaque, promise_of, sampled
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
from tacit.accounting.renyi.curves import Curve, linear, log_expm1, of_pair, smallest
from tacit.accounting.renyi.pairs import (
    DiscreteLaplacePair,
    FinitePair,
    GaussianPair,
    LaplacePair,
    Mixture,
    sampled_log_ratio,
    two_gaussians,
    two_point_pair,
)
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.renyi.pairs import Reading

    Array = NDArray[np.float64]


Noise = Gaussian | Laplace | DiscreteGaussian | DiscreteLaplace
_LARGEST_ORDER = 4096  # beyond, nothing is claimed
_LARGEST_DIFFERENCE = 128  # of the forward differences in the Gaussian theorem
_LARGEST_SHIFT = 4.0  # in them; beyond, they gain nothing
_ROUND_UP = 1e-10  # on E[t^α] - 1: the rounding of ln Γ at the largest order is a tenth of this


@dataclass(frozen=True)
class SampledRate:
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
    def may_be_shown(self) -> bool:
        """Whether a bound on B against C, with the draw shown, is one on the sample."""
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


def draw_of(event: PoissonSampled | SampledWithoutReplacement, adjacency: Adjacency) -> SampledRate:
    """How ``event`` draws its sample."""
    opaque = is_opaque(event.event)
    if isinstance(event, PoissonSampled):
        return SampledRate(event.rate, False, adjacency, opaque)
    return SampledRate(event.size / event.population, True, adjacency, opaque)


def sampled_promise(draw: SampledRate, inner: Event, accountant: str) -> Promise | None:
    """The (ε, δ) of a sampled release that promises such a pair; None for any other."""
    if isinstance(inner, Repeated | Composed):
        return None
    try:
        found = [promise_of(concrete(inner, one, accountant)) for one in draw.inner_adjacencies]
    except UnsupportedEvent:
        if not draw.may_be_shown:
            raise
        across = promise_of(concrete(inner, draw.adjacency, accountant))
        return None if across is None else Promise(across.epsilon, draw.rate * across.delta)
    losses = [loss for loss in found if loss is not None]
    if not losses or len(losses) < len(found):
        return None
    return sampled(draw.rate, losses[0], losses[-1])


def sampled_pair_curve(draw: SampledRate, base: Event) -> Curve | None:
    """The curve of a sampled ``base`` whose dominating pair is known; None for any other."""
    match base:
        case Gaussian() | Laplace() | DiscreteGaussian() | DiscreteLaplace():
            return _sampled_noise(draw, base, *draw.positions(base.replace_distance))
        case GaussianMixture() if max(base.shifts) == 0.0:
            return linear(0.0)
        case GaussianMixture() if not draw.three_laws and not draw.fixed_size:
            # Elsewhere it is not said which of A, B and C is the mixture: its curve must do.
            if not base.describes(draw.adjacency):
                raise UnsupportedEvent(base, "rdp", "it is known under add-remove only")
            pair = GaussianPair(_sampled_mixture(draw.rate, base))
            return of_pair(pair, "either", mixture_bound(base))
        case RandomizedResponse():
            return of_pair(response_pair(base, draw.rate), _reading(draw), linear(math.inf))
        case _:
            return None


def pure_pair_curve(draw: SampledRate, loss: float) -> Curve:
    """The curve of a sampled mechanism all of whose laws are within ``loss`` of each other."""
    return of_pair(two_point_pair(loss, draw.rate), _reading(draw), linear(math.inf))


def _reading(draw: SampledRate) -> Reading:
    return "folded" if draw.three_laws else "either"


def shown_curve(draw: SampledRate, base: Curve) -> Curve:
    """The curve of a sampled mechanism that shows who was drawn: ln(1-γ + γ·e^{(α-1)D})/(α-1)."""

    def curve(orders: Array) -> Array:
        found = sampled_log_ratio(draw.rate, (orders - 1.0) * base(orders))
        result: Array = np.maximum(found, 0.0) / (orders - 1.0) * (1.0 + 1e-12)
        return result

    return curve


def sampled_curve_only(draw: SampledRate, base: Curve) -> Curve:
    """The curve of a sampled mechanism of which ``base`` is all that is known.

    By convexity sampling never hurts, so that the base curve itself is a bound too.
    """
    if draw.three_laws:
        return smallest(three_laws_general(draw.rate, base), base)
    return smallest(poisson_general(draw.rate, base), base)


def _sampled_noise(draw: SampledRate, noise: Noise, to: float, origin: float) -> Curve:
    match noise:
        case Gaussian(sigma):
            if draw.three_laws and draw.fixed_size:
                shift = to / sigma
                published = fixed_size_gaussian(draw.rate, shift)
                by_pair = _gaussian(draw, shift, 0.0, lattice=0.0)
                return smallest(by_pair, published, linear(0.5 * shift * shift))
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


def _gaussian(draw: SampledRate, to: float, origin: float, lattice: float) -> Curve:
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


def _laplace(draw: SampledRate, pair: LaplacePair | DiscreteLaplacePair, loss: float) -> Curve:
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


# ---- theorems for a curve alone


def poisson_general(rate: float, base: Curve) -> Curve:
    """Poisson sampling of any mechanism, adding or removing (Zhu & Wang 2019, Theorem 5).

    E[t^α] ≤ Σ_j C(α, j)·(1-q)^{α-j}·q^j·m_j with m_0 = m_1 = 1, m_2 = e^{D_2} and, for j ≥ 3,
    m_j = 3·e^{(j-1)·D_j}. The binomial weights add up to 1, which leaves m_j - 1 in the excess.
    """

    def factors(j: Array, exponents: Array) -> Array:
        third = exponents + np.log(3.0 - np.exp(-exponents))
        return np.where(j == 2.0, log_expm1(exponents), third)

    return _whole_orders(rate, base, factors, binomial=True)


def three_laws_general(rate: float, base: Curve) -> Curve:
    """Sampling where a record is replaced (Wang, Balle & Kasiviswanathan 2019, Theorem 9).

    E[t^α] ≤ 1 + γ²·C(α, 2)·min(4(e^{D_2} - 1), 2e^{D_2}) + Σ_{j≥3} γ^j·C(α, j)·2·e^{(j-1)·D_j}. Its
    proof compares (1-γ)A + γB with (1-γ)A + γC and uses only that A, B and C are pairwise within
    the base curve; so it serves fixed-size samples, and Poisson samples whose base is within the
    curve both when the record is replaced and when it is left out.
    """

    def factors(j: Array, exponents: Array) -> Array:
        plain = exponents + math.log(2.0)
        return np.where(j == 2.0, np.minimum(log_expm1(exponents) + math.log(4.0), plain), plain)

    return _whole_orders(rate, base, factors, binomial=False)


def fixed_size_gaussian(rate: float, shift: float) -> Curve:
    """A fixed-size sample under Gaussian noise (Wang, Balle & Kasiviswanathan 2019, Theorem 27).

    As ``three_laws_general`` with D_j = j·shift²/2, but from j = 3 on the factor is at most
    4·√(B(2⌊j/2⌋)·B(2⌈j/2⌉)), where B(l) = E[(t - 1)^l] for t the ratio of two Gaussians. The paper
    writes B as an alternating sum; for even l it is the integral of a positive function.
    """

    def base(orders: Array) -> Array:
        return 0.5 * shift * shift * orders

    def factors(j: Array, exponents: Array) -> Array:
        plain = exponents + math.log(2.0)
        plain[0] = min(plain[0], math.log(4.0) + float(log_expm1(exponents[:1])[0]))
        some = j[(j >= 3.0) & (j <= _LARGEST_DIFFERENCE)].astype(np.int64)
        if some.size and shift <= _LARGEST_SHIFT:
            even = _log_even_differences(shift, int(some[-1]) + 1)
            sharper = math.log(4.0) + 0.5 * (even[some // 2] + even[(some + 1) // 2])
            plain[1 : 1 + some.size] = np.minimum(plain[1 : 1 + some.size], sharper)
        return plain

    return _whole_orders(rate, base, factors, binomial=False)


def _log_even_differences(shift: float, largest: int) -> Array:
    """The logarithms of B(l) = E[(t - 1)^l] for l = 0, 2, … up to ``largest``.

    t is e^{shift·z - shift²/2} with z ~ N(0, 1). Near its peaks the integrand behaves as z^l·φ(z),
    whose spectrum ends near 2√l; the step resolves 12 beyond that.
    """
    bend = math.sqrt(2.0 * largest)
    step = 2.0 * math.pi / (2.0 * bend + 12.0 + 12.0 * shift)
    z = np.arange(-bend - 12.0, largest * shift + bend + 12.0, step)
    x = shift * z - 0.5 * shift * shift
    with np.errstate(divide="ignore"):
        log_distance = np.where(x > 30.0, x, np.log(np.abs(np.expm1(np.minimum(x, 30.0)))))
    powers = 2.0 * np.arange(largest // 2 + 1)[:, np.newaxis]
    with np.errstate(invalid="ignore"):
        logs = np.where(powers == 0.0, 0.0, powers * log_distance) - 0.5 * z * z
    top = np.max(logs, axis=1, keepdims=True)
    scaled: Array = top[:, 0] + np.log(np.sum(np.exp(logs - top), axis=1))
    return scaled + math.log(step) - 0.5 * math.log(2.0 * math.pi)


def _whole_orders(
    rate: float, base: Curve, factors: Callable[[Array, Array], Array], *, binomial: bool
) -> Curve:
    """The curve whose excess at a whole order α is Σ_j C(α, j)·rate^j·[(1-rate)^{α-j}]·factor_j."""
    known: dict[int, float] = {1: 0.0}
    tables: list[Array] = []

    def log_factors(order: int) -> Array:
        if not tables or tables[-1].size < order - 1:
            j = np.arange(2.0, 1.0 + max(64, 1 << (order - 1).bit_length()))
            tables[:] = [factors(j, (j - 1.0) * base(j))]
        return tables[-1][: order - 1]

    def scaled(order: int) -> float:
        """(α-1)·D_α."""
        if order not in known:
            j = np.arange(2.0, order + 1.0)
            logs = gammaln(order + 1.0) - gammaln(j + 1.0) - gammaln(order - j + 1.0)
            logs += j * math.log(rate) + log_factors(order)
            if binomial:  # of a sample of all records only j = α is left
                logs[:-1] += (order - j[:-1]) * (math.log1p(-rate) if rate < 1.0 else -math.inf)
            known[order] = float(np.logaddexp(0.0, np.logaddexp.reduce(logs) + _ROUND_UP))
        return known[order]

    def one(order: float) -> float:
        if order > _LARGEST_ORDER:
            return math.inf
        low = math.floor(order)
        share = order - low
        if share == 0.0:
            return scaled(low) / (order - 1.0)
        return ((1.0 - share) * scaled(low) + share * scaled(low + 1)) / (order - 1.0)

    def curve(orders: Array) -> Array:
        return np.asarray([one(float(order)) for order in orders])

    return curve
