"""Sparse-vector PATE: the crowd's plurality exactly, for as long as the crowd is stable.

Bassily, Thakkar & Thakurta (2018), Liu, Zhu, Chaudhuri & Wang (2020): a query whose winner would
stay the winner if some votes moved costs nothing. Its *distance to instability* is how many
teachers may change their vote without another class winning or tying,

    d = max(0, ⌈(n_1 - n_2)/2⌉ - 1),

where n_1 ≥ n_2 are the two largest counts. Above-threshold (Dwork et al. 2009; Lyu, Su & Li 2017,
Algorithm 7) asks whether d exceeds w, with noise b₁ on w and b₂ on d. While it does, the winner is
released without noise. A query that is found unstable gets no label and ends a *round*: the
threshold's noise is drawn again, and after ``cutoff`` unstable queries the run is over.

What it costs:

1. Which queries are stable. One record moves one vote, so n_1 - n_2 by at most 2 and d by at most
   1, for each adjacency. A round is above-threshold with cutoff 1 on the queries -d.
2. The labels. If neighbours have different winners at some query, one vote moved that lead across
   0: each of them has n_1 - n_2 ≤ 2 there, so d = 0. Unless a query with d = 0 is found stable, the
   labels are therefore the same for both neighbours, and tell nothing that 1 does not. Query j
   with d = 0 is found stable if its noise b₂·ν_j exceeds w + b₁·ρ, ρ that of its round, whatever
   was asked before and why. Given all T rounds' noises that has a chance of at most p(min ρ),
   p(ρ) = P(b₂·ν > w + b₁·ρ), and over k queries

       δ_s = 1 - E[(1 - p(min ρ))^k].

   (Bounding each noise by its own tail, as is usual, asks for a threshold half as high again.)
3. Both. Let (P, Q) dominate 1, with total variation at most t. At each e^ε ≥ 1 the hockey-stick
   divergence of a run is at most that of (P, Q) plus δ_s, which is at most δ' + (1-δ')·H(P, Q) for
   δ' = δ_s/(1-t): a run is dominated by 1 composed with a release that fails with probability δ'.
   (For e^ε < 1 the same with the neighbours exchanged.) Adding δ_s alone to 1 would be right for
   one (ε, δ), but not where the run is composed with other releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.optimize import brentq

from tacit._validation import open_probability, positive, whole
from tacit.accounting.events import ApproxDp, Composed, Repeated
from tacit.errors import InvalidArgument
from tacit.mechanisms import SparseVector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import AboveThreshold
    from tacit.randomness import Stream
    from tacit.transfer.votes import Votes

    Array = NDArray[np.float64]


_FAILURE_SHARE = 0.1  # of δ, for the labels; the threshold grows with its logarithm only


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StableMax:
    """The public numbers of sparse-vector PATE.

    Args:
        threshold: w, in votes that may move.
        epsilon: The ε of one round, which is shared out between b₁ and b₂.
        cutoff: After how many unstable queries a run ends.

    >>> StableMax(threshold=100, epsilon=1.0, cutoff=3).failure(queries=500) < 1e-9
    True
    """

    threshold: float
    epsilon: float
    cutoff: int

    def __post_init__(self) -> None:
        positive("threshold", self.threshold)
        positive("epsilon", self.epsilon)
        whole("cutoff", self.cutoff)

    @classmethod
    def for_budget(cls, epsilon: float, delta: float, *, queries: int, cutoff: int) -> StableMax:
        """The lowest threshold and least noise at which a whole run meets (ε, δ).

        >>> setting = StableMax.for_budget(2.0, 1e-5, queries=300, cutoff=2)
        >>> round(setting.threshold, 1), round(setting.epsilon, 4)
        (68.3, 1.0)
        """
        from tacit.accounting import calibrate  # noqa: PLC0415 - SciPy

        share, rounds = _FAILURE_SHARE * open_probability("delta", delta), whole("cutoff", cutoff)

        def event(each: float) -> Composed:
            return event_of(each, rounds, share)

        each = calibrate(event, positive("epsilon", epsilon), delta, guess=epsilon / rounds)
        each *= 1.0 - 1e-9  # so that a budget of just (ε, δ) holds it, whatever rounding does
        return cls.for_failure(share, epsilon=each, queries=queries, cutoff=rounds)

    @classmethod
    def for_failure(cls, failure: float, *, epsilon: float, queries: int, cutoff: int) -> StableMax:
        """The lowest threshold at which the labels of a run cost no more δ than ``failure``.

        Args:
            failure: The δ of the ``ApproxDp`` in what is declared.
            epsilon: The ε of one round.
            queries: How many a run has at most.
            cutoff: After how many unstable queries it ends.

        >>> setting = StableMax.for_failure(1e-6, epsilon=1.0, queries=300, cutoff=2)
        >>> round(setting.threshold, 1), setting.declared(queries=300).events[1].delta <= 1e-6
        (68.3, True)
        """
        one, rounds, asked = _round(epsilon), whole("cutoff", cutoff), whole("queries", queries)
        share = open_probability("failure", failure) * (1.0 - _total_variation(epsilon, rounds))
        if share <= 0.0:
            raise InvalidArgument(
                f"epsilon of a round must be smaller, or cutoff: at epsilon={epsilon:g} and "
                f"cutoff={rounds} the rounds alone promise nothing"
            )
        if share <= _failure(one, math.inf, rounds, asked):
            raise InvalidArgument(f"failure must be larger, or delta, got {failure!r}")
        goal = math.log(share)

        def excess(threshold: float) -> float:
            return math.log(_failure(one, threshold, rounds, asked)) - goal

        most = one.query_scale
        while excess(most) > 0.0:
            most *= 2.0
        found = brentq(excess, 0.0, most, rtol=1e-9)
        return cls(threshold=found * (1.0 + 1e-8), epsilon=epsilon, cutoff=rounds)

    @property
    def round(self) -> AboveThreshold:
        """What one round tells of which queries are stable."""
        return _round(self.epsilon)

    def failure(self, queries: int) -> float:
        """δ_s: a bound on the chance that a label is released which neighbours need not share."""
        return _failure(self.round, self.threshold, self.cutoff, whole("queries", queries))

    def declared(self, *, queries: int) -> Composed:
        """What is charged for a run, whatever the votes.

        Guarantee:
            A run of at most ``queries`` queries, chosen as the answers come, tells no more than
            this event. It holds for each adjacency: a record only ever moves one vote a query.
        """
        certain = 1.0 - _total_variation(self.epsilon, self.cutoff)
        failure = self.failure(queries) / certain if certain > 0.0 else 1.0
        if failure >= 1.0:
            raise InvalidArgument(
                f"threshold must be higher than {self.threshold!r}: at {queries} queries nothing "
                "is promised; StableMax.for_budget finds one"
            )
        return event_of(self.epsilon, self.cutoff, failure)


def distances(votes: Votes) -> NDArray[np.int64]:
    """How many votes may move on each query without another class winning or tying. Private.

    >>> from tacit.transfer.votes import Votes
    >>> distances(Votes(np.array([[9, 1, 0], [6, 3, 1], [6, 4, 0], [5, 5, 0]]))).tolist()
    [3, 1, 0, 0]
    """
    result: NDArray[np.int64] = np.maximum(0, (votes.gaps()[:, 0] + 1) // 2 - 1)
    return result


def opened(setting: StableMax, stream: Stream) -> SparseVector:
    """A round: ``above(-d)`` says whether a query is unstable, and ends it if so."""
    return SparseVector(
        -setting.threshold,
        sensitivity=1.0,
        epsilon=setting.epsilon,
        adjacency="replace-one",
        stream=stream,
    )


def event_of(epsilon: float, cutoff: int, failure: float) -> Composed:
    """What a run is charged whose rounds have this ε and whose labels cost ``failure``, a δ."""
    return Composed(Repeated(_round(epsilon), cutoff), ApproxDp(0.0, failure))


def covering_event(epsilon: float, cutoff: int, failure: float) -> Repeated:
    """One kind of event that covers ``event_of``, for a claim that is simple to check.

    A round is ε-private, and ``cutoff`` of them that each fail with 1 - (1 - failure)^(1/cutoff)
    fail with ``failure`` in all.
    """
    each = -math.expm1(math.log1p(-open_probability("failure", failure)) / cutoff)
    return Repeated(ApproxDp(epsilon, each * (1.0 + 1e-12)), cutoff)


def round_epsilon(scale: float) -> float:
    """The ε of a round in which Laplace noise of this scale, in votes, is added to each distance.

    >>> round(round_epsilon(3.26), 4)
    1.0
    """
    return _round(1.0).query_scale / positive("scale", scale)


def _round(epsilon: float) -> AboveThreshold:
    """b₁ and b₂ as the mechanism shares them out; a record moves d by 1 for each adjacency."""
    mechanism = SparseVector(0.0, sensitivity=1.0, epsilon=epsilon, adjacency="replace-one")
    return replace(mechanism.event, replace_distance=1.0)


def _failure(event: AboveThreshold, threshold: float, rounds: int, queries: int) -> float:
    """1 - E[(1 - p(min ρ))^k], as a sum over cells of ρ that is no less: p falls with ρ."""
    rho = np.linspace(-200.0, 40.0, 96_001)
    passing = _tail((threshold + event.threshold_scale * rho) / event.query_scale)
    with np.errstate(divide="ignore"):  # ln(1 - 1)
        below = -np.expm1(rounds * np.log1p(-_tail(-rho)))  # P(min ρ ≤ this)
        any_of_them = -np.expm1(queries * np.log1p(-passing))
    inside = float(any_of_them[:-1] @ np.diff(below))
    return min(1.0, (float(below[0]) + inside + float(any_of_them[-1])) * (1.0 + 1e-9))


def _tail(x: Array) -> Array:
    """P(ν > x) for Laplace noise of scale 1."""
    half = 0.5 * np.exp(-np.abs(x))
    return np.where(x > 0.0, half, 1.0 - half)


def _total_variation(epsilon: float, rounds: int) -> float:
    from tacit.accounting import delta  # noqa: PLC0415 - SciPy

    return delta(Repeated(_round(epsilon), rounds), 0.0)
