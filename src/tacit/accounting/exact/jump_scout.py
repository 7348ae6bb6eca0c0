"""A look along the real line, approximate: where to split a law of jumps, and which tilts serve.

See ``jumps``. A poor choice costs speed or width, never validity.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import erfc

from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.jump_curves import Cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.exact.jump_curves import Step
    from tacit.accounting.exact.transforms import Floats

NOTHING = 1e-10
"""Of δ: what may be charged instead of integrated."""
LOOSE = 5.0
"""Ln of how far above a part of δ its bound by Chernoff lies, at most."""
_RISE = 2.5  # ln of what the integrand may gain between a saddle and the displaced hyperbolas
_CLIFF = 20.0  # the same from which a triangle that reaches there has no bound
_REACH = 0.08  # of the saddle's width: how far the first triangle reaches beyond its right end
_LOW = 8.0  # standard deviations of y below its mean
_NEAR = 0.05  # of ln δ, within which the first ε is near enough


class Saddle(NamedTuple):
    """The two ends between which a contour crosses the real line, and ln of its height."""

    left: float
    right: float
    log_height: float


class Scout:
    """ln B and ln J at real tilts for a ladder of cuts."""

    def __init__(self, step: Step) -> None:
        self.step = step
        variance, sigma = step.variance, step.sigma
        spacing = min(0.2, 0.4 / sigma)
        low, high = 0.5 / variance - _LOW / sigma, 2.0 * max(step.knee, 1.0) + 9.0 / sigma
        self._y = np.arange(low, high, spacing)
        self._log_mass = step.log_density(self._y).real + math.log(spacing)
        self._mass = np.exp(self._log_mass)
        self._loss = np.log1p(step.odds * np.exp(self._y))
        places = 0.5 / variance + np.linspace(0.5, 15.0, 28) / sigma
        self.cuts = tuple(
            Cut(
                math.log1p(step.odds * math.exp(place)),
                max(24.0, (variance * place + 0.5) ** 2 / 20.0),
            )
            for place in places
        )
        self._below, self._above = self._shares()
        self.jump_mass = (
            step.count
            * ((self._mass * np.exp(self._loss))[None, :] @ self._above).ravel()
            * (1.0 - step.rate)
        )
        self._most = np.array([0.5 * cut.sharpness / cut.loss for cut in self.cuts])
        most = 300.0 / step.odds
        self.ladder = np.geomspace(0.02, most, 12 * math.ceil(math.log10(most / 0.02)))
        self._ordinary, self._jumps = self._heights(self.ladder, slice(None))

    def _shares(self) -> tuple[Floats, Floats]:
        """About χ and 1 - χ of every cut."""
        distance = np.subtract.outer(
            np.log(self._loss), np.log(np.array([cut.loss for cut in self.cuts]))
        )
        distance = np.clip(distance, -50.0, 50.0)
        sharpness = np.array([cut.sharpness for cut in self.cuts])
        place = np.copysign(np.sqrt(sharpness * (np.expm1(distance) - distance)), distance)
        return 0.5 * erfc(place), 0.5 * erfc(-place)

    def _heights(self, tilts: Floats, which: slice | int) -> tuple[Floats, Floats]:
        """Ln |Bᵀ| and ln |Mᵀ - Bᵀ|, less ln z(z+1); infinite where they are out of range."""
        count = self.step.count
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            grown = np.expm1(np.multiply.outer(tilts + 1.0, self._loss))
            grown *= self._mass
            # Where e^{pλ} is out of range, the density may yet make up for it.
            rows, columns = np.nonzero(~np.isfinite(grown))
            far = (tilts[rows] + 1.0) * self._loss[columns] + self._log_mass[columns]
            grown[rows, columns] = np.exp(far)
            below = self._below[:, which].reshape(len(self._y), -1)
            above = self._above[:, which].reshape(len(self._y), -1)
            jumps = (grown + self._mass) @ above
            ordinary = np.minimum(grown, 1e250) @ below - self._mass @ above
            ordinary = np.where(ordinary > 1e100, np.inf, ordinary)
            scale = ((tilts + 1.0) * math.log1p(-self.step.rate))[:, None]
            kernel = np.log(tilts * (tilts + 1.0))[:, None]
            log_ordinary = np.log1p(ordinary)
            beside = self.step.log_beside(tilts)[:, None]
            first = count * (scale + log_ordinary) + beside - kernel
            share = count * np.log1p(jumps / (1.0 + ordinary))
            second = first + np.where(
                share > 30.0, share, np.log(np.expm1(np.minimum(share, 30.0)))
            )
        first = np.where(tilts[:, None] <= self._most[which], first, np.inf)
        return (
            np.where(np.isfinite(first), first, np.inf),
            np.where(np.isfinite(second), second, np.inf),
        )

    def look(self, epsilon: float) -> tuple[Floats, Floats]:
        """About ln δ(ε) of the ordinary part and of the jumps, for every cut."""
        fall = (self.ladder * epsilon)[:, None]
        return (
            _saddle_value(self._ordinary - fall, self.ladder),
            _saddle_value(self._jumps - fall, self.ladder),
        )

    def best_cuts(self, epsilon: float) -> tuple[list[int], float]:
        """The cuts at which the larger part is smallest, the best first, and about ln δ(ε)."""
        ordinary, jumps = self.look(epsilon)
        jumps = np.minimum(jumps, np.log(self.jump_mass + 1e-300))
        # Bounds on powers of sums that hold many jumps are loose: cut where there are few.
        worst = np.maximum(ordinary, jumps) + np.minimum(1e3 * self.jump_mass, 30.0)
        order = np.argsort(worst)
        least = float(worst[order[0]])
        # Without jumps worth an integral there is one contour less to lay.
        nothing = least + math.log(NOTHING) - LOOSE
        alone = np.flatnonzero((jumps < nothing) & (ordinary < least + 3.0))
        # About what one jump adds by itself; no cut makes either part too small.
        gain = np.exp(self._loss + math.log1p(-self.step.rate)) - math.exp(min(epsilon, 700.0))
        single = (self._mass * np.maximum(gain, 0.0)) @ self._above[:, order[:6]]
        log_single = np.log(self.step.count * single + 1e-300)
        log_delta = float(np.logaddexp(ordinary[order[:6]], log_single).min())
        # The next cut above the best is often the better one: its bounds are less loose.
        above = min(int(order[0]) + 1, len(self.cuts) - 1)
        return [*map(int, alone[:2]), int(order[0]), above, *map(int, order[1:4])], log_delta

    def epsilon(self, log_delta: float) -> float:
        """About ε at which δ is that."""
        low, high = math.log(1e-9), math.log(60.0 + 2.0 / self.step.variance)
        if self.best_cuts(math.exp(low))[1] < log_delta:  # as it may seem where ε is next to none
            return self.step.rate * math.sqrt(self.step.count)
        return math.exp(self._solve(log_delta, low, high))

    def _solve(self, log_delta: float, low: float, high: float) -> float:
        """About ln ε at which δ is that, between two others: by the Illinois rule."""
        above, below = math.inf, -math.inf
        last = 0
        for _ in range(14):
            middle = 0.5 * (low + high)
            if math.isfinite(above - below):
                middle = (low * below - high * above) / (below - above)
            excess = self.best_cuts(math.exp(middle))[1] - log_delta
            if abs(excess) < _NEAR:
                return middle
            if excess > 0.0:
                low, above, below = middle, excess, 0.5 * below if last > 0 else below
            else:
                high, below, above = middle, excess, 0.5 * above if last < 0 else above
            last = 1 if excess > 0.0 else -1
            if high - low < 1e-3:
                break
        return low

    def saddle(self, index: int, epsilon: float, *, jumps: bool) -> Saddle:
        """Where a contour for one part may cross the real line."""

        def height(tilts: Floats) -> Floats:
            found: Floats = self._heights(tilts, index)[jumps].ravel() - tilts * epsilon
            return found

        known = (self._jumps if jumps else self._ordinary)[:, index] - self.ladder * epsilon
        return _crossing(height, self.ladder, known, cliffs=jumps)


def _crossing(
    height: Callable[[Floats], Floats], tilts: Floats, known: Floats, *, cliffs: bool
) -> Saddle:
    """Between which tilts the height, of which ``known`` is a first look, is within _RISE.

    It may fall slowly and then explode, where it has ``cliffs``: where the largest jumps take over.
    The whole first triangle must lie before that.
    """
    for _ in range(3):
        best = int(known.argmin())
        low, high = max(best - 1, 0), min(best + 1, len(tilts) - 1)
        # As many as ten to a width tell where it ends.
        inside = np.count_nonzero(known <= known[best] + _RISE)
        if inside >= 10 or not low < high:
            break
        between = np.geomspace(tilts[low], tilts[high], 17)[1:-1]
        tilts = np.concatenate([tilts[: low + 1], between, tilts[high:]])
        known = np.concatenate([known[: low + 1], height(between), known[high:]])
    best = int(known.argmin())
    least, centre = float(known[best]), float(tilts[best])
    if not math.isfinite(least):
        raise TooSlow
    most = least + _RISE
    left = _edge(tilts[best::-1], known[best::-1], most)
    right = _edge(tilts[best:], known[best:], most)
    left, right = max(left, 0.02 * centre), min(right, 300.0 * centre)
    if cliffs:
        cliff = _edge(tilts[best:], known[best:], least + _CLIFF)
        right = min(right, (cliff + _REACH * left) / (1.0 + _REACH))
    return Saddle(left, right, least)


def _edge(tilts: Floats, known: Floats, most: float) -> float:
    """Where the height, going from the first tilt on, comes to ``most``."""
    too_high = known > most
    if not too_high.any():
        return float(tilts[-1])
    first = int(too_high.argmax())
    rise = float(known[first] - known[first - 1])
    share = (most - float(known[first - 1])) / rise if math.isfinite(rise) else 0.0
    return float(tilts[first - 1] * (tilts[first] / tilts[first - 1]) ** share)


def _saddle_value(height: Floats, tilts: Floats) -> Floats:
    """The saddle-point approximation of ln of the integral, by columns."""
    best = np.clip(height.argmin(axis=0), 1, len(tilts) - 2)
    columns = np.arange(height.shape[1])
    low = height[best, columns]
    spacing = math.log(tilts[1] / tilts[0])
    with np.errstate(invalid="ignore"):
        bend = (height[best - 1, columns] + height[best + 1, columns] - 2.0 * low) / spacing**2
    bend = np.where(np.isfinite(bend), np.clip(bend, 0.3, 1e4), 1e2)
    found: Floats = low + np.log(tilts[best]) - 0.5 * np.log(2.0 * math.pi * bend)
    return found
