"""The general way: the cells of every pair on one lattice of losses, moved up and moved down.

Moved up δ certainly rises, moved down it certainly falls.

Rising (connect the dots; Doroshenko et al. 2022): a cell's mass is split between its two ends so
that P's and Q's masses both stay; the pair that results tells at least as much as the true one,
because merging the ends again gives the true pair back. An end that is no lattice point is split
between its two neighbours in the same way.

Falling: cells whose losses lie between two lattice points are merged into one, which is a
post-processing of the true pair, and the merged loss is then lowered to a lattice point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from tacit.accounting.exact.closed_forms import LaplaceLoss
from tacit.accounting.exact.contour import SaddleSearch, bound_aliases, lay_within_reach
from tacit.accounting.exact.enclosure import (
    Enclosure,
    ErrorTerms,
    Interval,
    OutOfRange,
    invert,
    solve_convex,
)
from tacit.accounting.exact.lattice import LatticeLoss, lay_lattice
from tacit.accounting.exact.pairs import Cells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tacit.accounting.exact.contour import Aim
    from tacit.accounting.exact.enclosure import Profile, Resolution
    from tacit.accounting.exact.lattice import LatticeComposition
    from tacit.accounting.exact.pairs import Direction
    from tacit.accounting.exact.transforms import Floats

    Cut = tuple[tuple[Cells, int], ...]
    Move = Callable[[Cells, float], "Gridded"]


_SLACK = 1e-11  # relative error of cells' masses, many times over
_MOST_INDEX = 2.0**50  # of a lattice point: beyond, floating-point numbers pass some over
_MASS_ERROR = 64.0 * 2.0**-53
_LOG_ERROR = 2.0**-49  # of a difference of two logarithms of probabilities
_WIDE, _NARROW = 1.5, 0.01  # ends of ε farther apart than that, relatively and at all
_HALVINGS, _HALVED = 40, 1e-6  # of what lies between them, until they are so near
_FINER = 3.0  # cells are this much finer than the lattice
_PILOT_STEP = 0.01
_PILOT_RETREAT = 0.9
_TAIL = 1e-8  # of δ, which either tail of all losses together may weigh
_COMPOSED_POINTS = 1 << 17
_SINGLE_CELLS = 100_000
_GRID_TILT = 1e7  # at ε on the largest loss no tilt is the best: a larger one coarsens the lattice


@dataclass(frozen=True, eq=False)
class Gridded:
    """A lattice loss, and the probability that the loss is infinite."""

    loss: LatticeLoss
    infinite: float


def grid_up(cells: Cells, spacing: float) -> Gridded:
    """A lattice pair whose δ(ε) is nowhere below that of ``cells``, under composition too."""
    infinite = float(cells.p[np.isinf(cells.high) & (cells.high > 0)].sum())
    keep = np.isfinite(cells.high) & (cells.p > 0.0)
    if not keep.any():
        raise OutOfRange
    p, q, high = cells.p[keep], cells.q[keep], cells.high[keep]
    # A cell too wide to split, or past the range of exp, goes to its upper end whole.
    whole = (cells.low[keep] < high - 40.0) | (high > 600.0)
    low = np.where(whole, high, cells.low[keep])
    span = -np.expm1(low - high)
    excess = p - q * np.exp(np.where(whole, 0.0, low)) + _SLACK * p
    raised = np.where(span > 0.0, np.clip(excess / np.maximum(span, 1e-300), 0.0, p), p)
    losses = np.concatenate([low, high])
    masses = np.concatenate([p - raised, raised])
    return Gridded(_split_onto_lattice(losses, masses, spacing), infinite * (1.0 + _SLACK))


def _split_onto_lattice(losses: Floats, masses: Floats, spacing: float) -> LatticeLoss:
    """Each loss to its two neighbours, P's and Q's masses kept (Q's is mass·exp(-loss))."""
    index = _below(losses, spacing)
    rise = losses - index * spacing
    share = np.expm1(-rise) / math.expm1(-spacing) + _SLACK
    # On a lattice point up to rounding: leave it there, rounded up.
    share = np.where(rise < 1e-12 * spacing, 0.0, np.minimum(share, 1.0))
    place = index.astype(np.int64)
    first = int(place.min())
    size = int(place.max()) - first + 2
    placed = _sums(place - first, masses * (1.0 - share), size)
    placed += _sums(place + 1 - first, masses * share, size)
    offset = 1e-12 * spacing
    return LatticeLoss(offset, spacing, first, placed, mass_error=_MASS_ERROR)


def grid_down(cells: Cells, spacing: float) -> Gridded:
    """A lattice loss whose δ(ε) is nowhere above that of ``cells``, under composition too."""
    infinite = float(cells.p[np.isinf(cells.low) & (cells.low > 0)].sum())
    keep = np.isfinite(cells.low) & (cells.p > 0.0) & (cells.q > 0.0)
    if not keep.any():
        raise OutOfRange
    p, q, low = cells.p[keep], cells.q[keep], cells.low[keep]
    index = _below(low, spacing).astype(np.int64)
    first = int(index.min())
    size = int(index.max()) - first + 1
    p, q = _sums(index - first, p, size), _sums(index - first, q, size)
    filled = p > 0.0
    loss = np.log(p[filled] / q[filled]) - _SLACK
    offset = _best_offset(loss, p[filled], spacing)
    lowered = np.floor((loss - offset) / spacing).astype(np.int64)
    start = int(lowered.min())
    placed = _sums(lowered - start, p[filled], int(lowered.max()) - start + 1)
    return Gridded(
        LatticeLoss(offset, spacing, start, placed, mass_error=_MASS_ERROR),
        infinite * (1.0 - _SLACK),
    )


def composed_cells(parts: list[tuple[Callable[[float], Cells], int]], step: float) -> Cells:
    """Cells of a composition whose δ(ε) is nowhere below the true one, either way round.

    Each part is moved up onto a lattice of about ``step``. P's and Q's laws of the sum then come
    out of Fourier transforms, whose error is charged as mass of infinite loss to either.
    """
    reach = math.fsum(count * _range(cut(_PILOT_STEP)) for cut, count in parts)
    spacing = max(step, reach / _COMPOSED_POINTS)
    gridded = [(grid_up(cut(spacing / _FINER), spacing), count) for cut, count in parts]
    points = sum(count * len(one.loss.masses) for one, count in gridded)
    if points > 4 * _COMPOSED_POINTS:
        raise OutOfRange
    size = next_fast_len(points, real=True)
    first = sum(count * one.loss.first for one, count in gridded)
    offset = math.fsum(count * one.loss.offset for one, count in gridded)
    loss = offset + spacing * (first + np.arange(size))
    p, q = (_composed(gridded, spacing, size, tilt) for tilt in (0.0, -1.0))
    # Each cell's masses must have its loss for their ratio: a rounding of Q's law, where that is
    # next to nothing, would outweigh it. So the smaller mass follows from the larger one, and takes
    # over its error, e^-|l| times: √N becomes 1/√(1 - e^-2s) in the bound on its sum.
    above, share = loss >= 0.0, np.exp(-np.abs(loss))
    passed_on = min(1.0, 1.0 / math.sqrt(-math.expm1(-2.0 * spacing) * size))
    p_rest = p.missing + p.slack + passed_on * q.slack
    q_rest = q.missing + q.slack + passed_on * p.slack
    ends = np.array([np.inf, -np.inf])
    return Cells(
        np.concatenate([np.where(above, p.masses, q.masses * share), [p_rest, 0.0]]),
        np.concatenate([np.where(above, p.masses * share, q.masses), [0.0, q_rest]]),
        np.concatenate([loss, ends]),
        np.concatenate([loss, ends]),
    )


class _Law(NamedTuple):
    """The law of a sum of losses, what it lacks of 1, and a bound on the sum of its errors."""

    masses: Floats
    missing: float
    slack: float


def _composed(
    gridded: Sequence[tuple[Gridded, int]], spacing: float, size: int, tilt: float
) -> _Law:
    """P's law of the sum, or with the tilt -1 Q's, whose mass at a loss l is P's times e^-l."""
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    error, kept = 0.0, 1.0
    for one, count in gridded:
        place = one.loss.offset + spacing * (one.loss.first + np.arange(len(one.loss.masses)))
        masses = one.loss.masses * np.exp(tilt * place)
        product *= rfft(masses, size) ** count
        kept *= float(masses.sum()) ** count
        error += count * float(np.sqrt((masses * masses).sum()))
    # ‖error‖₁ ≤ √N·‖error‖₂; a transform errs by 6u·log₂N of its root of squares.
    slack = 16.0 * 2.0**-53 * (math.log2(size) + 2.0) * math.sqrt(size) * (1.0 + error)
    return _Law(np.maximum(irfft(product, size), 0.0), max(0.0, 1.0 - kept), slack)


def _below(losses: Floats, spacing: float) -> Floats:
    """The indices of the lattice points next below."""
    if float(np.abs(losses).max()) > _MOST_INDEX * spacing:
        raise OutOfRange
    index: Floats = np.floor(losses / spacing)
    return index


def _sums(index: NDArray[np.int64], masses: Floats, size: int) -> Floats:
    """The total mass at each index."""
    return np.bincount(index, masses, minlength=size).astype(np.float64)


def _best_offset(loss: Floats, mass: Floats, spacing: float) -> float:
    """The offset of the lattice at which lowering costs least."""
    phase = loss % spacing
    order = np.argsort(phase)
    phase, share = phase[order], np.cumsum(mass[order]) / mass.sum()
    picks = np.searchsorted(share, np.geomspace(1e-9, 0.9, 65))
    candidates = phase[np.minimum(picks, len(phase) - 1)]
    # Lowering costs Σ mass·(phase - offset), and a whole spacing for each phase below the offset.
    below = np.concatenate([[0.0], share])[np.searchsorted(phase, candidates)]
    cost = spacing * below - candidates
    return float(candidates[int(np.argmin(cost))]) - 1e-12 * spacing


# ---- one release needs no lattice


@dataclass(frozen=True, eq=False)
class CellsProfile:
    """δ(ε) = Σ (p - e^ε·q)₊ of one release, over its cells.

    It is exact for cells whose losses all lie above ε, or all below; the one between lies within
    its own ends.
    """

    cut: Callable[[float], Cells]

    @cached_property
    def _cells(self) -> Cells:
        step = _range(self.cut(_PILOT_STEP)) / _SINGLE_CELLS
        return self.cut(max(step, 1e-9))

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        cells = self._cells
        above = cells.low >= epsilon
        p, q = cells.p[above], cells.q[above]
        scale = math.exp(min(epsilon, 700.0))
        total, other = float(p.sum()), scale * float(q.sum())
        across = (cells.high > epsilon) & ~above
        p, q, high = cells.p[across], cells.q[across], cells.high[across]
        least = float(np.maximum(p - scale * q, 0.0).sum())
        most = float((p * -np.expm1(epsilon - high)).sum())
        # The masses of cells are right to _SLACK, and where they say more of P and Q than their
        # losses do, the larger of the two counts.
        rounding = _SLACK * (total + other + most) + max(0.0, most - least)
        return Enclosure(max(0.0, total - other) + least, ErrorTerms(rounding=rounding), -other)

    def guess(self, delta: float) -> float:
        """About ε(δ)."""
        return solve_convex(self, delta, 0.0)


# ---- a composition on one lattice


def epsilon_on_grid(direction: Direction, delta: float, resolution: Resolution) -> Interval:
    """Certified ends of ε(δ); the upper one is infinite if the lattice would be too large."""
    direction = _cut_once(direction)
    raised, lowered = _trim(direction, delta, _trimmed_up), _trim(direction, delta, _trimmed_down)
    spacing = _spacing(raised, lambda search: search.for_delta(delta), resolution)
    lower = 0.0
    if resolution.lower_end:
        composition, infinite = _gridded(_cut(lowered, spacing), spacing, grid_down)
        lower = _epsilon(composition, delta - infinite, resolution).lower
    composition, infinite = _gridded(_cut(raised, spacing), spacing, grid_up)
    found = _epsilon(composition, delta - infinite, resolution)
    upper = min(found.upper, _most(direction))
    if delta > infinite and _WIDE * found.lower + _NARROW < upper < math.inf:
        upper = _halved(composition, delta - infinite, found.lower, upper, resolution)
    return Interval(lower, upper, method="grid", on_grid=True)


def _halved(
    composition: LatticeComposition, delta: float, low: float, high: float, resolution: Resolution
) -> float:
    """An ε at which a sum that is aimed at it certifies ``delta``, as ``high`` is known to do.

    Next to an atom that has most of the mass the tilt of a δ has no digits left for its ε.
    """
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = _delta(composition, middle, 0.0, resolution).upper > delta
        low, high = (middle, high) if above else (low, middle)
        if high - low <= _HALVED * high:
            break
    return high


def _cut_once(direction: Direction) -> Direction:
    """The same, whose cells of a step are cut once: those moved up and down begin alike."""
    return tuple(
        (replace(pair, cells=lru_cache(maxsize=2)(pair.cells)), count) for pair, count in direction
    )


def _trim(
    direction: Direction, delta: float, trimmed: Callable[[Cells, float], Cells]
) -> Direction:
    """The same with the tails that weigh next to nothing beside ``delta`` drawn in.

    A lattice must span all losses: where sampling is rare, those that never come up are thousands
    of times as large as those that do.
    """
    mass = _TAIL * delta / sum(count for _, count in direction)

    def drawn_in(cut: Callable[[float], Cells], step: float) -> Cells:
        return trimmed(cut(step), mass)

    return _cut_once(
        tuple(
            (replace(pair, cells=partial(drawn_in, pair.cells)), count) for pair, count in direction
        )
    )


def _trimmed_up(cells: Cells, mass: float) -> Cells:
    """The largest losses, of up to ``mass`` in P, are infinite; the smallest rise to one of them.

    P's losses only rise, so that δ does, and that of every composition.
    """
    low, high = cells.low.copy(), cells.high.copy()
    smallest, largest = _tails(high, cells.p, mass)
    if len(smallest):
        low[smallest] = high[smallest] = high[smallest].max()
    high[largest] = np.inf
    return Cells(cells.p, cells.q, low, high)


def _trimmed_down(cells: Cells, mass: float) -> Cells:
    """The largest losses, of up to ``mass`` in P, as one cell, and the smallest left out.

    One cell is a post-processing; a loss that is left out adds nothing to δ.
    """
    low, high = cells.low.copy(), cells.high.copy()
    smallest, largest = _tails(low, cells.p, mass)
    low[smallest] = -np.inf
    if len(largest):
        low[largest], high[largest] = low[largest].min(), high[largest].max()
    return Cells(cells.p, cells.q, low, high)


def _tails(losses: Floats, p: Floats, mass: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the smallest finite losses are and where the largest, of up to ``mass`` each."""
    finite = np.flatnonzero(np.isfinite(losses))
    order = finite[np.argsort(losses[finite], kind="stable")]
    smallest = order[np.cumsum(p[order]) <= mass]
    rest = order[len(smallest) :][::-1]
    return smallest, rest[np.cumsum(p[rest]) <= mass]


def _most(direction: Direction) -> float:
    """The largest possible loss: where it is bounded, no larger ε is needed."""
    return math.fsum(
        count * (float(pair.cells(_PILOT_STEP).high.max()) * (1.0 + 1e-12) + _LOG_ERROR)
        for pair, count in direction
    )


def _widest(direction: Direction) -> float:
    """The widest range of finite losses: what one pair's lattice must span."""
    return max(_range(pair.cells(_PILOT_STEP)) for pair, _ in direction)


def _range(cells: Cells) -> float:
    low, high = cells.low[np.isfinite(cells.low)], cells.high[np.isfinite(cells.high)]
    return float(high.max() - low.min()) if len(low) and len(high) else 0.0


def _epsilon(composition: LatticeComposition, delta: float, resolution: Resolution) -> Interval:
    if delta <= 0.0:
        return Interval(0.0, math.inf)
    search = SaddleSearch(composition, _GRID_TILT)
    aim = search.for_delta(delta)
    for profile, _ in lay_within_reach(lay_lattice, composition, search, aim, resolution):
        return invert(profile, delta, max(0.0, aim.epsilon))
    return Interval(0.0, math.inf)


def delta_on_grid(direction: Direction, epsilon: float, resolution: Resolution) -> Interval:
    """Certified ends of δ(ε); the upper one is 1 if the lattice would be too large."""
    direction = _cut_once(direction)
    spacing = _spacing(direction, lambda search: search.for_epsilon(epsilon), resolution)
    cut = _cut(direction, spacing)
    lower = 0.0
    if resolution.lower_end:
        composition, infinite = _gridded(cut, spacing, grid_down)
        lower = _delta(composition, epsilon, infinite, resolution).lower
    composition, infinite = _gridded(cut, spacing, grid_up)
    upper = _delta(composition, epsilon, infinite, resolution).upper
    return Interval(lower, upper, method="grid", on_grid=True)


def _delta(
    composition: LatticeComposition, epsilon: float, infinite: float, resolution: Resolution
) -> Interval:
    search = SaddleSearch(composition, _GRID_TILT)
    aim = search.for_epsilon(epsilon)
    for profile, _ in lay_within_reach(lay_lattice, composition, search, aim, resolution):
        found = profile.enclose(epsilon)
        return Interval(found.lower + infinite, min(1.0, found.upper + infinite))
    return Interval(0.0, 1.0)


def lay_on_grid(
    direction: Direction, deltas: Sequence[float], resolution: Resolution
) -> Iterator[tuple[float, Profile, float, float]]:
    """Profiles nowhere below the true one, on one lattice, each sharp near one of ``deltas``.

    Yields that δ, the profile, the mass of infinite losses, which it leaves out, and ε(δ) above.
    """
    direction = _cut_once(direction)
    spacing = max(
        _spacing(direction, lambda search: search.for_delta(min(deltas)), resolution),
        _spacing(direction, lambda search: search.for_delta(max(deltas)), resolution),
    )
    composition, infinite = _gridded(_cut(direction, spacing), spacing, grid_up)
    search = SaddleSearch(composition, _GRID_TILT)
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
    direction: Direction, take_aim: Callable[[SaddleSearch], Aim], resolution: Resolution
) -> float:
    """A spacing at which the lattice has about ``lattice_nodes`` points.

    A pilot on coarse cells says how long the period must be. Laplace losses end in two atoms, which
    a spacing that divides their distance leaves where they are.
    """
    pilot = SaddleSearch(
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
