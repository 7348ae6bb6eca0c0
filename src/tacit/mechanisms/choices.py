"""Choosing among candidates: the exponential mechanism, permute-and-flip, noisy max, the top k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from tacit._validation import flag, positive, whole
from tacit.accounting.events import Exponential, NoisyMax, Repeated
from tacit.errors import InvalidArgument
from tacit.mechanisms._races import leaders, winner
from tacit.mechanisms._records import finite, is_series
from tacit.mechanisms.release import agreed, amount, apart, calibrated, pure_amount, ratio_for

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.mechanisms._races import Law
    from tacit.mechanisms.release import Amount, Released, ReleaseTerms
    from tacit.randomness import Stream


_LEAST = Fraction(1, 10**300)


def exponential(
    scores: Any,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    rho: float | None = None,
    monotone: bool = False,
    candidates: Sequence[Any] | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """The exponential mechanism (McSherry & Talwar 2007): P(i) ∝ exp(ε·score/(2·sensitivity)).

    Guarantee:
        If neighbours move no score by more than ``sensitivity``, as float64 numbers, the choice is
        that of ``event``: its range is bounded by the ε asked for. The law is exact for the binary
        values of the scores: no outcome is more or less likely by floating point. Scores that are
        not finite are refused; the refusal tells that one is not.

    Args:
        scores: One number per candidate: an array, a list, a pandas Series or a mapping.
        sensitivity: How far neighbours move a score, by the adjacency.
        epsilon: The ε asked for.
        rho: The ρ of zCDP asked for, instead of ε.
        monotone: Whether a record that is added or removed moves all scores the same way, as it
            does counts; twice the ε is then spent on each score. No use for ``"replace-one"``.
        candidates: What to give back; left out, a Series' label, a mapping's key, or the place.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> votes = {"red": 30, "green": 80, "blue": 28}
    >>> released = exponential(votes, sensitivity=1, epsilon=0.5, monotone=True,
    ...     stream=UnsafeSeededStream(0, "test"))
    >>> released.value, released.event
    ('green', Exponential(epsilon=0.5, adjacency='add-remove'))
    """
    terms = agreed("exponential", adjacency, unit, budget, label, stream)
    numbers, names = _scores(scores, candidates)
    moved = Fraction(positive("sensitivity", sensitivity))
    asked = pure_amount(epsilon, rho).pure_epsilon(per_rho=8.0)
    rate = _rate(Fraction(asked) / (_against(monotone, terms.adjacency) * moved))
    grant = terms.charge(Exponential(asked, terms.adjacency))
    return grant.release(names[winner(numbers, rate, "gumbel", grant.stream)])


def permute_and_flip(
    scores: Any,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    rho: float | None = None,
    monotone: bool = False,
    candidates: Sequence[Any] | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """Permute-and-flip (McKenna & Sheldon 2020), which never does worse than ``exponential``.

    It is noisy max with exponential noise (Ding et al. 2021), and drawn so.

    Guarantee:
        As for ``exponential``, but ε-DP only: its range is wider than ε, so that many of them
        compose worse. The event is ``NoisyMax`` with exponential noise.

    Args:
        scores: As in ``exponential``.
        sensitivity: As in ``exponential``.
        epsilon: As in ``exponential``.
        rho: As in ``exponential``.
        monotone: As in ``exponential``.
        candidates: As in ``exponential``.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> permute_and_flip([30, 80, 28], sensitivity=1, epsilon=0.5,
    ...     stream=UnsafeSeededStream(0, "test")).value
    1
    """
    terms = agreed("permute_and_flip", adjacency, unit, budget, label, stream)
    numbers, names = _scores(scores, candidates)
    asked = pure_amount(epsilon, rho).pure_epsilon()
    return _largest(numbers, names, sensitivity, asked, "exponential", monotone, terms)


def noisy_max(
    scores: Any,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    rho: float | None = None,
    noise: Literal["laplace", "gumbel", "exponential"] = "exponential",
    monotone: bool = False,
    candidates: Sequence[Any] | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """Adds noise to every score and releases which one is the largest; noisy scores stay secret.

    Guarantee:
        As for ``exponential``, with the event ``NoisyMax``. Gumbel noise is the exponential
        mechanism, and the one to take for many choices that compose; exponential noise is
        permute-and-flip, the best for one choice; Laplace noise is what textbooks show. The noise
        is real-valued and compared by as many binary digits as it takes: there are no ties and no
        holes.

    Args:
        scores: As in ``exponential``.
        sensitivity: As in ``exponential``.
        epsilon: As in ``exponential``.
        rho: As in ``exponential``.
        noise: The noise's law.
        monotone: As in ``exponential``.
        candidates: As in ``exponential``.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> released = noisy_max([30, 80, 28], sensitivity=1, epsilon=0.5, noise="laplace",
    ...     stream=UnsafeSeededStream(0, "test"))
    >>> released.value, released.event.scale
    (1, 4.0)
    """
    terms = agreed("noisy_max", adjacency, unit, budget, label, stream)
    numbers, names = _scores(scores, candidates)
    asked = pure_amount(epsilon, rho).pure_epsilon(per_rho=8.0 if noise == "gumbel" else 2.0)
    return _largest(numbers, names, sensitivity, asked, noise, monotone, terms)


def top_k(
    scores: Any,
    k: int,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    noise: Literal["gumbel", "exponential"] = "gumbel",
    monotone: bool = False,
    candidates: Sequence[Any] | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[list[Any]]:
    """The ``k`` candidates of highest score, the best first; the noisy scores stay secret.

    By peeling: k choices one after another, each among the candidates that are left. With Gumbel
    noise this is one shot: noise is added once and the k largest are shown, which has the same law
    (Durfee & Rogers 2019). With exponential noise every choice draws noise of its own
    (permute-and-flip): the better one for ε alone and a small ``k``.

    Guarantee:
        As for ``exponential``, for each of the k choices, made adaptively; the order is part of
        the release. The event is k times ``Exponential``, or k times ``NoisyMax`` with exponential
        noise, and meets the ε, (ε, δ) or ρ asked for. For ε alone each choice has ε/k. For (ε, δ)
        or ρ it has more than that if k is large: the choices compose, and those of Gumbel noise,
        whose range is bounded, compose better (Dong, Durfee & Rogers 2020).

    Args:
        scores: As in ``exponential``.
        k: How many; public, and not more than there are candidates.
        sensitivity: As in ``exponential``.
        epsilon: The ε asked for, for all k together.
        delta: The δ asked for with it.
        rho: The ρ of zCDP asked for, instead.
        noise: The noise's law.
        monotone: As in ``exponential``.
        candidates: As in ``exponential``.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> votes = {"red": 30, "green": 80, "blue": 28, "white": 71}
    >>> released = top_k(votes, 2, sensitivity=1, epsilon=1, monotone=True,
    ...     stream=UnsafeSeededStream(0, "test"))
    >>> released.value, released.event.times, round(released.event.event.epsilon, 9)
    (['green', 'white'], 2, 0.5)
    """
    terms = agreed("top_k", adjacency, unit, budget, label, stream)
    numbers, names = _scores(scores, candidates)
    times = whole("k", k)
    if times > len(numbers):
        raise InvalidArgument(
            f"k must be at most the number of candidates, {len(numbers)}, got {k!r}"
        )
    if noise not in ("gumbel", "exponential"):
        raise InvalidArgument(f"noise must be 'gumbel' or 'exponential', got {noise!r}")
    against = _against(monotone, terms.adjacency)

    def choices(each: float) -> Event:
        if noise == "gumbel":
            return Repeated(Exponential(each, terms.adjacency), times)
        scale = ratio_for(float(against), each)
        return Repeated(NoisyMax(scale, noise, monotone, apart(terms.adjacency)), times)

    asked = amount(epsilon, delta, rho)
    each = _each(asked, times, choices, 8.0 if noise == "gumbel" else 2.0, terms.adjacency)
    rate = _rate(Fraction(each) / (against * Fraction(positive("sensitivity", sensitivity))))
    grant = terms.charge(choices(each), asked.delta)
    if noise == "gumbel":
        found = leaders(numbers, rate, noise, times, grant.stream)
        return grant.release([names[place] for place in found])
    left = list(range(len(numbers)))
    chosen = [left.pop(winner(numbers[left], rate, noise, grant.stream)) for _ in range(times)]
    return grant.release([names[place] for place in chosen])


def _each(
    asked: Amount,
    times: int,
    choices: Callable[[float], Event],
    per_rho: float,
    adjacency: Adjacency,
) -> float:
    """The largest ε of each of several choices that together meet what was asked."""
    if asked.rho is not None:
        return math.sqrt(per_rho * asked.rho / times) * (1.0 - 2.0**-50)
    assert asked.epsilon is not None
    # Below ε/k by what a sum is rounded up by, so that a budget of just ε holds all of them.
    each = asked.epsilon / times * (1.0 if times == 1 else 1.0 - 2.0**-50)
    if asked.delta is None or times == 1:
        return each
    return max(each, calibrated(choices, asked, adjacency, guess=each))


def _largest(
    numbers: NDArray[Any],
    names: Sequence[Any],
    sensitivity: float,
    epsilon: float,
    noise: Law,
    monotone: bool,
    terms: ReleaseTerms,
) -> Released[Any]:
    scale = ratio_for(float(_against(monotone, terms.adjacency)), epsilon)
    event = NoisyMax(scale, noise, monotone, apart(terms.adjacency))
    rate = _rate(1 / (Fraction(scale) * Fraction(positive("sensitivity", sensitivity))))
    grant = terms.charge(event)
    return grant.release(names[winner(numbers, rate, noise, grant.stream)])


def _against(monotone: bool, adjacency: Adjacency) -> int:
    """How far neighbours can move one score against another, in sensitivities."""
    return 1 if flag("monotone", monotone) and adjacency != "replace-one" else 2


def _rate(rate: Fraction) -> Fraction:
    if not _LEAST < rate < 1 / _LEAST:
        raise InvalidArgument(
            "sensitivity must be such that epsilon/sensitivity lies between 1e-300 and 1e300; "
            "change the unit of the scores"
        )
    return rate


def _scores(
    scores: Any, candidates: Sequence[Any] | None
) -> tuple[NDArray[np.float64], Sequence[Any]]:
    """The scores, and what each stands for."""
    names: Sequence[Any]
    if isinstance(scores, Mapping):
        numbers, names = finite("scores", list(scores.values())), list(scores)
    else:
        numbers = finite("scores", scores)
        names = list(scores.index) if is_series(scores) else range(numbers.size)
    if numbers.ndim != 1 or numbers.size == 0:
        raise InvalidArgument(
            f"scores must be one number per candidate, got the shape {numbers.shape}"
        )
    if candidates is None:
        return numbers, names
    if isinstance(candidates, Mapping | AbstractSet):  # whose order is not that of the scores
        raise InvalidArgument(
            "candidates must be a list in the order of the scores, got "
            f"{type(candidates).__name__}; give a mapping of scores, or list(…)"
        )
    listed = list(candidates)  # by place: a Series is asked by label
    if len(listed) != len(numbers):
        raise InvalidArgument(
            f"candidates must be as many as the scores, {len(numbers)}, got {len(listed)}"
        )
    return numbers, listed
