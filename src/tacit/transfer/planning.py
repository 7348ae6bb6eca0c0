"""Choosing, before a run, how its data-dependent cost is to be told: from public votes alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.special import ndtri

from tacit._validation import open_probability, whole
from tacit.errors import InvalidArgument
from tacit.transfer import confident_votes
from tacit.transfer.aggregators import ConfidentGNMax, GNMax
from tacit.transfer.charges import checked_numbers
from tacit.transfer.one_order import screening_rdp, tight_staircase
from tacit.transfer.sanitised import FAILURE_SHARE
from tacit.transfer.smooth_sensitivity import largest_costs
from tacit.transfer.votes import Votes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_ORDERS = (7.0, 10.0, 12.0, 14.0, 17.0, 21.0, 28.0, 40.0)
_SMOOTHNESS = np.geomspace(0.005, 0.5, 47)[:, np.newaxis]
_NOISE = np.geomspace(1.5, 40.0, 67)[np.newaxis, :]
_UNLUCKY = 1.0  # deviations of the noise that the choice is made for


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How a run's data-dependent cost is to be told: the public numbers of ``sanitised_cost``.

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


def plan_telling(
    votes: Votes,
    aggregator: GNMax | ConfidentGNMax,
    *,
    delta: float,
    queries: int | None = None,
    answers: int | None = None,
) -> Telling:
    """The order, smoothness and noise by which the least would be claimed of votes like these.

    Guarantee:
        None: ``votes`` must be public, such as ``simulated_votes``, or those of teachers that were
        trained on public data. Numbers chosen by private votes would tell of them.

    Args:
        votes: Public votes like those expected, of as many teachers and classes.
        aggregator: That of the run.
        delta: The δ at which the claim will be made.
        queries: How many the run will have; as many as ``votes`` unless said.
        answers: The cap on answers; none unless said.

    >>> plan = plan_telling(simulated_votes(0.94), ConfidentGNMax(), delta=1e-5, queries=640)
    >>> plan.order, round(plan.smoothness, 3), round(plan.noise_multiplier, 2)
    (14.0, 0.05, 5.75)
    """
    asked, told = checked_numbers(votes.queries if queries is None else queries, answers)
    weights = _weights(votes, aggregator, asked, told)
    failure = FAILURE_SHARE * open_probability("delta", delta)
    z = -float(ndtri(failure))
    found: list[tuple[float, Telling]] = []
    for order in _ORDERS:
        stairs = tight_staircase(votes, aggregator, order)
        within = largest_costs(votes, stairs, weights)
        fixed = asked * screening_rdp(aggregator, order, votes.teachers)
        # tacit.accounting.renyi.curves, at one order
        fixed += math.log1p(-1.0 / order)
        fixed -= (math.log(delta - failure) + math.log(order)) / (order - 1.0)
        fixed_and_told = fixed + order / (2.0 * _NOISE**2)
        far = np.arange(len(within))
        bound = np.max(within * np.exp(-_SMOOTHNESS * far), axis=1, keepdims=True)
        most = told * order / aggregator.analysed_sigma**2

        def claimed(luck: float, bound: Array = bound, most: float = most) -> Array:
            return np.minimum(bound * np.exp(_SMOOTHNESS * _NOISE * (z + luck)), most)

        unlucky = fixed_and_told + claimed(_UNLUCKY)
        row, column = np.unravel_index(int(np.argmin(unlucky)), unlucky.shape)
        plan = Telling(
            order=order,
            smoothness=float(_SMOOTHNESS[row, 0]),
            noise_multiplier=float(_NOISE[0, column]),
            epsilon=float((fixed_and_told + claimed(0.0))[row, column]),
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
    """Votes of an imagined crowd, to plan with.

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
