"""Confident-GNMax (Papernot et al. 2018, Algorithm 1): answers only where the teachers agree.

A query is screened by max_j n_j + N(0, σ1²) ≥ T, and answered by GNMax with σ2 if it passes. One
record moves the largest count by at most 1, for each adjacency. What a run is charged says
``tacit.transfer.ConfidentGNMax.declared``.

What depends on the votes (the functions called ``log_…`` and ``data_dependent``, and the expected
cost) is itself private: a planning figure, not a bound to publish and nothing to stop by.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr

from tacit._validation import whole
from tacit.accounting.renyi.curves import epsilon_of_curve
from tacit.errors import InvalidArgument
from tacit.transfer import gaussian_votes
from tacit.transfer.rdp_cost import checked_orders, coin_rdp

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tacit.transfer.aggregators import ConfidentGNMax
    from tacit.transfer.votes import Votes

    Array = NDArray[np.float64]


def data_independent_rdp(setting: ConfidentGNMax, orders: ArrayLike) -> Array:
    """The Rényi divergence of one screening, whatever the votes: α/(2σ1²)."""
    return checked_orders(orders) / (2.0 * setting.screening_sigma**2)


def worst_rdp(setting: ConfidentGNMax, orders: ArrayLike, teachers: int) -> Array:
    """The Rényi divergence of one screening at each order, whatever the votes of ``teachers``.

    That of one bit, ``rdp_cost.screening_rdp``, over all largest counts c = 0, …, n and their
    neighbours c ± 1. Near the threshold it is 2/π of the Gaussian's α/(2σ1²).

    >>> from tacit.transfer import ConfidentGNMax
    >>> worst_rdp(ConfidentGNMax(), [2.0, 16.0], 250).round(8).tolist()
    [2.829e-05, 0.0002264]
    """
    counts = np.arange(-1, whole("teachers", teachers) + 2)
    return coin_rdp(counts, setting.threshold, setting.screening_sigma, orders)


def log_answered(votes: Votes, setting: ConfidentGNMax) -> Array:
    """The logarithm of the probability that each query passes: ln Φc((T - max)/σ1). Private.

    >>> from tacit.transfer import ConfidentGNMax, Votes
    >>> setting = ConfidentGNMax(threshold=200, screening_sigma=150, sigma=40)
    >>> log_answered(Votes(np.array([[250, 0], [200, 50]])), setting).round(9).tolist()
    [-0.461149091, -0.693147181]
    """
    result: Array = log_ndtr((votes.largest() - setting.threshold) / setting.screening_sigma)
    return result


def log_q(votes: Votes, setting: ConfidentGNMax) -> Array:
    """The logarithm of min(p, 1 - p), p the probability that a query passes. Private."""
    lead = np.abs(votes.largest() - setting.threshold)
    result: Array = log_ndtr(-lead / setting.screening_sigma)
    return result


def data_dependent_rdp(votes: Votes, setting: ConfidentGNMax, orders: ArrayLike) -> Array:
    """The Rényi divergence of each screening (rows) at each order (columns). Private.

    GNMax's theorem with the q of the two outcomes; √2·σ1 in the place of its σ, because screening
    has sensitivity 1 where GNMax has √2 (Papernot et al. 2018, Appendix B).
    """
    sigma = math.sqrt(2.0) * setting.screening_sigma
    return gaussian_votes.data_dependent_rdp(log_q(votes, setting), sigma, orders)


def data_dependent_cost(
    votes: Votes, setting: ConfidentGNMax, orders: ArrayLike, answered: ArrayLike
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


def expected_data_dependent_cost(votes: Votes, setting: ConfidentGNMax, orders: ArrayLike) -> Array:
    """What ``data_dependent_cost`` is on average over the screening's noise. Private; no bound.

    Published scripts report this figure. It serves to plan a run; no run costs it.
    """
    return _cost(votes, setting, orders, np.exp(log_answered(votes, setting)))


def expected_data_dependent_epsilon(votes: Votes, setting: ConfidentGNMax, delta: float) -> float:
    """The ε of ``expected_data_dependent_cost`` at the best order. Private; no bound.

    >>> from tacit.transfer import ConfidentGNMax, Votes
    >>> lost = np.arange(300) % 60
    >>> votes = Votes(np.stack([250 - lost, lost] + [0 * lost] * 8, axis=1))
    >>> setting = ConfidentGNMax(threshold=200, screening_sigma=150, sigma=40)
    >>> round(expected_data_dependent_epsilon(votes, setting, 1e-5), 6)
    0.717907
    """
    return epsilon_of_curve(
        lambda orders: expected_data_dependent_cost(votes, setting, orders), delta
    )


def _cost(votes: Votes, setting: ConfidentGNMax, orders: ArrayLike, answered: Array) -> Array:
    screening = gaussian_votes.data_dependent_total(
        log_q(votes, setting), math.sqrt(2.0) * setting.screening_sigma, orders
    )
    sigma = setting.analysed_sigma
    answer_log_q = gaussian_votes.log_q(votes, sigma)
    return screening + gaussian_votes.data_dependent_total(answer_log_q, sigma, orders, answered)
