"""How often a private selection runs its base: a random number, whose law is public.

The number of runs must be random: were it fixed, the best of k runs would cost nearly k times one
run, and were it chosen after looking at the runs, nothing would hold (Liu & Talwar 2019). The two
laws here are those of Papernot & Steinke (2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from tacit._validation import open_probability, positive
from tacit.errors import InvalidArgument


@dataclass(frozen=True)
class TruncatedNegativeBinomial:
    """P(K = k) ∝ (1-γ)^k · Π_{l<k} (l + η)/(l + 1) for k = 1, 2, … (Papernot & Steinke, Def. 1).

    η = 1 is the geometric law and η = 0 the logarithmic one, P(K = k) ∝ (1-γ)^k/k. A smaller η
    costs less privacy for the same mean, and spreads the number of runs wider.

    >>> TruncatedNegativeBinomial(eta=1, gamma=0.1).mean
    10.0
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        try:
            eta = float(self.eta)
        except (TypeError, ValueError):
            eta = math.nan
        if isinstance(self.eta, bool | str) or not -1.0 < eta < math.inf:
            raise InvalidArgument(f"eta must be a finite number above -1, got {self.eta!r}")
        object.__setattr__(self, "eta", eta)
        object.__setattr__(self, "gamma", open_probability("gamma", self.gamma))

    @property
    def mean(self) -> float:
        """E[K], by the published formulas, kept from cancelling where η or 1-γ is small."""
        log_gamma = math.log(self.gamma)
        scaled = self.eta * log_gamma
        share = 1.0 if scaled == 0.0 else abs(scaled) / -math.expm1(-abs(scaled))
        if scaled > 0.0:  # e^-scaled is taken out, which may underflow but never overflows
            share *= math.exp(-scaled)
        return max(1.0, share * (1.0 - self.gamma) / (self.gamma * -log_gamma))

    @staticmethod
    def with_mean(mean: float, eta: float = 0.0) -> TruncatedNegativeBinomial:
        """The law of this mean: γ is found by bisection and rounded so that E[K] ≤ ``mean``.

        >>> round(TruncatedNegativeBinomial.with_mean(10.0, eta=0.0).gamma, 6)
        0.026918
        """
        if positive("mean", mean) <= 1.0:
            raise InvalidArgument(f"mean must be above 1, got {mean!r}; at 1 there is no choice")
        low, high = math.log(1e-300), -1e-12
        if TruncatedNegativeBinomial(eta, math.exp(low)).mean < mean:
            raise InvalidArgument(f"mean must be within reach of eta={eta!r}, got {mean!r}")
        for _ in range(200):
            middle = 0.5 * (low + high)
            above = TruncatedNegativeBinomial(eta, math.exp(middle)).mean > mean
            low, high = (middle, high) if above else (low, middle)
        return TruncatedNegativeBinomial(eta, math.exp(high))


@dataclass(frozen=True)
class PoissonRuns:
    """K is Poisson with this mean; there may be no run at all, and then nothing is released.

    It spreads little, but costs more than the other law once mean times the base's advantage is
    large.
    """

    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", positive("mean", self.mean))


Runs: TypeAlias = TruncatedNegativeBinomial | PoissonRuns


def check_runs(runs: Runs) -> Runs:
    """Returns ``runs`` if it is one of the laws of this module."""
    if not isinstance(runs, TruncatedNegativeBinomial | PoissonRuns):
        raise InvalidArgument(
            f"runs must be a TruncatedNegativeBinomial or PoissonRuns, got {runs!r}"
        )
    return runs
