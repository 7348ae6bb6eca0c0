"""The data-dependent claim: what a run cost given how the teachers agreed, released with noise.

The charge holds for every possible vote. Where teachers agree, answers cost far less, but how much
less is itself private. This module releases an upper bound on that cost, once, with noise, and says
what can be claimed from it, this release included.

What is released. Let R be the cost of the answers at one Rényi order α: the sum of
``likely_outcome_rdp`` over them, as a staircase in the votes (``smooth_sensitivity``). Let

    B = max_d e^{-βd}·(the largest R of any votes within d records)        (β = ``smoothness``).

B is at least R, and is a β-smooth bound (Nissim, Raskhodnikova & Smith 2007, Definition 2.1): its
logarithm moves by at most β when one record changes. So ln B + β·τ·N(0, 1) is a plain Gaussian
release with the noise multiplier τ. (Papernot et al. 2018 release R itself with noise of its smooth
sensitivity. The scale of that noise is private, so that no bound on R follows from the release,
which costs more.)

What is claimed. Write L for the privacy loss of all that was released, this included, against any
neighbour, R' = R + (the screenings' cost) + α/(2τ²), and U' for the same with
U = exp(noisy_log + β·τ·z) in the place of R. Each release's divergence is known before it is drawn,
from the votes and earlier outcomes: E e^{(α-1)(L-R')} ≤ 1 (as for ``accounting.RenyiFilter``),
so that E (1 - e^{R'+c-L})₊ ≤ δ' for the c by which order α converts to δ'. U < R has a probability
of η = Φc(z) at most. With ε = U' + c, a function of what was released, and δ = δ' + η

    P(S) ≤ ∫_S e^ε dQ + δ    for every set S of outcomes and all neighbours, either of them P:

(ε, δ)-privacy in which ε is read off the outcome (ex-post privacy; Ligett et al. 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.special import ndtri

from tacit._validation import open_probability, positive, whole
from tacit.accounting.events import Gaussian, RenyiCurve
from tacit.errors import InvalidArgument
from tacit.mechanisms import gaussian
from tacit.transfer import confident_votes
from tacit.transfer.aggregators import ConfidentGNMax, GNMax
from tacit.transfer.charges import checked_numbers
from tacit.transfer.labels import Answers
from tacit.transfer.smooth_sensitivity import (
    largest_costs,
    screening_cost,
    smooth_sensitivity,
    tight_staircase,
)
from tacit.transfer.votes import Votes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.randomness import Stream

    Array = NDArray[np.float64]


FAILURE_SHARE = 0.1  # of δ, for an upper bound that turns out to be none
_LEAST = 1e-9  # of B, so that it has a logarithm
_ROUNDING = 1e-9  # of the logarithm, in float64
_WIDER = 1.0 + 2.0**-9  # more than what the grid widens the noise by, and rounds, in deviations


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitised:
    """What was released of a run's data-dependent cost, and what can be claimed from it.

    Guarantee:
        All that a labelling run and this give away is (ε, δ)-private with the ε that
        ``epsilon(delta)`` reads off the release: P(S) ≤ ∫_S e^ε dQ + δ for every set S of outcomes
        and all neighbours. This is a claim beside the declared one, which holds whatever the votes
        are; each has a δ of its own, and to take whichever is the smaller needs both δ.

    Args:
        noisy_log: ln B with its noise.
        order: α, the Rényi order.
        smoothness: β.
        noise_multiplier: τ.
        screening: The screenings' part, at order α, whatever the votes.
        most: What the answers cost at order α at most, whatever the votes.
        event: What releasing it is charged.
        adjacency: Which data sets are neighbours.
        unit: Whom the guarantee protects.
        entry: The number of the ledger's entry that charged it; None without a budget.
    """

    noisy_log: float
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
        """Of ``noisy_log``, and so the relative one of ``estimate``."""
        return self.smoothness * self.noise_multiplier

    @property
    def estimate(self) -> float:
        """What the answers cost at order α, by the noisy release; it is not a bound."""
        return math.exp(self.noisy_log)

    def upper(self, failure: float) -> float:
        """A bound on the answers' cost at order α that fails with this probability at most."""
        z = max(0.0, -float(ndtri(open_probability("failure", failure))))
        margin = self.standard_error * z * _WIDER + self.smoothness * 2.0**-10
        return min(self.most, math.exp(self.noisy_log + margin))

    def claim(self, failure: float) -> RenyiCurve:
        """The cost of all that was released, at order α; it fails with this probability at most."""
        release = self.order / (2.0 * self.noise_multiplier**2)
        return RenyiCurve((self.order,), (self.upper(failure) + self.screening + release,))

    def epsilon(self, delta: float) -> float:
        """The ε that is claimed at ``delta``, a tenth of which pays for a failing bound.

        Fix δ before you look at the release.
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
    """Releases what a run cost, given its votes, with noise.

    Guarantee:
        It is a Gaussian release with ``noise_multiplier``, charged before it is drawn.
        What it says is in ``Sanitised``. Order, smoothness and noise must be chosen before, from
        public or simulated votes (``tacit.transfer.plan_cost_release``). Each such release of a run
        costs again, and what one of them claims does not cover another.

    Args:
        votes: Those that the run asked, all of them.
        aggregator: That of the run; ``Answers`` of another are refused.
        answered: What ``label`` gave back; or which queries were answered, all being screened.
        order: α, public.
        smoothness: β, public.
        noise_multiplier: τ, public.
        adjacency: That of the answers, and as in ``label`` without them.
        unit: Like ``adjacency``.
        budget: Charged for this release; the run itself was charged by ``label``.
        label: A name for the ledger.
        stream: As in ``label``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> from tacit.transfer import ConfidentGNMax, Votes
    >>> votes = Votes(np.array([[240, 10] + 8 * [0]] * 300))
    >>> found = sanitised_cost(votes, ConfidentGNMax(), np.ones(300, dtype=bool), order=16.0,
    ...     smoothness=0.05, noise_multiplier=6.0, stream=UnsafeSeededStream(0, "test"))
    >>> round(found.estimate, 3), round(found.epsilon(1e-5), 3)
    (0.045, 1.002)
    """
    screened, marked = _asked(votes, answered)
    stairs = tight_staircase(votes, aggregator, order)
    if isinstance(answered, Answers):
        adjacency, unit = _terms(answered, aggregator, adjacency, unit)
    moved = positive("smoothness", smoothness) * (1.0 + _ROUNDING) + _ROUNDING
    bound = smooth_sensitivity(largest_costs(votes, stairs, marked), smoothness)
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
        noisy_log=float(released.value),
        order=float(order),
        smoothness=moved,
        noise_multiplier=float(noise_multiplier),
        screening=screened * screening_cost(aggregator, order, votes.teachers),
        most=int(marked.sum()) * float(stairs.costs[0]),
        event=released.event,
        adjacency=released.adjacency,
        unit=released.unit,
        entry=released.entry,
    )


def cost_release_event(noise_multiplier: float, adjacency: Adjacency = "add-remove") -> Gaussian:
    """What is charged for releasing the cost, for those who declare it beforehand."""
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
            f"be released), got {aggregator!r}"
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


# ---- choosing order, smoothness and noise before a run, from public votes alone

_ORDERS = (7.0, 10.0, 12.0, 14.0, 17.0, 21.0, 28.0, 40.0)
_SMOOTHNESS = np.geomspace(0.005, 0.5, 47)[:, np.newaxis]
_NOISE = np.geomspace(1.5, 40.0, 67)[np.newaxis, :]
_UNLUCKY = 1.0  # deviations of the noise that the choice is made for


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CostRelease:
    """How a run's data-dependent cost is to be released: the public numbers of ``sanitised_cost``.

    Args:
        order: The Rényi order.
        smoothness: β.
        noise_multiplier: τ.
        epsilon: What would be claimed with votes like those planned with, if noise were 0: in half
            of all runs less, in half of them more.
    """

    order: float
    smoothness: float
    noise_multiplier: float
    epsilon: float


def plan_cost_release(
    votes: Votes,
    aggregator: GNMax | ConfidentGNMax,
    *,
    delta: float,
    queries: int | None = None,
    answers: int | None = None,
) -> CostRelease:
    """The order, smoothness and noise that give the smallest claim for votes like these.

    Guarantee:
        None: ``votes`` must be public, such as ``simulated_votes``, or those of teachers that were
        trained on public data. Numbers chosen by private votes would tell of them.

    Args:
        votes: Public votes like those expected, of as many teachers and classes.
        aggregator: That of the run.
        delta: The δ at which the claim will be made.
        queries: How many the run will have; as many as ``votes`` unless said.
        answers: The cap on answers; none unless said.

    >>> plan = plan_cost_release(simulated_votes(0.94), ConfidentGNMax(), delta=1e-5, queries=640)
    >>> plan.order, round(plan.smoothness, 3), round(plan.noise_multiplier, 2)
    (14.0, 0.05, 5.75)
    """
    asked, cap = checked_numbers(votes.queries if queries is None else queries, answers)
    weights = _weights(votes, aggregator, asked, cap)
    failure = FAILURE_SHARE * open_probability("delta", delta)
    z = -float(ndtri(failure))
    found: list[tuple[float, CostRelease]] = []
    for order in _ORDERS:
        stairs = tight_staircase(votes, aggregator, order)
        within = largest_costs(votes, stairs, weights)
        fixed = asked * screening_cost(aggregator, order, votes.teachers)
        # tacit.accounting.renyi.curves, at one order
        fixed += math.log1p(-1.0 / order)
        fixed -= (math.log(delta - failure) + math.log(order)) / (order - 1.0)
        fixed_and_released = fixed + order / (2.0 * _NOISE**2)
        far = np.arange(len(within))
        bound = np.max(within * np.exp(-_SMOOTHNESS * far), axis=1, keepdims=True)
        most = cap * order / aggregator.analysed_sigma**2

        def claimed(luck: float, bound: Array = bound, most: float = most) -> Array:
            return np.minimum(bound * np.exp(_SMOOTHNESS * _NOISE * (z + luck)), most)

        unlucky = fixed_and_released + claimed(_UNLUCKY)
        row, column = np.unravel_index(int(np.argmin(unlucky)), unlucky.shape)
        plan = CostRelease(
            order=order,
            smoothness=float(_SMOOTHNESS[row, 0]),
            noise_multiplier=float(_NOISE[0, column]),
            epsilon=float((fixed_and_released + claimed(0.0))[row, column]),
        )
        found.append((float(unlucky[row, column]), plan))
    return min(found, key=lambda one: one[0])[1]


def simulated_votes(
    agreement: float,
    *,
    queries: int = 300,
    teachers: int = 250,
    classes: int = 10,
    concentration: float = 6.0,
    seed: int = 0,
) -> Votes:
    """Votes of simulated teachers, to plan with.

    Each query has a share of right votes from a Beta law with mean ``agreement``; the smaller
    ``concentration``, the more queries are clear and the more are hard. Wrong votes gather on few
    classes.

    >>> votes = simulated_votes(0.9, queries=500)
    >>> round(float(votes.largest().mean()))
    227
    """
    mean = open_probability("agreement", agreement)
    rng = np.random.default_rng(whole("seed", seed, at_least=0))
    count, width = whole("queries", queries), whole("classes", classes, at_least=2)
    right = rng.beta(mean * concentration, (1.0 - mean) * concentration, count)
    wrong = rng.dirichlet(np.full(width - 1, 0.3), count) * (1.0 - right[:, np.newaxis])
    shares = np.column_stack([right, wrong])
    return Votes(rng.multinomial(whole("teachers", teachers), shares / shares.sum(1)[:, None]))


def _weights(votes: Votes, aggregator: GNMax | ConfidentGNMax, queries: int, answers: int) -> Array:
    """How many of the run's answers each query of ``votes`` stands for, on average."""
    if not isinstance(aggregator, GNMax | ConfidentGNMax):
        raise InvalidArgument(f"aggregator must be GNMax or ConfidentGNMax, got {aggregator!r}")
    if isinstance(aggregator, GNMax):
        chance = np.ones(votes.queries)
    else:
        chance = np.exp(confident_votes.log_answered(votes, aggregator))
    chance *= queries / votes.queries
    return chance * min(1.0, answers / float(chance.sum()))
