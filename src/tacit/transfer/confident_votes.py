"""Confident-GNMax (Papernot et al. 2018, Algorithm 1): answers only where the teachers agree.

A query is screened by max_j n_j + N(0, σ1²) ≥ T, and answered by GNMax with σ2 if it passes. One
record moves the largest count by at most 1, for each adjacency.

What depends on the votes (the functions called ``log_…`` and ``data_dependent``, and the expected
cost) is itself private: a planning figure, not a bound to publish and nothing to stop by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.special import log_ndtr

from tacit._validation import non_negative, positive, whole
from tacit.accounting.conversion import epsilon_of_curve
from tacit.accounting.events import Composed, Gaussian, Repeated
from tacit.errors import InvalidArgument
from tacit.transfer import gaussian_votes
from tacit.transfer.two_outcomes import checked_orders

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tacit.transfer.votes import Votes

    Array = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """The public numbers of Confident-GNMax.

    Args:
        threshold: T, in votes; any finite number.
        screening_sigma: σ1, of the noise added to the largest count.
        sigma: σ2, of the noise added to all counts of a query that is answered.
    """

    threshold: float
    screening_sigma: float
    sigma: float

    def __post_init__(self) -> None:
        non_negative("threshold", self.threshold)
        positive("screening_sigma", self.screening_sigma)
        positive("sigma", self.sigma)


def charge(setting: Screening, *, screened: int, answered: int) -> Composed:
    """What is charged for a run, whatever the votes: every screened query and each answered one.

    Guarantee:
        Screening is a Gaussian of sensitivity 1, an answer one of √2. The number of answers is
        itself an outcome: charge a screening before it, and an answer before it, in a budget that
        refuses what no longer fits.

    >>> charge(Screening(threshold=200, screening_sigma=150, sigma=40), screened=640, answered=0)
    Composed(Repeated(event=Gaussian(sigma=150.0, replace_distance=1.0), times=640))
    """
    asked, told = whole("screened", screened), whole("answered", answered, at_least=0)
    if told > asked:
        raise InvalidArgument(f"answered must be at most screened = {asked}, got {answered!r}")
    screening = Repeated(Gaussian(setting.screening_sigma, replace_distance=1.0), asked)
    if told == 0:
        return Composed(screening)
    return Composed(screening, gaussian_votes.charge(setting.sigma, told))


def data_independent_rdp(setting: Screening, orders: ArrayLike) -> Array:
    """The Rényi divergence of one screening, whatever the votes: α/(2σ1²)."""
    return checked_orders(orders) / (2.0 * setting.screening_sigma**2)


def log_answered(votes: Votes, setting: Screening) -> Array:
    """The logarithm of the probability that each query passes: ln Φc((T - max)/σ1). Private.

    >>> from tacit.transfer.votes import Votes
    >>> setting = Screening(threshold=200, screening_sigma=150, sigma=40)
    >>> log_answered(Votes(np.array([[250, 0], [200, 50]])), setting).round(9).tolist()
    [-0.461149091, -0.693147181]
    """
    result: Array = log_ndtr((votes.largest() - setting.threshold) / setting.screening_sigma)
    return result


def log_q(votes: Votes, setting: Screening) -> Array:
    """The logarithm of min(p, 1 - p), p the probability that a query passes. Private."""
    lead = np.abs(votes.largest() - setting.threshold)
    result: Array = log_ndtr(-lead / setting.screening_sigma)
    return result


def data_dependent_rdp(votes: Votes, setting: Screening, orders: ArrayLike) -> Array:
    """The Rényi divergence of each screening (rows) at each order (columns). Private.

    GNMax's theorem with the q of the two outcomes; √2·σ1 in the place of its σ, because screening
    has sensitivity 1 where GNMax has √2 (Papernot et al. 2018, Appendix B).
    """
    sigma = math.sqrt(2.0) * setting.screening_sigma
    return gaussian_votes.data_dependent_rdp(log_q(votes, setting), sigma, orders)


def data_dependent_cost(
    votes: Votes, setting: Screening, orders: ArrayLike, answered: ArrayLike
) -> Array:
    """The Rényi divergence of a run at each order, given which queries were ``answered``. Private.

    Every query of ``votes`` was screened, and those that are marked were answered too.
    """
    marked = np.asarray(answered)
    if marked.dtype != np.bool_ or marked.shape != (votes.queries,):
        raise InvalidArgument(
            f"answered must be {votes.queries} truth values, one for each query, "
            f"got shape {marked.shape} of {marked.dtype}"
        )
    return _cost(votes, setting, orders, marked.astype(np.float64))


def expected_data_dependent_cost(votes: Votes, setting: Screening, orders: ArrayLike) -> Array:
    """What ``data_dependent_cost`` is on average over the screening's noise. Private; no bound.

    Published scripts report this figure. It serves to plan a run; no run costs it.
    """
    return _cost(votes, setting, orders, np.exp(log_answered(votes, setting)))


def expected_data_dependent_epsilon(votes: Votes, setting: Screening, delta: float) -> float:
    """The ε of ``expected_data_dependent_cost`` at the best order. Private; no bound.

    >>> from tacit.transfer.votes import Votes
    >>> lost = np.arange(300) % 60
    >>> votes = Votes(np.stack([250 - lost, lost] + [0 * lost] * 8, axis=1))
    >>> setting = Screening(threshold=200, screening_sigma=150, sigma=40)
    >>> round(expected_data_dependent_epsilon(votes, setting, 1e-5), 6)
    0.717907
    """
    return epsilon_of_curve(
        lambda orders: expected_data_dependent_cost(votes, setting, orders), delta
    )


def _cost(votes: Votes, setting: Screening, orders: ArrayLike, answered: Array) -> Array:
    screening = gaussian_votes.data_dependent_total(
        log_q(votes, setting), math.sqrt(2.0) * setting.screening_sigma, orders
    )
    told = gaussian_votes.log_q(votes, setting.sigma)
    return screening + gaussian_votes.data_dependent_total(told, setting.sigma, orders, answered)
