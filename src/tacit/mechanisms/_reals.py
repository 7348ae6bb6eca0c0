"""Real noise whose binary digits are drawn as a comparison asks for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

from tacit.randomness._expansions import GUARD, Expansion, interval_arithmetic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from tacit.randomness import Stream

Law: TypeAlias = Literal["laplace", "gaussian"]
_EDGE = 2.0**-17
_LARGEST = 2**1000


@final
class RealNoise:
    """One Laplace number of scale 1, or one standard normal number (Box & Muller 1958).

    ``near`` is it to within ``doubt``·(1 + abs(near)); ``enclosed`` holds it exactly, and the more
    tightly the more digits it was extended by.
    """

    __slots__ = ("_law", "_numbers", "_sign", "doubt", "near")

    def __init__(self, law: Law, stream: Stream) -> None:
        word = int.from_bytes(stream.bytes(8), "little")
        self._law = law
        self._sign = -1 if word & 1 else 1
        self._numbers = [Expansion(word >> 1, 63, stream)]
        uniform = ((word >> 1) + 0.5) * 2.0**-63
        self.doubt = GUARD if _EDGE < uniform < 1.0 - _EDGE else math.inf
        size = -math.log(uniform)
        if law == "gaussian":
            turn = int.from_bytes(stream.bytes(8), "little")
            self._numbers.append(Expansion(turn, 64, stream))
            size = math.sqrt(2.0 * size) * math.cos(2.0 * math.pi * (turn * 2.0**-64))
        self.near = self._sign * size

    @property
    def bits(self) -> int:
        """How many digits are known."""
        return self._numbers[0].bits

    def extend(self) -> None:
        """Draws further digits."""
        for number in self._numbers:
            number.extend()

    def enclosed(self, intervals: Any) -> Any:
        """The interval of all numbers with these digits."""
        size = -intervals.log(self._numbers[0].enclosed(intervals))
        if self._law == "gaussian":
            turn = 2 * intervals.pi * self._numbers[1].enclosed(intervals)
            size = intervals.sqrt(2 * size) * intervals.cos(turn)
        return self._sign * size


def is_positive(gap: Fraction, noises: Sequence[tuple[Fraction, RealNoise]]) -> bool:
    """Whether gap + Σ scale·noise is above 0, decided by as many digits as that takes.

    Guarantee:
        The decision is that of real noise, exactly, if float64 functions are good to 40 units in
        the last place.

    >>> from fractions import Fraction
    >>> from tacit.randomness import UnsafeSeededStream
    >>> noise = RealNoise("laplace", UnsafeSeededStream(0, "noise"))
    >>> is_positive(Fraction(50), [(Fraction(2), noise)])
    True
    """
    if abs(gap) < _LARGEST and all(abs(scale) < _LARGEST for scale, _ in noises):
        parts = [(float(scale), noise) for scale, noise in noises]
        near = float(gap) + math.fsum(scale * noise.near for scale, noise in parts)
        doubt = GUARD * abs(float(gap))
        doubt += math.fsum(
            abs(scale) * noise.doubt * (1.0 + abs(noise.near)) for scale, noise in parts
        )
        if abs(near) > 2.0 * doubt:
            return near > 0.0
    return _decided(gap, noises)


def _decided(gap: Fraction, noises: Sequence[tuple[Fraction, RealNoise]]) -> bool:
    intervals = interval_arithmetic()

    def ratio(number: Fraction) -> Any:
        return intervals.mpf(number.numerator) / intervals.mpf(number.denominator)

    while True:
        intervals.prec = 64 + max(noise.bits for _, noise in noises)
        total = ratio(gap)
        for scale, noise in noises:
            total += ratio(scale) * noise.enclosed(intervals)
        positive = total > 0
        if positive is not None:
            return bool(positive)
        for _, noise in noises:
            noise.extend()
