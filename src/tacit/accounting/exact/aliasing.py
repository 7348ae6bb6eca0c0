"""How far apart the copies must lie that the trapezoid rule folds onto δ(ε).

With period S and tilt z₀ the rule returns Σ_k δ(ε + kS)·exp(kSz₀). The copies below ε add at most
Σ_{k≥1} exp(-kSz₀), since δ ≤ 1. Those above are bounded by Chernoff at a larger tilt z₁:
δ(x) ≤ c(z₁)·exp(ln M(z₁) - z₁x), with c(z) = max_y (1 - e^{-y})·e^{-zy}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.accounting.exact.saddle import Aim, Search


@dataclass(frozen=True)
class Aliases:
    """Bounds the copies for one tilt.

    Attributes:
        tilt: z₀.
        above: z₁ > z₀.
        log_mgf_above: An upper bound on ln M(z₁).
    """

    tilt: float
    above: float
    log_mgf_above: float

    def bound(self, epsilon: float, period: float) -> float:
        """What all copies together add to δ(ε), at most."""
        below = _geometric_sum(self.tilt * period)
        exponent = self.log_mgf_above - self.above * epsilon + log_chernoff_constant(self.above)
        return below + math.exp(min(exponent, 700.0)) * _geometric_sum(
            (self.above - self.tilt) * period
        )

    def period(self, aim: Aim, digits: float) -> float:
        """The shortest period at which the bound is about exp(-digits)·δ."""
        below = (digits - aim.log_delta) / self.tilt
        return max(below, _period_above(aim, self.above, self.log_mgf_above, digits))


def bound_aliases(search: Search, aim: Aim, digits: float) -> Aliases:
    """Chooses the tilt above the contour's whose Chernoff bound lets the period be shortest."""
    offset = math.sqrt(2.0 * digits / aim.point.curvature)
    best, shortest = Aliases(aim.tilt, aim.tilt + offset, math.inf), math.inf
    for _ in range(60):
        offset *= 0.65
        tilt = aim.tilt + offset
        log_mgf = search.log_mgf_bound(tilt)
        period = _period_above(aim, tilt, log_mgf, digits)
        if period > shortest:
            break
        best, shortest = Aliases(aim.tilt, tilt, log_mgf), period
    return best


def _period_above(aim: Aim, tilt: float, log_mgf: float, digits: float) -> float:
    exponent = log_mgf - tilt * aim.epsilon + log_chernoff_constant(tilt)
    return (exponent + digits - aim.log_delta) / (tilt - aim.tilt)


def log_chernoff_constant(tilt: float) -> float:
    """Ln max_y (1 - e^{-y})·e^{-tilt·y}."""
    return tilt * math.log(tilt) - (tilt + 1.0) * math.log(tilt + 1.0)


def _geometric_sum(exponent: float) -> float:
    """Σ_{k≥1} exp(-k·exponent)."""
    return 1.0 / math.expm1(exponent) if exponent < 700.0 else 0.0
