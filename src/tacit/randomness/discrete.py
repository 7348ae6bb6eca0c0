"""Whole-number noise with exact laws, many draws at a time.

The discrete laws are those of Canonne, Kamath and Steinke, "The discrete Gaussian for differential
privacy" (2020). Every decision is taken in float64 where a guard leaves no doubt and by interval
arithmetic where it does (`_expansions`): the law is exact, the speed that of NumPy.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tacit.randomness.streams import Stream


LARGEST_DISCRETE = 2.0**55  # a draw is beyond int64 with probability exp(-256) at most
_LARGEST_ROUNDED = 2.0**45
_BLOCK = 1 << 14  # candidates at a time: what they need fits the cache
_FINE_BITS = 20  # of a large scale's draw that come out of the logarithm; those below are uniform
_EDGE = 2.0**-17


def discrete_laplace(scale: float, size: int, stream: Stream) -> NDArray[np.int64]:
    """``size`` independent whole numbers k with probability ∝ exp(-abs(k)/scale).

    ⌊-scale·ln U⌋ is geometric; with a random sign and -0 drawn again it has the law. Above a scale
    of 2²¹ the low bits are drawn uniformly and kept with probability exp(-low/scale).

    Guarantee:
        The law is exact, for the binary value of ``scale``, if the stream's bytes are random and
        float64 logarithm and exponential are good to 20 units in the last place. Added to a query
        of whole numbers with L1 sensitivity Δ it gives Δ/scale-DP. No draw is used twice. The time
        taken depends on the draws.

    Args:
        scale: positive, at most 2⁵⁵.
        size: how many.
        stream: where the random bits come from.

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> discrete_laplace(3.0, 8, UnsafeSeededStream(0, "noise")).tolist()
    [0, -10, 4, 1, -7, 1, -1, 1]
    """
    exact = _at_most("scale", scale, LARGEST_DISCRETE)
    return _collected(size, lambda count: _laplace_candidates(exact, count, stream))


def discrete_gaussian(sigma: float, size: int, stream: Stream) -> NDArray[np.int64]:
    """``size`` independent whole numbers k with probability ∝ exp(-k²/(2·sigma²)).

    Canonne, Kamath and Steinke 2020, algorithm 3: of a discrete Laplace number y with the whole
    scale t = ⌊sigma⌋ + 1, keep it with probability exp(-(abs(y) - sigma²/t)²/(2·sigma²)).

    Guarantee:
        The law is exact, for the binary value of ``sigma``, under the conditions of
        `discrete_laplace`. Added to a query of whole numbers with L2 sensitivity Δ it gives
        ½(Δ/sigma)²-zCDP (theorem 4 there), but not more than that: its privacy curve is not below
        the continuous Gaussian's everywhere. `RoundedGaussian` has that one's curve.

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> discrete_gaussian(3.0, 8, UnsafeSeededStream(0, "noise")).tolist()
    [-1, 0, 6, 1, 1, -1, 1, 1]
    """
    exact = _at_most("sigma", sigma, LARGEST_DISCRETE)
    return _collected(size, lambda count: _gaussian_candidates(exact, count, stream))


def rounded_laplace(scale: float, size: int, stream: Stream) -> NDArray[np.int64]:
    """``size`` independent real Laplace numbers of this scale, rounded to the nearest whole ones.

    Guarantee:
        The law is exact under the conditions of `discrete_laplace`. Added to whole numbers it is
        the real Laplace mechanism's output, rounded, and so has the real one's privacy curve.
        (`discrete_laplace` has its ε, but for smaller ε a larger δ: with sensitivity 1 it is
        randomised response.) The share of draws that interval arithmetic decides, in 0.1 ms each,
        is about scale·2⁻⁴³.

    Args:
        scale: positive, at most 2⁴⁵.
        size: how many.
        stream: where the random bits come from.

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> rounded_laplace(3.0, 8, UnsafeSeededStream(0, "noise")).tolist()
    [-1, 1, -11, 5, 1, -7, 0, 0]
    """
    exact = _at_most("scale", scale, _LARGEST_ROUNDED)

    def draw(count: int) -> NDArray[np.int64]:
        words = _words(count, stream)
        return _signed(_exponential(exact, 0.5, words, stream), words)

    return _collected(size, draw)


def _at_most(name: str, value: float, largest: float) -> float:
    if positive(name, value) > largest:
        power = int(math.log2(largest))
        raise InvalidArgument(
            f"{name} must be at most 2**{power}, got {value!r}: int64 holds those"
        )
    return float(value)


def _collected(size: int, draw: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64]:
    """The first ``size`` numbers of as many draws as that takes."""
    missing = whole("size", size, at_least=0)
    parts = [np.empty(0, dtype=np.int64)]
    while missing:
        parts.append(draw(min(_BLOCK, missing + missing // 2 + 16))[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts)


def _gaussian_candidates(sigma: float, count: int, stream: Stream) -> NDArray[np.int64]:
    scale = math.floor(sigma) + 1.0  # above 2⁵³ a neighbour of it: any whole scale gives the law
    drawn = _laplace_candidates(scale, count, stream)

    def chance(place: int, intervals: Any) -> Any:
        wide = intervals.mpf(sigma)
        away = (abs(int(drawn[place])) - wide * wide / intervals.mpf(scale)) / wide
        return intervals.exp(-away * away / 2)

    # The error of the chance is at most that of (y/σ)² times exp(-(y/σ)²/2): some 2⁻⁵⁰.
    with np.errstate(over="ignore"):  # of a tiny σ: the chance is 0 then
        away = np.abs(drawn) / sigma - sigma / scale
        chances = np.exp(-0.5 * away * away)
    return drawn[_happens(chances, chance, stream)]


def _laplace_candidates(scale: float, count: int, stream: Stream) -> NDArray[np.int64]:
    low_bits = max(0, math.frexp(scale)[1] - 1 - _FINE_BITS)
    words = _words(count, stream)
    sizes = _exponential(math.ldexp(scale, -low_bits), 0.0, words, stream)
    if low_bits:
        low = (_words(count, stream) >> np.uint64(64 - low_bits)).astype(np.int64)

        def chance(place: int, intervals: Any) -> Any:
            return intervals.exp(-intervals.mpf(int(low[place])) / intervals.mpf(scale))

        kept = _happens(np.exp(low / -scale), chance, stream)
        sizes, words = ((sizes << low_bits) + low)[kept], words[kept]
    kept = (sizes > 0) | (words & np.uint64(1) == 0)  # 0 has one sign, not two
    return _signed(sizes[kept], words[kept])


def _signed(sizes: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The word's lowest bit is the sign."""
    signs = (words & np.uint64(1)).astype(np.int64)
    return (sizes ^ -signs) + signs


def _exponential(
    scale: float, shift: float, words: NDArray[np.uint64], stream: Stream
) -> NDArray[np.int64]:
    """⌊-scale·ln U + shift⌋, where a word's upper 63 bits are the first digits of U.

    With U ≥ ``edge`` the logarithm is good to GUARD/2: 2⁻⁴⁶ come from the digits not yet drawn,
    12·2⁻⁵¹ from float64.
    """
    digits = words >> np.uint64(1)
    uniform = digits.view(np.int64) * 2.0**-63 + 2.0**-64
    reals = np.log(uniform) * -scale + shift
    nearest = np.rint(reals)
    # No number is below 0: next to a whole number above that lies the only doubt.
    doubtful = (np.abs(reals - nearest) <= scale * GUARD) & (nearest > 0) | (uniform < _EDGE)
    sizes: NDArray[np.int64] = reals.astype(np.int64)
    places = np.flatnonzero(doubtful)
    if len(places):
        intervals = interval_arithmetic()
        for place in places:
            number = Expansion(int(digits[place]), 63, stream)
            sizes[place] = _whole_exponential(scale, shift, number, intervals)
    return sizes


def _whole_exponential(scale: float, shift: float, number: Expansion, intervals: Any) -> int:
    def value() -> list[Any]:
        return [shift - scale * intervals.log(number.enclosed(intervals))]

    return whole_parts(value, (number,), intervals)[0]


def _happens(
    chances: NDArray[np.float64], exact: Callable[[int, Any], Any], stream: Stream
) -> NDArray[np.bool_]:
    """Independent coins of these chances; ``exact`` encloses the chance at a place."""
    digits = _words(len(chances), stream) >> np.uint64(1)
    gaps = chances - digits.view(np.int64) * 2.0**-63
    happens: NDArray[np.bool_] = gaps > 0
    places = np.flatnonzero(np.abs(gaps) <= GUARD)
    if len(places):
        intervals = interval_arithmetic()
        for place in places:
            number = Expansion(int(digits[place]), 63, stream)
            happens[place] = _is_below(number, partial(exact, int(place), intervals), intervals)
    return happens


def _is_below(number: Expansion, chance: Callable[[], Any], intervals: Any) -> bool:
    """Whether the number is below the chance: ⌊chance - number⌋ is then 0, and else -1."""
    gap = whole_parts(lambda: [chance() - number.enclosed(intervals)], (number,), intervals)
    return gap[0] == 0


def _words(count: int, stream: Stream) -> NDArray[np.uint64]:
    return np.frombuffer(stream.bytes(8 * count), dtype=np.uint64)


# ---- decisions on real numbers of which only the first binary digits have been drawn
#
# A uniform number has endless digits, but a decision about it needs few. The samplers draw 64,
# decide in floating point wherever a guard far above the rounding errors leaves no doubt, and
# bring the others here: the number becomes an interval, and digits are drawn until interval
# arithmetic decides. The law of the outcome is that of the endless number, exactly.


GUARD: Final = 2.0**-44
"""How far from a decision's edge a float64 value of order 1 must lie to be trusted.

It is 256 times the spacing of such numbers, for elementary functions that are good to a few
spacings (SLEEF, MKL and CUDA state 1 to 2); it leaves one decision in 10¹³ open.
"""


@final
class Expansion:
    """A uniform number in [0, 1) whose first ``bits`` binary digits are those of ``leading``."""

    __slots__ = ("_leading", "_stream", "bits")

    def __init__(self, leading: int, bits: int, stream: Stream) -> None:
        self._leading = leading
        self._stream = stream
        self.bits = bits

    def extend(self) -> None:
        """Draws 64 more digits."""
        self._leading = self._leading << 64 | int.from_bytes(self._stream.bytes(8), "little")
        self.bits += 64

    def enclosed(self, intervals: Any) -> Any:
        """The interval of all numbers that begin with these digits."""
        ends = [intervals.mpf(self._leading), intervals.mpf(self._leading + 1)]
        return intervals.mpf(ends) / intervals.mpf(1 << self.bits)


def interval_arithmetic() -> Any:
    """A context of mpmath's interval arithmetic that nobody else sets the precision of."""
    from mpmath.ctx_iv import MPIntervalContext  # noqa: PLC0415 - about never needed

    return MPIntervalContext()


def whole_parts(
    values: Callable[[], Sequence[Any]], unfinished: Sequence[Expansion], intervals: Any
) -> list[int]:
    """⌊v⌋ of every value v, drawing as many digits as that takes.

    ``values`` computes them in ``intervals`` from the ``unfinished`` numbers. No value may be a
    whole number but with probability 0, or digits would be drawn for ever.
    """
    while True:
        intervals.prec = 64 + max(number.bits for number in unfinished)
        ends = [_whole_ends(value) for value in values()]
        if all(low is not None and low == high for low, high in ends):
            return [low for low, _ in ends if low is not None]
        for number in unfinished:
            number.extend()


def _whole_ends(interval: Any) -> tuple[int | None, int | None]:
    from mpmath import libmp  # noqa: PLC0415

    def floor(end: tuple[int, int, int, int]) -> int | None:
        infinite = end in {libmp.finf, libmp.fninf, libmp.fnan}
        return None if infinite else int(libmp.to_int(end, libmp.round_floor))

    low, high = interval._mpi_
    return floor(low), floor(high)
