"""The profile of sums of losses with atoms, behind a tiny Gaussian, certified.

Where losses have atoms M(z₀ + iu) does not fade as u grows, δ(ε) has corners, and a contour that
is cut somewhere tells nothing of them.

Of few atoms, few steps or rare ones all sums are listed: see ``counts``. Else a Gaussian release
with a tiny μ is composed with them: its transform fades, and it can only raise δ. Nodes at which
nothing is left of the product are not looked at: see ``sieve``. Losses that by themselves lift the
sum above ε are set apart: see ``leaps``.

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

The tilt is where Chernoff's bound is least: unlike the saddle's approximation that is a bound even
where one rare loss outweighs all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

from tacit.accounting.exact.atoms import (
    AtomLoss,
    TiltedAtoms,
    as_atoms,
    lost_of,
    tilt_atoms,
)
from tacit.accounting.exact.closed_forms import GaussianLoss, LaplaceLoss
from tacit.accounting.exact.contour import (
    Aim,
    SaddleSearch,
    bound_aliases,
    log_chernoff_constant,
)
from tacit.accounting.exact.counts import paired_sums
from tacit.accounting.exact.discrete import LossTable
from tacit.accounting.exact.enclosure import (
    Enclosure,
    ErrorTerms,
    Resolution,
    TooSlow,
    solve_convex,
)
from tacit.accounting.exact.lattice import LatticeLoss
from tacit.accounting.exact.leaps import Leaps, without_leaps
from tacit.accounting.exact.sampled_laplace import SampledLaplaceLoss, TiltedLaplace
from tacit.accounting.exact.sieve import (
    Core,
    Survivors,
    Weights,
    core_of,
    first_nodes,
    stride,
    survivors,
)
from tacit.accounting.exact.transforms import NodeErrors, compose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tacit.accounting.exact.contour import Aliases, Point
    from tacit.accounting.exact.enclosure import Profile
    from tacit.accounting.exact.transforms import (
        Complexes,
        Composition,
        Floats,
        PrivacyLoss,
        RealLine,
        Spectrum,
        Transform,
        Transforms,
    )

_UNIT = 2.0**-53
_WIDTH = 6e-9  # of the ends of ε, relative to max(1, ε), that smoothing may cost
_FINEST = 1e-10  # relative error of δ that other terms are to have: more is of no use
_ROUGH, _FIRST = 1e-4, 0.2  # relative error of a first look, and its μ times its tilt
_TILTS, _SPARE_DIGITS = (0.1, 3.0, 24), 10.0  # what tilts are tried, and how far above δ, in logs
_FEWEST_NODES, _MOST_NODES = 2_000, 200_000  # wider smoothing takes fewer
_WORTHWHILE, _MOST_LOOKS = 3, 70_000  # nodes in a block, and blocks, of those that are sieved
_MOST_WORK = 6e7  # numbers in a sum over all nodes
_COARSENINGS = 6  # times three
_ROUND_UP = 1.0 + 1e-6
_LEFT_OUT = 1e-11  # of δ, with leaps
_LOOKS, _NEAR = 4, 3.0  # first looks, and how near the last must be, in tilts times ε
_PERCENTS = 3.5
_HALVINGS = 7
_SHARES, _AHEAD = (0.05, 0.005), 3.0  # of a loss's scale that smoothing is; of tilts, known
_ROUNDS, _PLACES = 3, 24  # of a search for a tilt, and tilts in each
_FEW_NODES = 300  # whose phases are quickest turned one by one
_FEW_STEPS = 300  # of Laplace noise, after which all are hardly ever atoms
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
    point = _least(search, parts, lambda tilts, found: (found - goal) / tilts, 5.0 - goal)
    aim = Aim(point, max(0.0, (_chernoff(point) - goal) / point.tilt), goal)
    table = paired_sums(parts, aim.tilt)
    if table is not None:
        return Found(table, table.guess(delta, aim.epsilon), aim.tilt, "counted")
    largest = math.fsum(count * loss.largest for loss, count in parts)
    place = Place(parts, search, aim)
    for _ in range(_LOOKS):
        rough = _roughly(place, resolution)
        near = min(_descend(rough, delta, place.aim.epsilon, 0.5 / place.aim.tilt), largest)
        # What is to be known of δ is what moves ε.
        needed = min(0.0, max(goal, math.log(max(-rough.enclose(near).slope, 1e-300))))
        if place.aim.tilt * (place.aim.epsilon - near) < _NEAR:
            place = replace(place, aim=replace(place.aim, epsilon=near, log_delta=needed))
            break
        before, place = place, _without_leaps(Place(parts, search, Aim(point, near, needed)))
        if before.leaps is None is place.leaps:
            break
    profile = _smoothed(place, rough.steepness(near), resolution)
    near = _descend(profile, delta, near, 0.02 / place.aim.tilt, halvings=0)
    return Found(profile, solve_convex(profile, delta, near), place.aim.tilt, "smoothed")


def profile_for_epsilon(composition: Composition, epsilon: float, resolution: Resolution) -> Found:
    """A profile that is sharp at ``epsilon``; raises as ``profile_for_delta`` does."""
    delta = _LIKELY
    while True:
        parts = _parts(composition, _SPARE * delta)
        search = SaddleSearch(parts)
        point = _least(search, parts, lambda tilts, found: found - tilts * epsilon, _SPREAD)
        aim = Aim(point, epsilon, min(0.0, _chernoff(point) - point.tilt * epsilon))
        table = paired_sums(parts, aim.tilt)
        if table is not None:
            return Found(table, epsilon, aim.tilt, "counted")
        rough = _roughly(Place(parts, search, aim), resolution)
        found = rough.enclose(epsilon).estimate
        if found >= delta or delta <= _LEAST_DELTA:
            break
        delta = max(min(0.1 * found, 1e-6 * delta), _LEAST_DELTA)
    if found > 0.0:
        aim = replace(aim, log_delta=min(aim.log_delta, math.log(found)))
    place = _without_leaps(Place(parts, search, aim))
    # An ε that moves by that much moves δ by a relative error of some 1e-8.
    moved = 1e-8 * found / max(-rough.enclose(epsilon).slope, 1e-300)
    profile = _smoothed(place, rough.steepness(epsilon), resolution, moved)
    return Found(profile, epsilon, aim.tilt, "smoothed")


def is_at_most(
    composition: Composition, epsilon: float, delta: float, resolution: Resolution, tilt: float
) -> bool:
    """Whether δ(``epsilon``) ≤ ``delta`` can be certified; ``tilt`` is where to look first.

    Raises:
        TooSlow: if it takes more nodes than there is time for.
    """
    parts = _parts(composition, _SPARE * delta)
    if _chernoff_bound(parts, epsilon, tilt) + lost_of(parts) <= delta:
        return True
    table = paired_sums(parts, tilt)
    if table is not None:
        return table.enclose(epsilon).upper <= delta
    search = SaddleSearch(parts)
    point = search.at(tilt, _AHEAD * tilt)
    aim = Aim(point, epsilon, math.log(delta))
    if _chernoff(point) - tilt * epsilon < aim.log_delta + _SPARE_DIGITS:
        for share in _SHARES:  # more smoothing is quicker, and may leave no doubt
            coarse = replace(resolution, relative_error=max(share**2, resolution.relative_error))
            profile = _smoothed_by(Place(parts, search, aim), share / (tilt + 1.0), coarse)
            found = profile.enclose(epsilon)
            if found.upper <= delta or found.lower > delta:
                return found.upper <= delta
    sharp = profile_for_epsilon(composition, epsilon, resolution)
    return sharp.profile.enclose(epsilon).upper <= delta


def _chernoff_bound(parts: Composition, epsilon: float, tilt: float) -> float:
    """The least of Chernoff's bounds on δ(ε) of what is not lost, from ``tilt`` up."""
    tilts = tilt * 2.0 ** np.arange(7.0)
    exponents = tilts * np.log(tilts) - (tilts + 1.0) * np.log1p(tilts) - tilts * epsilon
    for loss, count in parts:
        line = loss.real_line(float(tilts[-1]), 12.0)
        if isinstance(line, AtomLoss):
            exponents += count * line.log_mgf_bounds(tilts)
        else:
            exponents += count * np.array([line.log_mgf_bound(one) for one in tilts.tolist()])
    return math.exp(min(0.0, float(exponents.min()) + 1e-9))


@dataclass(frozen=True, eq=False)
class Place:
    """Losses, the real line along which their ln M is known, where to aim, and leaps set apart."""

    parts: Composition
    search: SaddleSearch
    aim: Aim
    leaps: Leaps | None = None


def _without_leaps(place: Place) -> Place:
    """The same ε with leaps set apart, if there are any, through the tilt that is then best."""
    near, goal = place.aim.epsilon, place.aim.log_delta + math.log(_LEFT_OUT)
    loss, count = place.parts[0]
    if len(place.parts) > 1 or not isinstance(loss, AtomLoss):
        return place
    found = without_leaps(loss, count, near, goal)
    if found is None:
        return place
    parts = ((found[0], count),)
    search = SaddleSearch(parts)
    point = _least(search, parts, lambda tilts, found: found - tilts * near, _SPREAD)
    return Place(parts, search, replace(place.aim, point=point), found[1])


def _parts(composition: Composition, spare: float) -> Composition:
    """All lattices as atoms, and of atoms those that matter for a δ of which ``spare`` may go."""
    found = ((_in_atoms(loss), count) for loss, count in composition)
    each = spare / len(composition)
    return tuple(
        (loss.trimmed(each / count) if isinstance(loss, AtomLoss) else loss, count)
        for loss, count in found
    )


def _in_atoms(loss: PrivacyLoss) -> PrivacyLoss:
    return as_atoms(loss) if isinstance(loss, LatticeLoss) else loss


def _chernoff(at: Point) -> float:
    return at.log_mgf + log_chernoff_constant(at.tilt)


def _chernoffs(lines: Sequence[tuple[RealLine, int]], tilts: Floats) -> Floats:
    """About ln M + Chernoff's constant at each tilt."""
    found: Floats = tilts * np.log(tilts) - (tilts + 1.0) * np.log1p(tilts)
    with np.errstate(over="ignore", invalid="ignore"):  # far beyond where anything is least
        for line, count in lines:
            if isinstance(line, AtomLoss):
                found = found + count * line.log_mgfs(tilts)
            else:
                found = found + count * np.array([line.moments(t)[0] for t in tilts.tolist()])
    return found


def _least(
    search: SaddleSearch,
    parts: Composition,
    objective: Callable[[Floats, Floats], Floats],
    spread: float,
) -> Point:
    """About where an objective of tilts and Chernoff's exponents is least: any tilt is valid.

    Next to the largest loss the least lies at no tilt; those that move the sum by far more than
    ``spread`` standard deviations are not looked at.
    """
    deviation = math.sqrt(math.fsum(count * loss.rough_variance for loss, count in parts))
    most = 4.0 * spread / max(deviation, 1e-290)
    lines = [(loss.real_line(most, 12.0), count) for loss, count in parts]
    low, high = math.log(1e-9 * most), math.log(most)
    for _ in range(_ROUNDS):
        places = np.linspace(low, high, _PLACES)
        found = objective(np.exp(places), _chernoffs(lines, np.exp(places)))
        best, apart = float(places[int(np.nanargmin(found))]), float(places[1] - places[0])
        low, high = max(low, best - apart), min(high, best + apart)
    return search.at(math.exp(best), 3.0 * math.exp(best))


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


def _roughly(place: Place, resolution: Resolution) -> SmoothedSum:
    """A first look, δ to some percent: it certifies nothing, and of many atoms fewer will do."""
    coarse = replace(resolution, relative_error=_ROUGH)
    few = tuple(
        (loss.real_line(place.aim.tilt, 0.0) if isinstance(loss, AtomLoss) else loss, count)
        for loss, count in place.parts
    )
    place = replace(place, parts=few)
    return _smoothed_by(place, _FIRST / (place.aim.tilt + 1.0), coarse)


def _smoothed(
    place: Place, steepness: float, resolution: Resolution, moved: float = math.inf
) -> SmoothedSum:
    """Nodes for ε near ``aim.epsilon``, behind as little smoothing as they allow."""
    width = max(_WIDTH, 0.1 * resolution.relative_error) * max(1.0, place.aim.epsilon)
    if moved > 0.0 and resolution.relative_error <= _FINEST:
        width = min(width, moved)
    place = replace(place, aim=_cheapest(place))
    mu = math.sqrt(width / max(steepness, place.aim.tilt + 1.0))
    return _smoothed_by(place, mu, resolution)


def _smoothed_by(place: Place, mu: float, resolution: Resolution) -> SmoothedSum:
    for _ in range(_COARSENINGS):
        try:
            found = _lay(place.parts, place.aim, mu, resolution)
            leaps = () if place.leaps is None else (place.leaps,)
            return replace(found, beside=(*found.beside, *leaps))
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
    while low > 0.0 and profile.look(low) <= delta:
        high, low, stride = low, max(0.0, low - stride), 1.2 * stride
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if profile.look(middle) > delta else (low, middle)
    return low


def _cheapest(place: Place) -> Aim:
    """The same ε through the tilt that takes the fewest nodes, of those that keep enough digits.

    Where one rare loss outweighs the others Chernoff's tilt lies next to where ln M explodes, and
    copies are far away: a smaller one costs digits that there are, and has a shorter period.
    """
    aim = place.aim
    tilts = aim.tilt * np.geomspace(*_TILTS)
    lines = [(loss.real_line(float(tilts[-1]), 12.0), count) for loss, count in place.parts]
    excess = _chernoffs(lines, tilts) - tilts * aim.epsilon - aim.log_delta
    digits = -math.log(_FINEST)
    apart = tilts - tilts[:, None]
    with np.errstate(divide="ignore"):
        above = np.where(apart > 0.0, (excess + digits) / apart, np.inf).min(axis=1)
    period = np.maximum(above, (digits - aim.log_delta) / tilts)
    cost = np.where(excess < _SPARE_DIGITS, period * np.sqrt(tilts + 1.0), np.inf)
    best = int(cost.argmin())
    if not math.isfinite(cost[best]):
        return aim
    return replace(aim, point=place.search.at(float(tilts[best]), float(tilts[-1])))


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
    weighing = Weights(aim.tilt, step, mu, goal, dense)
    nodes = weighing.last_frequency() / step
    if not nodes < math.inf:
        raise TooSlow
    atoms = {n: tilt_atoms(loss, aim.tilt) for n, (loss, _) in enumerate(composition)
             if isinstance(loss, AtomLoss)}  # fmt: skip
    cores = [core_of(one, composition[n][1]) for n, one in atoms.items()]
    width = stride(cores, step)
    if not rough and nodes < _FEWEST_NODES and len(atoms) == len(composition):
        # Less smoothing is as cheap, and has no more copies.
        weighing = replace(weighing, mu=mu * max(nodes / _FEWEST_NODES, 1e-3))
    others = [(loss, n) for loss, n in composition if not isinstance(loss, AtomLoss)]
    fading = [(loss.tilted(aim.tilt, 0.0, digits, resolution), n) for loss, n in others]
    mu, left = _nodes(cores, width, fading, weighing, widest)
    weighing = replace(weighing, mu=mu)
    frequencies = step * left.index
    known = []
    for n, (loss, count) in enumerate(composition):
        end = step * float(left.index[-1])
        one = atoms.get(n) or loss.tilted(aim.tilt, end, digits + math.log(count), resolution)
        if one.size * len(frequencies) > _MOST_WORK:
            raise TooSlow
        known.append((_known(one, frequencies, evenly=left.evenly), count))
    weights = np.full(len(frequencies), step / math.pi)
    weights[0] *= 0.5
    log_size = sum(count * one.log_size() for one, count in known) - 0.5 * (mu * frequencies) ** 2
    keep = log_size > weighing.allowed(frequencies, left.count)
    keep[0] = True
    size, frequencies = np.exp(np.minimum(log_size[~keep], 0.0)), frequencies[keep]
    spectrum = _with_gaussian(
        compose(
            [(one.at(keep), count) for one, count in known],
            aim.tilt,
            frequencies,
            resolution.unit_roundoff,
        ),
        mu,
    )
    # Beyond the last node |M| fades as the Gaussian's does.
    end = step * (left.count - 1)
    beyond = math.exp(-0.5 * (mu * end) ** 2) / (math.pi * mu**2 * end)
    skipped = weighing.value(step * left.index[~keep])
    tail = beyond / end**2 + left.value + float((skipped * size).sum())
    apart, values = _apart(composition, aim.tilt, spectrum, mu)
    weights, z = weights[keep], spectrum.tilts
    densities = weights * values
    of_density = spectrum.product.errors(weights).above + 1e-9 * float(np.abs(densities).sum())
    of_density += 2.0 * (beyond + left.density + float(size.sum()) * step / math.pi)
    slopes = densities / (z + 1.0)
    kernel = weights / np.abs(z * (z + 1.0))
    return SmoothedSum(
        spectrum=spectrum,
        index=left.index[keep],
        coefficients=slopes / z,
        slopes=slopes,
        densities=densities,
        errors=_errors_of(spectrum, kernel, 2.0 * _ROUND_UP * tail),
        density_error=of_density,
        aliases=aliases,
        period=period,
        mu=mu,
        lost=lost_of(composition),
        beside=() if apart is None else (apart,),
    )


def _nodes(
    cores: Sequence[Core], width: int, fading: Transforms, weighing: Weights, widest: float
) -> tuple[float, Survivors]:
    """The nodes to sum over, sieved if that spares any, and as little smoothing as they allow.

    Raises:
        TooSlow: if no smoothing within reach is enough.
    """

    def log_decay(frequency: float) -> float:
        return math.fsum(n * one.log_decay(frequency, True) for one, n in fading)

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
    causes = dict(product.causes)
    causes["rounding"] = causes["rounding"] + 8.0 * _UNIT * (square + turned)
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
