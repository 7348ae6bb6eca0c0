"""The moments accountant of Abadi et al. (2016).

The λ-th log-moment of the privacy loss is α(λ) = max ln E[e^{λ·loss}] over neighbours and
directions, which is λ times the Rényi divergence of order λ + 1. Log-moments of a composition add
up, and the tail bound δ = min_λ exp(α(λ) - λ·ε) turns them into (ε, δ) (both in their Theorem 2).
As in the paper λ is a whole number up to 32; ``max_moment`` changes that.

Guarantee: both answers are upper bounds for every event that is accepted. Its numbers are those of
the paper's accountant; the ``rdp`` accountant's real orders and sharper conversion give less.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.accountants import Accountant
from tacit.accounting.failures import Failures
from tacit.accounting.renyi.profile import renyi_profile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.renyi.curves import Curve

MAX_MOMENT = 32
"""The largest λ, as in the paper."""


def epsilon(
    event: Event, delta: float, adjacency: Adjacency, max_moment: int = MAX_MOMENT
) -> float:
    """The smallest ε that a moment proves at a total ``delta``: min_λ (α(λ) + ln(1/δ))/λ.

    >>> from tacit.accounting.events import Gaussian, PoissonSampled, Repeated
    >>> run = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    >>> round(epsilon(run, 1e-5, "add-remove"), 10)
    1.2585747413
    """
    profile = renyi_profile(event, adjacency, "moments")
    moments, logs = _log_moments(profile.curve, max_moment)

    def solve(left: float) -> float:
        if left <= 0.0:
            return 0.0 if not logs.any() else math.inf
        return max(0.0, float(np.min((logs - math.log(left)) / moments))) if logs.any() else 0.0

    return Failures(profile.mass, profile.truncation).epsilon(solve, delta)


def delta(
    event: Event, epsilon: float, adjacency: Adjacency, max_moment: int = MAX_MOMENT
) -> float:
    """The smallest total δ that a moment proves at ``epsilon``: min_λ exp(α(λ) - λ·ε) or 1."""
    profile = renyi_profile(event, adjacency, "moments")
    moments, logs = _log_moments(profile.curve, max_moment)

    def solve(at: float) -> float:
        if not logs.any():
            return 0.0
        return math.exp(min(0.0, float(np.min(logs - moments * at))))

    return Failures(profile.mass, profile.truncation).delta(solve, epsilon)


def _log_moments(curve: Curve, max_moment: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All λ, and α(λ) = λ·D_{λ+1} for each; all of them are 0 if nothing is released."""
    moments = np.arange(1.0, max_moment + 1.0)
    return moments, moments * curve(moments + 1.0)


MOMENTS = Accountant(epsilon, delta)
