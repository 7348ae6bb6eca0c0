"""Finds the tilt through which to integrate. A poor choice costs speed or width, never validity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.accounting.exact.transforms import RealLine, RealLoss

_LEAST_TILT, _MOST_TILT = 1e-9, 1e7
_AHEAD = 3.0


@dataclass(frozen=True)
class Saddle:
    """A tilt z, with ln M and its first two derivatives there."""

    tilt: float
    log_mgf: float
    mean: float
    variance: float

    @property
    def epsilon(self) -> float:
        """The ε whose integrand exp(ln M(z) - zε)/(z(z+1)) has its saddle at this tilt."""
        return self.mean - 1.0 / self.tilt - 1.0 / (self.tilt + 1.0)

    @property
    def curvature(self) -> float:
        """The second derivative of the integrand's logarithm at the saddle."""
        return self.variance + self.tilt**-2 + (self.tilt + 1.0) ** -2

    @property
    def log_delta(self) -> float:
        """Ln δ at ``epsilon``, by the saddle-point approximation."""
        height = self.log_mgf - self.tilt * self.epsilon - math.log(self.tilt * (self.tilt + 1.0))
        return height - 0.5 * math.log(2.0 * math.pi * self.curvature)


class Search:
    """Looks along the real line: ln M of a composition at real tilts, approximately."""

    def __init__(self, composition: Sequence[tuple[RealLoss, int]]) -> None:
        self._composition = composition
        self._reach = 0.0
        self._lines: list[tuple[RealLine, int]] = []

    def at(self, tilt: float, reach: float) -> Saddle:
        """Ln M and its derivatives at ``tilt``; new nodes, if any are laid, go up to ``reach``."""
        self._extend(tilt, reach)
        log_mgf = mean = variance = 0.0
        for line, count in self._lines:
            one = line.moments(tilt)
            log_mgf += count * one[0]
            mean += count * one[1]
            variance += count * one[2]
        return Saddle(tilt, log_mgf, mean, variance)

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

    def for_delta(self, delta: float) -> Saddle:
        """The saddle at which the approximate δ equals ``delta``."""
        goal = math.log(delta)
        variance = math.fsum(count * loss.rough_variance for loss, count in self._composition)
        guess = math.sqrt(max(-2.0 * goal, 1.0) / max(variance, 1e-300))
        return self._solve(
            lambda saddle: saddle.log_delta - goal,
            lambda saddle: -(saddle.tilt**2) * saddle.curvature,
            guess,
        )

    def for_epsilon(self, epsilon: float, guess: float = 2.0) -> Saddle:
        """The saddle of the integrand of δ(``epsilon``)."""
        return self._solve(
            lambda saddle: (epsilon - saddle.epsilon) * saddle.tilt,
            lambda saddle: -(saddle.tilt**2) * saddle.curvature,
            guess,
        )

    def _solve(
        self, above: Callable[[Saddle], float], slope: Callable[[Saddle], float], guess: float
    ) -> Saddle:
        """Safeguarded Newton iteration in ln z for a function that falls as z grows."""
        low, high = math.log(_LEAST_TILT), math.log(_MOST_TILT)
        place = min(max(math.log(guess), low), high)
        # Far enough for the steps to come, and for the tilt that bounds the aliases.
        saddle = self.at(math.exp(place), reach=_AHEAD * math.exp(place))
        for _ in range(80):
            excess = above(saddle)
            low, high = (place, high) if excess > 0.0 else (low, place)
            step = min(max(-excess / slope(saddle), -2.0), 2.0)
            if (abs(step) < 0.05 and abs(excess) < 0.3) or high - low < 1e-6:
                break
            if excess < -10.0:
                # Past the point where rare outputs take over, ln M grows exponentially in z and
                # Newton's steps are too short by far.
                step = min(step, -0.25)
            place = place + step if low < place + step < high else 0.5 * (low + high)
            saddle = self.at(math.exp(place), reach=_AHEAD * math.exp(place))
        return saddle
