"""Losses so large that one of them settles it: whatever the others are, the sum is above ε.

Where a record is sampled rarely one large loss may outweigh all others. ln M explodes at a tilt far
below what the others call for, and a contour through it loses digits and takes many nodes. But
given that at least one loss is a *leap*, above some cut far enough above ε, (1 - e^{ε-L})₊ is
1 - e^{ε-L} but for what is next to nothing, and sums over that are known in closed form: with p and
q the probabilities of a leap in one of T steps,

    δ(ε) = δ of sums without leaps + (1 - (1-p)ᵀ) - e^ε·(1 - (1-q)ᵀ) + E[(e^{ε-L} - 1)₊; leaps] .

The last is at most T·p·κ(s)·e^{s(ε - cut)}·M(-s)ᵀ⁻¹ for every s > 1, by Chernoff's bound on all
losses but one leap, with κ(s) = max_v (e^v - 1)·e^{-sv}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.contour import log_chernoff_constant
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms

if TYPE_CHECKING:
    from tacit.accounting.exact.atoms import AtomLoss

_UNIT = 2.0**-53
_MOST_ATOMS = 200  # of which more are like a density, and hold no leaps
_TILTS = 40  # s that are tried
_FARTHEST = 60.0  # of them, in losses' standard deviations
_LEAST_GAIN = 1.5  # by which the largest loss must shrink


@dataclass(frozen=True)
class Leaps:
    """What leaps add to δ(ε).

    Attributes:
        p: The probability of at least one, under P.
        q: The same under Q.
        relative: A bound on the relative errors of both.
        tilt: s.
        log_most: ln of the bound on what is left out, but for e^{sε}.
    """

    p: float
    q: float
    relative: float
    tilt: float
    log_most: float

    def enclose(self, epsilon: float) -> Enclosure:
        """What they add, with its errors."""
        grown = math.exp(min(epsilon, 700.0)) * self.q
        left_out = math.exp(min(self.log_most + self.tilt * epsilon, 700.0))
        rounding = (self.relative + 8.0 * _UNIT * (1.0 + abs(epsilon))) * (self.p + grown)
        errors = ErrorTerms(truncation=left_out, rounding=rounding)
        return Enclosure(self.p - grown, errors, -grown)


def without_leaps(
    loss: AtomLoss, count: int, epsilon: float, log_spare: float
) -> tuple[AtomLoss, Leaps] | None:
    """The atoms that are no leaps for ε up to ``epsilon``, and what the others add; None if all.

    What is left out is at most exp(``log_spare``).
    """
    if len(loss.losses) > _MOST_ATOMS or loss.quadrature > 0.0:
        return None
    order = np.argsort(loss.losses)
    losses, masses = loss.losses[order], loss.masses[order]
    first = int(np.searchsorted(losses, epsilon, side="right"))
    above = np.cumsum(masses[::-1])[::-1]
    deviation = math.sqrt(count * loss.rough_variance) + 1e-300
    tilts = 1.0 + np.geomspace(1e-2, _FARTHEST, _TILTS) / min(deviation, 1.0)
    constants = np.array([log_chernoff_constant(one - 1.0) for one in tilts.tolist()])
    heights = constants + (count - 1) * loss.log_mgf_bounds(-tilts)
    heights += math.log(count) + 1e-9 * (1.0 + np.abs(heights))
    cuts = losses[first:]
    if len(cuts) == 0:
        return None
    table = heights - np.multiply.outer(cuts - epsilon, tilts) + np.log(above[first:])[:, None]
    enough = np.flatnonzero(table.min(axis=1) <= log_spare)
    if len(enough) == 0:
        return None
    best = int(table[enough[0]].argmin())
    cut, tilt = float(cuts[enough[0]]), float(tilts[best])
    gone = loss.losses >= cut
    if gone.all() or losses[-1] < _LEAST_GAIN * float(np.abs(loss.losses[~gone]).max()):
        return None
    each = float(loss.masses[gone].sum())
    log_most = float(heights[best]) - tilt * cut + math.log(each)
    off = float((loss.mass_errors + loss.loss_errors)[gone].max()) + 8.0 * _UNIT * len(losses)
    share = float((loss.masses[gone] * np.exp(-loss.losses[gone])).sum())
    leaps = Leaps(
        p=-math.expm1(count * math.log1p(-each)),
        q=-math.expm1(count * math.log1p(-share)),
        # 1 - (1-p)ᵀ moves by no more than T·p/(1 - e^{-Tp}) ≤ 1 + T·p times what p does; and steps
        # besides whose atom is left out have next to no share in it.
        relative=(off + 16.0 * _UNIT + count * (loss.lost + _lost_share(loss)))
        * (2.0 + 2.0 * count * max(each, share)),
        tilt=tilt,
        log_most=log_most + off + tilt * float(loss.loss_errors.max()) * count,
    )
    return loss.below(cut), leaps


def _lost_share(loss: AtomLoss) -> float:
    """A bound on Q's probability of what is left out."""
    shares = loss.masses * np.exp(-loss.losses)
    errors = loss.mass_errors + loss.loss_errors + 4.0 * _UNIT * len(shares)
    return max(0.0, 1.0 - float(shares.sum())) + float((shares * errors).sum())
