"""Noise that stays within bounds: exact laws of all neighbours, and the scale they need."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import DiscreteLaplace, PureDp
from tacit.errors import InvalidArgument
from tacit.mechanisms import bounded_laplace, discrete_laplace, geometric, numbers
from tacit.mechanisms.numbers import _bounded_scale, _noise_between
from tacit.randomness import UnsafeSeededStream

from .laws import has_weights


def _law(place: int, last: int, scale: float) -> list[mpmath.mpf]:
    weights = [mpmath.exp(-abs(k - place) / mpmath.mpf(scale)) for k in range(last + 1)]
    total = mpmath.fsum(weights)
    return [weight / total for weight in weights]


def _worst(last: int, moved: int, scale: float) -> mpmath.mpf:
    """The largest privacy loss of any two numbers that are neighbours, by enumeration."""
    laws = [_law(place, last, scale) for place in range(last + 1)]
    return max(
        mpmath.log(max(p / q for p, q in zip(laws[one], laws[other], strict=True)))
        for one in range(last + 1)
        for other in range(max(0, one - moved), min(last, one + moved) + 1)
    )


@pytest.mark.parametrize(("last", "moved"), [(1, 1), (7, 2), (9, 9), (12, 5)])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0])
def test_the_scale_is_the_least_that_every_pair_allows(
    last: int, moved: int, epsilon: float
) -> None:
    scale = _bounded_scale(last, moved, epsilon)
    with mpmath.workdps(40):
        found = _worst(last, moved, scale)
        assert found <= epsilon
        assert found >= epsilon * (1 - 1e-9)
        if moved < last:  # else it is an exponential mechanism, and both ends weigh alike
            assert _worst(last, moved, moved / epsilon) > epsilon, "laplace's scale is too little"


@pytest.mark.parametrize(("last", "moved"), [(2**50, 2**20), (2**50, 2**50), (2**21, 3)])
@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1.0, 50.0, 1e4])
def test_the_scale_holds_on_fine_grids(last: int, moved: int, epsilon: float) -> None:
    """The loss in closed form, by 60 digits."""
    scale = _bounded_scale(last, moved, epsilon)
    with mpmath.workdps(60):
        r = mpmath.exp(-1 / mpmath.mpf(scale))
        ratio = (1 + r - r ** (moved + 1) - r ** (last - moved + 1)) / (1 - r ** (last + 1))
        loss = moved / mpmath.mpf(scale) + mpmath.log(ratio)
        assert loss <= epsilon
        assert loss >= epsilon * (1 - (1e-9 if epsilon > 1e-4 else 2e-5))


@pytest.mark.parametrize(("scale", "first", "last"), [(2.0, -3, 9), (30.0, -1, 5)])
def test_the_law_and_no_less_noise(scale: float, first: int, last: int) -> None:
    """Drawn again until it stays within, and drawn within and kept by chance."""
    stream = UnsafeSeededStream(0, f"{scale}")
    draws = 6000 if scale < last else 3000
    drawn = np.asarray([_noise_between(scale, first, last, stream) for _ in range(draws)])
    k = np.arange(first, last + 1)
    assert has_weights(drawn - first, np.exp(-np.abs(k) / scale))
    assert not has_weights(drawn - first, np.exp(-np.abs(k) / (scale / (1.2 if scale < 9 else 9))))


_FLOATS = st.floats(-1e6, 1e6)


@pytest.mark.parametrize("count", [60, pytest.param(150, marks=pytest.mark.slow)])
def test_rounding_moves_neighbours_no_further_than_is_paid_for(count: int) -> None:
    sizes = st.floats(1e-6, 1e6), st.floats(1e-3, 1e3), st.floats(0, 1)
    drawn = given(_FLOATS, _FLOATS, *sizes)
    settings(deadline=None, max_examples=count)(drawn(moves_no_further))()


def moves_no_further(lower: float, one: float, width: float, epsilon: float, share: float) -> None:
    """And answers lie within the bounds."""
    upper = lower + width
    if not upper > lower:
        return
    moved = max(share * width, 1e-9 * width)
    other = one + moved if share < 0.5 else one - moved
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "_noise_between", lambda *_: 0)
        scale = numbers._bounded_scale
        patch.setattr(numbers, "_bounded_scale", lambda *asked: seen.append(asked) or scale(*asked))
        places = []
        for value in (one, other):
            found = bounded_laplace(
                value, sensitivity=abs(other - one) or 1.0, bounds=(lower, upper), epsilon=epsilon
            ).value
            assert lower <= found <= upper
            places.append(found)
    assert seen[0] == seen[1]
    last, reach, _ = seen[0]
    assert abs(places[0] - places[1]) <= reach * (width / last) * (1 + 1e-9) + 1e-9 * abs(upper)


def test_answers_stay_within_and_spread_there() -> None:
    stream = UnsafeSeededStream(0, "b")
    asked: Any = {"sensitivity": 1, "bounds": (0, 10), "epsilon": 0.5, "stream": stream}
    found = [bounded_laplace(9.9, **asked).value for _ in range(300)]
    assert all(0 <= one <= 10 for one in found)
    assert len(set(found)) == 300, "none piles up at the ends"
    assert 6 < np.median(found) < 9.5
    sure = bounded_laplace(3.25, sensitivity=1e-6, bounds=(0, 10), epsilon=1).value
    assert sure == pytest.approx(3.25, abs=1e-4)
    assert isinstance(sure, float)
    array = bounded_laplace(np.asarray([3.25]), sensitivity=1e-6, bounds=(0, 10), epsilon=1).value
    assert array.shape == (1,)
    far = bounded_laplace(1e15 + 7, sensitivity=1, bounds=(1e15, 1e15 + 8), epsilon=1).value
    assert 1e15 <= far <= 1e15 + 8
    wide = bounded_laplace(5, sensitivity=99, bounds=(0, 10), epsilon=1)
    assert wide.event == PureDp(1.0, "add-remove")
    zero = bounded_laplace(5, sensitivity=1, bounds=(0, 10), rho=0.5, adjacency="replace-one")
    assert zero.event.epsilon == pytest.approx(1.0)
    assert zero.event.adjacency == "replace-one"


def test_geometric_noise_within_bounds_is_clipped() -> None:
    """The same draws, clipped: nothing but the answer is looked at."""
    assert geometric is discrete_laplace
    counts = np.asarray([0, 1, 5, 9, 10, 400])
    free, kept = (
        discrete_laplace(counts, epsilon=0.5, bounds=bounds, stream=UnsafeSeededStream(0, "g"))
        for bounds in (None, (0, 10))
    )
    assert (
        kept.value.tolist()
        == np.clip(np.clip(counts, 0, 10) + (free.value - counts), 0, 10).tolist()
    )
    assert kept.event == free.event == DiscreteLaplace(2.0)
    series = pd.Series([3, 4], index=["a", "b"])
    found = geometric(series, epsilon=50, bounds=(0, 3)).value
    assert found.to_dict() == {"a": 3, "b": 3}
    assert geometric(7, epsilon=60, bounds=(-5, 5)).value == 5
    assert geometric(True, epsilon=60, bounds=(-5, 5)).value == 1


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="value must be one number"):
        bounded_laplace([1, 2], sensitivity=1, bounds=(0, 1), epsilon=1)
    with pytest.raises(InvalidArgument, match="bounds must be finite"):
        bounded_laplace(1, sensitivity=1, bounds=(0, math.inf), epsilon=1)
    with pytest.raises(InvalidArgument, match="sensitivity must be a positive"):
        bounded_laplace(1, sensitivity=0, bounds=(0, 1), epsilon=1)
    with pytest.raises(InvalidArgument, match=r"epsilon \(or rho\) must be larger"):
        bounded_laplace(1, sensitivity=1, bounds=(0, 1), epsilon=1e-300)
    for bounds in ((1, 1), (0, 0.5), (0, 2**63), (0,), 7):
        with pytest.raises(InvalidArgument, match="bounds must be two whole numbers"):
            geometric(1, epsilon=1, bounds=bounds)  # type: ignore[arg-type]
