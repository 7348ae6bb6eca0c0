"""About δ(ε) where losses jump, by sums without bounds: quick, and it certifies nothing.

See ``jumps``, whose sums these are, along fewer nodes. The loss λ(y) of a step does not depend on
σ, only the density of y does: what was laid for one σ serves all σ near it, for the price of a few
products.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.accounting.exact.jump_curves import Curves, log1p
from tacit.accounting.exact.jump_scout import NOTHING
from tacit.accounting.exact.jumps import ANGLE, Bands, band_width, hyperbola_through

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.accounting.exact.jump_curves import Cut, Part, Step
    from tacit.accounting.exact.jump_scout import Saddle, Scout
    from tacit.accounting.exact.transforms import Complexes

ALL, FEW = 20.0, 6.0
"""-ln of a sketch's relative error, about: as many digits as a σ needs, and enough for a start."""
_CLOSER, _LATER = 0.7, 2  # curves than where bounds choose them: these have proved best
_MORE = 7.0  # digits along curves, which are not the best ones


class Sketch:
    """About δ(ε), near one ε and one σ."""

    def __init__(self, scout: Scout, epsilon: float, digits: float) -> None:
        with np.errstate(all="ignore"):
            self._parts = [
                _Part(scout.step, place, epsilon, digits) for place in _places(scout, epsilon)
            ]
        self._sigma, self._terms = scout.step.sigma, self._terms_at(scout.step.sigma)

    def _terms_at(self, sigma: float) -> Sequence[tuple[Complexes, Complexes]]:
        with np.errstate(all="ignore"):
            return [(part.z, part.log_terms(sigma)) for part in self._parts]

    def log_delta(self, epsilon: float, sigma: float | None = None) -> tuple[float, float]:
        """About ln δ(ε), and its slope by ε; for another ``sigma``, if it is given.

        Raises:
            ValueError: if δ comes out below 0.
        """
        if sigma is not None and sigma != self._sigma:
            self._sigma, self._terms = sigma, self._terms_at(sigma)
        value = slope = 0.0
        with np.errstate(all="ignore"):
            for z, log_terms in self._terms:
                terms = np.exp(log_terms - z * epsilon)
                value += float(terms.real.sum())
                slope -= float((z * terms).real.sum())
        return math.log(value), slope / value


class Place(NamedTuple):
    """A part of δ, and where to integrate it."""

    part: Part
    cut: Cut
    saddle: Saddle


def _places(scout: Scout, epsilon: float) -> Sequence[Place]:
    """What δ(ε) is the sum of, as far as it matters."""
    cuts, log_delta = scout.best_cuts(epsilon)
    index, nothing = cuts[0], 10.0 * NOTHING * math.exp(log_delta)
    kinds: tuple[Part, ...] = ("ordinary", "jumps")
    found = []
    for part in kinds:
        if part == "jumps" and scout.jump_mass[index] < nothing:
            continue
        saddle = scout.saddle(index, epsilon, jumps=part == "jumps")
        if saddle.log_height + math.log(saddle.right) >= math.log(nothing):
            found.append(Place(part, scout.cuts[index], saddle))
    return found


class _Part:
    """One part: e^{pλ} at the nodes of a hyperbola, times the density of y for one σ."""

    def __init__(self, step: Step, place: Place, epsilon: float, digits: float) -> None:
        self._step, self._jumps = step, place.part == "jumps"
        path = hyperbola_through(place.saddle, digits)
        end = math.acosh(1.5 + digits / (epsilon * path.scale * math.cos(ANGLE)))
        self.z, turn = path.at(np.arange(0.0, end, path.spacing))
        self._log_weight = np.log(turn * path.spacing / (1j * math.pi * self.z * (self.z + 1.0)))
        self._log_weight[0] -= math.log(2.0)
        width = _CLOSER * band_width(step, epsilon)
        bands = Bands(step, place.cut, place.saddle, place.part, self.z[1:], width)
        curves = Curves(step, place.cut, bands.rises, bands.span, place.part, digits + _MORE)
        index = np.minimum(bands.of(self.z) + _LATER, bands.count)
        which = [np.flatnonzero(index == one) for one in np.unique(index)]
        self._groups = [self._lay(curves, nodes, int(index[nodes[0]])) for nodes in which]

    def _lay(self, curves: Curves, which: NDArray[np.intp], index: int) -> _Group:
        """Of one curve: e^{pλ} - 1 times χ or 1, and e^{pλ} times 1 - χ; for B and 1 - χ alone."""
        start, late, grown = curves.terms(self.z[which] + 1.0, index)
        y, whole, rest = curves.y[index], curves.whole[index], curves.rest[index]
        if not self._jumps:
            return _Group(which, y, grown * curves.chi[index], (whole * rest)[None, :])
        jumps = np.empty_like(grown)
        jumps[:, :start] = grown[:, :start] + whole[:start]
        jumps[:, start:] = late
        return _Group(which, y, grown, jumps * rest)

    def log_terms(self, sigma: float) -> Complexes:
        """Ln of the integrand but for e^{-zε}, at the nodes, for another σ."""
        other = replace(self._step, sigma=sigma)
        deviation, jumps = np.empty_like(self.z), np.zeros_like(self.z)
        for which, y, one, rest in self._groups:
            change = np.exp(other.log_density(y) - self._step.log_density(y))
            deviation[which] = one @ change
            if self._jumps:
                jumps[which] = rest @ change
            else:
                deviation[which] -= rest @ change
        count = self._step.count
        found = count * ((self.z + 1.0) * math.log1p(-self._step.rate) + log1p(deviation))
        if self._jumps:
            found += np.log(-np.expm1(count * log1p(-jumps / (1.0 + deviation))))
        found += self._log_weight + self._step.log_beside(self.z)
        return found


class _Group(NamedTuple):
    """Nodes that share a curve, the curve, and the terms of two sums along it."""

    which: NDArray[np.intp]
    y: Complexes
    one: Complexes
    rest: Complexes
