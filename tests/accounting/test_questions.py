"""Questions about events whose losses no floating-point number holds: a bound, or one line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from tacit.accounting import (
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
    UnsupportedEvent,
    compare,
    delta,
    epsilon,
)
from tacit.accounting.accountants import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

# Each tells for sure whether a record was in the data, or in the sample.
LOUD: list[Event] = [
    Gaussian(1e-200),
    Repeated(PoissonSampled(0.1, Gaussian(1e-200)), 3),
    DiscreteGaussian(1e-200),
    PoissonSampled(0.1, Laplace(1e-200)),
]


def _answer(ask: Callable[[], float]) -> float | str:
    """What was answered, or the words of the refusal."""
    try:
        return ask()
    except UnsupportedEvent as refusal:
        return str(refusal)


@pytest.mark.parametrize("accountant", NAMES)
@pytest.mark.parametrize("event", LOUD, ids=repr)
def test_an_overflow_is_infinite_or_refused_in_one_line(event: Event, accountant: str) -> None:
    for ask, least in ((epsilon, 1e100), (delta, 0.09)):
        found = _answer(lambda ask=ask: ask(event, 1e-5, accountant))
        if isinstance(found, str):
            assert accountant in found
            assert "\n" not in found
        else:
            assert found >= least


@pytest.mark.parametrize("accountant", ["rdp", "moments", "zcdp", "gdp"])
def test_an_overflow_names_the_remedy(accountant: str) -> None:
    for ask in (epsilon, delta):
        with pytest.raises(UnsupportedEvent, match=r"1e-200.*its noise must be larger"):
            ask(Gaussian(1e-200), 1e-5, accountant)
    assert math.isfinite(epsilon(Gaussian(1e-100), 1e-5, accountant))


def test_a_comparison_has_a_row_for_what_overflows() -> None:
    rows = {row.accountant: row for row in compare(Gaussian(1e-200), 1e-5)}
    assert rows["exact"].epsilon == math.inf
    assert rows["rdp"].epsilon is None
    assert "floating-point" in rows["rdp"].note
