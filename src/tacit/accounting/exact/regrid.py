"""The general fallback: the cells of every pair on one lattice, moved up and moved down."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.aliasing import bound_aliases
from tacit.accounting.exact.bracket import Bracket
from tacit.accounting.exact.closed_form import LaplaceLoss
from tacit.accounting.exact.enclosure import invert
from tacit.accounting.exact.grid import Gridded, OutOfRange, grid_down, grid_up
from tacit.accounting.exact.lattice import lay_lattice
from tacit.accounting.exact.reach import lay_within_reach
from tacit.accounting.exact.saddle import Search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tacit.accounting.exact.cells import Cells
    from tacit.accounting.exact.enclosure import Profile
    from tacit.accounting.exact.lattice import LatticeComposition
    from tacit.accounting.exact.pairs import Direction
    from tacit.accounting.exact.resolution import Resolution
    from tacit.accounting.exact.saddle import Aim
    from tacit.accounting.exact.transforms import Floats

    Cut = tuple[tuple[Cells, int], ...]
    Move = Callable[[Cells, float], Gridded]

_FINER = 3.0  # cells are this much finer than the lattice
_PILOT_STEP = 0.01
_PILOT_RETREAT = 0.9
_GRID_TILT = 1e7  # at ε on the largest loss no tilt is the best: a larger one coarsens the lattice


def epsilon_on_grid(direction: Direction, delta: float, resolution: Resolution) -> Bracket:
    """Certified ends of ε(δ); the upper one is infinite if the lattice would be too large."""
    spacing = _spacing(direction, lambda search: search.for_delta(delta), resolution)
    cut = _cut(direction, spacing)
    lower = 0.0
    if resolution.lower_end:
        composition, infinite = _gridded(cut, spacing, grid_down)
        lower = _epsilon(composition, delta - infinite, resolution).lower
    composition, infinite = _gridded(cut, spacing, grid_up)
    upper = _epsilon(composition, delta - infinite, resolution).upper
    return Bracket(lower, min(upper, _most(direction)), "grid")


def _most(direction: Direction) -> float:
    """The largest possible loss: where it is bounded, no larger ε is needed."""
    return math.fsum(count * float(pair.cells(_PILOT_STEP).high.max()) for pair, count in direction)


def _widest(direction: Direction) -> float:
    """The widest range of finite losses: what one pair's lattice must span."""
    return max(_range(pair.cells(_PILOT_STEP)) for pair, _ in direction)


def _range(cells: Cells) -> float:
    low, high = cells.low[np.isfinite(cells.low)], cells.high[np.isfinite(cells.high)]
    return float(high.max() - low.min()) if len(low) and len(high) else 0.0


def _epsilon(composition: LatticeComposition, delta: float, resolution: Resolution) -> Bracket:
    if delta <= 0.0:
        return Bracket(0.0, math.inf, "grid")
    search = Search(composition, _GRID_TILT)
    aim = search.for_delta(delta)
    for profile, nearer in lay_within_reach(lay_lattice, composition, search, aim, resolution):
        found = invert(profile, delta, max(0.0, aim.epsilon))
        return Bracket(found.lower, found.upper, "grid", nearer.tilt)
    return Bracket(0.0, math.inf, "grid")


def delta_on_grid(direction: Direction, epsilon: float, resolution: Resolution) -> Bracket:
    """Certified ends of δ(ε); the upper one is 1 if the lattice would be too large."""
    spacing = _spacing(direction, lambda search: search.for_epsilon(epsilon), resolution)
    cut = _cut(direction, spacing)
    lower = 0.0
    if resolution.lower_end:
        composition, infinite = _gridded(cut, spacing, grid_down)
        lower = _delta(composition, epsilon, infinite, resolution).lower
    composition, infinite = _gridded(cut, spacing, grid_up)
    return Bracket(lower, _delta(composition, epsilon, infinite, resolution).upper, "grid")


def _delta(
    composition: LatticeComposition, epsilon: float, infinite: float, resolution: Resolution
) -> Bracket:
    search = Search(composition, _GRID_TILT)
    aim = search.for_epsilon(epsilon)
    for profile, _ in lay_within_reach(lay_lattice, composition, search, aim, resolution):
        found = profile.enclose(epsilon)
        return Bracket(found.lower + infinite, min(1.0, found.upper + infinite), "grid")
    return Bracket(0.0, 1.0, "grid")


def lay_on_grid(
    direction: Direction, deltas: Sequence[float], resolution: Resolution
) -> Iterator[tuple[float, Profile, float, float]]:
    """Profiles nowhere below the true one, on one lattice, each sharp near one of ``deltas``.

    Yields that δ, the profile, the mass of infinite losses, which it leaves out, and ε(δ) above.
    """
    spacing = max(
        _spacing(direction, lambda search: search.for_delta(min(deltas)), resolution),
        _spacing(direction, lambda search: search.for_delta(max(deltas)), resolution),
    )
    composition, infinite = _gridded(_cut(direction, spacing), spacing, grid_up)
    search = Search(composition, _GRID_TILT)
    for delta in deltas:
        if delta <= infinite:
            continue
        aim = search.for_delta(delta - infinite)
        for profile, _ in lay_within_reach(lay_lattice, composition, search, aim, resolution):
            upper = invert(profile, delta - infinite, max(0.0, aim.epsilon)).upper
            yield delta, profile, infinite, upper
            break


def _cut(direction: Direction, spacing: float) -> Cut:
    """Cells fine enough for a lattice of that spacing."""
    return tuple((pair.cells(spacing / _FINER), count) for pair, count in direction)


def _gridded(cut: Cut, spacing: float, move: Move) -> tuple[LatticeComposition, float]:
    """All pairs on one lattice, and the probability of an infinite loss."""
    gridded = [(move(cells, spacing), count) for cells, count in cut]
    survival = math.fsum(
        count * math.log1p(-one.infinite) if one.infinite < 1.0 else -math.inf
        for one, count in gridded
    )
    return tuple((one.loss, count) for one, count in gridded), -math.expm1(survival)


def _spacing(
    direction: Direction, take_aim: Callable[[Search], Aim], resolution: Resolution
) -> float:
    """A spacing at which the lattice has about ``lattice_nodes`` points.

    A pilot on coarse cells says how long the period must be. Laplace losses end in two atoms, which
    a spacing that divides their distance leaves where they are.
    """
    pilot = Search(
        tuple((_Pilot(pair.cells(_PILOT_STEP)), count) for pair, count in direction), _GRID_TILT
    )
    aim = pilot.retreat(take_aim(pilot), _PILOT_RETREAT)
    aliases = bound_aliases(pilot, aim, resolution.digits)
    spacing = (
        max(aliases.period(aim, resolution.digits), _widest(direction)) / resolution.lattice_nodes
    )
    for pair, _ in direction:
        if isinstance(pair.loss, LaplaceLoss):
            return pair.loss.distance / math.ceil(pair.loss.distance / spacing)
    return spacing


@dataclass(frozen=True, eq=False)
class _Pilot:
    """About the moment-generating function of cells: a guide, no bound."""

    cells: Cells

    @cached_property
    def _masses(self) -> tuple[Floats, Floats]:
        cells = self.cells
        finite = np.isfinite(cells.low) & np.isfinite(cells.high) & (cells.p > 0.0)
        if not finite.any():
            raise OutOfRange
        return np.log(cells.p[finite]), 0.5 * (cells.low[finite] + cells.high[finite])

    @property
    def rough_variance(self) -> float:
        return self.moments(0.0)[2]

    def real_line(self, reach: float, digits: float) -> _Pilot:  # noqa: ARG002
        return self

    def moments(self, tilt: float) -> tuple[float, float, float]:
        log_mass, loss = self._masses
        if math.isinf(tilt * float(np.abs(loss).max())):
            raise OutOfRange
        exponent = log_mass + tilt * loss
        top = float(exponent.max())
        weights = np.exp(exponent - top)
        total = float(weights.sum())
        mean = float(weights @ loss) / total
        return top + math.log(total), mean, float(weights @ (loss - mean) ** 2) / total

    def log_mgf_bound(self, tilt: float) -> float:
        return self.moments(tilt)[0]
