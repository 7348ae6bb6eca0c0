"""Finds the tilt through which to integrate. A poor choice costs speed or width, never validity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.accounting.exact.transforms import RealLine, RealLoss

_LEAST_TILT, _MOST_TILT = 1e-9, 1e13
_AHEAD = 3.0
_CLIFF = 1e-6  # how near to a cliff, in ln z, the search ends


@dataclass(frozen=True)
class Point:
    """A tilt z on the real line, with ln M and its first two derivatives there."""

    tilt: float
    log_mgf: float
    mean: float
    variance: float

    @property
    def saddle_epsilon(self) -> float:
        """The ε whose integrand exp(ln M(z) - zε)/(z(z+1)) has its saddle here."""
        return self.mean - 1.0 / self.tilt - 1.0 / (self.tilt + 1.0)

    @property
    def curvature(self) -> float:
        """The second derivative of the integrand's logarithm."""
        return self.variance + self.tilt**-2 + (self.tilt + 1.0) ** -2

    @property
    def log_height(self) -> float:
        """Ln δ + tilt·ε by the saddle-point approximation."""
        width = 0.5 * math.log(2.0 * math.pi * self.curvature)
        return self.log_mgf - math.log(self.tilt * (self.tilt + 1.0)) - width


@dataclass(frozen=True)
class Aim:
    """Through which tilt to integrate, and about which (ε, ln δ) the integral is to be sharp."""

    point: Point
    epsilon: float
    log_delta: float

    @property
    def tilt(self) -> float:
        """The real part of the contour."""
        return self.point.tilt


class Search:
    """Looks along the real line: ln M of a composition at real tilts, approximately.

    Tilts up to ``most_tilt`` are tried.
    """

    def __init__(
        self, composition: Sequence[tuple[RealLoss, int]], most_tilt: float = _MOST_TILT
    ) -> None:
        self._composition = composition
        self._most_tilt = most_tilt
        self._reach = 0.0
        self._lines: list[tuple[RealLine, int]] = []

    def at(self, tilt: float, reach: float) -> Point:
        """Ln M and its derivatives at ``tilt``; new nodes, if any are laid, go up to ``reach``."""
        self._extend(tilt, reach)
        log_mgf = mean = variance = 0.0
        for line, count in self._lines:
            one = line.moments(tilt)
            log_mgf += count * one[0]
            mean += count * one[1]
            variance += count * one[2]
        return Point(tilt, log_mgf, mean, variance)

    def log_mgf_bound(self, tilt: float) -> float:
        """A certain upper bound on ln M at ``tilt``."""
        self._extend(tilt, tilt)
        return math.fsum(count * line.log_mgf_bound(tilt) for line, count in self._lines)

    def _extend(self, tilt: float, reach: float) -> None:
        if tilt > self._reach:
            self._reach = max(reach, tilt)
            self._lines = [
                (loss.real_line(self._reach, 12.0 + math.log(count)), count)
                for loss, count in self._composition
            ]

    def for_delta(self, delta: float) -> Aim:
        """Aims at ``delta``."""
        goal = math.log(delta)
        variance = math.fsum(count * loss.rough_variance for loss, count in self._composition)
        guess = math.sqrt(max(-2.0 * goal, 1.0) / max(variance, 1e-300))
        point = self._solve(lambda at: at.log_height - at.tilt * at.saddle_epsilon - goal, guess)
        return _aim_at_delta(point, goal)

    def for_epsilon(self, epsilon: float, guess: float = 2.0) -> Aim:
        """Aims at ``epsilon``."""
        point = self._solve(lambda at: (epsilon - at.saddle_epsilon) * at.tilt, guess)
        return _aim_at_epsilon(point, epsilon)

    def retreat(self, aim: Aim, factor: float) -> Aim:
        """The same ε through a smaller tilt: less sharp, but farther from where ln M explodes."""
        tilt = factor * aim.tilt
        return _aim_at_epsilon(self.at(tilt, _AHEAD * tilt), aim.epsilon)

    def _solve(self, above: Callable[[Point], float], guess: float) -> Point:
        """Safeguarded Newton iteration in ln z for a function that falls as z grows.

        Its slope is about -z²·curvature. Where rare outputs take over, ln M explodes and the
        function falls off a cliff; the iteration then ends on the near side.
        """
        low, high = math.log(_LEAST_TILT), math.log(self._most_tilt)
        place = min(max(math.log(guess), low), high)
        # Far enough for the steps to come, and for the tilt that bounds the aliases.
        point = self.at(math.exp(place), reach=_AHEAD * math.exp(place))
        near = None
        for _ in range(80):
            excess = above(point)
            low, high = (place, high) if excess > 0.0 else (low, place)
            near = point if excess > 0.0 else near
            step = min(max(excess / (point.tilt**2 * point.curvature), -2.0), 2.0)
            if abs(step) < 0.05 and abs(excess) < 0.3:
                return point
            if high - low < _CLIFF and near is not None:
                return near
            if excess < -10.0:
                # Beyond the cliff Newton's steps are too short by far.
                step = min(step, -0.25)
            place = place + step if low < place + step < high else 0.5 * (low + high)
            point = self.at(math.exp(place), reach=_AHEAD * math.exp(place))
        return point


def _aim_at_delta(point: Point, log_delta: float) -> Aim:
    return Aim(point, (point.log_height - log_delta) / point.tilt, log_delta)


def _aim_at_epsilon(point: Point, epsilon: float) -> Aim:
    return Aim(point, epsilon, min(0.0, point.log_height - point.tilt * epsilon))
