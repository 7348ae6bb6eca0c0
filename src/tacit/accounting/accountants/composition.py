"""The composition theorems for (ε, δ): basic and strong composition of single releases.

**Basic**: the ε's add up, and so do the δ's (Dwork & Roth 2014, Theorem 3.16). Pure releases cost
no δ. Where a release trades ε for δ, as the Gaussian does, the given δ is shared among such
releases so that their total ε is small.

**Strong**, or advanced (Dwork, Rothblum & Vadhan 2010; Dwork & Roth 2014, Theorem 3.20): releases
of (ε_i, δ_i) compose, for every δ' > 0, to

    ε = √(2·ln(1/δ')·Σε_i²) + Σε_i·(e^{ε_i} - 1)    at    δ = Σδ_i + δ'.

The theorem is stated for equal ε_i; its proof is Azuma's inequality for losses within ±ε_i whose
means are at most ε_i(e^{ε_i} - 1), which gives the form above. The total δ is shared between δ' and
the releases' own δ_i so that ε is small. The accountant answers with the smaller of this theorem
and basic composition, since both hold; ``strong_composition`` is the theorem alone.

**Single releases** are trade-offs between ε and δ. A pure one needs no δ; a Gaussian one gives a
smaller ε for a larger δ, by the analytic calibration (Balle & Wang 2018, Theorem 8). A sampler of
rate q turns (ε, δ) into (ln(1 + q(e^ε - 1)), qδ): Balle, Barthe & Gaboardi 2018, Theorems 8 and 9
for Poisson and fixed-size samples; for Poisson samples and replaced records by their Theorem 2,
which needs the release's guarantee both when the record is replaced and when it is left out. A
black box that promises nothing of the latter is bounded as if it showed who was drawn
(``tacit.accounting.black_boxes``).

Guarantee: all answers are upper bounds for every event that is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.optimize import brentq

from tacit.accounting import gaussian_profile
from tacit.accounting.accountants import Accountant
from tacit.accounting.black_boxes import amplified, concrete
from tacit.accounting.events import (
    ApproxDp,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    PrivateSelection,
    PureDp,
    RandomizedResponse,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedNegativeBinomial,
    distance,
)
from tacit.accounting.failures import Failures, truncation_of
from tacit.accounting.normal_form import parts
from tacit.accounting.renyi.curves import epsilon_of_curve
from tacit.accounting.renyi.profile import renyi_profile
from tacit.accounting.renyi.sampling import draw_of, sampled_promise
from tacit.accounting.selection_profile import selection_profile_of
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.renyi.sampling import SampledRate


_ROUND_UP = 1.0 + 1e-12


# ---- single releases, and how to share a δ among them


@dataclass(frozen=True)
class RepeatedRelease:
    """A release that occurs ``count`` times: its ε at a δ of its own.

    It needs ``least`` of δ in any case; if it is ``free`` more δ buys a smaller ε.
    """

    epsilon: Callable[[float], float]
    least: float = 0.0
    free: bool = False
    count: int = 1

    def trade(self, extra: float) -> tuple[float, float]:
        """The ε at δ = least + extra, and -dε/d ln(extra) by a difference."""
        value = self.epsilon(self.least + extra)
        return value, (value - self.epsilon(self.least + 1.02 * extra)) / math.log(1.02)


@dataclass(frozen=True)
class Releases:
    """All releases of an event; ``truncation`` is as in ``tacit.accounting.failures``."""

    steps: tuple[RepeatedRelease, ...]
    truncation: float = 0.0

    @property
    def least(self) -> float:
        """The δ that the steps need in any case."""
        return math.fsum(step.count * step.least for step in self.steps)

    @property
    def free(self) -> bool:
        """Whether more δ buys a smaller ε."""
        return any(step.free for step in self.steps)


def steps_of(event: Event, adjacency: Adjacency, accountant: str) -> Releases:
    """The releases of ``event``, each as a trade-off between ε and δ."""
    found = [
        (concrete(part, adjacency, accountant), count) for part, count in parts(event, adjacency)
    ]
    return Releases(
        tuple(_step(part, count, adjacency, accountant) for part, count in found),
        math.fsum(count * truncation_of(part) for part, count in found),
    )


def _step(part: Event, count: int, adjacency: Adjacency, accountant: str) -> RepeatedRelease:
    match part:
        case Gaussian(sigma, apart):
            mu = distance(apart, adjacency) / sigma
            return RepeatedRelease(
                lambda own: gaussian_profile.epsilon(mu, own) * _ROUND_UP, 0.0, True, count
            )
        case Laplace(scale, apart):
            return _pure(distance(apart, adjacency) / scale, count)
        case DiscreteLaplace(scale, unit, apart):
            return _pure(distance(apart, adjacency) * unit / scale, count)
        case RandomizedResponse():
            return _pure(part.loss, count)
        case PureDp(loss) | Exponential(loss):
            return _pure(loss, count)
        case ApproxDp(loss, failure):
            return RepeatedRelease(
                lambda own: loss if own >= failure else math.inf, failure, False, count
            )
        case PoissonSampled() | SampledWithoutReplacement():
            return _sampled(part, count, adjacency, accountant)
        case PrivateSelection():
            return _selection(part, count, adjacency, accountant)
        case SampledWithReplacement():
            reason = "no amplification theorem is implemented for sampling with replacement"
            raise UnsupportedEvent(part, accountant, reason)
        case _:
            # Discrete Gaussians, mixtures, concentrated and Rényi events: by their Rényi curve.
            curve = renyi_profile(part, adjacency, accountant).curve
            return RepeatedRelease(lambda own: epsilon_of_curve(curve, own), 0.0, True, count)


def _pure(loss: float, count: int) -> RepeatedRelease:
    return RepeatedRelease(lambda own: loss if own >= 0.0 else math.inf, 0.0, False, count)


def _selection(
    part: PrivateSelection, count: int, adjacency: Adjacency, accountant: str
) -> RepeatedRelease:
    """By the privacy profile; a selection from pure releases is pure."""
    profile = selection_profile_of(part, adjacency)
    base = steps_of(part.base, adjacency, accountant)
    if not base.free and base.least == 0.0 and base.truncation == 0.0:
        loss = sum_of(base, 0.0)
        shift = profile.shift
        if isinstance(part.runs, TruncatedNegativeBinomial):  # (2+η)·ε: Papernot & Steinke, Thm 2
            shift = min(shift, (1.0 + part.runs.eta) * loss)
        return _pure((loss + shift) * _ROUND_UP, count)
    return RepeatedRelease(
        lambda own: profile.epsilon(own) if own > 0.0 else math.inf, 0.0, True, count
    )


def _sampled(
    part: PoissonSampled | SampledWithoutReplacement,
    count: int,
    adjacency: Adjacency,
    accountant: str,
) -> RepeatedRelease:
    draw = draw_of(part, adjacency)
    if draw.rate == 0.0:
        return _pure(0.0, count)
    promise = sampled_promise(draw, part.event, accountant)
    if promise is not None:
        loss, least = promise
        return RepeatedRelease(lambda own: loss if own >= least else math.inf, least, False, count)
    seen = _seen(draw, part, accountant)
    if any(inner.truncation > 0.0 for inner in seen):
        raise UnsupportedEvent(part, accountant, "a truncated Poisson sample lies inside a sample")
    shown = len(seen) < len(draw.inner_adjacencies)

    def epsilon(own: float) -> float:
        largest = max(sum_of(inner, own / draw.rate) for inner in seen)
        return largest if shown else amplified(draw.rate, largest)

    least = draw.rate * max(inner.least for inner in seen)
    return RepeatedRelease(epsilon, least, any(inner.free for inner in seen), count)


def _seen(
    draw: SampledRate, part: PoissonSampled | SampledWithoutReplacement, accountant: str
) -> list[Releases]:
    """The sampled release under each adjacency of its samples, or the one asked about alone."""
    try:
        return [steps_of(part.event, one, accountant) for one in draw.inner_adjacencies]
    except UnsupportedEvent:
        if not draw.may_be_shown:
            raise
        return [steps_of(part.event, draw.adjacency, accountant)]


def sum_of(steps: Releases, delta: float) -> float:
    """Basic composition: the smallest Σε found for Σδ = ``delta``; infinite if it is too small."""
    left = spare(steps, delta)
    if left is None:
        return math.inf
    free = [step for step in steps.steps if step.free]
    fixed = math.fsum(
        step.count * step.epsilon(step.least) for step in steps.steps if not step.free
    )

    def appraise(shares: list[float]) -> tuple[float, list[float]]:
        found = [step.trade(own) for step, own in zip(free, shares, strict=True)]
        total = math.fsum(step.count * one for step, (one, _) in zip(free, found, strict=True))
        return fixed + total, [slope for _, slope in found]

    return share(left, [step.count for step in free], appraise) if free else fixed


def spare(steps: Releases, delta: float) -> float | None:
    """The δ beyond what the steps need in any case, or None if it does not reach."""
    left = delta - steps.least
    return max(left, 0.0) if left >= -1e-15 * delta else None


Appraise = Callable[[list[float]], tuple[float, list[float]]]
"""Maps everyone's share of δ to the ε of the whole, and to what each share is worth."""


def share(left: float, counts: list[int], appraise: Appraise) -> float:
    """The smallest ε found over the ways to share ``left`` among ``counts[i]`` takers of each kind.

    At the best shares the derivatives of ε by each δ agree, that is, each share is proportional to
    its worth, the derivative by ln δ of its taker. Iterating that settles fast, because the worth
    hardly depends on the share. Every way to share is valid, so a rough one costs only tightness.
    """
    worth = [1.0] * len(counts)
    best = math.inf
    for _ in range(8):
        unit = left / math.fsum(count * one for count, one in zip(counts, worth, strict=True))
        value, worth = appraise([unit * one for one in worth])
        if not value < best * (1.0 - 1e-7) or not all(0.0 < one < math.inf for one in worth):
            return min(value, best)
        best = value
    return best


# ---- the two accountants


def basic_epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """Σε at Σδ = ``delta``; infinite if the releases need more δ than that.

    >>> from tacit.accounting.events import PureDp, Repeated
    >>> round(basic_epsilon(Repeated(PureDp(0.1), 100), 1e-5, "add-remove"), 9)
    10.0
    """
    steps = steps_of(event, adjacency, "basic")
    return Failures(truncation=steps.truncation).epsilon(lambda left: sum_of(steps, left), delta)


def basic_delta(event: Event, epsilon: float, adjacency: Adjacency) -> float:
    """The smallest Σδ at which Σε is at most ``epsilon``; 1 if there is none."""
    steps = steps_of(event, adjacency, "basic")

    def solve(at: float) -> float:
        return smallest_delta(lambda total: sum_of(steps, total), at, steps.least)

    return Failures(truncation=steps.truncation).delta(solve, epsilon)


def advanced_epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The smaller of strong and basic composition at a total ``delta``.

    >>> from tacit.accounting.events import PureDp, Repeated
    >>> round(advanced_epsilon(Repeated(PureDp(0.1), 100), 1e-5, "add-remove"), 9)
    5.850235093
    """
    steps = steps_of(event, adjacency, "advanced")
    return Failures(truncation=steps.truncation).epsilon(lambda left: _smaller(steps, left), delta)


def advanced_delta(event: Event, epsilon: float, adjacency: Adjacency) -> float:
    """The smallest total δ at which either composition proves ``epsilon``; 1 if neither does."""
    steps = steps_of(event, adjacency, "advanced")

    def solve(at: float) -> float:
        return smallest_delta(lambda total: _smaller(steps, total), at, steps.least)

    return Failures(truncation=steps.truncation).delta(solve, epsilon)


def strong_composition(epsilons: Sequence[float], counts: Sequence[int], reserve: float) -> float:
    """The theorem: the ε of ``counts[i]`` releases of ``epsilons[i]`` each, with δ' = ``reserve``.

    >>> round(strong_composition([0.1], [1000], 1e-5), 9)
    25.691363101
    """
    spread = _spread(epsilons, counts)
    if spread == 0.0:
        return 0.0
    if reserve <= 0.0:
        return math.inf
    means = [count * one * _expm1(one) for one, count in zip(epsilons, counts, strict=True)]
    return math.sqrt(-2.0 * math.log(min(reserve, 1.0))) * spread + math.fsum(means)


def _spread(epsilons: Sequence[float], counts: Sequence[int]) -> float:
    """√Σε_i²."""
    return math.sqrt(math.fsum(n * one * one for one, n in zip(epsilons, counts, strict=True)))


def _smaller(steps: Releases, delta: float) -> float:
    return min(sum_of(steps, delta), _strong(steps, delta))


def _strong(steps: Releases, delta: float) -> float:
    """The theorem with δ shared between the free steps and δ', which takes the last share."""
    left = spare(steps, delta)
    if not left:
        return math.inf
    free = [step for step in steps.steps if step.free]
    fixed = [step for step in steps.steps if not step.free]
    counts = [step.count for step in (*free, *fixed)]
    known = [step.epsilon(step.least) for step in fixed]

    def appraise(shares: list[float]) -> tuple[float, list[float]]:
        found = [step.trade(own) for step, own in zip(free, shares, strict=False)]
        epsilons = [one for one, _ in found] + known
        value = strong_composition(epsilons, counts, shares[-1])
        if not 0.0 < value < math.inf or shares[-1] >= 1.0:
            return value, [0.0]
        # The derivatives of the theorem by ln δ' and by each ε_i.
        depth, spread = math.sqrt(-2.0 * math.log(shares[-1])), _spread(epsilons, counts)
        prices = [depth * one / spread + _expm1(one) + one * math.exp(one) for one, _ in found]
        worth = [price * slope for price, (_, slope) in zip(prices, found, strict=True)]
        return value, [*worth, spread / depth]

    return share(left, [*(step.count for step in free), 1], appraise)


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 700.0 else math.inf


def smallest_delta(solve: Callable[[float], float], epsilon: float, least: float) -> float:
    """The smallest δ ≥ ``least`` found with ``solve(δ)`` ≤ ``epsilon``; 1 if there is none.

    ``solve`` must fall with δ. The answer is checked, so that it errs upwards only.

    >>> round(smallest_delta(lambda delta: 1.0 / (delta + 0.1), 4.0, 0.0), 9)
    0.15
    """
    if least < 1.0 and solve(least) <= epsilon:
        return least

    def excess(x: float) -> float:
        return min(solve(least + math.exp(x)), 1e300) - epsilon

    low, high = -700.0, math.log1p(-least) if least < 1.0 else -math.inf
    if high <= low or excess(high) > 0.0:
        return 1.0
    root = float(brentq(excess, low, high, xtol=1e-10)) if excess(low) > 0.0 else low
    for step in (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2):
        if excess(min(root + step, high)) <= 0.0:
            return min(1.0, least + math.exp(min(root + step, high)))
    return 1.0


BASIC = Accountant(basic_epsilon, basic_delta)
ADVANCED = Accountant(advanced_epsilon, advanced_delta)
