"""A distinguishing attack, and the ε that it proves at 99.9 % confidence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import beta

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Scores = NDArray[np.float64] | NDArray[np.int64]

SCOUTS = 6  # one draw in so many is the attacker's to choose what to look at


def proven_epsilon(one: Scores, other: Scores, delta: float = 0.0) -> float:
    """A lower bound on ε, from draws on two neighbours, that is wrong once in a thousand.

    The attacker guesses by whether the output lies above (or below) a threshold. Threshold, side
    and direction are chosen by the first draws; the bound is from the others. Clopper & Pearson
    1934 for each of the two probabilities.
    """
    scouts = len(one) // SCOUTS
    draws = len(one) - scouts
    assert len(other) == len(one)
    best = max(
        (
            (_gain(a[:scouts] * sign, b[:scouts] * sign, draws, delta), sign, turned)
            for sign in (1, -1)
            for turned, (a, b) in enumerate(((one, other), (other, one)))
        ),
        key=lambda found: found[0][0],
    )
    (_, threshold), sign, turned = best
    first, second = (other, one) if turned else (one, other)
    hits = [int((side[scouts:] * sign >= threshold).sum()) for side in (first, second)]
    return _bound(hits[0], hits[1], draws, delta)


def _gain(first: Scores, second: Scores, draws: int, delta: float) -> tuple[float, float]:
    """The best threshold of these draws, by what the later ones are expected to prove."""
    tried = np.unique(np.concatenate([first, second]))
    if len(tried) > 400:
        tried = np.quantile(tried, np.linspace(0, 1, 400))
    a, b = np.sort(first), np.sort(second)
    gains = []
    for threshold in tried:
        p = 1 - np.searchsorted(a, threshold) / len(a)
        q = 1 - np.searchsorted(b, threshold) / len(b)
        q = max(q, 3 / len(b))  # so rare that the scouts cannot tell
        gains.append((_bound(int(p * draws), int(q * draws), draws, delta), float(threshold)))
    return max(gains)


def _bound(hits: int, other_hits: int, draws: int, delta: float) -> float:
    least, most = _ends(hits, draws)[0], _ends(other_hits, draws)[1]
    return math.log((least - delta) / most) if least > delta else -math.inf


def _ends(hits: int, draws: int) -> tuple[float, float]:
    """Within which the probability lies; either end is wrong once in two thousand."""
    least = float(beta.ppf(0.0005, hits, draws - hits + 1)) if hits > 0 else 0.0
    most = float(beta.isf(0.0005, hits + 1, draws - hits)) if hits < draws else 1.0
    return least, most
