"""Choosing: the exact laws of the three noises, by three oracles, and their guarantees."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import laplace as laplace_law

from tacit.accounting import Exponential, NoisyMax
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.mechanisms import _races, choices, exponential, noisy_max, permute_and_flip
from tacit.mechanisms._races import coins, numbers_below, winner, winners
from tacit.randomness import SecureStream, UnsafeSeededStream

from .laws import has_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.mechanisms._races import Law

    Reals = NDArray[np.float64]

_RACES = 200_000
_LAWS = cast("tuple[Law, ...]", ("gumbel", "exponential", "laplace"))
_SCORES = np.asarray([0.0, 2.5, 1.0, -1.5, 2.0])


def gumbel_weights(heights: Reals) -> Reals:
    """The exponential mechanism."""
    return np.exp(heights - heights.max())


def exponential_weights(heights: Reals) -> Reals:
    """Permute-and-flip, literally: in a random order, flip a coin of e^{height - best} for each."""
    chances = np.exp(heights - heights.max())
    found = np.zeros(len(heights))
    for order in itertools.permutations(range(len(heights))):
        left = 1.0
        for place in order:
            found[place] += left * chances[place]
            left *= 1.0 - chances[place]
    return found


def laplace_weights(heights: Reals) -> Reals:
    """P(i is largest) = ∫ f(x - h_i)·Π F(x - h_j) dx."""

    def density(x: float, place: int) -> float:
        others = np.delete(heights, place)
        return float(laplace_law.pdf(x - heights[place]) * np.prod(laplace_law.cdf(x - others)))

    ends = sorted({-40.0, *heights.tolist(), 40.0})
    return np.asarray(
        [
            sum(quad(density, a, b, args=(place,))[0] for a, b in itertools.pairwise(ends))
            for place in range(len(heights))
        ]
    )


_WEIGHTS = {
    "gumbel": gumbel_weights,
    "exponential": exponential_weights,
    "laplace": laplace_weights,
}


def _stream(name: object = "race") -> UnsafeSeededStream:
    return UnsafeSeededStream(0, str(name))


@pytest.mark.parametrize("law", _LAWS)
@pytest.mark.parametrize("rate", [Fraction(1), Fraction(2, 3)])
def test_the_law_and_no_less_noise(law: Law, rate: Fraction) -> None:
    weights = _WEIGHTS[law](_SCORES * float(rate))
    assert has_weights(winners(_SCORES, rate, law, _RACES, _stream(law)), weights)
    assert not has_weights(
        winners(_SCORES, rate / Fraction("0.97"), law, _RACES, _stream(law)), weights
    )


@pytest.mark.parametrize("law", _LAWS)
def test_the_slow_way_has_the_same_law(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wide guard every other race is decided by interval arithmetic."""
    monkeypatch.setattr(_races, "GUARD", 0.05)
    found = winners(_SCORES[:3], Fraction(1, 2), law, 3_000, _stream(law))
    assert has_weights(found, _WEIGHTS[law](_SCORES[:3] / 2))


@pytest.mark.parametrize("law", _LAWS)
def test_both_ways_agree_on_the_same_digits(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = winners(_SCORES, Fraction(1, 2), law, 1_000, _stream("same"))
    monkeypatch.setattr(_races, "GUARD", 1e-2)
    assert np.array_equal(fast, winners(_SCORES, Fraction(1, 2), law, 1_000, _stream("same")))


class _Begins:
    """A stream that begins with given bytes, where floating point is at its worst."""

    def __init__(self, beginning: bytes) -> None:
        self._beginning = beginning
        self._rest = SecureStream("rest")

    def bytes(self, count: int) -> bytes:
        given, self._beginning = self._beginning[:count], self._beginning[count:]
        return given + self._rest.bytes(count - len(given))


@pytest.mark.parametrize("law", _LAWS)
@pytest.mark.parametrize("digit", [b"\0", b"\xff", b"\x01", b"\xfe"])
def test_equal_digits_of_all_are_no_tie(law: Law, digit: bytes) -> None:
    found = [winner(np.zeros(3), Fraction(1), law, _Begins(digit * 24)) for _ in range(30)]
    assert set(found) == {0, 1, 2}


@pytest.mark.parametrize(
    "law",
    [
        "gumbel",
        pytest.param("exponential", marks=pytest.mark.slow),
        pytest.param("laplace", marks=pytest.mark.slow),
    ],
)
def test_scores_of_any_size(law: Law) -> None:
    huge = np.asarray([1e308, -1e308, 9e307])
    assert winner(huge, Fraction(1), law, _stream()) == 0
    found = winners(huge, Fraction(1, 10**307), law, 2_000, _stream())
    assert has_weights(found, _WEIGHTS[law](huge / 1e307))
    tiny = np.asarray([5e-324, 0.0])
    assert {winner(tiny, Fraction(1), law, _stream(n)) for n in range(30)} == {0, 1}


def test_weights_multiply_the_chances() -> None:
    sizes = np.asarray([1, 5, 2**20, 3, 40])
    scores = np.asarray([0, -3, -12, 1, -1])
    found = winners(scores, Fraction(1), "gumbel", _RACES, _stream(), sizes)
    assert has_weights(found, sizes * np.exp(scores.astype(float)))


def test_coins_and_numbers() -> None:
    for chance in (0.1, 0.7):
        heads = coins(chance, lambda a, p=chance: a.mpf(p), _RACES, _stream(chance))
        assert has_weights(heads.astype(np.int64), np.asarray([1 - chance, chance]))
        assert not has_weights(heads.astype(np.int64), np.asarray([1 - 0.9 * chance, 0.9 * chance]))
    for limit in (1, 2, 7, 1000):
        drawn = numbers_below(limit, 50_000, _stream(limit))
        assert drawn.min() >= 0
        assert drawn.max() < limit
        if limit > 1:
            assert has_weights(drawn, np.ones(limit))
    assert numbers_below(2**63 - 1, 3, _stream()).max() > 2**50


def test_a_coin_next_to_its_edge_draws_more_digits() -> None:
    third = (2**64 // 3).to_bytes(8, "little")  # 1/3 begins with these digits
    found = [coins(1 / 3, lambda a: a.mpf(1) / 3, 1, _Begins(third))[0] for _ in range(60)]
    assert set(found) == {True, False}


def _rate_of(call: Any, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> tuple[Fraction, str]:
    """What a mechanism hands to the race."""
    seen = []

    def record(_scores: Any, rate: Fraction, law: str, _stream: Any) -> int:
        seen.append((rate, law))
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(choices, "winner", record)
        call([3.0, 1.0], **arguments)
    return seen[0]  # type: ignore[no-any-return]


def test_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"sensitivity": 0.5, "epsilon": 0.3}
    half = Fraction(0.3) / (2 * Fraction(0.5))
    assert _rate_of(exponential, monkeypatch, **given) == (half, "gumbel")
    assert _rate_of(exponential, monkeypatch, **given, monotone=True)[0] == 2 * half
    replaced = _rate_of(exponential, monkeypatch, **given, monotone=True, adjacency="replace-one")
    assert replaced[0] == half
    for noise in _LAWS:
        rate, law = _rate_of(noisy_max, monkeypatch, **given, noise=noise)
        assert law == noise
        assert float(rate) == pytest.approx(float(half), rel=1e-15)
        assert rate <= half
    assert _rate_of(permute_and_flip, monkeypatch, **given)[1] == "exponential"


@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=4),
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    st.floats(0.05, 3),
)
@settings(deadline=None, max_examples=60)
def test_neighbours_differ_by_no_more_than_epsilon(
    scores: list[float], moves: list[float], epsilon: float
) -> None:
    """The oracles' laws at the mechanism's rates, for scores that move by the sensitivity."""
    one = np.asarray(scores)
    other = one + np.asarray(moves[: len(one)])
    upward = one + np.abs(np.asarray(moves[: len(one)]))
    for weights in (gumbel_weights, exponential_weights):
        for moved, rate in ((other, epsilon / 2), (upward, epsilon)):
            laws = [weights(rate * side) for side in (one, moved)]
            p, q = (law / law.sum() for law in laws)
            losses = np.log(p) - np.log(q)
            assert np.abs(losses).max() <= epsilon * (1 + 1e-9)
            if weights is gumbel_weights:  # the range is bounded too
                assert losses.max() - losses.min() <= epsilon * (1 + 1e-9) + 1e-12


def test_permute_and_flip_has_no_bounded_range() -> None:
    """Which is why its event is NoisyMax and not Exponential."""
    p, q = (exponential_weights(np.asarray([gap, 0.0])) for gap in (0.0, 1.0))
    losses = np.log(p) - np.log(q)
    assert losses.max() - losses.min() > 1.4
    assert isinstance(permute_and_flip([1, 2], sensitivity=1, epsilon=1).event, NoisyMax)


def test_events() -> None:
    assert exponential([1, 2], sensitivity=1, epsilon=0.7).event == Exponential(0.7, "add-remove")
    assert exponential([1, 2], sensitivity=1, rho=0.125).event.epsilon == pytest.approx(1.0)
    assert noisy_max(
        [1, 2], sensitivity=1, rho=0.125, noise="laplace"
    ).event.scale == pytest.approx(4.0)
    for noise in _LAWS:
        for monotone in (False, True):
            for adjacency in ("add-remove", "replace-one", "zero-out"):
                event = noisy_max(
                    [1, 2],
                    sensitivity=1,
                    epsilon=0.7,
                    noise=noise,
                    monotone=monotone,
                    adjacency=adjacency,  # type: ignore[arg-type]
                ).event
                found = epsilon_of(event, 1e-9, "basic", adjacency)  # type: ignore[arg-type]
                assert found <= 0.7
                assert found == pytest.approx(0.7)


def test_what_stands_for_a_candidate() -> None:
    sure = {"sensitivity": 1e-6, "epsilon": 1}
    assert exponential([0, 9, 3], **sure).value == 1
    assert noisy_max(np.asarray([0, 9, 3]), **sure).value == 1
    assert noisy_max(pd.Series([0, 9, 3], index=["a", "b", "c"]), **sure).value == "b"
    assert permute_and_flip({"x": 0, "y": 9}, **sure).value == "y"
    assert exponential([0, 9, 3], **sure, candidates=["low", "high", "mid"]).value == "high"
    turned = pd.Series(["low", "high", "mid"], index=[2, 0, 1])
    assert exponential([0, 9, 3], **sure, candidates=turned).value == "high"


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="scores must be finite"):
        exponential([1.0, math.inf], sensitivity=1, epsilon=1)
    with pytest.raises(InvalidArgument, match="scores must be finite"):
        noisy_max([1.0, math.nan], sensitivity=1, epsilon=1)
    with pytest.raises(InvalidArgument, match="one number per candidate"):
        exponential([], sensitivity=1, epsilon=1)
    with pytest.raises(InvalidArgument, match="one number per candidate"):
        exponential([[1.0]], sensitivity=1, epsilon=1)
    for loose in ({"a": 1}, {"a"}):
        with pytest.raises(InvalidArgument, match="a list in the order of the scores"):
            exponential([1.0], sensitivity=1, epsilon=1, candidates=loose)
    with pytest.raises(InvalidArgument, match="candidates must be as many"):
        exponential([1.0], sensitivity=1, epsilon=1, candidates=["a", "b"])
    with pytest.raises(InvalidArgument, match="monotone must be True or False"):
        exponential([1.0], sensitivity=1, epsilon=1, monotone=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="noise must be one of"):
        noisy_max([1.0], sensitivity=1, epsilon=1, noise="normal")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="between 1e-300 and 1e300"):
        exponential([1.0], sensitivity=1e-320, epsilon=1)
