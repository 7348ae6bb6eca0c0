"""Lower bounds from one attack's rates: how often it was right about members and non-members.

The threshold must not have been chosen by looking at these trials: it is fixed beforehand, or
chosen on others (``held_out_threshold``). ``every_threshold`` needs no choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainccinv, betaincinv, ndtri

from tacit._validation import open_probability, whole
from tacit.accounting import gaussian_profile
from tacit.auditing.statistics.bound import (
    GAUSSIAN_CURVE,
    NOTHING,
    LowerBound,
    delta_of,
    failure_rate,
)
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, kw_only=True)
class Rates:
    """An attack's guesses: it called ``tp`` of ``n_in`` members so, and ``fp`` of ``n_out`` others.

    >>> Rates(tp=500, n_in=1000, fp=10, n_out=1000).advantage
    0.49
    """

    tp: int
    n_in: int
    fp: int
    n_out: int

    def __post_init__(self) -> None:
        for hits, trials in (("tp", "n_in"), ("fp", "n_out")):
            count = whole(hits, getattr(self, hits), at_least=0)
            if count > whole(trials, getattr(self, trials)):
                raise InvalidArgument(f"{hits} must be at most {trials}, got {self!r}")

    @property
    def advantage(self) -> float:
        """The true-positive rate less the false-positive rate, as observed."""
        return self.tp / self.n_in - self.fp / self.n_out


def lower_rate(hits: ArrayLike, trials: int, failure: float) -> NDArray[np.float64]:
    """A rate that the true one is below with probability ``failure`` at most (Clopper-Pearson).

    >>> float(lower_rate(100, 100, 0.025).round(6))
    0.963783
    """
    count = np.asarray(hits, dtype=np.float64)
    found = betaincinv(np.maximum(count, 1.0), trials - np.maximum(count, 1.0) + 1.0, failure)
    return np.where(count > 0.0, found, 0.0)


def upper_rate(hits: ArrayLike, trials: int, failure: float) -> NDArray[np.float64]:
    """A rate that the true one is above with probability ``failure`` at most (Clopper-Pearson).

    >>> float(upper_rate(0, 100, 0.025).round(6))
    0.036217
    """
    count = np.asarray(hits, dtype=np.float64)
    found = betainccinv(count + 1.0, np.maximum(trials - count, 1.0), failure)
    return np.where(count < trials, found, 1.0)


def epsilon_of_rates(
    tpr: NDArray[np.float64], fpr: NDArray[np.float64], delta: float
) -> NDArray[np.float64]:
    """max{0, ln((TPR - δ)/FPR), ln((TNR - δ)/FNR)}: the least ε that allows these rates.

    >>> float(epsilon_of_rates(np.array(0.5), np.array(0.25), 0.0).round(6))
    0.693147
    """
    over = np.maximum(0.0, np.stack((tpr, 1.0 - fpr)) - delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(over) - np.log(np.stack((fpr, 1.0 - tpr)))
    return np.asarray(np.nanmax(np.stack((*ratios, np.zeros_like(tpr))), axis=0))


def clopper_pearson(rates: Rates, delta: float, confidence: float = 0.95) -> LowerBound:
    """The ε below which (ε, δ)-differential privacy contradicts the rates.

    max{ln((TPR_lo - δ)/FPR_hi), ln((TNR_lo - δ)/FNR_hi)}, with an exact one-sided interval for
    each of the two rates at half of the failure rate.

    Guarantee:
        As for ``LowerBound``; nothing is taken for granted but independent trials and a threshold
        that was not chosen on them.

    >>> rates = Rates(tp=500, n_in=1000, fp=10, n_out=1000)
    >>> round(clopper_pearson(rates, 1e-5).epsilon, 6)
    3.241995
    """
    failed = delta_of(delta)
    tpr, fpr = _ends(rates, confidence)
    return LowerBound(
        float(epsilon_of_rates(tpr, fpr, failed)),
        failed,
        confidence,
        "Clopper-Pearson intervals of both rates",
        NOTHING,
        (*_counts(rates), ("tpr_low", float(tpr)), ("fpr_high", float(fpr))),
    )


def gaussian_rates(rates: Rates, delta: float, confidence: float = 0.95) -> LowerBound:
    """The μ below which μ-GDP contradicts the rates, told as the Gaussian's ε at δ.

    μ = Φ⁻¹(1 - FPR_hi) - Φ⁻¹(FNR_hi) (Nasr et al. 2023), with the intervals of ``clopper_pearson``.

    Guarantee:
        "Not μ'-GDP for any μ' < μ" holds as for ``clopper_pearson``. The ε is that of a Gaussian
        mechanism: it tests a Gaussian claim, and no other.

    >>> rates = Rates(tp=500, n_in=1000, fp=10, n_out=1000)
    >>> found = gaussian_rates(rates, 1e-5)
    >>> round(found.number("mu"), 4), round(found.epsilon, 3)
    (2.011, 10.065)
    """
    failed = open_probability("delta", delta)
    tpr, fpr = _ends(rates, confidence)
    mu = max(0.0, float(ndtri(tpr) - ndtri(fpr)))
    return LowerBound(
        gaussian_profile.epsilon(mu, failed),
        failed,
        confidence,
        "Gaussian differential privacy, from Clopper-Pearson intervals of both rates",
        GAUSSIAN_CURVE,
        (*_counts(rates), ("mu", mu)),
    )


def _ends(rates: Rates, confidence: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    half = 0.5 * failure_rate(confidence)
    return lower_rate(rates.tp, rates.n_in, half), upper_rate(rates.fp, rates.n_out, half)


def _counts(rates: Rates) -> tuple[tuple[str, float], ...]:
    return (("tp", rates.tp), ("n_in", rates.n_in), ("fp", rates.fp), ("n_out", rates.n_out))
