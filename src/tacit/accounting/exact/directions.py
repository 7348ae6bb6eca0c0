"""Chooses how to compute a composition's profile, and certifies ε(δ) and δ(ε) for one direction.

In order of preference: a closed form; an exact sum over a common lattice; the contour integral; and
for whatever is left, cells moved onto a lattice, once up and once down.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from tacit.accounting.exact.allocation import AllocationLoss, within_reach
from tacit.accounting.exact.atoms import AtomLoss, AtomProfile
from tacit.accounting.exact.closed_forms import (
    GaussianLoss,
    GaussianProfile,
    LaplaceLoss,
    LaplaceProfile,
    MixtureProfile,
)
from tacit.accounting.exact.contour import (
    Contour,
    SaddleSearch,
    certify_beside,
    lay_contour,
    lay_within_reach,
    log_chernoff_constant,
)
from tacit.accounting.exact.discrete import (
    DiscreteGaussianProfile,
    LossTable,
    WideProfile,
    discrete_gaussian_profile,
    table_for_delta,
    table_for_epsilon,
)
from tacit.accounting.exact.either import EitherLoss
from tacit.accounting.exact.enclosure import Interval, Resolution, TooSlow, invert
from tacit.accounting.exact.folded import FoldedLoss
from tacit.accounting.exact.grid import CellsProfile, delta_on_grid, epsilon_on_grid, lay_on_grid
from tacit.accounting.exact.jump_curves import Step
from tacit.accounting.exact.jump_search import delta_with_jumps, profile_with_jumps
from tacit.accounting.exact.jumps import LEAST
from tacit.accounting.exact.laplace_twice import MOST_DISTANCE, LaplaceTwiceProfile
from tacit.accounting.exact.lattice import LatticeLoss, lay_lattice
from tacit.accounting.exact.mixture import MixturePair, MixtureSide
from tacit.accounting.exact.sampled_laplace import SampledLaplaceLoss, SampledLaplaceProfile
from tacit.accounting.exact.schedule import (
    FEWEST,
    FEWEST_IN_ALL,
    Schedule,
    is_step,
    schedule_of,
)
from tacit.accounting.exact.smoothing import is_at_most, profile_for_delta, profile_for_epsilon
from tacit.accounting.exact.two_steps import TwoStepProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tacit.accounting.exact.contour import Aim
    from tacit.accounting.exact.enclosure import Enclosure, Profile
    from tacit.accounting.exact.lattice import LatticeComposition
    from tacit.accounting.exact.pairs import Direction
    from tacit.accounting.exact.transforms import Composition, PrivacyLoss

_PLAIN = MixtureSide()
_COARSE = 0.01  # a step of losses
_RARE = 1e-20
_LEAST_RATE, _MOST_RATE, _LEAST_SIGMA = 1e-9, 0.3, 0.3  # what jumps are looked for in
_LOUDEST = 100.0  # the same: σ from which nodes are too many
_LOUD = 8.0  # σ from which even a seldom step's losses are like a Gaussian's
_MOST_SIGMA = 20.0  # of two steps that are integrated at once
_ROUGH = 1e-9  # a relative error of δ from which ends good to a percent are good enough
_CLOSE = 1e-6  # a relative error of δ(0) that is small enough
_MANY = 200  # different steps from which one by one they take long
_SELDOM = 0.5  # times that a record is expected to be sampled, below which there are jumps
_RARE_LOSSES = 4e-3  # steps·rate² below which the small losses are too few to hide them
_LITTLE_WORK = 1e6  # of a contour for which there is another way
_LITTLE_CARE = 0.3  # about a tilt, for a look that says no more than yes or no
_MANY_STEPS = 500  # of Laplace noise, whose atoms have half of the mass or more
_TILT = 2.0  # where to look for a saddle if nothing is known
_SKETCH = Resolution(relative_error=1e-2)
_HALVINGS, _FARTHEST = 25, 1e4
_FEW_POINTS = 2**12
_HARDLY_EVER = -36.0  # ln of a probability that adds no digit
_FOLDED_RETREAT = 0.5
_GENTLE = 2.65  # a tilt that suits most allocations


class Solved(NamedTuple):
    """Certified ends, and the tilt that gave them: a search on the same scale may start there.

    If it was a contour that gave them, the other direction may be summed up along its line.
    """

    ends: Interval
    tilt: float = _TILT
    contour: Contour | None = None


def infinite_mass(direction: Direction) -> float:
    """The probability that at least one loss is infinite."""
    return -math.expm1(
        math.fsum(
            count * math.log1p(-pair.infinite) if pair.infinite < 1.0 else -math.inf
            for pair, count in direction
        )
    )


def solve_epsilon(direction: Direction, delta: float, resolution: Resolution) -> Solved:
    """Certified ends of the smallest ε with δ(ε) ≤ ``delta``."""
    room = delta - infinite_mass(direction)
    if room <= 0.0:
        # Rounding decides whether the infinite losses alone use up δ: only the upper end is sure.
        lower = math.inf if room < -1e-13 * delta else 0.0
        return Solved(Interval(lower, math.inf, method="closed form"))
    closed = _closed_form(direction)
    if closed is not None:
        ends = invert(closed, room, closed.guess(room), "closed form")
        return Solved(replace(ends, upper=min(ends.upper, _largest_loss(direction))))
    found = Solved(Interval(0.0, math.inf, method="none"))
    if all(pair.loss is not None for pair, _ in direction):
        composition = _composition(direction)
        together = _together(composition)
        if (
            _might_be_nothing(together or composition, room)
            and _total_variation_bound(direction) <= room
        ):
            return Solved(Interval(0.0, 0.0, method="closed form"))
        table = _table(direction, lambda losses: table_for_delta(losses, room))
        if table is not None:
            ends = invert(table, room, table.guess(room), "lattice")
            if _is_tight(ends):
                return Solved(ends, table.tilt)
        if together is not None:
            found = _epsilon_by_transform(together, room, resolution)
        if not _is_enough(found.ends, len(composition)):
            found = _both(found, _epsilon_by_transform(composition, room, resolution))
    if found.ends.is_narrow:
        return found
    found = _both(found, Solved(epsilon_on_grid(direction, delta, resolution)))
    # Beyond the largest loss all that is left of δ are infinite ones.
    largest = Solved(Interval(0.0, _largest_loss(direction), method="largest loss"))
    return found if found.ends.upper <= largest.ends.upper else _both(found, largest)


def _both(one: Solved, other: Solved) -> Solved:
    """What both allow; the method and the tilt are those of the smaller upper end."""
    nearer = other if other.ends.upper <= one.ends.upper else one
    lower = max(one.ends.lower, other.ends.lower)
    if lower == nearer.ends.lower:
        return nearer
    return nearer._replace(ends=replace(nearer.ends, lower=lower))


def _might_be_nothing(composition: Composition, delta: float) -> bool:
    """A cheap look at whether δ(0) could be below ``delta`` by adding up single steps."""
    spreads = (count * math.sqrt(loss.rough_variance) for loss, count in composition)
    return math.fsum(spreads) <= 8.0 * delta


def _total_variation_bound(direction: Direction) -> float:
    """Σ counts·δ_single(0), which bounds δ(0) of the composition; infinite if one is unknown."""
    total = 0.0
    for pair, count in direction:
        single = _closed_form(((pair, 1),))
        total += count * single.enclose(0.0).upper if single is not None else math.inf
    return total


def _is_allocated(composition: Composition) -> bool:
    return any(isinstance(loss, AllocationLoss) for loss, _ in composition)


def _has_atoms(composition: Composition) -> bool:
    """Whether some of the losses have atoms that lie on no lattice with the others'."""
    kinds = {type(loss) for loss, _ in composition}
    if not kinds <= {AtomLoss, SampledLaplaceLoss, LaplaceLoss, LatticeLoss, GaussianLoss}:
        return False
    spacings = {loss.spacing for loss, _ in composition if isinstance(loss, LatticeLoss)}
    if kinds <= {LaplaceLoss, GaussianLoss}:
        return LaplaceLoss in kinds and not _fades(composition)
    lonely = len(spacings) == 1 and GaussianLoss not in kinds
    return not lonely or bool(kinds & {AtomLoss, SampledLaplaceLoss, LaplaceLoss})


def _fades(composition: Composition) -> bool:
    """Whether so many steps of Laplace noise are composed that all are hardly ever atoms."""
    steps = sum(count for loss, count in composition if isinstance(loss, LaplaceLoss))
    return steps >= _MANY_STEPS


def _composition(direction: Direction) -> Composition:
    losses = tuple((pair.loss, count) for pair, count in _telling(direction))
    return cast("Composition", losses)


def _together(composition: Composition) -> Composition | None:
    """The same with many different steps as one; None if they are few."""
    if len(composition) < FEWEST or sum(count for _, count in composition) < FEWEST_IN_ALL:
        return None
    others = [one for one in composition if not isinstance(one[0], MixturePair)]
    mixtures = composition
    if others:
        mixtures = tuple(one for one in composition if isinstance(one[0], MixturePair))
    steps = cast("Sequence[tuple[MixturePair, int]]", mixtures)
    for reverse in (False, True):
        if all(is_step(one, reverse=reverse) for one, _ in steps):
            return (*others, (schedule_of(steps, reverse=reverse), 1))
    return None


def _telling(direction: Direction) -> Direction:
    """Without what only fails, and so rarely that what is left to the others is 1 in float64."""
    if len(direction) == 1 or not any(pair.infinite for pair, _ in direction):
        return direction
    return tuple(
        (pair, count)
        for pair, count in direction
        if not (
            0.0 < count * pair.infinite < _RARE
            and isinstance(pair.loss, LatticeLoss)
            and len(pair.loss.support) == 1
            and pair.loss.offset == 0.0
        )
    )


def _epsilon_by_transform(composition: Composition, delta: float, resolution: Resolution) -> Solved:
    step = _sampled_step(composition)
    if step is None:
        return _epsilon_by_sums(composition, delta, resolution)
    found = Solved(Interval(0.0, math.inf, method="none"))
    if not _is_seldom(step):
        found = _epsilon_by_sums(composition, delta, _brief(resolution))
        rough = resolution.relative_error > _ROUGH
        if found.ends.is_narrow if rough else _is_tight(found.ends):
            return found
    jumps = profile_with_jumps(step, delta, resolution.expected)
    if jumps is not None:
        found = _both(found, Solved(jumps[1]))
    if found.ends.is_narrow:
        return found
    return _both(found, _epsilon_by_sums(composition, delta, resolution))


def _sampled_step(composition: Composition) -> Step | None:
    """One sampled Gaussian against plain noise, perhaps beside Gaussians, if it is only that."""
    gaussians = [(loss.mu, n) for loss, n in composition if isinstance(loss, GaussianLoss)]
    if len(composition) != len(gaussians) + 1:
        return None
    pair, count = next(one for one in composition if not isinstance(one[0], GaussianLoss))
    if not isinstance(pair, MixturePair) or pair.denominator != _PLAIN:
        return None
    weights, shifts = pair.numerator.weights, pair.numerator.shifts
    if len(weights) != 2 or shifts != (0.0, 1.0) or not _LEAST_RATE <= weights[1] <= _MOST_RATE:
        return None
    if not _LEAST_SIGMA <= pair.sigma <= _LOUDEST:
        return None
    beside = math.sqrt(math.fsum(n * mu * mu for mu, n in gaussians))
    return Step(weights[1], pair.sigma, count, beside)


def _is_seldom(step: Step) -> bool:
    """Whether a record is sampled so seldom that one contour would have no digits.

    A Gaussian beside it may give it some: that is worth a try.
    """
    rate, count = step.rate, step.count
    seldom = count * rate < _SELDOM or count * rate**2 < _RARE_LOSSES
    return seldom and step.sigma < _LOUD and step.beside == 0.0


def _stays_at_nothing(composition: Composition) -> bool:
    """Whether the losses are often 0 all together: an atom, which a contour has no end for."""
    if not all(isinstance(loss, FoldedLoss) for loss, _ in composition):
        return False
    rests = ((loss.rest, count) for loss, count in composition if isinstance(loss, FoldedLoss))
    return math.fsum(count * math.log(rest) for rest, count in rests) > _HARDLY_EVER


def _gentler(composition: Composition, search: SaddleSearch, aim: Aim) -> Aim:
    """A smaller tilt for losses that are folded: the bound on their decay is loose."""
    if not any(isinstance(loss, FoldedLoss) for loss, _ in composition):
        return aim
    return search.retreat(aim, _FOLDED_RETREAT)


def _epsilon_by_sums(composition: Composition, delta: float, resolution: Resolution) -> Solved:
    search = SaddleSearch(composition)
    found = Solved(Interval(0.0, math.inf, method="none"))
    if _stays_at_nothing(composition):
        return found
    if _has_atoms(composition):
        return _epsilon_of_atoms(composition, delta, resolution)
    try:
        aim = _sharper(composition, search, search.for_delta(delta), delta)
    except TooSlow:
        return found
    for profile, nearer, method in _sums(composition, search, aim, resolution):
        ends = invert(profile, delta, max(0.0, aim.epsilon), method)
        contour = profile if isinstance(profile, Contour) else None
        before, found = found, _both(found, Solved(ends, nearer.tilt, contour))
        # A second sum may narrow ends that the first left wide apart; a third hardly does.
        if _is_tight(found.ends) or before.ends.is_narrow:
            break
    return found


def _epsilon_of_atoms(composition: Composition, delta: float, resolution: Resolution) -> Solved:
    try:
        found = profile_for_delta(composition, delta, resolution)
    except TooSlow:
        return Solved(Interval(0.0, math.inf, method="none"))
    ends = replace(invert(found.profile, delta, found.epsilon), method=found.method)
    return Solved(ends, found.tilt)


def _sharper(composition: Composition, search: SaddleSearch, aim: Aim, delta: float) -> Aim:
    """The same aim at a better ε, where the saddle's approximation may be far off.

    That is where one large loss outweighs many small ones, as under allocation it may: it is then
    far above, or, where higher moments hide in lower ones, far below.
    """
    found = [loss for loss, _ in composition if isinstance(loss, AllocationLoss)]
    if not any(loss.removed and loss.is_skewed for loss in found):
        return aim
    tilt = min(_GENTLE, aim.tilt, *(loss.tilts[-1] for loss in found))
    gentle = replace(aim, point=search.at(tilt, tilt))
    profile = lay_contour(composition, search, gentle, _SKETCH)
    low, high = 0.0, max(aim.epsilon, 1e-3)
    while high < _FARTHEST and profile.enclose(high).upper > delta:
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):  # δ(ε) bends both ways, so that no tangent is of help
        middle = 0.5 * (low + high)
        above = profile.enclose(middle).upper > delta  # far below, δ drowns in its errors
        low, high = (middle, high) if above else (low, middle)
    return replace(aim, epsilon=low)


def _is_tight(ends: Interval) -> bool:
    """Whether a second computation could hardly narrow them."""
    return math.isfinite(ends.upper) and ends.width <= 8e-9 * max(1.0, ends.upper)


def solve_delta(direction: Direction, epsilon: float, resolution: Resolution) -> Solved:
    """Certified ends of δ(``epsilon``)."""
    infinite = infinite_mass(direction)
    closed = _closed_form(direction)
    if closed is not None:
        return _with_infinite(closed.enclose(epsilon), "closed form", infinite)
    if all(pair.loss is not None for pair, _ in direction):
        if _largest_loss(direction) < epsilon:
            ends = Interval(
                infinite * (1.0 - 1e-15), infinite * (1.0 + 1e-15), method="closed form"
            )
            return Solved(ends)
        table = _table(direction, lambda losses: table_for_epsilon(losses, epsilon))
        if table is not None and _is_good(table.enclose(epsilon)):
            return _with_infinite(table.enclose(epsilon), "lattice", infinite, table.tilt)
        composition = _composition(direction)
        together = _together(composition)
        found = None
        if together is not None:
            found = _delta_by_transform(together, epsilon, resolution)
        found = found or _delta_by_transform(composition, epsilon, resolution)
        if found is not None:
            ends = _with_infinite(found.at, found.method, infinite, found.tilt).ends
            return Solved(ends, found.tilt, found.contour)
    return Solved(delta_on_grid(direction, epsilon, resolution))


def certainly_at_most(
    direction: Direction, epsilon: float, delta: float, resolution: Resolution, beside: Solved
) -> bool:
    """Whether δ(``epsilon``) ≤ ``delta`` can be certified; ``beside`` is the other direction's."""
    room = delta - infinite_mass(direction)
    if _largest_loss(direction) < epsilon:
        return room >= 0.0
    closed = _closed_form(direction)
    if closed is not None:
        return closed.enclose(epsilon).upper <= room
    if room > 0.0 and all(pair.loss is not None for pair, _ in direction):
        if epsilon == 0.0 and _total_variation_bound(direction) <= room:
            return True
        composition = _composition(direction)
        found = _at_most(_together(composition) or composition, epsilon, room, resolution, beside)
        if found is not None:
            return found
    # A few points often tell, and take a tenth of the time.
    few = replace(resolution, lattice_nodes=min(resolution.lattice_nodes, _FEW_POINTS))
    return any(
        delta_on_grid(direction, epsilon, one).upper <= delta
        for one in dict.fromkeys((few, resolution))
    )


def _at_most(
    composition: Composition, epsilon: float, delta: float, resolution: Resolution, beside: Solved
) -> bool | None:
    """Whether δ(ε) ≤ ``delta`` by the first sum; None if no sum can be laid."""
    search, tilt = SaddleSearch(composition), beside.tilt
    if beside.contour is not None and _is_mirrored(composition):
        with suppress(TooSlow):
            if certify_beside(beside.contour, composition, epsilon, delta, resolution):
                return True
    try:
        if _has_atoms(composition):
            return is_at_most(composition, epsilon, delta, resolution, tilt)
        aim = search.for_epsilon(epsilon, tilt, care=_LITTLE_CARE)
        # Chernoff's bound lies above what it bounds by a factor of three, at the least.
        room = math.log(delta)
        if aim.log_delta < room - 1.0 and _log_chernoff(search, aim.tilt, epsilon) <= room:
            return True
        for profile, _, _ in _sums(composition, search, aim, resolution):
            return profile.enclose(epsilon).upper <= delta
    except TooSlow:
        # No saddle within reach, as when ε is next to the largest loss: any tilt bounds δ.
        if _chernoff_within_reach(composition, epsilon, tilt) <= math.log(delta):
            return True
    return None


def _is_mirrored(composition: Composition) -> bool:
    """Whether all losses are of Gaussians, sampled or not: like those of the other direction."""
    return all(isinstance(loss, MixturePair | GaussianLoss | Schedule) for loss, _ in composition)


def solve_schedule(schedule: Schedule, delta: float, resolution: Resolution) -> Solved | None:
    """``solve_epsilon`` of many sampled steps at once; None if one by one they are worth a try."""
    composition: Composition = ((schedule, 1),)
    if _might_be_nothing(composition, delta):
        return None
    found = _epsilon_by_sums(composition, delta, resolution)
    return found if _is_enough(found.ends, len(schedule.counts)) else None


def _is_enough(ends: Interval, different: int) -> bool:
    """Whether the ends of different steps, composed together, need no sum over each of them."""
    return _is_tight(ends) if different <= _MANY else ends.is_narrow


def schedule_at_most(
    schedule: Schedule, epsilon: float, delta: float, resolution: Resolution, beside: Solved
) -> bool:
    """``certainly_at_most`` of many sampled steps at once."""
    if schedule.largest * (1.0 + 1e-12) < epsilon:
        return True
    return _at_most(((schedule, 1),), epsilon, delta, resolution, beside) is True


def _chernoff_within_reach(composition: Composition, epsilon: float, tilt: float) -> float:
    """The least of Chernoff's bounds on ln δ(ε) at growing tilts."""
    search, least = SaddleSearch(composition), math.inf
    for factor in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        try:
            least = min(least, _log_chernoff(search, factor * tilt, epsilon))
        except TooSlow:
            break
    return least


def _largest_loss(direction: Direction) -> float:
    """The supremum of the composed loss, infinity if it is unknown."""
    if any(pair.loss is None or pair.loss.largest == math.inf for pair, _ in direction[:1]):
        return math.inf
    if all(pair.loss is not None for pair, _ in direction):
        together = _together(_composition(direction))
        if together is not None:
            return (1.0 + 1e-12) * math.fsum(count * loss.largest for loss, count in together)
    return math.fsum(
        count * pair.loss.largest * (1.0 + 1e-12) if pair.loss is not None else math.inf
        for pair, count in direction
    )


def largest_loss(direction: Direction) -> tuple[float, float]:
    """Ends of the supremum of the composed loss: of cells, the largest of their ends."""
    if infinite_mass(direction) > 0.0:
        return math.inf, math.inf
    low = high = 0.0
    for pair, count in direction:
        if pair.loss is not None:
            ends = (pair.loss.largest, pair.loss.largest * (1.0 + 1e-15))
        else:
            cells = pair.cells(_COARSE)
            seen = cells.p > 0.0
            ends = float(cells.low[seen].max()), float(cells.high[seen].max()) * (1.0 + 1e-14)
        low, high = low + count * ends[0], high + count * ends[1]
    return low, high * (1.0 + 1e-15 * len(direction))


def _log_chernoff(search: SaddleSearch, tilt: float, epsilon: float) -> float:
    """Chernoff's bound on ln δ(ε)."""
    return log_chernoff_constant(tilt) + search.log_mgf_bound(tilt) - tilt * epsilon


class _Sum(NamedTuple):
    """δ at one ε by a sum, its method and its tilt, and the contour if it is one."""

    at: Enclosure
    method: str
    tilt: float = _TILT
    contour: Contour | None = None


def _delta_by_transform(
    composition: Composition, epsilon: float, resolution: Resolution
) -> _Sum | None:
    """The first sum that is good to a percent, if there is one."""
    step = _sampled_step(composition)
    if step is None:
        return _delta_by_sums(composition, epsilon, resolution)
    found = None
    if not _is_seldom(step):
        found = _delta_by_sums(composition, epsilon, _brief(resolution))
    most = max(1e-8, 10.0 * resolution.relative_error)
    if found is not None and found.at.errors.below < most * found.at.estimate:
        return found
    jumps = delta_with_jumps(step, epsilon)
    if jumps is None:
        return found or _delta_by_sums(composition, epsilon, resolution)
    if found is not None and found.at.errors.below < jumps.errors.below:
        return found
    return _Sum(jumps, "jumps")


@lru_cache(maxsize=8)
def _brief(resolution: Resolution) -> Resolution:
    """For a composition that there is another way for: gives up sooner."""
    most = min(resolution.most_work, _LITTLE_WORK)
    return replace(resolution, most_work=most, other_tilts=False)


def _delta_by_sums(composition: Composition, epsilon: float, resolution: Resolution) -> _Sum | None:
    search = SaddleSearch(composition)
    if _stays_at_nothing(composition):
        return None
    try:
        if _has_atoms(composition):
            sharp = profile_for_epsilon(composition, epsilon, resolution)
            found = sharp.profile.enclose(epsilon)
            return _Sum(found, sharp.method, sharp.tilt) if _is_good(found) else None
        aim = search.for_epsilon(epsilon, _TILT)
    except TooSlow:
        return None
    for profile, nearer, method in _sums(composition, search, aim, resolution):
        found = profile.enclose(epsilon)
        if _is_good(found):
            contour = profile if isinstance(profile, Contour) else None
            return _Sum(found, method, nearer.tilt, contour)
    return None


def _is_good(found: Enclosure) -> bool:
    """Whether δ is known to a percent."""
    return found.errors.below < 0.01 * found.estimate


def _table(
    direction: Direction, make: Callable[[LatticeComposition], LossTable]
) -> LossTable | None:
    """A table of the losses' sums, if they lie on one lattice and it is not too large."""
    losses = [(pair.loss, n) for pair, n in direction if isinstance(pair.loss, LatticeLoss)]
    if len(losses) < len(direction) or len({loss.spacing for loss, _ in losses}) > 1:
        return None
    try:
        return make(tuple(losses))
    except TooSlow:
        return None


def _with_infinite(found: Enclosure, method: str, infinite: float, tilt: float = _TILT) -> Solved:
    margin = 1e-15 * infinite
    upper = min(1.0, found.upper + infinite + margin)
    lower = max(0.0, found.lower + infinite - margin)
    return Solved(Interval(lower, upper, method=method), tilt)


@dataclass(frozen=True, eq=False)
class LaidAt:
    """A profile that is sharp near one (ε, δ); ``infinite`` is what it leaves out of δ."""

    epsilon: float
    delta: float
    profile: Profile
    infinite: float


@dataclass(frozen=True, eq=False)
class Laid:
    """One direction's profile, laid about several (ε, δ), by rising ε: no point costs much."""

    places: tuple[LaidAt, ...]

    def delta(self, epsilon: float) -> float:
        """No smaller than δ(``epsilon``): by the profiles laid on either side of it.

        Nor is it more than at any ε below, of which some are known.
        """
        above = bisect_right(self.places, epsilon, key=lambda place: place.epsilon)
        near = self.places[max(above - 1, 0) : above + 1]
        found = [place.profile.enclose(epsilon).upper + place.infinite for place in near]
        known = [place.delta for place in self.places[:above]]
        return min([1.0, *known, *(one * (1.0 + 1e-15) for one in found if not math.isnan(one))])

    def epsilon(self, delta: float) -> float:
        """No smaller than ε(``delta``), for a δ that it was laid about."""
        return min((one.epsilon for one in self.places if one.delta <= delta), default=math.inf)


def lay(direction: Direction, deltas: Sequence[float], resolution: Resolution) -> Laid:
    """Lays the profile of a direction about each of ``deltas``, as far as one needs an ε."""
    infinite = infinite_mass(direction)
    left = sorted(delta for delta in deltas if delta > infinite)
    found: list[LaidAt] = []
    while left:
        sharp = _laid_before(found, left[0] - infinite, resolution)
        sharp = sharp or _lay_one(direction, left[0] - infinite, resolution)
        if sharp is None:
            break  # the others would hardly be better
        found.append(LaidAt(sharp[0], left.pop(0), sharp[1], infinite))
        if sharp[0] == 0.0:
            # Nor do larger δ: if any is left, it is for what is sharp about 0.
            at = sharp[1].enclose(0.0)
            left = [] if at.errors.above <= _CLOSE * at.estimate else left[-1:]
            resolution = replace(resolution, expected=LEAST)
    if left:
        for delta, profile, mass, upper in lay_on_grid(direction, left, resolution):
            found.append(LaidAt(min(upper, _largest_loss(direction)), delta, profile, mass))
    return Laid(tuple(sorted(found, key=lambda place: place.epsilon)))


def _laid_before(
    found: Sequence[LaidAt], delta: float, resolution: Resolution
) -> tuple[float, Profile] | None:
    """The profile that was laid last and its ε at ``delta``, if it is sharp there, too."""
    if not found:
        return None
    profile = found[-1].profile
    ends = invert(profile, delta, found[-1].epsilon)
    enough = 10.0 * resolution.relative_error * max(1.0, ends.upper)
    return (ends.upper, profile) if 0.0 < ends.lower >= ends.upper - enough else None


def _lay_one(
    direction: Direction, delta: float, resolution: Resolution
) -> tuple[float, Profile] | None:
    """A closed form, or the first sum if it is good to a percent, and ε at ``delta``."""
    closed = _closed_form(direction)
    if closed is not None:
        return invert(closed, delta, closed.guess(delta)).upper, closed
    if any(pair.loss is None for pair, _ in direction):
        return None
    table = _table(direction, lambda losses: table_for_delta(losses, delta))
    if table is not None:
        ends = invert(table, delta, table.guess(delta))
        if ends.is_narrow:
            return ends.upper, table
    composition = _composition(direction)
    step = _sampled_step(composition)
    found = None
    if step is None or not _is_seldom(step):
        found = _lay_sum(_together(composition) or composition, delta, resolution)
    if found is not None or step is None:
        return found
    enough = 10.0 * resolution.relative_error
    jumps = profile_with_jumps(step, delta, resolution.expected, enough)
    if jumps is not None and jumps[1].is_narrow:
        return jumps[1].upper, jumps[0]
    return _lay_sum(composition, delta, resolution) if _is_seldom(step) else None


def _lay_sum(
    composition: Composition, delta: float, resolution: Resolution
) -> tuple[float, Profile] | None:
    search = SaddleSearch(composition)
    if _stays_at_nothing(composition):
        return None
    try:
        if _has_atoms(composition):
            sharp = profile_for_delta(composition, delta, resolution)
            ends = invert(sharp.profile, delta, sharp.epsilon)
            return (ends.upper, sharp.profile) if ends.is_narrow else None
        aim = search.for_delta(delta)
        profile = _first_sum(composition, search, aim, resolution)
    except TooSlow:
        return None
    ends = invert(profile, delta, max(0.0, aim.epsilon))
    return (ends.upper, profile) if ends.is_narrow else None


def _first_sum(
    composition: Composition, search: SaddleSearch, aim: Aim, resolution: Resolution
) -> Profile:
    """The sharpest sum about ``aim``, or ``TooSlow``."""
    aim = _gentler(composition, search, aim)
    if _is_allocated(composition):
        aim = within_reach(composition, search, aim)
    lattices = [loss for loss, _ in composition if isinstance(loss, LatticeLoss)]
    if len(lattices) < len(composition):
        return lay_contour(composition, search, aim, resolution)
    if len({loss.spacing for loss in lattices}) > 1:
        raise TooSlow
    return lay_lattice(cast("LatticeComposition", composition), search, aim, resolution)


Closed = (
    GaussianProfile
    | LaplaceProfile
    | MixtureProfile
    | TwoStepProfile
    | SampledLaplaceProfile
    | LaplaceTwiceProfile
    | DiscreteGaussianProfile
    | WideProfile
    | AtomProfile
    | CellsProfile
)


def _closed_form(direction: Direction) -> Closed | None:
    if len(direction) > FEWEST and isinstance(direction[0][0].loss, MixturePair):
        return None  # as a look at all of them would find
    losses = [(pair.loss, count) for pair, count in _telling(direction)]
    gaussians = [(loss.mu, n) for loss, n in losses if isinstance(loss, GaussianLoss)]
    if len(gaussians) == len(losses):
        return GaussianProfile(math.sqrt(math.fsum(count * mu * mu for mu, count in gaussians)))
    if len(losses) == 1 and isinstance(losses[0][0], LatticeLoss) and losses[0][0].gaussian:
        return discrete_gaussian_profile(*losses[0][0].gaussian, losses[0][1])
    if len(losses) == 1 and losses[0][1] == 1:
        match losses[0][0]:
            case LaplaceLoss(distance):
                return LaplaceProfile(distance)
            case MixturePair():
                return MixtureProfile(losses[0][0])
            case SampledLaplaceLoss():
                return SampledLaplaceProfile(losses[0][0])
            case AtomLoss():
                return AtomProfile(losses[0][0])
            case None | EitherLoss() | FoldedLoss() if len(direction) == 1:
                return CellsProfile(direction[0][0].cells)
    if len(losses) == 1 and losses[0][1] == 2:
        return _two_steps(losses[0][0])
    return None


def _two_steps(pair: PrivacyLoss | None) -> TwoStepProfile | LaplaceTwiceProfile | None:
    if isinstance(pair, SampledLaplaceLoss) and pair.distance <= MOST_DISTANCE:
        return LaplaceTwiceProfile(pair)
    if not isinstance(pair, MixturePair):
        return None
    for one in (pair, replace(pair, numerator=pair.denominator, denominator=pair.numerator)):
        step = _sampled_step(((one, 2),))
        if step is not None and step.sigma <= _MOST_SIGMA:
            return TwoStepProfile(step.rate, step.sigma, reverse=one is not pair)
    return None


def _sums(
    composition: Composition, search: SaddleSearch, aim: Aim, resolution: Resolution
) -> Iterator[tuple[Profile, Aim, str]]:
    """The sums that can be laid about ``aim``, the sharpest first."""
    aim = _gentler(composition, search, aim)
    if _is_allocated(composition):
        aim = within_reach(composition, search, aim)
    lattices = [loss for loss, _ in composition if isinstance(loss, LatticeLoss)]
    if len(lattices) < len(composition):
        for contour, nearer in lay_within_reach(lay_contour, composition, search, aim, resolution):
            yield contour, nearer, "contour"
            if _is_allocated(composition):  # no other tilt within reach is better
                return
    elif len({loss.spacing for loss in lattices}) == 1:
        together = cast("LatticeComposition", composition)
        for lattice, nearer in lay_within_reach(lay_lattice, together, search, aim, resolution):
            yield lattice, nearer, "lattice"
