"""The sparse vector technique: many questions, of which only those answered "above" cost."""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, final

from tacit._validation import positive, whole
from tacit.accounting import events
from tacit.errors import InvalidArgument, ProtocolError
from tacit.mechanisms._records import finite
from tacit.mechanisms.release import Amount, agreed, amount, apart, calibrated
from tacit.randomness.discrete import GUARD, Expansion, interval_arithmetic
from tacit.randomness.streams import this_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.randomness import Stream


@final
class SparseVector:
    """Says of each query whether it lies above a threshold, with noise, until enough of them do.

    Above-threshold (Dwork et al. 2009) in the form of Lyu, Su & Li (2017), their Algorithm 7: the
    threshold's noise is drawn once, each query's for itself, and after ``cutoff`` answers "above"
    there are no more answers. Answers "below" are free. The whole is charged when it is made.

    Guarantee:
        If neighbours move no query by more than ``sensitivity``, all answers together are the
        release that ``event`` describes, with what was asked for, also when later queries are
        chosen by earlier answers. Noise is real-valued, and compared by as many binary digits as it
        takes. A query that is not a finite number is refused, and the refusal tells that. Only the
        process that made it is answered.

    Args:
        threshold: Public.
        sensitivity: How far neighbours move a query, by the adjacency.
        cutoff: After how many answers "above" it ends.
        epsilon: The ε asked for; Gaussian noise needs δ too.
        delta: The δ asked for.
        rho: The ρ of zCDP asked for, instead, with Laplace noise.
        noise: ``"laplace"`` or ``"gaussian"``, whose guarantee is by Rényi divergence (Zhu & Wang
            2020) and grows with ``length``.
        monotone: Whether a record moves all queries the same way, as it does counts.
        length: A public bound on the number of queries, needed for Gaussian noise and kept to.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> alarm = SparseVector(100, sensitivity=1, epsilon=1, stream=UnsafeSeededStream(0, "test"))
    >>> [alarm.above(count) for count in (20, 35, 180)], alarm.done
    ([False, False, True], True)
    """

    def __init__(
        self,
        threshold: float,
        *,
        sensitivity: float,
        cutoff: int = 1,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        noise: Literal["laplace", "gaussian"] = "laplace",
        monotone: bool = False,
        length: int | None = None,
        adjacency: Adjacency | None = None,
        unit: str | None = None,
        budget: Budget | None = None,
        label: str = "",
        stream: Stream | None = None,
    ) -> None:
        terms = agreed("SparseVector", adjacency, unit, budget, label, stream)
        self._threshold = Fraction(finite("threshold", threshold).item())
        self._moved = Fraction(positive("sensitivity", sensitivity))
        asked = amount(epsilon, delta, rho)
        frame = events.AboveThreshold(
            1.0, 1.0, whole("cutoff", cutoff), noise, monotone, length, apart(terms.adjacency)
        )
        self.event = _event(frame, asked, terms.adjacency)
        self._grant = terms.charge(self.event, asked.delta)
        self._home = this_process()
        self._lock = threading.Lock()
        self._noise = RealNoise(noise, self._grant.stream)
        self._asked = 0
        self._found = 0

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets are neighbours."""
        return self._grant.adjacency

    @property
    def unit(self) -> str:
        """Whom the guarantee protects."""
        return self._grant.unit

    @property
    def entry(self) -> int | None:
        """The number of the ledger's entry that charged it."""
        return self._grant.entry

    @property
    def left(self) -> int:
        """How many answers "above" are left."""
        return self.event.cutoff - self._found

    @property
    def done(self) -> bool:
        """Whether no query is answered any more."""
        return self.left == 0 or self._asked == self.event.length

    def above(self, query: float) -> bool:
        """Whether ``query``, with its noise, lies above the noisy threshold."""
        value = finite("query", query)
        if value.ndim != 0:
            raise InvalidArgument(f"query must be one number, got the shape {value.shape}")
        if self._home != this_process():
            raise ProtocolError(
                "a SparseVector answers in the process that made it: a forked one would answer "
                "again, uncharged; ask the parent, or make a new one"
            )
        with self._lock:
            if self.done:
                raise ProtocolError(
                    f"this sparse vector has ended after {self._asked} queries, {self._found} of "
                    "them above the threshold; make a new one, which is charged again"
                )
            self._asked += 1
            fresh = RealNoise(self.event.noise, self._grant.stream)
            found = is_positive(
                Fraction(value.item()) - self._threshold,
                [
                    (self._moved * Fraction(self.event.query_scale), fresh),
                    # The noise is symmetric, but it is one and the same threshold for all queries.
                    (-self._moved * Fraction(self.event.threshold_scale), self._noise),
                ],
            )
            self._found += found
            return found

    def __repr__(self) -> str:
        return f"SparseVector({self.event!r}, left={self.left})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a SparseVector cannot be copied or pickled: its copy would answer again, uncharged; "
            "make a new one"
        )


def _event(
    frame: events.AboveThreshold, asked: Amount, adjacency: Adjacency
) -> events.AboveThreshold:
    """The noise that meets what was asked, shared out between threshold and queries."""
    from tacit.accounting.black_boxes import moves  # noqa: PLC0415

    _, against = moves(frame, adjacency)
    if frame.noise == "gaussian":
        return _gaussian_event(frame, asked, against, adjacency)
    if asked.delta is not None:
        raise InvalidArgument("delta must be left out with Laplace noise, which needs none")
    return _laplace_event(frame, asked.pure_epsilon(), against, adjacency)


def _laplace_event(
    frame: events.AboveThreshold, epsilon: float, against: float, adjacency: Adjacency
) -> events.AboveThreshold:
    """ε₁ : ε₂ = 1 : (cutoff·against)^(2/3), the best of all (Lyu, Su & Li 2017, Section 4.2)."""
    from tacit.accounting.black_boxes import pure_loss  # noqa: PLC0415

    reach = frame.cutoff * against
    share = 1.0 / (1.0 + reach ** (2.0 / 3.0))
    wider = 1.0
    while True:
        event = _scaled(frame, wider / (epsilon * share), wider * reach / (epsilon * (1.0 - share)))
        loss = pure_loss(event, adjacency)
        assert loss is not None
        if loss <= epsilon:
            return event
        wider *= 1.0 + 2.0**-50


def _gaussian_event(
    frame: events.AboveThreshold, asked: Amount, against: float, adjacency: Adjacency
) -> events.AboveThreshold:
    """σ₂/σ₁ = (c·h²)^(1/4), h = ``against``: the least σ₁² + σ₂² at a given 1/σ₁² + c·h²/σ₂²."""
    if asked.epsilon is None or asked.delta is None:
        raise InvalidArgument("epsilon and delta must be given with Gaussian noise")
    ratio = math.sqrt(math.sqrt(frame.cutoff) * against)
    sigma = calibrated(
        lambda sigma: _scaled(frame, sigma, sigma * ratio),
        asked,
        adjacency,
        guess=10.0 / asked.epsilon,
        private=1.0,
    )
    return _scaled(frame, sigma, sigma * ratio)


def _scaled(
    frame: events.AboveThreshold, threshold_scale: float, query_scale: float
) -> events.AboveThreshold:
    return events.AboveThreshold(
        threshold_scale,
        query_scale,
        frame.cutoff,
        frame.noise,
        frame.monotone,
        frame.length,
        frame.replace_distance,
    )


# ---- real noise whose binary digits are drawn as a comparison asks for them


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
