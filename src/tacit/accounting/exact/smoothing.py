"""The profile of sums of losses with atoms, by counting or behind a tiny Gaussian; both certified.

Where losses have atoms M(z₀ + iu) does not fade as u grows, δ(ε) has corners, and a contour that
is cut somewhere tells nothing of them.

**Counting.** Few atoms, few steps or rare ones: all counts of all atoms are listed whose tilted
probability matters, each with its multinomial probability. Their sum says what is missing.

**Smoothing.** Else a Gaussian release with a tiny μ is composed with them: its transform fades, and
it can only raise δ. By how much follows from the price of an option. With X = e^ε,
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

The tilt is where Chernoff's bound is least: unlike the saddle's approximation that is a bound even
where one rare loss outweighs all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from tacit.accounting.exact.atoms import AtomLoss, SampledLaplaceLoss, as_atoms, tilt_atoms
from tacit.accounting.exact.closed_forms import GaussianLoss, LaplaceLoss
from tacit.accounting.exact.contour import (
    Aim,
    SaddleSearch,
    bound_aliases,
    log_chernoff_constant,
)
from tacit.accounting.exact.discrete import LossTable
from tacit.accounting.exact.enclosure import TooSlow, solve_convex
from tacit.accounting.exact.lattice import LatticeLoss
from tacit.accounting.exact.transforms import NodeErrors, compose

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.exact.contour import Aliases, Point
    from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, Profile, Resolution
    from tacit.accounting.exact.transforms import (
        Complexes,
        Composition,
        Floats,
        PrivacyLoss,
        Spectrum,
        Transform,
    )

_UNIT = 2.0**-53
_WIDTH = 4e-9  # of the ends of ε, relative to max(1, ε), that smoothing may cost
_FINEST = 1e-10  # relative error of δ that other terms are to have: more is of no use
_ROUGH, _FIRST = 1e-4, 0.2  # relative error of a first look, and its μ times its tilt
_TILTS, _SPARE_DIGITS = (0.1, 3.0, 24), 10.0  # what tilts are tried, and how far above δ, in logs
_FEWEST_NODES, _MOST_NODES = 2_000, 250_000  # wider smoothing takes fewer
_MOST_WORK = 6e7  # numbers in a sum over all nodes
_FADED = 1e-9  # what is left of a node that is not worth its sum
_COARSENINGS = 6  # times three
_ROUND_UP = 1.0 + 1e-6
_PERCENTS = 3.5
_HALVINGS = 20
_FEW_STEPS = 300  # of Laplace noise, after which all are hardly ever atoms
_MOST_COUNTS, _MOST_ATOMS, _MOST_STEPS = 60_000, 100, 200_000
_RARE = 1e-17  # tilted probability of counts that are left out
_SPARE = 1e-12  # of δ, for the least likely atoms
_LIKELY, _LEAST_DELTA = 1e-14, 1e-280  # the δ that is looked for first, and last
_SPREAD = 40.0  # standard deviations, about, where δ is not known


class Found(NamedTuple):
    """A profile that is sharp near one (ε, δ), about that ε, and the tilt that it goes by."""

    profile: Profile
    epsilon: float
    tilt: float
    method: str


def profile_for_delta(composition: Composition, delta: float, resolution: Resolution) -> Found:
    """A profile that is sharp where δ(ε) is about ``delta``.

    Raises:
        TooSlow: if it takes more nodes than there is time for.
    """
    goal = math.log(delta)
    parts = _parts(composition, _SPARE * delta)
    search = SaddleSearch(parts)
    point = _least(search, parts, lambda at: (_chernoff(at) - goal) / at.tilt, 5.0 - goal)
    aim = Aim(point, max(0.0, (_chernoff(point) - goal) / point.tilt), goal)
    table = _counted(parts, aim)
    if table is not None:
        return Found(table, table.guess(delta), aim.tilt, "counted")
    rough = _roughly(parts, aim, resolution)
    largest = math.fsum(count * loss.largest for loss, count in parts)
    near = min(_descend(rough, delta, aim.epsilon, 0.5 / aim.tilt), largest)
    # What is to be known of δ is what moves ε.
    needed = max(goal, math.log(max(-rough.enclose(near).slope, 1e-300)))
    aim = _cheapest(search, Aim(point, near, min(0.0, needed)))
    profile = _smoothed(parts, aim, rough.steepness(near), resolution)
    near = _descend(profile, delta, near, 0.02 / aim.tilt, halvings=0)
    return Found(profile, solve_convex(profile, delta, near), aim.tilt, "smoothed")


def profile_for_epsilon(composition: Composition, epsilon: float, resolution: Resolution) -> Found:
    """A profile that is sharp at ``epsilon``; raises as ``profile_for_delta`` does."""
    delta = _LIKELY
    while True:
        parts = _parts(composition, _SPARE * delta)
        search = SaddleSearch(parts)
        point = _least(search, parts, lambda at: _chernoff(at) - at.tilt * epsilon, _SPREAD)
        aim = Aim(point, epsilon, min(0.0, _chernoff(point) - point.tilt * epsilon))
        table = _counted(parts, aim)
        if table is not None:
            return Found(table, epsilon, aim.tilt, "counted")
        rough = _roughly(parts, aim, resolution)
        found = rough.enclose(epsilon).estimate
        if found >= delta or delta <= _LEAST_DELTA:
            break
        delta = max(min(0.1 * found, 1e-6 * delta), _LEAST_DELTA)
    if found > 0.0:
        aim = replace(aim, log_delta=min(aim.log_delta, math.log(found)))
    aim = _cheapest(search, aim)
    # An ε that moves by that much moves δ by a relative error of some 1e-8.
    moved = 1e-8 * found / max(-rough.enclose(epsilon).slope, 1e-300)
    profile = _smoothed(parts, aim, rough.steepness(epsilon), resolution, moved)
    return Found(profile, epsilon, aim.tilt, "smoothed")


def _parts(composition: Composition, spare: float) -> Composition:
    """All lattices as atoms, and of atoms those that matter for a δ of which ``spare`` may go."""
    found = ((_in_atoms(loss), count) for loss, count in composition)
    each = spare / len(composition)
    return tuple(
        (loss.trimmed(each / count) if isinstance(loss, AtomLoss) else loss, count)
        for loss, count in found
    )


def lost_of(composition: Composition) -> float:
    """The probability of all that atoms leave out, which is charged to δ."""
    return math.fsum(count * loss.lost for loss, count in composition if isinstance(loss, AtomLoss))


def _in_atoms(loss: PrivacyLoss) -> PrivacyLoss:
    return as_atoms(loss) if isinstance(loss, LatticeLoss) else loss


def _chernoff(at: Point) -> float:
    return at.log_mgf + log_chernoff_constant(at.tilt)


def _least(
    search: SaddleSearch, parts: Composition, objective: Callable[[Point], float], spread: float
) -> Point:
    """About where an objective is least, over tilts: any is valid.

    Next to the largest loss the least lies at no tilt; those that move the sum by far more than
    ``spread`` standard deviations are not looked at.
    """
    deviation = math.sqrt(math.fsum(count * loss.rough_variance for loss, count in parts))
    most = 4.0 * spread / max(deviation, 1e-290)
    found = minimize_scalar(
        lambda log_tilt: objective(search.at(math.exp(log_tilt), 3.0 * math.exp(log_tilt))),
        bounds=(math.log(1e-9 * most), math.log(most)),
        method="bounded",
        options={"xatol": 1e-2},
    )
    tilt = math.exp(float(found.x))
    return search.at(tilt, tilt)


# ---- all counts


def _counted(parts: Composition, aim: Aim) -> LossTable | None:
    """A table of all sums that matter, if they are few."""
    losses, masses, error = np.zeros(1), np.ones(1), 0.0
    log_scale, of_scale = 0.0, 0.0
    for loss, count in parts:
        if not isinstance(loss, AtomLoss) or loss.quadrature > 0.0 or count > _MOST_STEPS:
            return None
        tilted = tilt_atoms(loss, aim.tilt)
        found = _counts(tilted.mass, tilted.spread + tilted.centre, count)
        if found is None or len(found[0]) * len(losses) > _MOST_COUNTS:
            return None
        losses = np.add.outer(losses, found[0]).ravel()
        masses = np.multiply.outer(masses, found[1]).ravel()
        known = tilted.log_mgf_error
        each = known.truncation + known.rounding
        each += float((tilted.mass * tilted.mass_errors).sum()) + tilted.missing
        moved = aim.tilt * float((tilted.mass * tilted.spread_errors).sum())
        error += count * float(each + moved) + _counting_error(tilted.mass, count)
        log_scale += count * tilted.log_mgf
        of_scale += count * float(known.truncation + known.rounding)
    order = np.argsort(losses)
    missing = max(0.0, 1.0 - float(masses.sum())) + 64.0 * _UNIT
    return LossTable(
        tilt=aim.tilt,
        log_scale=log_scale,
        losses=losses[order],
        masses=masses[order],
        error_of_sum=3.0 * error + missing if error < 0.1 else math.inf,
        error_of_squares=0.0,
        error_of_scale=math.expm1(min(3.0 * of_scale, 1.0)),
        lost=lost_of(parts),
    )


def _counts(mass: Floats, losses: Floats, count: int) -> tuple[Floats, Floats] | None:
    """Sums of ``count`` draws and their probabilities; None if too many matter.

    Atom after atom, how often each is drawn is binomial given those before it; the likeliest one
    comes last and has what is left.
    """
    if len(mass) > _MOST_ATOMS and count > 1:
        return None
    order = np.argsort(-mass)
    last, others = int(order[0]), order[1:].tolist()
    factorials = gammaln(np.arange(count + 1) + 1.0)
    # What is left of the mass before each atom: added up from the end, as probabilities of what
    # comes later, so that one stage's errors are undone by the next one's.
    rests = np.log(np.cumsum(mass[[last, *reversed(others)]])[::-1])
    logs = np.log(mass)
    left, sums, p = np.array([count]), np.zeros(1), np.ones(1)
    for stage, j in enumerate(others):
        share = math.exp(float(logs[j] - rests[stage]))
        most = count * share + 10.0 * math.sqrt(count * share) + 16.0
        times = np.arange(min(count, math.ceil(most)) + 1)
        if len(p) * len(times) > 8 * _MOST_COUNTS:
            return None
        after = left[:, None] - times
        possible = np.maximum(after, 0)
        log_p = factorials[left][:, None] - factorials[times] - factorials[possible]
        log_p += times * float(logs[j] - rests[stage])
        log_p += possible * float(rests[stage + 1] - rests[stage])
        found = np.where(after >= 0, p[:, None] * np.exp(log_p), 0.0)
        keep = found > _RARE
        p, left = found[keep], after[keep]
        sums = (sums[:, None] + times * float(losses[j]))[keep]
        if len(p) > _MOST_COUNTS:
            return None
    return sums + left * float(losses[last]), p


def _counting_error(mass: Floats, count: int) -> float:
    """A bound on the rounding of counts' probabilities, relative to each."""
    likeliest, least = -math.log(float(mass.max())), -math.log(float(mass.min()))
    per_draw = len(mass) * (1.0 + likeliest) + 4.0 + least
    choices = min(len(mass), count) * float(gammaln(count + 1.0))
    return 8.0 * _UNIT * (count * per_draw + choices)


# ---- the smoothed integral


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
        apart: Sums of atoms, which the integral leaves out.
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
    apart: LossTable | None = None

    def steepness(self, epsilon: float) -> float:
        """About the density of the loss at ε, over the slope of δ: by it μ² widens ε."""
        turn = self._turn(epsilon)
        slope = float((self.slopes * turn).real.sum())
        return abs(float((self.densities * turn).real.sum())) / max(slope, 1e-300)

    def _turn(self, epsilon: float) -> Complexes:
        """exp(iu·(centre - ε)) at the nodes, as products of far fewer exponentials."""
        step, centre = 2.0 * math.pi / self.period, self.spectrum.centre
        last = int(self.index[-1]) + 1
        fine = math.isqrt(last) + 1
        turn = 1j * (centre - epsilon) * step
        low = np.exp(turn * np.arange(fine))
        high = np.exp(turn * fine * np.arange(last // fine + 1))
        found: Complexes = np.multiply.outer(high, low).ravel()[self.index]
        return found

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
        truncation, rounding = found.errors.truncation + self.lost, found.errors.rounding
        if self.apart is None:
            return replace(found, errors=replace(found.errors, truncation=truncation))
        other = self.apart.enclose(epsilon)
        errors = replace(
            found.errors,
            truncation=truncation + other.errors.truncation,
            rounding=rounding + other.errors.rounding,
        )
        return replace(
            found,
            estimate=found.estimate + other.estimate,
            errors=errors,
            slope=found.slope + other.slope,
        )


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
        found: Floats = np.log(np.hypot(1.0 + real, imaginary) + total + 4.0 * _UNIT)
        return found


def _roughly(parts: Composition, aim: Aim, resolution: Resolution) -> SmoothedSum:
    """A first look: δ to some percent."""
    coarse = replace(resolution, relative_error=_ROUGH)
    return _smoothed_by(parts, aim, _FIRST / (aim.tilt + 1.0), coarse)


def _smoothed(
    parts: Composition,
    aim: Aim,
    steepness: float,
    resolution: Resolution,
    moved: float = math.inf,
) -> SmoothedSum:
    """Nodes for ε near ``aim.epsilon``, behind as little smoothing as they allow."""
    width = max(_WIDTH, 0.1 * resolution.relative_error) * max(1.0, aim.epsilon)
    if moved > 0.0 and resolution.relative_error <= _FINEST:
        width = min(width, moved)
    mu = math.sqrt(width / max(steepness, aim.tilt + 1.0))
    return _smoothed_by(parts, aim, mu, resolution)


def _smoothed_by(parts: Composition, aim: Aim, mu: float, resolution: Resolution) -> SmoothedSum:
    for _ in range(_COARSENINGS):
        try:
            return _lay(parts, aim, mu, resolution)
        except TooSlow:
            mu *= 3.0
    raise TooSlow


def _descend(
    profile: SmoothedSum, delta: float, start: float, stride: float, halvings: int = _HALVINGS
) -> float:
    """An ε below ε(δ), the nearer the more often its distance is halved.

    From above, for far below a profile drowns in its errors.
    """
    low = high = start
    while low > 0.0 and profile.enclose(low).estimate <= delta:
        high, low, stride = low, max(0.0, low - stride), 1.2 * stride
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if profile.enclose(middle).estimate > delta else (low, middle)
    return low


def _cheapest(search: SaddleSearch, aim: Aim) -> Aim:
    """The same ε through the tilt that takes the fewest nodes, of those that keep enough digits.

    Where one rare loss outweighs the others Chernoff's tilt lies next to where ln M explodes, and
    copies are far away: a smaller one costs digits that there are, and has a shorter period.
    """
    tilts = aim.tilt * np.geomspace(*_TILTS)
    points = [search.at(tilt, float(tilts[-1])) for tilt in tilts.tolist()]
    excess = np.array([_chernoff(at) - at.tilt * aim.epsilon - aim.log_delta for at in points])
    digits = -math.log(_FINEST)
    apart = tilts - tilts[:, None]
    with np.errstate(divide="ignore"):
        above = np.where(apart > 0.0, (excess + digits) / apart, np.inf).min(axis=1)
    period = np.maximum(above, (digits - aim.log_delta) / tilts)
    cost = np.where(excess < _SPARE_DIGITS, period * np.sqrt(tilts + 1.0), np.inf)
    best = int(cost.argmin())
    return replace(aim, point=points[best]) if math.isfinite(cost[best]) else aim


def _lay(composition: Composition, aim: Aim, mu: float, resolution: Resolution) -> SmoothedSum:
    rough = resolution.relative_error > _FINEST
    widest = 1.0 / (aim.tilt + 1.0)
    mu = min(mu, widest)
    digits = -math.log(max(resolution.relative_error, _FINEST))
    # Of more smoothing than there will be: an upper bound on less.
    most = (*composition, (GaussianLoss(widest), 1))
    aliases = bound_aliases(SaddleSearch(most), aim, digits)
    period = aliases.period(aim, digits)
    goal = aim.log_delta + aim.tilt * aim.epsilon - aim.point.log_mgf - digits
    step = 2.0 * math.pi / period
    # The density is about the slope of δ times the tilt: what is left of it, some percent of that.
    dense = goal + digits + math.log(aim.tilt) - _PERCENTS
    nodes = _last_frequency(mu, goal, dense) / step
    if not nodes < math.inf:
        raise TooSlow
    if nodes > _MOST_NODES:
        mu = min(mu * nodes / _MOST_NODES, widest)
    elif not rough and all(isinstance(loss, AtomLoss) for loss, _ in composition):
        # Less smoothing is as cheap, and has no more copies.
        mu *= min(max(nodes / _FEWEST_NODES, 1e-3), 1.0)
    smooth, last = (*composition, (GaussianLoss(mu), 1)), _last_frequency(mu, goal, dense)
    if last > 1.1 * _MOST_NODES * step:
        raise TooSlow  # no smoothing within reach is enough
    frequencies = step * np.arange(math.ceil(last / step) + 1)
    known = []
    for loss, count in smooth:
        one = loss.tilted(aim.tilt, float(frequencies[-1]), digits + math.log(count), resolution)
        if one.size * len(frequencies) > _MOST_WORK:
            raise TooSlow
        known.append((_Known(one, one.ratio(frequencies), one.ratio_error(frequencies)), count))
    z = aim.tilt + 1j * frequencies
    weights = np.full(len(frequencies), step / math.pi)
    weights[0] *= 0.5
    kernel = weights / np.abs(z * (z + 1.0))
    size = np.exp(np.minimum(sum(count * one.log_size() for one, count in known), 0.0))
    keep = (kernel * size > 0.1 * math.exp(goal) / len(frequencies)) | (size > _FADED)
    spectrum = compose(
        [(one.at(keep), count) for one, count in known],
        aim.tilt,
        frequencies[keep],
        resolution.unit_roundoff,
    )
    # Beyond the last node |M| fades as the Gaussian's does.
    end = float(frequencies[-1])
    beyond = math.exp(-0.5 * (mu * end) ** 2) / (math.pi * mu**2 * end)
    tail = beyond / end**2 + float((kernel * size)[~keep].sum())
    apart, values = _apart(composition, aim.tilt, spectrum, mu)
    densities = weights[keep] * values
    of_density = spectrum.product.errors(weights[keep]).above
    of_density += 1e-9 * float(np.abs(densities).sum())
    slopes = densities / (z[keep] + 1.0)
    return SmoothedSum(
        spectrum=spectrum,
        index=np.flatnonzero(keep),
        coefficients=slopes / z[keep],
        slopes=slopes,
        densities=densities,
        errors=_errors_of(spectrum, kernel[keep], 2.0 * _ROUND_UP * tail),
        density_error=of_density + 2.0 * (beyond + float((weights * size)[~keep].sum())),
        aliases=aliases,
        period=period,
        mu=mu,
        lost=lost_of(composition),
        apart=apart,
    )


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


def _last_frequency(mu: float, goal: float, dense: float) -> float:
    """The frequency u beyond which little is left.

    ∫ exp(-μ²u²/2)/(πu²) du is then at most exp(``goal``), and without u² at most exp(``dense``).
    """
    place = 2.0
    while (
        -0.5 * place**2 - math.log(math.pi * place**3 / mu) > goal
        or -0.5 * place**2 - math.log(math.pi * place * mu) > dense
    ):
        place *= 1.02
    return place / mu
