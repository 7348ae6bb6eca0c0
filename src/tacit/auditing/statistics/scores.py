"""What an attack gives: one score for each trial, and its rates at one threshold, with bounds."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

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
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray


# ---- rates: how often an attack was right about members and others
#
# The threshold must not have been chosen by looking at these trials: it is fixed beforehand, or
# chosen on others (``held_out_threshold``). ``every_threshold`` needs no choice.


@dataclass(frozen=True, kw_only=True)
class Rates:
    """An attack's guesses: ``tp`` of ``n_in`` members and ``fp`` of ``n_out`` others as members.

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
    """The μ below which μ-GDP contradicts the rates, as the Gaussian's ε at δ.

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


# ---- scores


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of members (``inside``) and of others (``outside``), each an independent trial.

    Infinite scores are ranked like any other; NaN is refused, and so is what is masked.

    >>> Scores([0.3, 2.0, 5.0], [1.0, 0.0]).at(1.5)
    Rates(tp=2, n_in=3, fp=0, n_out=2)
    """

    inside: NDArray[np.float64]
    outside: NDArray[np.float64]

    def __init__(self, inside: ArrayLike, outside: ArrayLike) -> None:
        object.__setattr__(self, "inside", _checked_scores("inside", inside))
        object.__setattr__(self, "outside", _checked_scores("outside", outside))

    def at(self, threshold: float) -> Rates:
        """The rates of the attack that calls a member what scores ``threshold`` or more."""
        return Rates(
            tp=int(np.count_nonzero(self.inside >= threshold)),
            n_in=len(self.inside),
            fp=int(np.count_nonzero(self.outside >= threshold)),
            n_out=len(self.outside),
        )


def ascending(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The places of the scores, from the lowest to the highest; equal ones in a random order.

    It is as if tiny noise were added to them, after the release. An order of their places would
    let these tell who is in, where members come behind the others, say. It is seeded by the scores'
    own bytes, so that the same scores give the same bound.

    >>> ascending(np.array([0.3, 5.0, -1.0])).tolist()
    [2, 0, 1]
    """
    seed = int.from_bytes(blake2b(values.tobytes(), digest_size=16).digest(), "little")
    mixed = np.random.default_rng(seed).permutation(len(values))
    return mixed[np.argsort(values[mixed], kind="stable")]


def _checked_scores(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = nan_where_masked(values)
    if array.ndim != 1 or not len(array):
        raise InvalidArgument(
            f"{name} must be a list of scores, at least one, got an array of shape {array.shape}"
        )
    if np.isnan(array).any():
        raise InvalidArgument(
            f"{name} must hold no NaN and nothing masked, got {int(np.isnan(array).sum())} such "
            "scores; leave out trials that came to nothing"
        )
    array.flags.writeable = False
    return array


def nan_where_masked(values: ArrayLike) -> NDArray[np.float64]:
    """A copy with NaN where ``values`` are masked: else what is under a mask counts as a score.

    >>> nan_where_masked(np.ma.masked_equal([1.0, 999.0], 999.0)).tolist()
    [1.0, nan]
    """
    return np.asarray(np.ma.array(values, dtype=np.float64, copy=True).filled(np.nan))


# ---- the direct audit of a mechanism: many draws on each of two neighbouring inputs

Input = TypeVar("Input")
_PILOT = 0.05


def draw_scores(
    mechanism: Callable[[Input, int], ArrayLike],
    inside: Input,
    outside: Input,
    *,
    draws: int = 1_000_000,
    score: Callable[[NDArray[np.float64]], ArrayLike] | None = None,
) -> Scores:
    """Draws of ``mechanism`` on two neighbouring inputs, each turned into one score.

    The result goes to ``every_threshold``, ``gaussian_scores`` and the other bounds; what they find
    holds for the mechanism, for its ε is the largest over all pairs of neighbours and all scores.

    Args:
        mechanism: From an input and a number of draws to that many independent outputs: an array of
            numbers, or with one row of numbers for each draw.
        inside: The input with the record.
        outside: The input without it (or with another in its place).
        draws: The number of draws on each input.
        score: From outputs to scores. The ratio of densities is the best there is, or any
            increasing function of it. Without it, outputs are projected onto the best line for
            Gaussian noise, which is found on a twentieth as many further draws.

    >>> from tacit.auditing import every_threshold
    >>> draw = np.random.default_rng(1)
    >>> def noisy_count(count, draws):
    ...     return count + draw.laplace(scale=2.0, size=draws)  # its ε is ½
    >>> scores = draw_scores(noisy_count, 3, 2, draws=100_000)
    >>> round(every_threshold(scores, delta=0).epsilon, 2)
    0.49
    """
    count = whole("draws", draws)
    scoring = score if score is not None else _line(mechanism, inside, outside, count)
    return Scores(
        _scored(scoring, _outputs(mechanism, inside, count)),
        _scored(scoring, _outputs(mechanism, outside, count)),
    )


def _outputs(
    mechanism: Callable[[Input, int], ArrayLike], data: Input, draws: int
) -> NDArray[np.float64]:
    found = np.asarray(mechanism(data, draws), dtype=np.float64)
    if found.ndim == 0 or len(found) != draws:
        raise InvalidArgument(
            f"mechanism must return one output for each of the {draws} draws, got an array of "
            f"shape {found.shape}"
        )
    return found


def _scored(
    score: Callable[[NDArray[np.float64]], ArrayLike], outputs: NDArray[np.float64]
) -> NDArray[np.float64]:
    found = np.asarray(score(outputs), dtype=np.float64)
    if found.shape != (len(outputs),):
        raise InvalidArgument(
            f"score must return one number for each of the {len(outputs)} outputs, got an array of "
            f"shape {found.shape}"
        )
    return found


def _line(
    mechanism: Callable[[Input, int], ArrayLike], inside: Input, outside: Input, draws: int
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Fisher's discriminant: the pooled covariance's inverse times the difference of means."""
    few = max(2, round(_PILOT * draws))
    pilots = [_outputs(mechanism, data, few).reshape(few, -1) for data in (inside, outside)]
    means = [pilot.mean(axis=0) for pilot in pilots]
    difference = means[0] - means[1]
    rest = np.concatenate([pilot - mean for pilot, mean in zip(pilots, means, strict=True)])
    direction = np.linalg.lstsq(rest.T @ rest / len(rest), difference, rcond=None)[0]
    return lambda outputs: outputs.reshape(len(outputs), -1) @ direction
