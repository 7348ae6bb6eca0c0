"""δ(ε) of sums of losses with atoms: a contour integral behind a tiny Gaussian, certified.

Where losses have atoms M(z₀ + iu) does not fade as u grows, δ(ε) has corners, and a contour that
is cut somewhere tells nothing of them.

Hence a Gaussian release with a tiny μ is composed with them: its transform fades, and it can only
raise δ. Nodes at which nothing is left of the product are not looked at: see ``sieve``.

By how much the Gaussian raises δ follows from the price of an option. With X = e^ε,
δ(ε) = E_Q[(e^L - X)₊], and the Gaussian turns X into X·W with ln W ~ N(-μ²/2, μ²). What it adds is

    E_Q[E(XW - e^L)₊ - (X - e^L)₊] = E_Q[X·b(L - ε)] ,   b(v) = ∫₀^μ φ(s/2 - v/s) ds ,

the time value of Black & Scholes (1973), whose vega is φ. As φ(s/2 - v/s) ≤ e^{v/2}·φ(v/s), which
rises with s, b(v) ≤ μ·e^{v/2}·φ(v/μ), and

    0 ≤ δ_μ(ε) - δ(ε) ≤ μ²·E_P[e^{-(L-ε)/2}·n(L - ε)]
                      = μ²·e^{μ²/8}/(2πi)·∫ M(z)·e^{μ²z(z+1)/2 - zε} dz

with n the density of N(0, μ²): that is μ² times the density of the smoothed loss at ε, for which
the nodes of the one integral serve, too. In ε it is about μ²·(z₀ + 1).

A few steps of Laplace noise may all end in atoms, next to which a density would be large. These
sums are few: they are taken out of the integral, and added as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from tacit.accounting.exact.atoms import AtomLoss, TiltedAtoms, lost_of
from tacit.accounting.exact.closed_forms import GaussianLoss, LaplaceLoss
from tacit.accounting.exact.contour import SaddleSearch, bound_aliases
from tacit.accounting.exact.discrete import LossTable
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, Resolution, TooSlow
from tacit.accounting.exact.sampled_laplace import SampledLaplaceLoss, TiltedLaplace
from tacit.accounting.exact.sieve import (
    Survivors,
    Weights,
    core_of,
    first_nodes,
    stride,
    survivors,
)
from tacit.accounting.exact.transforms import NodeErrors, compose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.accounting.exact.contour import Aim, Aliases
    from tacit.accounting.exact.enclosure import Profile
    from tacit.accounting.exact.transforms import (
        Complexes,
        Composition,
        Floats,
        Spectrum,
        Transform,
        Transforms,
    )

FINEST = 1e-10
"""The relative error of δ that all terms but the smoothing are to have: less is of no use."""
_UNIT = 2.0**-53
_FEWEST_NODES, _MOST_NODES = 2_000, 200_000  # wider smoothing takes fewer
_WORTHWHILE, _MOST_LOOKS = 3, 70_000  # nodes in a block, and blocks, of those that are sieved
_MOST_WORK = 6e7  # numbers in a sum over all nodes
_ROUND_UP = 1.0 + 1e-6
_PERCENTS = 3.5
_FEW_NODES = 300  # whose phases are quickest turned one by one
_FEW_STEPS = 300  # of Laplace noise, after which all are hardly ever atoms


@dataclass(frozen=True, eq=False)
class SmoothedSum:
    """δ(ε) near one ε, from above by a Gaussian of a tiny ``mu`` on top.

    Attributes:
        spectrum: The transform, the Gaussian's included, at the nodes that matter.
        index: Which of the nodes these are.
        coefficients: (du/π)·values/(z(z+1)), halved at u = 0.
        slopes: The same without the factor 1/z.
        densities: The same without either.
        errors: Bounds on the errors of the sum of ``coefficients``, as a contour's.
        density_error: A bound on the errors of the sum of ``densities``, in the same units.
        aliases: Bounds on the copies that the rule folds in.
        period: S = 2π/du.
        mu: Of the Gaussian.
        lost: The probability of losses that are left out.
        beside: What the integral leaves out: sums of atoms, leaps.
    """

    spectrum: Spectrum
    index: NDArray[np.intp]
    coefficients: Complexes
    slopes: Complexes
    densities: Complexes
    errors: ErrorTerms
    density_error: float
    aliases: Aliases
    period: float
    mu: float
    lost: float
    beside: tuple[Profile, ...] = ()

    def steepness(self, epsilon: float) -> float:
        """About the density of the loss at ε, over the slope of δ: by it μ² widens ε."""
        turn = self._turn(epsilon)
        slope = float((self.slopes * turn).real.sum())
        return abs(float((self.densities * turn).real.sum())) / max(slope, 1e-300)

    def _turn(self, epsilon: float) -> Complexes:
        """exp(iu·(centre - ε)) at the nodes, as products of far fewer exponentials."""
        step, centre = 2.0 * math.pi / self.period, self.spectrum.centre
        last = int(self.index[-1]) + 1
        if len(self.index) < _FEW_NODES:
            return np.asarray(np.exp((1j * (centre - epsilon) * step) * self.index))
        fine = math.isqrt(last) + 1
        turn = 1j * min(max(centre - epsilon, -1e150), 1e150) * step  # no more digits that far
        low = np.exp(turn * np.arange(fine))
        high = np.exp(turn * fine * np.arange(last // fine + 1))
        found: Complexes = np.multiply.outer(high, low).ravel()[self.index]
        return found

    def look(self, epsilon: float) -> float:
        """About δ(ε)."""
        spectrum = self.spectrum
        scale = math.exp(min(spectrum.log_scale - spectrum.tilt * epsilon, 700.0))
        value = scale * float((self.coefficients * self._turn(epsilon)).real.sum())
        return value + math.fsum(one.enclose(epsilon).estimate for one in self.beside)

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        spectrum = self.spectrum
        turn = self._turn(epsilon)
        value = float((self.coefficients * turn).real.sum())
        slope = -float((self.slopes * turn).real.sum())
        density = float((self.densities * turn).real.sum()) + self.density_error
        scale = math.exp(min(spectrum.log_scale - spectrum.tilt * epsilon, 700.0))
        # Copies of the density are positive: the rule's is no smaller than the true one.
        added = self.mu**2 * math.exp(0.125 * self.mu**2) * scale * max(density, 0.0)
        aliasing = self.aliases.bound(epsilon, self.period) + added * _ROUND_UP
        found = spectrum.enclose(epsilon, value, slope, self.errors, aliasing)
        others = [found, *(one.enclose(epsilon) for one in self.beside)]
        errors = ErrorTerms(
            truncation=self.lost + math.fsum(one.errors.truncation for one in others),
            quadrature=found.errors.quadrature,
            rounding=math.fsum(one.errors.rounding for one in others),
            tail=found.errors.tail,
            aliasing=aliasing,
        )
        value = math.fsum(one.estimate for one in others)
        return Enclosure(value, errors, math.fsum(one.slope for one in others))


@dataclass(frozen=True, eq=False)
class _Known:
    """A transform at frequencies where its ratios have been computed before."""

    transform: Transform
    ratios: tuple[Floats, Floats]
    errors: NodeErrors

    @property
    def log_mgf(self) -> float:
        return self.transform.log_mgf

    @property
    def log_mgf_error(self) -> NodeErrors:
        return self.transform.log_mgf_error

    @property
    def centre(self) -> float:
        return self.transform.centre

    @property
    def size(self) -> int:
        return self.transform.size

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:  # noqa: ARG002
        return self.ratios

    def ratio_error(self, frequencies: Floats) -> NodeErrors:  # noqa: ARG002
        return self.errors

    def log_decay(self, frequency: float, thorough: bool) -> float:
        return self.transform.log_decay(frequency, thorough)

    def at(self, keep: NDArray[np.bool_]) -> _Known:
        """The same at some of the frequencies."""
        real, imaginary = self.ratios
        known = self.errors
        causes = (known.truncation, known.quadrature, known.rounding)
        first, second, third = (one[keep] if isinstance(one, np.ndarray) else one for one in causes)
        errors = NodeErrors(first, second, third, known.complete)
        return _Known(self.transform, (real[keep], imaginary[keep]), errors)

    def log_size(self) -> Floats:
        """A bound on ln |M(tilt + iu)/M(tilt)|, errors included."""
        real, imaginary = self.ratios
        total = self.errors.truncation + self.errors.quadrature + self.errors.rounding
        square = (1.0 + real) ** 2 + imaginary**2
        found: Floats = np.log(np.sqrt(square) + total + 4.0 * _UNIT)
        return found


def lay_smoothed(
    composition: Composition, aim: Aim, mu: float, resolution: Resolution
) -> SmoothedSum:
    """Nodes for ε near ``aim.epsilon``, behind a Gaussian of ``mu``, or more if they are too many.

    Raises:
        TooSlow: if no smoothing within reach is enough.
    """
    if not mu > 0.0:  # δ is so steep there that no smoothing is little enough
        raise TooSlow
    widest = 1.0 / (aim.tilt + 1.0)
    digits = -math.log(max(resolution.relative_error, FINEST))
    # Of more smoothing than there will be: an upper bound on less.
    most = (*composition, (GaussianLoss(widest), 1))
    aliases = bound_aliases(SaddleSearch(most), aim, digits)
    period = aliases.period(aim, digits)
    goal = aim.log_delta + aim.tilt * aim.epsilon - aim.point.log_mgf - digits
    # The density is about the slope of δ times the tilt: what is left of it, some percent of that.
    dense = goal + digits + math.log(aim.tilt) - _PERCENTS
    weighing = Weights(aim.tilt, 2.0 * math.pi / period, min(mu, widest), goal, dense)
    if resolution.relative_error <= FINEST:
        weighing = _less(composition, weighing)
    transforms = [(loss.tilted(aim.tilt, 0.0, digits, resolution), n) for loss, n in composition]
    mu, left = _nodes(transforms, weighing, widest)
    weighing = replace(weighing, mu=mu)
    last = weighing.step * float(left.index[-1])
    known = []
    for (loss, count), (known_so_far, _) in zip(composition, transforms, strict=True):
        one: Transform = known_so_far
        if not isinstance(loss, AtomLoss):
            one = loss.tilted(aim.tilt, last, digits + math.log(count), resolution)
        if one.size * len(left.index) > _MOST_WORK:
            raise TooSlow
        known.append((_known(one, weighing.step * left.index, evenly=left.evenly), count))
    return _summed(composition, known, weighing, left, aliases)


def _less(composition: Composition, weighing: Weights) -> Weights:
    """Less smoothing where that is as cheap: it has no more copies."""
    nodes = weighing.last_frequency() / weighing.step
    if nodes > _FEWEST_NODES or not all(isinstance(loss, AtomLoss) for loss, _ in composition):
        return weighing
    return replace(weighing, mu=weighing.mu * max(nodes / _FEWEST_NODES, 1e-3))


def _summed(
    composition: Composition,
    known: Sequence[tuple[_Known, int]],
    weighing: Weights,
    left: Survivors,
    aliases: Aliases,
) -> SmoothedSum:
    """The sum over what matters of the nodes, and bounds on all the others."""
    step, mu = weighing.step, weighing.mu
    frequencies = step * left.index
    log_size = sum(n * one.log_size() for one, n in known) - 0.5 * (mu * frequencies) ** 2
    keep = log_size > weighing.allowed(frequencies, left.count)
    keep[0] = True
    factors = [(one.at(keep), n) for one, n in known]
    spectrum = _with_gaussian(compose(factors, weighing.tilt, frequencies[keep], _UNIT), mu)
    # Beyond the last node |M| fades as the Gaussian's does.
    size, end = np.exp(np.minimum(log_size[~keep], 0.0)), step * (left.count - 1)
    beyond = math.exp(-0.5 * (mu * end) ** 2) / (math.pi * mu**2 * end)
    tail = left.value + float((weighing.value(frequencies[~keep]) * size).sum()) + beyond / end**2
    faded = beyond + left.density + float(size.sum()) * step / math.pi
    apart, values = _apart(composition, weighing.tilt, spectrum, mu)
    weights, z = np.full(len(values), step / math.pi), spectrum.tilts
    weights[0] *= 0.5
    densities = weights * values
    of_density = spectrum.product.errors(weights).above + 1e-9 * float(np.abs(densities).sum())
    slopes = densities / (z + 1.0)
    kernel = weights / np.abs(z * (z + 1.0))
    return SmoothedSum(
        spectrum=spectrum,
        index=left.index[keep],
        coefficients=slopes / z,
        slopes=slopes,
        densities=densities,
        errors=_errors_of(spectrum, kernel, 2.0 * _ROUND_UP * tail),
        density_error=of_density + 2.0 * faded,
        aliases=aliases,
        period=2.0 * math.pi / step,
        mu=mu,
        lost=lost_of(composition),
        beside=() if apart is None else (apart,),
    )


def _nodes(transforms: Transforms, weighing: Weights, widest: float) -> tuple[float, Survivors]:
    """The nodes to sum over, sieved if that spares any, and as little smoothing as they allow.

    Raises:
        TooSlow: if no smoothing within reach is enough.
    """
    cores = [core_of(one, n) for one, n in transforms if isinstance(one, TiltedAtoms)]
    width = stride(cores, weighing.step)

    def log_decay(frequency: float) -> float:
        return math.fsum(n * one.log_decay(frequency, True) for one, n in transforms)

    for sieved in (True, False):
        if sieved and width < _WORTHWHILE:
            continue
        mu, most = weighing.mu, _MOST_LOOKS * width if sieved else _MOST_NODES
        nodes = weighing.last_frequency() / weighing.step
        if nodes > most:
            mu = min(mu * nodes / most, widest)
        weighed = replace(weighing, mu=mu)
        count = math.ceil(weighed.last_frequency() / weighing.step) + 1
        if count > 1.1 * most + 2.0:
            continue
        if not sieved:
            return mu, first_nodes(count, weighed, log_decay)
        found = survivors(cores, count, width, weighed)
        if found is not None:
            return mu, found
    raise TooSlow


def _with_gaussian(spectrum: Spectrum, mu: float) -> Spectrum:
    """The spectrum with a Gaussian of ``mu`` on top, whose part in it is exp(-μ²u²/2)."""
    gaussian = GaussianLoss(mu).tilted(spectrum.tilt, 0.0, 0.0, Resolution())
    square = (mu * spectrum.frequencies) ** 2
    known, product = gaussian.log_mgf_error, spectrum.product
    turned = abs(gaussian.centre) * spectrum.frequencies
    causes = product.causes.copy()
    causes[2] += 8.0 * _UNIT * (square + turned)
    scale_errors = spectrum.scale_errors
    return replace(
        spectrum,
        log_scale=spectrum.log_scale + gaussian.log_mgf,
        centre=spectrum.centre + gaussian.centre,
        product=replace(
            product,
            log_modulus=product.log_modulus - 0.5 * square,
            work=product.work + 0.5 * square,
            causes=causes,
        ),
        scale_errors=replace(
            scale_errors, rounding=scale_errors.rounding + 2.0 * float(known.rounding)
        ),
    )


def _known(one: Transform, frequencies: Floats, *, evenly: bool) -> _Known:
    """The transform at the frequencies, which are equally spaced from 0 if ``evenly``."""
    if not evenly and isinstance(one, TiltedAtoms | TiltedLaplace):
        return _Known(one, one.ratio_at(frequencies), one.error_at(frequencies))
    return _Known(one, one.ratio(frequencies), one.ratio_error(frequencies))


def _errors_of(spectrum: Spectrum, kernel: Floats, tail: float) -> ErrorTerms:
    """The spectrum's errors against a kernel, of sums that are taken in pairs of pairs.

    NumPy adds blocks of 128 by eights and then in pairs, so that of n terms none is rounded more
    than some 20 + log₂ n times.
    """
    return spectrum.errors_against(kernel, tail, terms=32 + len(kernel).bit_length())


def _apart(
    composition: Composition, tilt: float, spectrum: Spectrum, mu: float
) -> tuple[LossTable | None, Complexes]:
    """The sums in which every loss is an atom of Laplace noise, and the transform of the others.

    Neither is larger than that of all.
    """
    loss, count = composition[0]
    if (
        len(composition) > 1
        or count > _FEW_STEPS
        or not isinstance(loss, LaplaceLoss | SampledLaplaceLoss)
    ):
        return None, spectrum.values
    losses, log_p = loss.ends()
    gaussian = GaussianLoss(mu).moments(tilt)
    log_scale, centre = spectrum.log_scale - gaussian[0], spectrum.centre - gaussian[1]
    log_mass = log_p + tilt * losses - log_scale / count
    turns = np.multiply.outer(spectrum.frequencies, losses - centre / count)
    atoms = (np.exp(1j * turns + log_mass)).sum(axis=1) ** count
    times = np.arange(count + 1.0)
    log_choose = gammaln(count + 1.0) - gammaln(times + 1.0) - gammaln(count - times + 1.0)
    sums = losses[0] * (count - times) + losses[1] * times
    order = np.argsort(sums)
    masses = np.exp(log_choose + log_mass[0] * (count - times) + log_mass[1] * times)
    # Both the table and what is taken out are right to this much of what all masses are at most.
    error = 64.0 * _UNIT * count * (4.0 + float(np.abs(log_mass).max()) + math.log(count + 1.0))
    table = LossTable(
        tilt=tilt,
        log_scale=log_scale,
        losses=sums[order],
        masses=masses[order],
        error_of_sum=2.0 * error * float(masses.sum()),
        error_of_squares=0.0,
        error_of_scale=spectrum.scale_errors.above,
    )
    return table, spectrum.values - atoms * np.exp(-0.5 * (mu * spectrum.frequencies) ** 2)
