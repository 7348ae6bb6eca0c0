"""Releasing numbers: mechanisms with their events, charged before any noise is drawn.

>>> from tacit.mechanisms import histogram, laplace
>>> released = laplace(1234, sensitivity=1, epsilon=0.5)
>>> released.event
Laplace(scale=2.0, replace_distance=2.0)
>>> round(released.epsilon(delta=1e-9), 6)
0.5

| for | mechanisms |
|---|---|
| numbers | `laplace`, `bounded_laplace`, `gaussian` |
| whole numbers | `discrete_laplace` (also `geometric`), `discrete_gaussian` |
| answers | `randomized_response` |
| a choice | `exponential`, `permute_and_flip`, `noisy_max`, `top_k`, `SparseVector` |
| records | `noisy_sum` (also `sum`), `mean`, `variance`, `standard_deviation`, `quantile` |
| counts | `histogram` |
| rows of records | `covariance`, `pca` |

Each takes public bounds or a sensitivity, and ε (and δ) or ρ; none looks for bounds in the data.
"""

from __future__ import annotations

from tacit.mechanisms.choices import exponential, noisy_max, permute_and_flip, top_k
from tacit.mechanisms.covariances import Components, covariance, pca
from tacit.mechanisms.histograms import histogram
from tacit.mechanisms.numbers import (
    bounded_laplace,
    discrete_gaussian,
    discrete_laplace,
    gaussian,
    geometric,
    laplace,
)
from tacit.mechanisms.quantiles import quantile
from tacit.mechanisms.release import Released
from tacit.mechanisms.responses import randomized_response
from tacit.mechanisms.sparse_vectors import SparseVector
from tacit.mechanisms.sums import mean, noisy_sum
from tacit.mechanisms.variances import standard_deviation, variance

sum = noisy_sum  # noqa: A001 - its first name, which hides a builtin; scripts use it

__all__ = [
    "Components",
    "Released",
    "SparseVector",
    "bounded_laplace",
    "covariance",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential",
    "gaussian",
    "geometric",
    "histogram",
    "laplace",
    "mean",
    "noisy_max",
    "noisy_sum",
    "pca",
    "permute_and_flip",
    "quantile",
    "randomized_response",
    "standard_deviation",
    "sum",
    "top_k",
    "variance",
]
