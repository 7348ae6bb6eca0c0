"""Basic composition: the ε's add up, and so do the δ's (Dwork & Roth 2014, Theorem 3.16).

Pure releases cost no δ. Where a release trades ε for δ, as the Gaussian does, the given δ is shared
among such releases so that their total ε is small. Sampled releases are amplified one by one.

Guarantee: both answers are upper bounds for every event that is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.accounting.failures import Failures
from tacit.accounting.inversion import smallest_delta
from tacit.accounting.steps import steps_of, sum_of

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """Σε at Σδ = ``delta``; infinite if the releases need more δ than that.

    >>> from tacit.accounting.events import PureDp, Repeated
    >>> round(epsilon(Repeated(PureDp(0.1), 100), 1e-5, "add-remove"), 9)
    10.0
    """
    steps = steps_of(event, adjacency, "basic")
    return Failures(truncation=steps.truncation).epsilon(lambda left: sum_of(steps, left), delta)


def delta(event: Event, epsilon: float, adjacency: Adjacency) -> float:
    """The smallest Σδ at which Σε is at most ``epsilon``; 1 if there is none."""
    steps = steps_of(event, adjacency, "basic")

    def solve(at: float) -> float:
        return smallest_delta(lambda total: sum_of(steps, total), at, steps.least)

    return Failures(truncation=steps.truncation).delta(solve, epsilon)
