"""How many runs, and of which candidates: drawn exactly, before the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit._validation import whole
from tacit.accounting.events import PoissonRuns
from tacit.randomness._expansions import Expansion, interval_arithmetic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.accounting.events import Runs, TruncatedNegativeBinomial
    from tacit.randomness import Stream


def draw_runs(runs: Runs, stream: Stream) -> int:
    """The number of runs.

    A uniform number of endless binary digits lies between two values of the distribution function;
    interval arithmetic finds them, drawing as many digits as that takes.

    Guarantee:
        The law is that of ``runs`` for the binary values of its parameters, exactly, if the
        stream's bytes are random. The time taken grows with the number.

    >>> from tacit.accounting.events import TruncatedNegativeBinomial
    >>> from tacit.randomness import UnsafeSeededStream
    >>> stream = UnsafeSeededStream(1, "runs")
    >>> [draw_runs(TruncatedNegativeBinomial(1.0, 0.2), stream) for _ in range(8)]
    [16, 7, 5, 6, 2, 4, 1, 4]
    """
    number = Expansion(int.from_bytes(stream.bytes(16), "little"), 128, stream)
    intervals = interval_arithmetic()
    while True:
        found = _place(number, runs, intervals)
        if found is not None:
            return found
        number.extend()


def _place(number: Expansion, runs: Runs, intervals: Any) -> int | None:
    """The first k with number < P(K ≤ k), or None if the digits leave that open."""
    intervals.prec = 64 + number.bits
    drawn = number.enclosed(intervals)
    total = intervals.mpf(0)
    for k, chance in _chances(runs, intervals):
        total += chance
        below = drawn < total
        if below is None:
            return None
        if below:
            return k
    raise AssertionError("the chances do not end")


def _chances(runs: Runs, intervals: Any) -> Iterator[tuple[int, Any]]:
    """The numbers of runs from the smallest on, each with an interval that holds its chance."""
    if isinstance(runs, PoissonRuns):
        mean = intervals.mpf(runs.mean)
        k, chance = 0, intervals.exp(-mean)
        while True:
            yield k, chance
            k += 1
            chance = chance * mean / k
    eta, kept = intervals.mpf(runs.eta), 1 - intervals.mpf(runs.gamma)
    k, chance = 1, _first_chance(runs, intervals)
    while True:
        yield k, chance
        chance = chance * kept * (k + eta) / (k + 1)
        k += 1


def _first_chance(runs: TruncatedNegativeBinomial, intervals: Any) -> Any:
    """P(K = 1): η(1-γ)/(γ^-η - 1), and (1-γ)/ln(1/γ) at η = 0."""
    gamma = intervals.mpf(runs.gamma)
    depth = -intervals.log(gamma)
    if runs.eta == 0.0:
        return (1 - gamma) / depth
    return runs.eta * (1 - gamma) / (intervals.exp(depth * runs.eta) - 1)


def draw_choices(count: int, among: int, stream: Stream) -> tuple[int, ...]:
    """``count`` independent numbers, each of 0 … among-1 equally likely, exactly.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> draw_choices(6, 3, UnsafeSeededStream(1, "choices"))
    (2, 0, 2, 1, 1, 0)
    """
    whole("among", among)
    return tuple(_below(among, stream) for _ in range(count))


def _below(among: int, stream: Stream) -> int:
    """A whole number below ``among``: numbers beyond its last multiple are drawn again."""
    end = (1 << 64) // among * among
    while True:
        drawn = int.from_bytes(stream.bytes(8), "little")
        if drawn < end:
            return drawn % among
