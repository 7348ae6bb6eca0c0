"""The privacy curve: everything that the pairs (ε, δ) of an event say, as one value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr, ndtri

from tacit._validation import non_negative, open_probability, probability
from tacit.accounting import gaussian_profile
from tacit.accounting.accountants import exact, gdp
from tacit.accounting.events import (
    Event,
    Neighbours,
    both_ways,
    check_delta,
    check_event,
    check_neighbours,
)
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    _Place = tuple[float, float]

_RARE = 1e-3  # a false-positive rate below which power has more digits than error
_ROUND_UP = 1.0 + 1e-12
_LIKELY = 0.2  # a δ about which the last part of a curve is sharp
_LONG = 300.0  # a range of ε over which a chord in e^ε says nothing


@dataclass(frozen=True)
class GdpFit:
    """The tightest Gaussian guarantee that covers a curve, and how much it gives up.

    Attributes:
        mu: For every δ ≥ ``smallest_delta``, the event is no less private than μ-GDP.
        regret: The largest κ such that moving both error rates by κ turns the event's trade-off
            into the Gaussian one: 0 is a perfect fit.
        smallest_delta: Below it nothing is claimed: the far tail of a sampled mechanism is worse
            than any Gaussian that fits its bulk.
    """

    mu: float
    regret: float
    smallest_delta: float


@dataclass(frozen=True)
class PrivacyCurve:
    """δ against ε for one event: the certified upper end of each.

    Guarantee:
        ``epsilon``, ``delta``, ``advantage`` and ``posterior`` are upper bounds on what any attack
        achieves, and ``tradeoff`` a lower bound on its error, for the event as stated.
    """

    event: Event
    adjacency: Neighbours = "add-remove"

    def epsilon(self, delta: float) -> float:
        """The smallest certified ε at this δ, from 0 to 1."""
        total = check_delta(delta)
        return exact.epsilon(self.event, total, self.adjacency) if total < 1.0 else 0.0

    def delta(self, epsilon: float) -> float:
        """The smallest certified δ at this ε ≥ 0."""
        return exact.delta(self.event, non_negative("epsilon", epsilon), self.adjacency)

    def tradeoff(self, fpr: float) -> float:
        """The least false-negative rate of any attack with this false-positive rate (f-DP).

        f(α) = sup_ε max{1 - δ(ε) - e^ε·α, e^{-ε}(1 - δ(ε) - α)} (Dong, Roth & Su 2022, Prop. 2.13).
        Every ε gives a valid bound; the best one is looked for.

        >>> from tacit.accounting import Gaussian
        >>> round(PrivacyCurve(Gaussian(1.0)).tradeoff(0.1), 4)
        0.6109
        """
        level = probability("fpr", fpr)
        if gaussian_mu(self.event, self.adjacency) is not None or level < _RARE:
            return max(0.0, 1.0 - self.power(level))
        return least_error(self._sketch(1e-3 * level), level, self._last_epsilon())

    def power(self, fpr: float) -> float:
        """The largest true-positive rate of any attack with this false-positive rate.

        It is 1 - f(α), with all its digits where both rates are small: the least of δ(ε) + e^ε·α
        and 1 - e^{-ε}(1 - δ(ε) - α) that is found. Of Gaussian noise alone it is
        Φ(Φ⁻¹(α) + μ).

        >>> from tacit.accounting import Gaussian
        >>> round(PrivacyCurve(Gaussian(1.0)).power(1e-8), 11)
        1.99405e-06
        """
        level = probability("fpr", fpr)
        mu = gaussian_mu(self.event, self.adjacency)
        if mu is not None:
            return min(1.0, float(ndtr(ndtri(level) + mu)) * _ROUND_UP)
        if level == 0.0:
            return self.delta(_LONG)
        last = min(-math.log(level), _LONG) if level < 1.0 else 0.0
        look = self._sketch(0.1 * level)

        def rate(epsilon: float) -> float:
            delta = look(epsilon)
            other = 1.0 - math.exp(-epsilon) * (1.0 - delta - level)
            return min(1.0, delta + math.exp(epsilon) * level, other)

        return -_maximum(lambda epsilon: -rate(epsilon), last) * _ROUND_UP

    def _sketch(self, floor: float) -> Callable[[float], float]:
        """δ(ε), no smaller than the true one, for many ε at the price of a few."""
        sharp = [floor * 10.0**k for k in range(0, 300, 2) if floor * 10.0**k < _LIKELY]
        laid = exact.sketch(self.event, self.adjacency, [*sharp, _LIKELY])
        return self.delta if laid is None else laid.delta

    def _last_epsilon(self) -> float:
        """An ε past which δ says nothing new, as far as a search is concerned."""
        candidates = (self.epsilon(delta) for delta in (1e-12, 1e-6, 1e-3, 0.1))
        return next((epsilon for epsilon in candidates if epsilon < 700.0), 700.0)

    def advantage(self) -> float:
        """The largest possible true-positive rate less false-positive rate: δ(0)."""
        return self.delta(0.0)

    def posterior(self, prior: float) -> float:
        """The chance that the best attack is right, for an attacker who held ``prior`` before.

        The attack decides whether the record was there. Unaided it is right with probability
        max(prior, 1 - prior); with the output, with at most (1-π) + π·δ(ln((1-π)/π)) for π ≤ ½, and
        the mirror image above.

        >>> from tacit.accounting import Gaussian
        >>> round(PrivacyCurve(Gaussian(1.0)).posterior(0.5), 4)
        0.6915
        """
        rarer = min(open_probability("prior", prior), 1.0 - prior)
        return (1.0 - rarer) + rarer * self.delta(math.log((1.0 - rarer) / rarer))

    def mu(self, smallest_delta: float = 1e-10) -> GdpFit:
        """The tightest μ-GDP that covers the curve down to ``smallest_delta``, and its regret.

        Between two points of the curve, δ lies below their chord in e^ε, for it is convex there; a
        Gaussian covers it if its own tangent does. Regret is max_ε (δ_μ(ε) - δ(ε))/(1 + e^ε)
        (Gomez et al. 2025), over the points. No Gaussian covers losses that are infinite with a
        probability above ``smallest_delta``: μ is then infinite. Of Gaussian noise alone μ is
        known, and holds for every δ.

        >>> from tacit.accounting import Gaussian
        >>> fit = PrivacyCurve(Gaussian(2.0)).mu()
        >>> round(fit.mu, 12), fit.regret
        (0.5, 0.0)
        """
        floor = open_probability("smallest_delta", smallest_delta)
        known = gaussian_mu(self.event, self.adjacency)
        if known is not None:
            return GdpFit(known, 0.0, floor)
        last = self.epsilon(floor)
        look = self._sketch(floor)
        points = _points(look, last if math.isfinite(last) else self._last_epsilon())
        mu = _covering(points) if math.isfinite(last) else math.inf
        regret = max(
            (_gaussian_delta(mu, epsilon) - delta) / (1.0 + math.exp(min(epsilon, 700.0)))
            for epsilon, delta in points
        )
        return GdpFit(mu, max(0.0, regret), floor)


def gaussian_mu(event: Event, adjacency: Neighbours) -> float | None:
    """The μ of an event that is exactly μ-GDP; None for any other."""
    try:
        return gdp.mu(event, both_ways(adjacency))
    except UnsupportedEvent:
        return None


def least_error(delta: Callable[[float], float], fpr: float, last: float) -> float:
    """``PrivacyCurve.tradeoff`` for any δ(ε); past the ε ``last`` it says nothing new."""

    def error(epsilon: float) -> float:
        rest = 1.0 - delta(epsilon)
        return max(rest - math.exp(epsilon) * fpr, math.exp(-epsilon) * (rest - fpr))

    return max(0.0, _maximum(error, last))


def covering_mu(delta: Callable[[float], float], last: float) -> float:
    """The μ of ``PrivacyCurve.mu`` for a δ(ε), down to its value at the finite ε ``last``."""
    return _covering(_points(delta, last))


def _points(delta: Callable[[float], float], last: float) -> list[_Place]:
    return [(float(place), delta(float(place))) for place in np.linspace(0.0, last, 65)]


def _covering(points: list[_Place]) -> float:
    """The least μ found that covers all chords; from the end, where it takes most."""
    mu = 0.0
    for first, last in reversed(list(pairwise(points))):
        rooms = _rooms(first, last)
        if first[1] > 0.0 and not (mu > 0.0 and any(room(mu) >= 0.0 for room in rooms)):
            mu = max(mu, min(map(_least_mu, rooms)))
        if math.isinf(mu):
            break
    return mu


def _maximum(function: Callable[[float], float], end: float) -> float:
    """The largest value seen: on a grid from 0 to ``end``, then about its best point."""
    places = end * np.linspace(0.0, 1.0, 13) ** 2
    values = [function(float(place)) for place in places]
    best = int(np.argmax(values))
    low, high = places[max(best - 1, 0)], places[min(best + 1, len(places) - 1)]
    if high <= low:
        return values[best]
    found = minimize_scalar(
        lambda place: -function(float(place)), bounds=(low, high), options={"maxiter": 24}
    )
    return max(values[best], -float(found.fun))


def _gaussian_delta(mu: float, epsilon: float) -> float:
    return gaussian_profile.delta(mu, epsilon) if math.isfinite(mu) else 1.0


def _rooms(first: _Place, last: _Place) -> list[Callable[[float], float]]:
    """What is not below 0 for a μ whose δ is above the curve's between two points (ε, δ)."""
    middle = 0.5 * (first[0] + last[0])

    def below_tangent(mu: float) -> float:
        # As functions of e^ε, δ_μ lies above its tangent, and the curve below its chord.
        height = gaussian_profile.delta(mu, middle)
        fall = math.exp(middle + float(log_ndtr(-middle / mu - 0.5 * mu)))
        return min(height - fall * math.expm1(end - middle) - delta for end, delta in (first, last))

    def below_step(mu: float) -> float:
        return gaussian_profile.delta(mu, last[0]) - first[1]

    far = last[0] - middle > _LONG  # beyond the range of exp; both curves fall
    return [below_step] if far else [below_tangent, below_step]


def _least_mu(room: Callable[[float], float]) -> float:
    """About the least μ with ``room(μ)`` ≥ 0, from above; infinite if there is none."""
    low, high = -20.0, 40.0
    if room(math.exp(low)) >= 0.0:
        return math.exp(low)
    if not room(math.exp(high)) >= 0.0:
        return math.inf
    # By halves: where a δ rounds to 1 the room is 0 for every larger μ.
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if room(math.exp(middle)) >= 0.0 else (middle, high)
    return math.exp(high) * (1.0 + 1e-9)


def profile(event: Event, adjacency: Neighbours = "add-remove") -> PrivacyCurve:
    """The privacy curve of ``event``.

    >>> from tacit.accounting import Gaussian
    >>> round(profile(Gaussian(1.0)).advantage(), 4)
    0.3829
    """
    return PrivacyCurve(check_event(event), check_neighbours(adjacency))
