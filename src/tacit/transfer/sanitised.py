"""The data-dependent claim: what a run cost given how the teachers agreed, told with noise.

The charge holds for every possible vote. Where teachers agree, answers cost far less, but how much
less is itself private. This module tells an upper bound on that cost, once, with noise, and says
what can be claimed from what was told, the telling included.

What is told. Let R be the cost of the answers at one Rényi order α: the sum of ``likely_outcome``'s
bound over them, as a staircase in the votes (``smooth_sensitivity``). Let

    B = max_d e^{-βd}·(the largest R of any votes within d records)        (β = ``smoothness``).

B is at least R, and is a β-smooth bound (Nissim, Raskhodnikova & Smith 2007, Definition 2.1): its
logarithm moves by at most β when one record changes. So ln B + β·τ·N(0, 1) is a plain Gaussian
release with the noise multiplier τ. (Papernot et al. 2018 tell R itself with noise of its smooth
sensitivity. The scale of that noise is private, so that no bound on R follows from what was told,
and the telling costs more.)

What is claimed. Write L for the privacy loss of all that was told, this included, against any
neighbour, R' = R + (the screenings' cost) + α/(2τ²), and U' for the same with
U = exp(told + β·τ·z) in the place of R. Each release's divergence is known before it is drawn, from
the votes and earlier outcomes: E e^{(α-1)(L-R')} ≤ 1 (as for ``tacit.accounting.RenyiFilter``), so
that E (1 - e^{R'+c-L})₊ ≤ δ' for the c by which order α converts to δ'. U < R has a probability
of η = Φc(z) at most. With ε = U' + c, a function of what was told, and δ = δ' + η

    P(S) ≤ ∫_S e^ε dQ + δ    for every set S of outcomes and all neighbours, either of them P:

(ε, δ)-privacy in which ε is read off the outcome (ex-post privacy; Ligett et al. 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.special import ndtri

from tacit._validation import open_probability, positive
from tacit.accounting.events import Gaussian, RenyiCurve
from tacit.errors import InvalidArgument
from tacit.mechanisms import gaussian
from tacit.transfer.answers import Answers
from tacit.transfer.one_order import screening_rdp, tight_staircase
from tacit.transfer.smooth_sensitivity import largest_costs, smooth_sensitivity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.randomness import Stream
    from tacit.transfer.aggregators import ConfidentGNMax, GNMax
    from tacit.transfer.votes import Votes

FAILURE_SHARE = 0.1  # of δ, for an upper bound that turns out to be none
_LEAST = 1e-9  # of B, so that it has a logarithm
_ROUNDING = 1e-9  # of the logarithm, in float64
_WIDER = 1.0 + 2.0**-9  # more than what the grid widens the noise by, and rounds, in deviations


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitised:
    """What was told of a run's data-dependent cost, and what can be claimed from it.

    Guarantee:
        All that a labelling run and this told is (ε, δ)-private with the ε that ``epsilon(delta)``
        reads off what was told: P(S) ≤ ∫_S e^ε dQ + δ for every set S of outcomes and all
        neighbours. This is a claim beside the declared one, which holds whatever the votes are;
        each has a δ of its own, and to take whichever is the smaller needs both δ.

    Args:
        told: ln B with its noise.
        order: α, the Rényi order.
        smoothness: β.
        noise_multiplier: τ.
        screening: The screenings' part, at order α, whatever the votes.
        most: What the answers cost at order α at most, whatever the votes.
        event: What telling it is charged.
        adjacency: Which data sets are neighbours.
        unit: Whom the guarantee protects.
        entry: The number of the ledger's entry that charged it; None without a budget.
    """

    told: float
    order: float
    smoothness: float
    noise_multiplier: float
    screening: float
    most: float
    event: Event
    adjacency: Adjacency
    unit: str
    entry: int | None = None

    @property
    def standard_error(self) -> float:
        """Of ``told``, and so the relative one of ``estimate``."""
        return self.smoothness * self.noise_multiplier

    @property
    def estimate(self) -> float:
        """What the answers cost at order α, as far as was told; it is not a bound."""
        return math.exp(self.told)

    def upper(self, failure: float) -> float:
        """A bound on the answers' cost at order α that fails with this probability at most."""
        z = max(0.0, -float(ndtri(open_probability("failure", failure))))
        margin = self.standard_error * z * _WIDER + self.smoothness * 2.0**-10
        return min(self.most, math.exp(self.told + margin))

    def claim(self, failure: float) -> RenyiCurve:
        """The cost of all that was told, at order α; it fails with this probability at most."""
        telling = self.order / (2.0 * self.noise_multiplier**2)
        return RenyiCurve((self.order,), (self.upper(failure) + self.screening + telling,))

    def epsilon(self, delta: float) -> float:
        """The ε that is claimed at ``delta``, a tenth of which pays for a failing bound.

        Fix δ before you look at what was told.
        """
        from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked

        failure = FAILURE_SHARE * open_probability("delta", delta)
        return epsilon(self.claim(failure), delta - failure, accountant="rdp")


def sanitised_cost(
    votes: Votes,
    aggregator: GNMax | ConfidentGNMax,
    answered: Answers | NDArray[np.bool_],
    *,
    order: float,
    smoothness: float,
    noise_multiplier: float,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Sanitised:
    """Tells what a run cost, given its votes, with noise.

    Guarantee:
        What is told is a Gaussian release with ``noise_multiplier``, charged before it is drawn.
        What it says is in ``Sanitised``. Order, smoothness and noise must be chosen before, from
        public or simulated votes (``tacit.transfer.plan_telling``). Each telling of a run costs
        anew, and what one of them claims does not cover another.

    Args:
        votes: Those that the run asked, all of them.
        aggregator: That of the run; ``Answers`` of another are refused.
        answered: What ``label`` gave back; or which queries were answered, all being screened.
        order: α, public.
        smoothness: β, public.
        noise_multiplier: τ, public.
        adjacency: That of the answers, and as in ``label`` without them.
        unit: Like ``adjacency``.
        budget: Charged for the telling; the run itself was charged by ``label``.
        label: A name for the ledger.
        stream: As in ``label``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> from tacit.transfer import ConfidentGNMax, Votes
    >>> votes = Votes(np.array([[240, 10] + 8 * [0]] * 300))
    >>> found = sanitised_cost(votes, ConfidentGNMax(), np.ones(300, dtype=bool), order=16.0,
    ...     smoothness=0.05, noise_multiplier=6.0, stream=UnsafeSeededStream(0, "test"))
    >>> round(found.estimate, 3), round(found.epsilon(1e-5), 3)
    (0.039, 0.979)
    """
    screened, told = _asked(votes, answered)
    stairs = tight_staircase(votes, aggregator, order)
    if isinstance(answered, Answers):
        adjacency, unit = _terms(answered, aggregator, adjacency, unit)
    moved = positive("smoothness", smoothness) * (1.0 + _ROUNDING) + _ROUNDING
    bound = smooth_sensitivity(largest_costs(votes, stairs, told), smoothness)
    released = gaussian(
        math.log(max(bound, _LEAST)),
        sensitivity=moved,
        noise_multiplier=noise_multiplier,
        adjacency=adjacency,
        unit=unit,
        budget=budget,
        label=label or "tacit.transfer, sanitised_cost",
        stream=stream,
    )
    return Sanitised(
        told=float(released.value),
        order=float(order),
        smoothness=moved,
        noise_multiplier=float(noise_multiplier),
        screening=screened * screening_rdp(aggregator, order, votes.teachers),
        most=int(told.sum()) * float(stairs.costs[0]),
        event=released.event,
        adjacency=released.adjacency,
        unit=released.unit,
        entry=released.entry,
    )


def telling_event(noise_multiplier: float, adjacency: Adjacency = "add-remove") -> Gaussian:
    """What telling is charged, for those who declare it beforehand."""
    apart = 1.0 if adjacency == "replace-one" else 2.0
    return Gaussian(positive("noise_multiplier", noise_multiplier), replace_distance=apart)


def _terms(
    run: Answers,
    aggregator: GNMax | ConfidentGNMax,
    adjacency: Adjacency | None,
    unit: str | None,
) -> tuple[Adjacency, str]:
    """Adjacency and unit of a run; refuses what it was not answered by, or under."""
    if run.aggregator != aggregator:
        raise InvalidArgument(
            f"aggregator must be that of the answers, {run.aggregator!r} (None: their cost cannot "
            f"be told), got {aggregator!r}"
        )
    if adjacency not in (None, run.adjacency):
        raise InvalidArgument(
            f"adjacency must be that of the answers, {run.adjacency!r}, got {adjacency!r}"
        )
    if unit not in (None, run.unit):
        raise InvalidArgument(f"unit must be that of the answers, {run.unit!r}, got {unit!r}")
    return run.adjacency, run.unit


def _asked(votes: Votes, answered: Answers | NDArray[np.bool_]) -> tuple[int, NDArray[np.bool_]]:
    """How many queries were screened, and which were answered or may have been."""
    if isinstance(answered, Answers):
        screened, marked = int(answered.asked.sum()), answered.answered | answered.lost
    else:
        screened, marked = votes.queries, np.asarray(answered)
    if marked.dtype != np.bool_ or marked.shape != (votes.queries,):
        raise InvalidArgument(
            f"answered must be Answers to the {votes.queries} queries voted on, or as many truth "
            f"values, got shape {marked.shape} of {marked.dtype}"
        )
    return screened, marked
