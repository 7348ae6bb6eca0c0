"""The profile of sums of losses with atoms: which sums, through which tilt, about which ε.

Of few atoms, few steps or rare ones all sums are listed: see ``counts``. Else δ(ε) is an integral
behind a tiny Gaussian: see ``smoothed_sum``. Losses that by themselves lift the sum above ε are set
apart: see ``leaps``.

The tilt is where Chernoff's bound is least: unlike the saddle's approximation that is a bound even
where one rare loss outweighs all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.accounting.exact.atoms import AtomLoss, as_atoms, lost_of
from tacit.accounting.exact.contour import Aim, SaddleSearch, log_chernoff_constant
from tacit.accounting.exact.counts import paired_sums
from tacit.accounting.exact.enclosure import Resolution, TooSlow, solve_convex
from tacit.accounting.exact.lattice import LatticeLoss
from tacit.accounting.exact.leaps import Leaps, without_leaps
from tacit.accounting.exact.smoothed_sum import FINEST, SmoothedSum, lay_smoothed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.accounting.exact.contour import Point
    from tacit.accounting.exact.enclosure import Profile
    from tacit.accounting.exact.transforms import (
        Composition,
        Floats,
        PrivacyLoss,
        RealLine,
    )

_WIDTH = 6e-9  # of the ends of ε, relative to max(1, ε), that smoothing may cost
_ROUGH, _FIRST = 1e-4, 0.2  # relative error of a first look, and its μ times its tilt
_TILTS, _SPARE_DIGITS = (0.1, 3.0, 24), 10.0  # what tilts are tried, and how far above δ, in logs
_COARSENINGS = 6  # times three
_LEFT_OUT = 1e-11  # of δ, with leaps
_LOOKS, _NEAR = 4, 3.0  # first looks, and how near the last must be, in tilts times ε
_HALVINGS = 7
_SHARES, _AHEAD = (0.05, 0.005), 3.0  # of a loss's scale that smoothing is; of tilts, known
_ROUNDS, _PLACES = 3, 24  # of a search for a tilt, and tilts in each
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
        if np.isnan(found).all():  # losses that no floating-point number holds side by side
            raise TooSlow
        best, apart = float(places[int(np.nanargmin(found))]), float(places[1] - places[0])
        low, high = max(low, best - apart), min(high, best + apart)
    return search.at(math.exp(best), 3.0 * math.exp(best))


# ---- the aim


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
    if moved > 0.0 and resolution.relative_error <= FINEST:
        width = min(width, moved)
    place = replace(place, aim=_cheapest(place))
    mu = math.sqrt(width / max(steepness, place.aim.tilt + 1.0))
    return _smoothed_by(place, mu, resolution)


def _smoothed_by(place: Place, mu: float, resolution: Resolution) -> SmoothedSum:
    for _ in range(_COARSENINGS):
        try:
            found = lay_smoothed(place.parts, place.aim, mu, resolution)
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
    digits = -math.log(FINEST)
    apart = tilts - tilts[:, None]
    with np.errstate(divide="ignore"):
        above = np.where(apart > 0.0, (excess + digits) / apart, np.inf).min(axis=1)
    period = np.maximum(above, (digits - aim.log_delta) / tilts)
    cost = np.where(excess < _SPARE_DIGITS, period * np.sqrt(tilts + 1.0), np.inf)
    best = int(cost.argmin())
    if not math.isfinite(cost[best]):
        return aim
    return replace(aim, point=place.search.at(float(tilts[best]), float(tilts[-1])))
