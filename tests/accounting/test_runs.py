"""The laws of the number of runs, against sums over their probabilities."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import PoissonRuns, TruncatedNegativeBinomial
from tacit.accounting.events import check_runs
from tacit.errors import InvalidArgument


def weights(eta: float, gamma: float, largest: int) -> list[float]:
    """The unnormalised probabilities of k = 1, 2, …, from the definition."""
    found, product = [], 1.0 / eta if eta else 0.0
    for k in range(1, largest + 1):
        product = product * (k - 1 + eta) / k if eta else 1.0 / k
        found.append((1.0 - gamma) ** k * product)
    return found


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1e-12, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("gamma", [0.5, 0.1, 0.01])
def test_the_mean_is_the_sum_over_all_numbers(eta: float, gamma: float) -> None:
    found = weights(eta, gamma, 6000)
    mean = math.fsum(k * one for k, one in enumerate(found, 1)) / math.fsum(found)
    assert TruncatedNegativeBinomial(eta, gamma).mean == pytest.approx(mean, rel=1e-9)


@given(st.floats(1.01, 1e4), st.sampled_from([-0.3, 0.0, 0.5, 1.0, 2.0]))
def test_a_mean_is_met_from_below(mean: float, eta: float) -> None:
    found = TruncatedNegativeBinomial.with_mean(mean, eta).mean
    assert mean * (1.0 - 1e-9) <= found <= mean


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TruncatedNegativeBinomial(-1.0, 0.1), "eta must be a finite number above -1"),
        (lambda: TruncatedNegativeBinomial(math.nan, 0.1), "eta .* got nan"),
        (lambda: TruncatedNegativeBinomial("1", 0.1), "eta .* got '1'"),
        (lambda: TruncatedNegativeBinomial(1.0, 1.0), "gamma must lie strictly between 0 and 1"),
        (lambda: TruncatedNegativeBinomial.with_mean(1.0), "mean must be above 1, got 1.0"),
        (lambda: PoissonRuns(0.0), "mean must be a positive finite number, got 0.0"),
        (lambda: check_runs(3), "runs must be .* got 3"),
    ],
)
def test_refusals(make: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()  # type: ignore[operator]
