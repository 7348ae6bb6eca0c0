"""The dominating pairs of events without sampling.

(ε, δ)-DP is dominated by randomised response that fails, telling all, with probability δ (Kairouz,
Oh & Viswanath 2015, Theorem 3.3); the others are pairs of actual outputs.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from tacit.accounting.events import (
    Adjacency,
    ApproxDp,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    PureDp,
    RandomizedResponse,
)
from tacit.accounting.exact.cells import (
    atoms,
    cells_of_losses,
    cells_of_most_losses,
    laplace_cells,
    mixture_cells,
)
from tacit.accounting.exact.closed_form import GaussianLoss, LaplaceLoss
from tacit.accounting.exact.grid import OutOfRange
from tacit.accounting.exact.lattice_loss import LatticeLoss
from tacit.accounting.exact.mixture_nodes import MixturePair, Side
from tacit.accounting.exact.pairs import PairLoss
from tacit.errors import UnsupportedEvent

_LARGEST_DISCRETE = 20_000.0  # σ whose lattice still fits


def distance_of(event: Event, adjacency: Adjacency) -> float:
    """How far the neighbour moves the noiseless answer, in units of one record's contribution."""
    match event:
        case Gaussian() | Laplace() | DiscreteGaussian() | DiscreteLaplace():
            return event.replace_distance if adjacency == "replace-one" else 1.0
        case _:
            return 1.0


def base_pair(event: Event, distance: float) -> PairLoss | None:
    """The pair of an event without sampling; None if it gives nothing away.

    For black boxes ``distance`` is a group size k: k·ε, and δ grows as group privacy says.
    """
    match event:
        case Gaussian(sigma):
            mu = distance / sigma
            pair = MixturePair(1.0 / mu, Side((1.0,), (1.0,)), Side())
            return PairLoss(lambda step: mixture_cells(pair, step), GaussianLoss(mu))
        case Laplace(scale):
            loss = LaplaceLoss(distance / scale)
            return PairLoss(lambda step: laplace_cells(loss.distance, step), loss)
        case DiscreteGaussian(sigma, sensitivity) if sigma <= _LARGEST_DISCRETE:
            return _lattice_pair(_discrete_gaussian(sigma, round(sensitivity * distance)))
        case DiscreteLaplace(scale, sensitivity):
            return _lattice_pair(_discrete_laplace(scale, round(sensitivity * distance)))
        case RandomizedResponse() if event.loss > 0.0:
            if distance > 1.0:
                return black_box(distance * event.loss, 0.0)
            return _lattice_pair(_randomized_response(event.loss, event.categories))
        case PureDp(epsilon):
            return black_box(distance * epsilon, 0.0)
        case ApproxDp(epsilon, delta):
            grown = distance * math.exp((distance - 1.0) * epsilon) * delta
            return black_box(distance * epsilon, min(1.0, grown))
        case RandomizedResponse():
            return None
        case _:
            raise UnsupportedEvent(event, "exact", "it has no dominating pair that tacit knows")


def _lattice_pair(loss: LatticeLoss) -> PairLoss:
    cut = cells_of_losses if loss.log_tail is None else cells_of_most_losses
    return PairLoss(lambda _: cut(loss.masses[loss.support], loss.losses), loss)


def black_box(epsilon: float, delta: float) -> PairLoss | None:
    """(ε, δ)-DP: with probability δ everything is told, else randomised response at ε."""
    if epsilon == 0.0 and delta == 0.0:
        return None
    truth = (1.0 - delta) / (1.0 + math.exp(-epsilon))
    lie = (1.0 - delta) * math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    p, q = np.array([delta, truth, lie, 0.0]), np.array([0.0, lie, truth, delta])
    spacing = 2.0 * epsilon if epsilon > 0.0 else 1.0
    loss = LatticeLoss(-epsilon, spacing, 0, np.array([lie, truth]))
    if epsilon == 0.0:
        loss = LatticeLoss(0.0, 1.0, 0, np.array([1.0 - delta]))
    return PairLoss(lambda _: atoms(p, q), loss, delta)


def _randomized_response(epsilon: float, categories: int) -> LatticeLoss:
    truth = 1.0 / (1.0 + (categories - 1) * math.exp(-epsilon))
    lie = truth * math.exp(-epsilon)
    if categories == 2:
        return LatticeLoss(-epsilon, 2.0 * epsilon, 0, np.array([lie, truth]))
    return LatticeLoss(0.0, epsilon, -1, np.array([lie, (categories - 2) * lie, truth]))


def _discrete_laplace(scale: float, shift: int) -> LatticeLoss:
    """Losses (shift - 2x)/scale for x = 0…shift; what lies beyond has the loss of the ends."""
    ratio = math.exp(-1.0 / scale)
    whole = 1.0 / (1.0 + ratio)
    inner = whole * -math.expm1(-1.0 / scale) * ratio ** np.arange(shift, -1.0, -1.0)
    inner[0], inner[-1] = whole * ratio**shift, whole
    return LatticeLoss(-shift / scale, 2.0 / scale, 0, inner)


def _discrete_gaussian(sigma: float, shift: int) -> LatticeLoss:
    """Losses (shift² - 2·shift·x)/2σ² for integers x, which fall as x grows."""
    variance = sigma * sigma
    if variance < sys.float_info.min:
        raise OutOfRange
    radius = math.ceil(30.0 * sigma) + 5 * shift + 10
    x = np.arange(radius, -radius - 1, -1)
    masses = np.exp(-0.5 * x.astype(float) ** 2 / variance)
    masses /= masses.sum()
    rate = (2 * radius + 1) / (2.0 * variance)
    log_end = -0.5 * radius * radius / variance
    return LatticeLoss(
        offset=0.5 * shift * shift / variance,
        spacing=shift / variance,
        first=-radius,
        masses=masses,
        log_tail=(log_end, rate, log_end, rate),
        mass_error=256.0 * 2.0**-53 * (1.0 + 450.0),
    )
