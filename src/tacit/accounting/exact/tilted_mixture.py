"""The transform of a mixture loss along one vertical line of the complex plane, errors included."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from tacit.accounting.exact.mixture_nodes import MixturePair, Nodes
    from tacit.accounting.exact.resolution import Resolution
    from tacit.accounting.exact.transforms import Complexes, Floats

_SAFETY = 4.0  # what the first-order rounding model below is multiplied by
_DECAY_DIGITS = 80.0  # -ln of the error of a modulus off the real line: a step may fall that far
_NEGLIGIBLE = 1e-20  # tilted mass that is left out of the sums over u, and charged as truncation


@dataclass(frozen=True)
class TiltedMixture:
    """M(z)/M(tilt) for Re z = tilt, from the nodes that carry the tilted mass.

    Attributes:
        log_mgf: ln M(tilt).
        log_mgf_error: Bounds on its error.
        centre: The mean of L under P tilted by exp(tilt·L); phases are taken relative to it.
        spread: The losses at the nodes, less the centre.
        mass: The tilted mass at the nodes.
        truncation: A bound on the tilted mass beyond the nodes.
        left_out: The tilted mass of nodes that are left out of the sums over u.
        rounding: See ``_Condition.of_ratio``.
    """

    nodes: Nodes
    tilt: float
    log_mgf: float
    log_mgf_error: NodeErrors
    centre: float
    spread: Floats
    mass: Floats
    truncation: float
    left_out: float
    rounding: tuple[float, float, float]

    @property
    def size(self) -> int:
        """How many numbers one frequency costs."""
        return len(self.mass)

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1.

        With the equal spacing of u, exp(i(a+b)y) - 1 = AB + A + B for A = exp(iay) - 1 and
        B = exp(iby) - 1: a matrix product of some √n rows each does for n rows of exponentials, and
        keeps their digits where y is small.
        """
        count = len(frequencies)
        fine = math.ceil(math.sqrt(count))
        low = _turns(frequencies[:fine], self.spread)
        high = _turns(frequencies[::fine], self.spread)
        weighted = low * self.mass
        table = high @ weighted.T
        table += (high @ self.mass)[:, None] + weighted.sum(axis=1)
        ratio = table.ravel()[:count]
        return ratio.real, ratio.imag

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""
        flat, slope, phase = self.rounding
        rounding = np.minimum(2.0 * flat, slope * frequencies) + phase * frequencies
        # Neither the true ratio nor the computed one is larger than about 1 in size.
        quadrature = np.minimum(self.nodes.quadrature_errors(frequencies), 2.1)
        quadrature += self.nodes.quadrature_error
        return NodeErrors(2.0 * (self.truncation + self.left_out), quadrature, rounding)

    def log_decay(self, frequency: float, thorough: bool) -> float:
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency.

        The line of integration moves to Im x = σ²·angle, where exp(iuL) shrinks like
        exp(-u·|Im L|): the more, the larger u. Any angle gives a bound.
        """
        widest = 0.8 * 0.5 * math.pi / self.nodes.pair.reach
        slope, sigma = self._mean_slope, self.nodes.pair.sigma
        best = frequency * slope / (1.0 + (frequency * slope * sigma) ** 2)
        angles = [min(best, widest)]
        if thorough:
            # Few steps: each must fall far, and does at the angle of a Gaussian loss of that slope.
            angles += [min(3.0 * best, widest), 0.6 * widest, min(frequency * slope, widest)]
        return min(0.0, *(self._log_decay_at(frequency, angle) for angle in angles))

    def _log_decay_at(self, frequency: float, angle: float) -> float:
        nodes, truncation = self._off_axis
        log_modulus, damping = nodes.off_axis(self.tilt, angle)
        exponent = log_modulus - self.log_mgf - frequency * damping
        total = float(np.exp(np.minimum(exponent, 600.0)).sum())
        error = nodes.off_axis_error(self.tilt, angle, truncation)
        return math.log(total * (1.0 + 1e-10) + error)

    @cached_property
    def _off_axis(self) -> tuple[Nodes, float]:
        """Nodes for a modulus, which turns no phases and needs fewer, and the mass beyond them."""
        pair, nodes = self.nodes.pair, self.nodes
        few = nodes.thinned(max(1, int(pair.step(self.tilt, 0.0, _DECAY_DIGITS) / nodes.step)))
        return few, few.truncation_error(self.tilt) * math.exp(min(-self.log_mgf, 700.0))

    @cached_property
    def _mean_slope(self) -> float:
        """About E|dL/dx| under the tilted mass (a guide to the angle, no bound)."""
        return float(self.mass[1:] @ np.abs(np.diff(self.spread))) / self.nodes.step


def _turns(frequencies: Floats, spread: Floats) -> Complexes:
    """exp(iuy) - 1 = 2i·sin(uy/2)·exp(iuy/2) for every frequency u and spread y."""
    half = np.multiply.outer(0.5 * frequencies.astype(spread.dtype), spread)
    sine = np.sin(half)
    turns = np.empty(half.shape, np.result_type(half.dtype, np.complex64))
    np.multiply(sine, sine, out=turns.real)
    turns.real *= -2.0
    np.multiply(sine, np.cos(half, out=half), out=turns.imag)
    turns.imag *= 2.0
    return turns


def tilt_mixture(
    pair: MixturePair, tilt: float, frequency: float, digits: float, resolution: Resolution
) -> TiltedMixture:
    """Lays nodes for Re z = tilt and |Im z| ≤ frequency and bounds what they get wrong."""
    nodes = pair.nodes(tilt, frequency, digits, resolution)
    condition = _Condition(nodes, tilt, resolution.unit_roundoff)
    plain = np.exp(nodes.log_mass)
    scaled = tilt * nodes.loss
    exponent = nodes.log_mass + scaled
    highest = float(exponent.max())
    if highest > 500.0:
        total = float(np.exp(exponent - highest).sum())
        log_mgf = highest + math.log(total)
        deviation = np.exp(exponent - log_mgf)
    else:
        small = np.clip(scaled, -1.0, 1.0)
        excess = np.where(small == scaled, plain * np.expm1(small), np.exp(exponent) - plain)
        log_mgf = math.log1p(float(excess.sum()))
        deviation = np.abs(excess) * math.exp(-log_mgf)
    tilted = np.exp(exponent - log_mgf)
    truncation = nodes.truncation_error(tilt) * math.exp(-log_mgf)
    error = NodeErrors(
        truncation + nodes.truncation_error(0.0),
        2.0 * nodes.quadrature_error,
        condition.of_sum(deviation, tilted, log_mgf),
    )
    keep = _carrying(tilted)
    left_out = float(tilted[: keep.start].sum() + tilted[keep.stop :].sum())
    centre = float(tilted @ nodes.loss) / float(tilted.sum())
    spread = nodes.loss[keep] - nodes.loss.dtype.type(centre)
    return TiltedMixture(
        nodes,
        tilt,
        log_mgf,
        error.as_log(),
        float(nodes.loss.dtype.type(centre)),
        spread,
        tilted[keep],
        truncation,
        left_out,
        condition.of_ratio(tilted, nodes.loss - centre, log_mgf),
    )


def _carrying(mass: Floats) -> slice:
    """The smallest run of nodes outside which no node carries mass that matters."""
    (where,) = np.nonzero(mass > _NEGLIGIBLE)
    return slice(int(where[0]), int(where[-1]) + 1)


class _Condition:
    """First-order rounding errors of the nodes, in units of the arithmetic's roundoff."""

    def __init__(self, nodes: Nodes, tilt: float, unit: float) -> None:
        variance = nodes.pair.sigma**2
        top = nodes.pair.numerator.conditioning(nodes.x, variance, nodes.log_top)
        bottom = nodes.pair.denominator.conditioning(nodes.x, variance, nodes.log_bottom)
        self._tilt = tilt
        self._unit = _SAFETY * unit
        self._loss = top + bottom
        noise = np.abs(nodes.log_noise) + nodes.x * nodes.x / variance
        self._log_mass = 1.0 + noise + np.abs(nodes.log_mass) + top
        self._scaled = tilt * (np.abs(nodes.loss) + self._loss)

    def of_sum(self, deviation: Floats, tilted: Floats, log_mgf: float) -> float:
        """Of the sum that gives M(tilt), relative to M(tilt)."""
        per_term = deviation * (len(deviation) + self._log_mass + abs(log_mgf))
        return self._unit * float(per_term.sum() + tilted @ self._scaled)

    def of_ratio(
        self, tilted: Floats, spread: Floats, log_mgf: float
    ) -> tuple[float, float, float]:
        """Of M(tilt+iu)/M(tilt) - 1: at most min(2·first, u·second) + u·third."""
        relative = len(tilted) + self._log_mass + self._scaled + abs(log_mgf)
        distance = np.abs(spread)
        weighted = tilted * relative
        flat, slope = float(weighted.sum()), float(weighted @ distance)
        phase = float(tilted @ (self._loss + distance))
        return self._unit * flat, self._unit * slope, self._unit * phase
