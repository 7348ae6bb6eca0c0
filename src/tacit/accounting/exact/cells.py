"""A pair of distributions cut into cells: P's and Q's mass in each, and the losses it spans.

Any pair can be cut up like this, exactly up to rounding; ``grid`` then moves the cells onto a
lattice of losses, up for an upper bound on δ and down for a lower one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

if TYPE_CHECKING:
    from tacit.accounting.exact.mixture_nodes import MixturePair
    from tacit.accounting.exact.transforms import Floats

_PILOT = 500
_FAR = 16.0  # standard deviations; Φ(-16) is 6e-58


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
            _sampled_loss(self.low, rate),
            _sampled_loss(self.high, rate),
        )

    def scaled(self, weight: float) -> Cells:
        """All masses multiplied by ``weight``."""
        return Cells(weight * self.p, weight * self.q, self.low, self.high)


def _sampled_loss(loss: Floats, rate: float) -> Floats:
    """ln(1 - rate + rate·exp(loss))."""
    if rate == 1.0:
        return loss
    small = np.log1p(rate * np.expm1(np.minimum(loss, 30.0)))
    with np.errstate(divide="ignore"):
        large = np.logaddexp(np.log1p(-rate), math.log(rate) + loss)
    return np.where(loss < 30.0, small, large)


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
    """Atoms given by P's mass and the loss, which together hold all of P and Q."""
    return Cells(p, p * np.exp(-loss), loss, loss)


def cells_of_most_losses(p: Floats, loss: Floats) -> Cells:
    """The same where some mass is left out: P's rest is unbounded above, Q's below."""
    found = cells_of_losses(p, loss)
    rest = np.array([max(0.0, 1.0 - float(found.p.sum())), 0.0])
    other = np.array([0.0, max(0.0, 1.0 - float(found.q.sum()))])
    ends = np.array([np.inf, -np.inf])
    return join(found, Cells(rest, other, ends, ends))


def mixture_cells(pair: MixturePair, step: float) -> Cells:
    """Cells of x between which the loss of a mixture pair changes by at most about ``step``.

    The loss of our pairs is monotone in x: all shifts of one side have one sign.
    """
    sigma = pair.sigma
    low = min(0.0, *pair.numerator.shifts, *pair.denominator.shifts) - _FAR * sigma
    high = max(0.0, *pair.numerator.shifts, *pair.denominator.shifts) + _FAR * sigma
    # How steep the loss really is: at a low rate far less than shifts over variance.
    pilot = _mixture_loss(pair, np.linspace(low, high, _PILOT + 1))
    steepest = _PILOT * float(np.abs(np.diff(pilot)).max())
    count = min(max(math.ceil(steepest / step), 400), 400_000)
    edges = np.linspace(low, high, count + 1)
    loss = _mixture_loss(pair, edges)
    p = _mixture_mass(pair.numerator.weights, pair.numerator.shifts, edges, sigma)
    q = _mixture_mass(pair.denominator.weights, pair.denominator.shifts, edges, sigma)
    low_loss, high_loss = np.minimum(loss[:-1], loss[1:]), np.maximum(loss[:-1], loss[1:])
    return _close_ends(Cells(p, q, low_loss, high_loss))


def _mixture_loss(pair: MixturePair, x: Floats) -> Floats:
    variance = pair.sigma**2
    return pair.numerator.log_ratio(x, variance) - pair.denominator.log_ratio(x, variance)


def _close_ends(cells: Cells) -> Cells:
    """The outermost cells hold all that lies beyond them: losses are unbounded there."""
    top, bottom = int(np.argmax(cells.high)), int(np.argmin(cells.low))
    cells.high[top], cells.low[bottom] = np.inf, -np.inf
    return cells


def _mixture_mass(
    weights: tuple[float, ...], shifts: tuple[float, ...], edges: Floats, sigma: float
) -> Floats:
    """The mixture's mass between neighbouring edges, accurate in relative terms on both sides."""
    total = np.zeros(len(edges) - 1)
    for weight, shift in zip(weights, shifts, strict=True):
        scaled = (edges - shift) / sigma
        scaled[0], scaled[-1] = -np.inf, np.inf
        below, above = np.diff(ndtr(scaled)), -np.diff(ndtr(-scaled))
        total += weight * np.where(scaled[:-1] > 0.0, above, below)
    return total


def laplace_cells(distance: float, step: float) -> Cells:
    """Cells of two Laplace laws ``distance`` scales apart: two atoms and the losses between.

    Between, P's density at loss l is exp(-(distance - l)/2)/4, so both masses are closed forms.
    """
    count = max(8, math.ceil(2.0 * distance / step))
    edges = np.linspace(-distance, distance, count + 1)
    low, high = edges[:-1], edges[1:]
    grow = np.exp(-0.5 * (distance - low)) * np.expm1(0.5 * (high - low)) * 0.5
    fall = np.exp(-0.5 * (distance + low)) * -np.expm1(-0.5 * (high - low)) * 0.5
    minus = 0.5 * math.exp(-distance)
    ends = atoms(np.array([0.5, minus]), np.array([minus, 0.5]))
    exact = np.array([distance, -distance])
    return join(Cells(grow, fall, low, high), Cells(ends.p, ends.q, exact, exact))
