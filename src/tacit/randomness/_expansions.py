"""Decisions on real numbers of which only the first binary digits have been drawn.

A uniform number has endless digits, but a decision about it needs few. The samplers draw 64, decide
in floating point wherever a guard far above the rounding errors leaves no doubt, and bring the
others here: the number becomes an interval, and digits are drawn until interval arithmetic decides.
The law of the outcome is that of the endless number, exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.randomness.streams import Stream

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
