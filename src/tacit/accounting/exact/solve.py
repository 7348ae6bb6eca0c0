"""Chooses how to compute a composition's profile, and certifies ε(δ) and δ(ε) for one direction.

In order of preference: a closed form; an exact sum over a common lattice; the contour integral; and
for whatever is left, cells moved onto a lattice, once up and once down.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from tacit.accounting.exact.bracket import Bracket
from tacit.accounting.exact.closed_form import GaussianLoss, LaplaceLoss
from tacit.accounting.exact.contour import lay_contour
from tacit.accounting.exact.enclosure import Enclosure, TooSlow, invert
from tacit.accounting.exact.lattice import lay_lattice
from tacit.accounting.exact.lattice_loss import LatticeLoss
from tacit.accounting.exact.mixture import MixtureLoss
from tacit.accounting.exact.regrid import delta_on_grid, epsilon_on_grid
from tacit.accounting.exact.saddle import Search
from tacit.accounting.exact.single import GaussianProfile, LaplaceProfile, MixtureProfile

if TYPE_CHECKING:
    from tacit.accounting.exact.enclosure import Profile
    from tacit.accounting.exact.lattice import LatticeComposition
    from tacit.accounting.exact.pairs import Direction
    from tacit.accounting.exact.resolution import Resolution
    from tacit.accounting.exact.saddle import Saddle
    from tacit.accounting.exact.transforms import Composition

_TIGHT = 1e-10  # a bracket wider than this, relative to max(1, ε), is worth a second contour


def infinite_mass(direction: Direction) -> float:
    """The probability that at least one loss is infinite."""
    return -math.expm1(
        math.fsum(
            count * math.log1p(-pair.infinite) if pair.infinite < 1.0 else -math.inf
            for pair, count in direction
        )
    )


def epsilon_bracket(direction: Direction, delta: float, resolution: Resolution) -> Bracket:
    """Certified ends of the smallest ε with δ(ε) ≤ ``delta``."""
    room = delta - infinite_mass(direction)
    if room <= 0.0:
        # Rounding decides whether the infinite losses alone use up δ: only the upper end is sure.
        return Bracket(math.inf if room < -1e-13 * delta else 0.0, math.inf, "closed form")
    closed = _closed_form(direction)
    if closed is not None:
        found = invert(closed, room, closed.guess(room))
        return Bracket(found.lower, found.upper, "closed form")
    if all(pair.loss is not None for pair, _ in direction):
        try:
            return _by_transform(direction, room, resolution)
        except TooSlow:
            pass
    return epsilon_on_grid(direction, delta, resolution)


def delta_bracket(
    direction: Direction, epsilon: float, resolution: Resolution, tilt: float = 2.0
) -> Bracket:
    """Certified ends of δ(``epsilon``); ``tilt`` is where to look for the saddle first."""
    infinite = infinite_mass(direction)
    closed = _closed_form(direction)
    if closed is not None:
        return _with_infinite(closed.enclose(epsilon), infinite, "closed form")
    if all(pair.loss is not None for pair, _ in direction):
        composition = cast("Composition", tuple((pair.loss, count) for pair, count in direction))
        most = math.fsum(count * loss.largest for loss, count in composition)
        if epsilon > most * (1.0 + 1e-12):
            return Bracket(infinite * (1.0 - 1e-15), infinite * (1.0 + 1e-15), "closed form")
        search = Search(composition)
        try:
            profile, method = _lay(
                composition, search, search.for_epsilon(epsilon, tilt), resolution
            )
            return _with_infinite(profile.enclose(epsilon), infinite, method)
        except TooSlow:
            pass
    return delta_on_grid(direction, epsilon, resolution)


def _with_infinite(found: Enclosure, infinite: float, method: str) -> Bracket:
    margin = 1e-15 * infinite
    upper = min(1.0, found.upper + infinite + margin)
    return Bracket(max(0.0, found.lower + infinite - margin), upper, method)


def _closed_form(
    direction: Direction,
) -> GaussianProfile | LaplaceProfile | MixtureProfile | None:
    losses = [(pair.loss, count) for pair, count in direction]
    gaussians = [(loss.mu, n) for loss, n in losses if isinstance(loss, GaussianLoss)]
    if len(gaussians) == len(losses):
        return GaussianProfile(math.sqrt(math.fsum(count * mu * mu for mu, count in gaussians)))
    if len(losses) == 1 and losses[0][1] == 1:
        match losses[0][0]:
            case LaplaceLoss(distance):
                return LaplaceProfile(distance)
            case MixtureLoss(pair):
                return MixtureProfile(pair)
    return None


def _by_transform(direction: Direction, delta: float, resolution: Resolution) -> Bracket:
    composition = cast("Composition", tuple((pair.loss, count) for pair, count in direction))
    search = Search(composition)
    saddle = search.for_delta(delta)
    found = _invert_at(composition, search, saddle, delta, resolution)
    if found.upper - found.lower > _TIGHT * max(1.0, found.upper) and math.isfinite(found.upper):
        # The saddle belongs to an ε that turned out wrong: pass the contour through the right one.
        again = search.for_epsilon(0.5 * (found.lower + found.upper))
        found = found.within(_invert_at(composition, search, again, delta, resolution))
    return found


def _invert_at(
    composition: Composition, search: Search, saddle: Saddle, delta: float, resolution: Resolution
) -> Bracket:
    profile, method = _lay(composition, search, saddle, resolution)
    found = invert(profile, delta, max(0.0, saddle.epsilon))
    return Bracket(found.lower, found.upper, method, saddle.tilt)


def _lay(
    composition: Composition, search: Search, saddle: Saddle, resolution: Resolution
) -> tuple[Profile, str]:
    lattices = [loss for loss, _ in composition if isinstance(loss, LatticeLoss)]
    if len(lattices) < len(composition):
        return lay_contour(composition, search, saddle, resolution), "contour"
    if len({loss.spacing for loss in lattices}) > 1:
        raise TooSlow
    together = cast("LatticeComposition", composition)
    return lay_lattice(together, search, saddle, resolution), "lattice"
