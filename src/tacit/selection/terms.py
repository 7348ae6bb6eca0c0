"""What one run may release, so that the search as a whole meets (ε, δ); and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from tacit._validation import open_probability, positive, whole
from tacit.accounting.accountants.composition import steps_of, sum_of
from tacit.accounting.black_boxes import concrete, promise_of
from tacit.accounting.calibration import calibrate
from tacit.accounting.events import (
    ApproxDp,
    BlackBox,
    Event,
    PoissonRuns,
    PrivateSelection,
    PureDp,
    check_adjacency,
    check_event,
)
from tacit.accounting.questions import epsilon as epsilon_of
from tacit.errors import InvalidArgument, Uncalibratable
from tacit.randomness.discrete import Expansion, interval_arithmetic
from tacit.selection.scores import PrivateScore, with_score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tacit.accounting.events import Adjacency, Runs, TruncatedNegativeBinomial
    from tacit.randomness import Stream
    from tacit.selection.scores import Score

    Family = Callable[[float], Event]


@final
@dataclass(frozen=True, slots=True)
class Allowance:
    """What a training function may release in one run.

    Attributes:
        event: The event that the run must keep to (without its score).
        epsilon: Its ε at ``delta``.
        delta: The δ of one run; 0 if the run must be purely private.
        noise: The parameter at which the family of events meets the budget; None without one.
    """

    event: Event
    epsilon: float
    delta: float
    noise: float | None = None


@final
@dataclass(frozen=True, slots=True)
class SearchTerms:
    """The event of a whole search, and each run's allowance."""

    event: PrivateSelection
    allowance: Allowance
    epsilon: float
    delta: float
    adjacency: Adjacency

    @property
    def single(self) -> float:
        """The ε that one run with its score has at ``delta``: what not tuning would cost."""
        return epsilon_of(self.event.base, self.delta, adjacency=self.adjacency)


def settle(
    runs: Runs,
    score: Score,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    event: Event | Family | None,
    *,
    pure: bool = False,
) -> SearchTerms:
    """Finds what each run may release; ``pure`` runs get no δ of their own.

    Guarantee:
        A search whose runs keep to the allowance is (ε, δ)-differentially private, for the
        ``epsilon`` and ``delta`` given.
    """
    limit, failure = positive("epsilon", epsilon), open_probability("delta", delta)
    check_adjacency(adjacency)
    if event is None:
        return _by_share(runs, score, limit, failure, adjacency, pure=pure)
    if callable(event):
        return _by_noise(runs, score, limit, failure, adjacency, event)
    check_event(event)
    return _terms(runs, score, limit, failure, adjacency, event, None)


def _by_noise(
    runs: Runs, score: Score, epsilon: float, delta: float, adjacency: Adjacency, family: Family
) -> SearchTerms:
    """The noise at which the whole search just meets (ε, δ)."""
    if isinstance(score, PrivateScore):
        alone = epsilon_of(PrivateSelection(score.event, runs), delta, adjacency=adjacency)
        if alone >= epsilon:
            raise Uncalibratable(
                f"score must leave something for training: choosing by it alone has epsilon="
                f"{alone:.6g}; add noise to it, or take fewer runs"
            )

    def whole_search(noise: float) -> Event:
        return PrivateSelection(with_score(check_event(family(noise)), score), runs)

    noise = _calibrated(whole_search, epsilon, delta, adjacency)
    return _terms(runs, score, epsilon, delta, adjacency, family(noise), noise)


def _by_share(
    runs: Runs, score: Score, epsilon: float, delta: float, adjacency: Adjacency, *, pure: bool
) -> SearchTerms:
    """An (ε₀, δ₀) for each run with its score, of which nothing else is known.

    The search fails E[K] times as often as a run: δ₀ is δ over E[K].
    """
    failure = (1.0 - 1e-9) * delta / max(1.0, runs.mean)
    taken = _pair_of_score(score, 0.5 * failure, adjacency)
    own = 0.0 if pure else failure - taken[1]

    def one_run(share: float) -> Event:
        return _promised(share, own + taken[1], adjacency)

    share = _calibrated(lambda x: PrivateSelection(one_run(x), runs), epsilon, delta, adjacency)
    left = share - taken[0]
    if left <= 0.0:
        raise Uncalibratable(
            f"score must leave something for training: a run has epsilon={share:.6g}, and the "
            f"score takes {taken[0]:.6g}; add noise to it, or take fewer runs"
        )
    whole_search = PrivateSelection(one_run(share), runs)
    allowance = _allowance(_promised(left, own, adjacency), 0.0, adjacency)
    cost = epsilon_of(whole_search, delta, adjacency=adjacency)
    return SearchTerms(whole_search, allowance, cost, delta, adjacency)


def _promised(epsilon: float, delta: float, adjacency: Adjacency) -> PureDp | ApproxDp:
    """What a run keeps to, named: it says nothing as strong of other neighbours."""
    return PureDp(epsilon, adjacency) if delta == 0.0 else ApproxDp(epsilon, delta, adjacency)


def _pair_of_score(score: Score, delta: float, adjacency: Adjacency) -> tuple[float, float]:
    """The ε and δ that a score takes of a run: no δ if it can do without."""
    if not isinstance(score, PrivateScore):
        return 0.0, 0.0
    steps = steps_of(score.event, adjacency, "basic")
    if not steps.free and steps.least == 0.0 and steps.truncation == 0.0:
        return sum_of(steps, 0.0), 0.0
    return epsilon_of(score.event, delta, adjacency=adjacency), delta


def _calibrated(
    whole_search: Callable[[float], Event], epsilon: float, delta: float, adjacency: Adjacency
) -> float:
    try:
        return calibrate(whole_search, epsilon, delta, adjacency=adjacency)
    except Uncalibratable as refusal:
        raise Uncalibratable(
            f"event must be able to meet epsilon={epsilon!r}, delta={delta!r} with these runs: "
            f"allow more, or fewer runs ({refusal})"
        ) from None


def _terms(
    runs: Runs,
    score: Score,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    event: Event,
    noise: float | None,
) -> SearchTerms:
    whole_search = PrivateSelection(with_score(event, score), runs)
    cost = epsilon_of(whole_search, delta, adjacency=adjacency)
    if not cost <= epsilon:
        raise InvalidArgument(
            f"event must let the search meet epsilon={epsilon!r}, got {event!r} with which it has "
            f"{cost:.6g}; add noise, or give a function from noise to event to have it found"
        )
    allowance = _allowance(event, delta / max(1.0, runs.mean), adjacency, noise)
    return SearchTerms(whole_search, allowance, cost, delta, adjacency)


def _allowance(
    event: Event, delta: float, adjacency: Adjacency, noise: float | None = None
) -> Allowance:
    promise = promise_of(concrete(event, adjacency)) if isinstance(event, BlackBox) else None
    if promise is not None:
        return Allowance(event, promise.epsilon, promise.delta, noise)
    return Allowance(event, epsilon_of(event, delta, adjacency=adjacency), delta, noise)


# ---- how many runs, and of which candidates: drawn exactly, before the first of them


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
