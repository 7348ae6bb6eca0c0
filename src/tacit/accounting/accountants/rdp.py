"""Rényi accounting: divergences of each order add up, and the best order converts to (ε, δ).

Rényi differential privacy is Mironov's (2017); the divergences are in ``tacit.accounting.renyi``,
their conversion with them. Orders are real and found by optimisation.

Guarantee: both answers are upper bounds for every event that is accepted, in both directions of
the adjacency. An ``ApproxDp`` part is charged its δ apart, a truncated Poisson sample the chance
that it was cut (``tacit.accounting.failures``). Sampling with replacement is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.accounting.accountants import Accountant
from tacit.accounting.failures import Failures
from tacit.accounting.renyi.curves import delta_of_curve, epsilon_of_curve
from tacit.accounting.renyi.profile import renyi_profile

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The smallest ε that a Rényi order proves at a total ``delta``; infinite if none does.

    >>> from tacit.accounting.events import Gaussian, PoissonSampled, Repeated
    >>> run = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    >>> round(epsilon(run, 1e-5, "add-remove"), 6)
    1.035384
    """
    profile = renyi_profile(event, adjacency, "rdp")
    failures = Failures(profile.mass, profile.truncation)
    return failures.epsilon(lambda left: epsilon_of_curve(profile.curve, left), delta)


def delta(event: Event, epsilon: float, adjacency: Adjacency) -> float:
    """The smallest total δ that a Rényi order proves at ``epsilon``; 1 if none does.

    >>> from tacit.accounting.events import Gaussian
    >>> round(delta(Gaussian(1.0), 4.0, "add-remove"), 9)
    0.000195795
    """
    profile = renyi_profile(event, adjacency, "rdp")
    failures = Failures(profile.mass, profile.truncation)
    return failures.delta(lambda at: delta_of_curve(profile.curve, at), epsilon)


RDP = Accountant(epsilon, delta)
