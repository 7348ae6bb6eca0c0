"""Exact random choices: coins, whole numbers, and races between noisy scores.

Noise is a function of a uniform number with endless binary digits. 64 of them decide, in float64,
wherever a guard far above its rounding errors leaves no doubt; else further digits are drawn and
interval arithmetic decides (``tacit.randomness.discrete``). So the laws are those of real noise,
exactly, and no outcome has a probability that floating point made up.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import numpy as np

from tacit.randomness.discrete import GUARD, Expansion, interval_arithmetic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from tacit.randomness import Stream

    Reals = NDArray[np.float64]


Law: TypeAlias = Literal["gumbel", "exponential", "laplace"]
_LATE = 1.0 - 2.0**-8  # where a float64 number's distance from 1 gets too coarse


def coins(
    near: float, chance: Callable[[Any], Any], count: int, stream: Stream
) -> NDArray[np.bool_]:
    """``count`` independent coins of one probability: ``near`` in float64, ``chance`` in intervals.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> stream = UnsafeSeededStream(0, "coins")
    >>> coins(0.36787944117144233, lambda intervals: intervals.exp(-1), 6, stream).tolist()
    [False, False, True, False, False, True]
    """
    words = _words(count, stream)
    gaps = near - words * 2.0**-64
    heads: NDArray[np.bool_] = gaps > 0
    for place in np.flatnonzero(np.abs(gaps) <= GUARD):
        heads[place] = _is_below(Expansion(int(words[place]), 64, stream), chance)
    return heads


def _is_below(number: Expansion, chance: Callable[[Any], Any]) -> bool:
    intervals = interval_arithmetic()
    while True:
        intervals.prec = 64 + number.bits
        decided = number.enclosed(intervals) < chance(intervals)
        if decided is not None:
            return bool(decided)
        number.extend()


def numbers_below(limit: int, count: int, stream: Stream) -> NDArray[np.int64]:
    """``count`` independent whole numbers, each of 0 … limit-1 equally likely.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> numbers_below(6, 5, UnsafeSeededStream(0, "dice")).tolist()
    [1, 2, 3, 3, 1]
    """
    even = np.uint64((1 << 64) - (1 << 64) % limit - 1)  # the largest word that favours none
    drawn = np.empty(0, dtype=np.uint64)
    while len(drawn) < count:
        words = _words(count - len(drawn), stream)
        drawn = np.concatenate([drawn, words[words <= even]])
    return (drawn % np.uint64(limit)).astype(np.int64)


def winner(
    scores: NDArray[Any],
    rate: Fraction,
    law: Law,
    stream: Stream,
    weights: NDArray[np.int64] | None = None,
) -> int:
    """The place of the largest of rate·score + noise, the noise independent and of scale 1.

    With Gumbel noise a place wins with probability ∝ weight·exp(rate·score).

    Guarantee:
        The law is that of real noise, for the binary values of scores and rate, if the stream's
        bytes are random and float64 logarithms are good to 100 units in the last place. There are
        no ties. The time taken depends on the draws.

    Args:
        scores: finite, float64 or int64; differences between int64 ones must fit.
        rate: exact.
        law: of the noise.
        stream: where the random bits come from.
        weights: positive, for Gumbel noise.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> winner(np.asarray([1.0, 9.0, 2.0]), Fraction(1), "gumbel", UnsafeSeededStream(0, "race"))
    1
    """
    return int(winners(scores, rate, law, 1, stream, weights)[0])


def winners(
    scores: NDArray[Any],
    rate: Fraction,
    law: Law,
    races: int,
    stream: Stream,
    weights: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """The winners of that many independent races between the same scores."""
    words = _words(races * len(scores), stream).reshape(races, len(scores))
    low, high = _ends(words, scores, rate, law, weights)
    in_reach = high >= low.max(axis=1, keepdims=True)
    won: NDArray[np.int64] = in_reach.argmax(axis=1)
    for race in np.flatnonzero(in_reach.sum(axis=1) > 1):
        rivals = np.flatnonzero(in_reach[race])
        won[race] = _Heights(words[race], scores, rate, law, stream, weights).largest(rivals)
    return won


def leaders(
    scores: NDArray[Any], rate: Fraction, law: Law, count: int, stream: Stream
) -> NDArray[np.int64]:
    """The places of the ``count`` largest of rate·score + noise, the largest first, in one race.

    Guarantee:
        As for ``winner``. With Gumbel noise it has the law of ``count`` races one after another,
        each among those that have not won yet (Durfee & Rogers 2019): the second of
        them, say, knows nothing of the first one's noise but that it was the largest.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> scores = np.asarray([1.0, 9.0, 5.0])
    >>> leaders(scores, Fraction(9), "gumbel", 2, UnsafeSeededStream(0, "race")).tolist()
    [1, 2]
    """
    words = _words(len(scores), stream)
    low, high = _ends(words, scores, rate, law, None)
    rivals = np.flatnonzero(high >= np.partition(low, -count)[-count])
    heights = _Heights(words, scores, rate, law, stream, None)

    def order(one: int, other: int) -> int:
        """-1 if ``one`` comes first."""
        if low[one] > high[other]:
            return -1
        if low[other] > high[one]:
            return 1
        return -1 if heights.largest([one, other]) == one else 1

    return np.asarray(sorted(rivals.tolist(), key=cmp_to_key(order))[:count], dtype=np.int64)


def _ends(
    words: NDArray[np.uint64],
    scores: NDArray[Any],
    rate: Fraction,
    law: Law,
    weights: NDArray[np.int64] | None,
) -> tuple[Reals, Reals]:
    """Below and above each noisy score, measured from the largest score."""
    low, high = _noise_ends(words, law)
    with np.errstate(over="ignore", invalid="ignore"):
        behind = (scores.max() - scores).astype(np.float64) * float(rate)
        extra = np.zeros(len(scores)) if weights is None else np.log(weights.astype(np.float64))
        guard = GUARD * (1.0 + behind + extra)
        low, high = (
            low + extra - behind - guard * (1.0 + np.abs(low)),
            high + extra - behind + guard * (1.0 + np.abs(high)),
        )
    low[np.isnan(low)] = -np.inf  # differences that overflow decide nothing
    high[np.isnan(high)] = np.inf
    return low, high


def _noise_ends(words: NDArray[np.uint64], law: Law) -> tuple[Reals, Reals]:
    """Below and above each noise, whose first digits the words are."""
    if law == "laplace":  # the lowest bit is the sign
        digits, bits = words >> np.uint64(1), 63
    else:
        digits, bits = words, 64
    first = digits * 2.0**-bits
    last = (digits.astype(np.float64) + 1.0) * 2.0**-bits
    with np.errstate(divide="ignore"):
        if law == "gumbel":  # -ln(-ln(1 - V)), which falls from ∞ to -∞
            early = np.minimum(last, _LATE)
            low = np.where(last >= _LATE, -np.inf, -np.log(-np.log1p(-early)))
            return low, -np.log(-np.log1p(-np.minimum(first, _LATE)))
        low, high = -np.log(last), -np.log(first)
    if law == "exponential":
        return low, high
    negative = words & np.uint64(1) == 1
    return np.where(negative, -high, low), np.where(negative, -low, high)


@final
class _Heights:
    """Noisy scores by as many digits as it takes to compare them; digits are drawn once."""

    def __init__(
        self,
        words: NDArray[np.uint64],
        scores: NDArray[Any],
        rate: Fraction,
        law: Law,
        stream: Stream,
        weights: NDArray[np.int64] | None,
    ) -> None:
        self._words, self._scores, self._weights = words, scores, weights
        self._rate, self._law, self._stream = rate, law, stream
        self._intervals: Any = None  # until it is needed, which is about never
        self._numbers: dict[int, Expansion] = {}

    def largest(self, places: Iterable[int]) -> int:
        """The place of the largest noisy score among ``places``."""
        if self._intervals is None:
            self._intervals = interval_arithmetic()
        rivals = [int(place) for place in places]
        best = Fraction(self._scores[rivals].max().item())
        while True:
            numbers = [self._number(place) for place in rivals]
            self._intervals.prec = 64 + max(number.bits for number in numbers)
            heights = [self._height(place, best) for place in rivals]
            lead = heights[0]
            for one in heights[1:]:
                lead = one if one.a > lead.a else lead
            rivals = [place for place, one in zip(rivals, heights, strict=True) if one.b >= lead.a]
            if len(rivals) == 1:
                return rivals[0]
            for place in rivals:
                self._number(place).extend()

    def _number(self, place: int) -> Expansion:
        if place not in self._numbers:
            bits = 63 if self._law == "laplace" else 64
            leading = int(self._words[place]) >> (64 - bits)
            self._numbers[place] = Expansion(leading, bits, self._stream)
        return self._numbers[place]

    def _height(self, place: int, best: Fraction) -> Any:
        behind = self._rate * (best - Fraction(self._scores[place].item()))
        total = _noise(self._number(place), self._law, int(self._words[place]), self._intervals)
        total -= self._intervals.mpf(behind.numerator) / self._intervals.mpf(behind.denominator)
        if self._weights is None:
            return total
        return total + self._intervals.log(int(self._weights[place]))


def _noise(number: Expansion, law: Law, word: int, intervals: Any) -> Any:
    uniform = number.enclosed(intervals)
    if law == "gumbel":
        return -intervals.log(-intervals.log(1 - uniform))
    size = -intervals.log(uniform)
    return -size if law == "laplace" and word & 1 else size


def _words(count: int, stream: Stream) -> NDArray[np.uint64]:
    return np.frombuffer(stream.bytes(8 * count), dtype=np.uint64)
