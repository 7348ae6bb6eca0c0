"""The privacy profile as a contour integral, by the trapezoid rule, with every error bounded.

For a loss L with moment-generating function M(z) = E_P[exp(zL)] and any tilt z₀ > 0,

    δ(ε) = E_P[(1 - exp(ε - L))₊] = 1/(2πi) ∫_{Re z = z₀} M(z)·exp(-zε)/(z(z+1)) dz ,

since (1 - exp(-y))₊ is the inverse Laplace transform of 1/(z(z+1)). Composition multiplies the M.
The trapezoid rule with step du gives, by Poisson summation, exactly Σ_k δ(ε + kS)·exp(kSz₀) with
S = 2π/du; ``aliasing`` bounds the copies. Cutting the sum at u costs at most |M(z₀+iu)|/(πu), for
which the transforms bound their own decay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.aliasing import Aliases, bound_aliases
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, TooSlow
from tacit.accounting.exact.spectrum import Spectrum, compose

if TYPE_CHECKING:
    from tacit.accounting.exact.product import Transforms
    from tacit.accounting.exact.resolution import Resolution
    from tacit.accounting.exact.saddle import Aim, Search
    from tacit.accounting.exact.transforms import Complexes, Composition


@dataclass(frozen=True, eq=False)
class Contour:
    """δ(ε) = exp(ln M(z₀) - z₀ε)·Re Σ_k coefficients_k·exp(iu_k(centre - ε)), near one ε.

    Attributes:
        spectrum: The transform at the nodes.
        coefficients: (du/π)·values/(z(z+1)), halved at u = 0.
        slopes: The same without the factor 1/z, for dδ/dε.
        errors: Bounds on the errors of the sum by cause, in units of exp(ln M(z₀) - z₀ε).
        aliases: Bounds on the copies that the rule folds in.
        period: S = 2π/du.
    """

    spectrum: Spectrum
    coefficients: Complexes
    slopes: Complexes
    errors: ErrorTerms
    aliases: Aliases
    period: float

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        spectrum = self.spectrum
        turn = np.exp(1j * ((spectrum.centre - epsilon) * spectrum.frequencies))
        value = float((self.coefficients @ turn).real)
        slope = -float((self.slopes @ turn).real)
        aliasing = self.aliases.bound(epsilon, self.period)
        return spectrum.enclose(epsilon, value, slope, self.errors, aliasing)


def lay_contour(
    composition: Composition, search: Search, aim: Aim, resolution: Resolution
) -> Contour:
    """Places the nodes for ε near ``aim.epsilon`` and evaluates the transforms there.

    Raises:
        TooSlow: if that takes more nodes than the resolution allows.
    """
    aliases = bound_aliases(search, aim, resolution.digits)
    period = aliases.period(aim, resolution.digits) * resolution.contour_density
    transforms, highest, log_tail = _reach(composition, aim, period, resolution)
    step = 2.0 * math.pi / period
    frequencies = step * np.arange(math.ceil(highest / step) + 1)
    spectrum = compose(transforms, aim.tilt, frequencies, resolution.unit_roundoff)
    z = spectrum.tilts
    weights = np.full(len(frequencies), step / math.pi)
    weights[0] *= 0.5
    slopes = weights * spectrum.values / (z + 1.0)
    errors = spectrum.errors_against(weights / np.abs(z * (z + 1.0)), math.exp(log_tail))
    return Contour(spectrum, slopes / z, slopes, errors, aliases, period)


def _reach(
    composition: Composition, aim: Aim, period: float, resolution: Resolution
) -> tuple[Transforms, float, float]:
    """Transforms good up to the last frequency, that frequency, and ln of the tail beyond it."""
    goal = aim.log_delta + aim.tilt * aim.epsilon - aim.point.log_mgf - resolution.digits
    highest = 1.3 * math.sqrt(2.0 * resolution.digits / aim.point.curvature)
    while True:
        transforms = _transforms(composition, aim.tilt, 1.25 * highest, resolution)
        for candidate in (highest, 1.25 * highest):
            log_tail = _log_tail(transforms, candidate, goal)
            if log_tail <= goal and resolution.contour_reach == 1.0:
                return transforms, candidate, log_tail
            if log_tail <= goal:
                cut = resolution.contour_reach * candidate
                return transforms, cut, _log_tail(transforms, cut, -math.inf)
        farther = 1.1 * math.sqrt((resolution.digits + 9.0) / max(1.0, -log_tail))
        highest *= min(2.0, max(1.25, farther))  # on and on, even where the goal is lower still
        nodes = highest * period / (2.0 * math.pi)
        largest = max(transform.size for transform, _ in transforms)
        if nodes > resolution.most_nodes or nodes * largest > resolution.most_work:
            raise TooSlow


def _transforms(
    composition: Composition, tilt: float, frequency: float, resolution: Resolution
) -> Transforms:
    digits = 3.0 + resolution.digits
    return [
        (loss.tilted(tilt, frequency, digits + math.log(count), resolution), count)
        for loss, count in composition
    ]


def _log_tail(transforms: Transforms, frequency: float, goal: float) -> float:
    """Ln of a bound on the sum beyond ``frequency``: |Φ|·Σ du/(π·u²), Φ bounded by its decay.

    Works harder at the bound only if the first one is above ``goal``.
    """
    log_sum = -math.log(math.pi * frequency)
    for thorough in (False, True):
        decays = [n * transform.log_decay(frequency, thorough) for transform, n in transforms]
        log_tail = log_sum + math.fsum(decays)
        if log_tail <= goal:
            break
    return log_tail
