"""Dominating pairs: the losses whose sum bounds what an event gives away.

A pair (P, Q) dominates a mechanism if its δ(ε) is nowhere below that of any two neighbouring data
sets; pairs compose (Zhu, Dong & Wang 2022, Theorem 10). Where P and Q are the outputs on two actual
neighbours, the pair is tight and the answer two-sided.

Any pair can be cut into cells, exactly up to rounding; ``grid`` then moves the cells onto a lattice
of losses, up for an upper bound on δ and down for a lower one. (ε, δ)-DP is dominated by randomised
response that fails, revealing all, with probability δ (Kairouz, Oh & Viswanath 2015, Theorem 3.3);
the other pairs here are of actual outputs. Those of samples are in ``sampled_pairs``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from tacit.accounting.events import (
    ApproxDp,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    LossDistribution,
    PureDp,
    RandomizedResponse,
    distance,
)
from tacit.accounting.exact.atoms import sampled_loss
from tacit.accounting.exact.closed_forms import GaussianLoss, LaplaceLoss
from tacit.accounting.exact.enclosure import OutOfRange
from tacit.accounting.exact.lattice import LatticeLoss
from tacit.accounting.exact.mixture import MixturePair, MixtureSide
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.exact.allocation import AllocationLoss
    from tacit.accounting.exact.atoms import AtomLoss
    from tacit.accounting.exact.either import EitherLoss
    from tacit.accounting.exact.folded import FoldedLoss
    from tacit.accounting.exact.sampled_laplace import SampledLaplaceLoss
    from tacit.accounting.exact.transforms import Floats


_PILOT = 500
_FAR = 16.0  # standard deviations; Φ(-16) is 6e-58
_MOST_CELLS = 4_000_000  # of one pair: some seconds of work
_LARGEST_DISCRETE = 20_000.0  # σ whose lattice still fits


# ---- cells


@dataclass(frozen=True, eq=False)
class Cells:
    """Cell j has the probabilities p[j] and q[j], and losses ln P/Q from low[j] to high[j].

    An infinite ``high`` marks a cell in which the loss is unbounded above (perhaps Q = 0), an
    infinite ``low`` one in which it is unbounded below (perhaps P = 0).
    """

    p: Floats
    q: Floats
    low: Floats
    high: Floats

    def reversed(self) -> Cells:
        """The same cells with the roles of P and Q exchanged."""
        return Cells(self.q, self.p, -self.high, -self.low)

    def sampled(self, rate: float) -> Cells:
        """P becomes (1-rate)·Q + rate·P: the record is there, and taken with that probability.

        With its reverse it dominates Poisson sampling under add-remove (Zhu, Dong & Wang 2022,
        Theorem 11).
        """
        return Cells(
            (1.0 - rate) * self.q + rate * self.p,
            self.q,
            sampled_loss(self.low, rate),
            sampled_loss(self.high, rate),
        )

    def kept(self, some: NDArray[np.bool_]) -> Cells:
        """Some of the cells."""
        return Cells(self.p[some], self.q[some], self.low[some], self.high[some])

    def scaled(self, weight: float) -> Cells:
        """All masses multiplied by ``weight``."""
        return Cells(weight * self.p, weight * self.q, self.low, self.high)


def join(*parts: Cells) -> Cells:
    """All cells of all parts."""
    return Cells(
        np.concatenate([part.p for part in parts]),
        np.concatenate([part.q for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
    )


def atoms(p: Floats, q: Floats) -> Cells:
    """One cell per output of a discrete pair."""
    possible = (p > 0.0) | (q > 0.0)
    p, q = p[possible], q[possible]
    with np.errstate(divide="ignore"):
        loss = np.log(p) - np.log(q)
    return Cells(p, q, loss, loss)


def cells_of_losses(p: Floats, loss: Floats) -> Cells:
    """Atoms given by P's mass and the loss, which together hold all of P and Q.

    Next to none of P has losses below -700, and what is left out of Q there is missing in its sum.
    """
    return Cells(p, p * np.exp(-np.maximum(loss, -700.0)), loss, loss)


def cells_of_most_losses(p: Floats, loss: Floats) -> Cells:
    """The same where some mass is left out: P's rest may lie anywhere, Q's lies below.

    Most of P's is rounding: no lower end may count it as an infinite loss.
    """
    found = cells_of_losses(p, loss)
    rest = np.array([max(0.0, 1.0 - float(found.p.sum())), 0.0])
    other = np.array([0.0, max(0.0, 1.0 - float(found.q.sum()))])
    lowest = np.array([-np.inf, -np.inf])
    return join(found, Cells(rest, other, lowest, np.array([np.inf, -np.inf])))


def mixture_cells(pair: MixturePair, step: float, start: float = -math.inf) -> Cells:
    """Cells of x between which the loss of a mixture pair changes by at most about ``step``.

    The loss of these pairs is monotone in x: all shifts of one side have one sign. With ``start``
    it need rise only beyond it, where it is 0, and only those x are cut.
    """
    sigma = pair.sigma
    low = min(0.0, *pair.numerator.shifts, *pair.denominator.shifts) - _FAR * sigma
    low = max(low, start)
    high = max(0.0, *pair.numerator.shifts, *pair.denominator.shifts) + _FAR * sigma
    # How steep the loss really is: at a low rate far less than shifts over variance.
    pilot = _mixture_loss(pair, np.linspace(low, high, _PILOT + 1))
    steepest = _PILOT * float(np.abs(np.diff(pilot)).max())
    count = min(max(math.ceil(steepest / step), 400), 400_000)
    edges = np.linspace(low, high, count + 1)
    loss = _mixture_loss(pair, edges)
    first = start if low == start else -math.inf
    p = _mixture_mass(pair.numerator, edges, sigma, first)
    q = _mixture_mass(pair.denominator, edges, sigma, first)
    low_loss, high_loss = np.minimum(loss[:-1], loss[1:]), np.maximum(loss[:-1], loss[1:])
    cells = _close_ends(Cells(p, q, low_loss, high_loss))
    if low == start:
        cells.low[0] = 0.0
    return cells


def _mixture_loss(pair: MixturePair, x: Floats) -> Floats:
    variance = pair.sigma**2
    return pair.numerator.log_ratio(x, variance) - pair.denominator.log_ratio(x, variance)


def _close_ends(cells: Cells) -> Cells:
    """The outermost cells hold all that lies beyond them: losses are unbounded there."""
    top, bottom = int(np.argmax(cells.high)), int(np.argmin(cells.low))
    cells.high[top], cells.low[bottom] = np.inf, -np.inf
    return cells


def _mixture_mass(side: MixtureSide, edges: Floats, sigma: float, first: float) -> Floats:
    """The mass between neighbouring edges, accurate in relative terms on both sides.

    The outermost edges stand for ``first`` and infinity.
    """
    total = np.zeros(len(edges) - 1)
    for weight, shift in zip(side.weights, side.shifts, strict=True):
        scaled = (edges - shift) / sigma
        scaled[0], scaled[-1] = (first - shift) / sigma, np.inf
        tails = ndtr(-np.abs(scaled))  # beyond each edge, away from the shift
        masses = np.diff(tails)
        middle = int(np.searchsorted(scaled, 0.0, side="right"))  # the first edge above the shift
        masses[middle:] *= -1.0
        if middle > 0:
            masses[middle - 1] = 1.0 - tails[middle - 1] - tails[middle]
        total += weight * masses
    return total


def laplace_cells(apart: float, step: float) -> Cells:
    """Cells of two Laplace laws ``apart`` scales apart: two atoms and the losses between.

    Between, P's density at loss l is exp(-(apart - l)/2)/4, so both masses are closed forms.
    """
    if not 2.0 * apart <= _MOST_CELLS * step:
        raise OutOfRange
    count = max(8, math.ceil(2.0 * apart / step))
    edges = np.linspace(-apart, apart, count + 1)
    low, high = edges[:-1], edges[1:]
    grow = np.exp(-0.5 * (apart - low)) * np.expm1(0.5 * (high - low)) * 0.5
    fall = np.exp(-0.5 * (apart + low)) * -np.expm1(-0.5 * (high - low)) * 0.5
    minus = 0.5 * math.exp(-apart)
    ends = atoms(np.array([0.5, minus]), np.array([minus, 0.5]))
    exact = np.array([apart, -apart])
    return join(Cells(grow, fall, low, high), Cells(ends.p, ends.q, exact, exact))


# ---- pairs

if TYPE_CHECKING:
    Loss = (
        GaussianLoss
        | LaplaceLoss
        | MixturePair
        | LatticeLoss
        | AllocationLoss
        | AtomLoss
        | SampledLaplaceLoss
        | EitherLoss
        | FoldedLoss
    )


@dataclass(frozen=True, eq=False)
class PairLoss:
    """One direction of a dominating pair.

    Attributes:
        cells: Cuts the pair into cells over which the loss changes by at most the given step.
        loss: The loss with its transform, if it has one.
        infinite: The probability of an infinite loss, which ``loss`` leaves out.
    """

    cells: Callable[[float], Cells]
    loss: Loss | None = None
    infinite: float = 0.0


Direction = tuple[tuple[PairLoss, int], ...]
"""One direction of a composition: its pairs and how often each occurs."""


@dataclass(frozen=True, eq=False)
class DominatingPair:
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


def distance_of(event: Event, adjacency: Adjacency) -> float:
    """How far the neighbour moves the noiseless answer, in units of one record's contribution."""
    match event:
        case Gaussian() | Laplace() | DiscreteGaussian() | DiscreteLaplace():
            return distance(event.replace_distance, adjacency)
        case _:
            return 1.0


def base_pair(event: Event, apart: float) -> PairLoss | None:
    """The pair of an event without sampling; None if it gives nothing away.

    For black boxes ``apart`` is a group size k: k·ε, and δ grows as group privacy says.
    """
    match event:
        case Gaussian(sigma):
            mu = apart / sigma
            pair = MixturePair(1.0 / mu, MixtureSide((1.0,), (1.0,)), MixtureSide())
            return PairLoss(lambda step: mixture_cells(pair, step), GaussianLoss(mu))
        case Laplace(scale):
            loss = LaplaceLoss(apart / scale)
            return PairLoss(lambda step: laplace_cells(loss.distance, step), loss)
        case DiscreteGaussian(sigma, sensitivity) if sigma <= _LARGEST_DISCRETE:
            return _lattice_pair(_discrete_gaussian(sigma, round(sensitivity * apart)))
        case DiscreteLaplace(scale, sensitivity):
            return _lattice_pair(_discrete_laplace(scale, round(sensitivity * apart)))
        case RandomizedResponse() if event.loss > 0.0:
            if apart > 1.0:
                return black_box(apart * event.loss, 0.0)
            return _lattice_pair(_randomized_response(event.loss, event.categories))
        case PureDp(epsilon):
            return black_box(apart * epsilon, 0.0)
        case ApproxDp(epsilon, delta):
            grown = apart * math.exp((apart - 1.0) * epsilon) * delta
            return black_box(apart * epsilon, min(1.0, grown))
        case RandomizedResponse():
            return None
        case _:
            raise UnsupportedEvent(event, "exact", "it has no dominating pair that tacit knows")


def _lattice_pair(loss: LatticeLoss) -> PairLoss:
    if loss.is_out_of_range:
        return PairLoss(lambda _: _cells_of_a_mirror(loss), loss)
    cut = cells_of_losses if loss.log_tail is None else cells_of_most_losses
    return PairLoss(lambda _: cut(loss.masses[loss.support], loss.losses), loss)


def _cells_of_a_mirror(loss: LatticeLoss) -> Cells:
    """The cells where a mass of P may be no number and Q's there is: Q is P the other way round."""
    places = loss.offset + loss.spacing * (loss.first + np.arange(len(loss.masses)))
    return Cells(loss.masses, loss.masses[::-1], places, places)


def tabulated_loss(event: LossDistribution) -> PairLoss:
    """One direction of a release that is given by the law of its loss."""
    loss, p = np.asarray(event.losses), np.asarray(event.probabilities)
    q = p * np.exp(-loss)
    rest = np.array([event.infinite, 0.0]), np.array([0.0, max(0.0, 1.0 - float(q.sum()))])
    ends = np.array([np.inf, -np.inf])
    cells = join(Cells(p, q, loss, loss), Cells(*rest, ends, ends))
    return PairLoss(lambda _: cells)


def black_box(epsilon: float, delta: float) -> PairLoss | None:
    """(ε, δ)-DP: with probability δ everything is revealed, else randomised response at ε."""
    if epsilon == 0.0 and delta == 0.0:
        return None
    truth = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    lie = (1.0 - delta) * math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    p, q = np.array([delta, truth, lie, 0.0]), np.array([0.0, lie, truth, delta])
    # Not ln p/q, which is off by 1e-16: that is a lot of an epsilon of 1e-9.
    losses = np.array([np.inf, epsilon, -epsilon, -np.inf])
    cells = Cells(p, q, losses, losses).kept((p > 0.0) | (q > 0.0))
    spacing = 2.0 * epsilon if epsilon > 0.0 else 1.0
    loss = LatticeLoss(-epsilon, spacing, 0, np.array([lie, truth]))
    if epsilon == 0.0:
        loss = LatticeLoss(0.0, 1.0, 0, np.array([1.0 - delta]))
    return PairLoss(lambda _: cells, loss, delta)


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
    if variance < sys.float_info.min:
        raise OutOfRange
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
        gaussian=(sigma, shift),
    )
