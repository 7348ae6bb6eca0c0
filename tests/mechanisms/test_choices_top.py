"""The top k: the race by its own digits, and its event by every order of small score tables."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import pytest

from tacit.accounting import Exponential, NoisyMax, Repeated
from tacit.accounting import delta as delta_of
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.mechanisms import _races, choices, top_k
from tacit.mechanisms._races import leaders, winner
from tacit.randomness import UnsafeSeededStream

from .laws import has_weights


def _stream(name: object = "top") -> UnsafeSeededStream:
    return UnsafeSeededStream(0, str(name))


def _weights(heights: list[float], noise: str) -> list[float]:
    """The law of one choice: the exponential mechanism, or permute-and-flip, literally."""
    chances = [math.exp(height - max(heights)) for height in heights]
    if noise == "gumbel":
        return [chance / math.fsum(chances) for chance in chances]
    found = [0.0] * len(heights)
    orders = list(itertools.permutations(range(len(heights))))
    for order in orders:
        left = 1.0 / len(orders)
        for place in order:
            found[place] += left * chances[place]
            left *= 1.0 - chances[place]
    return found


def _peeled(heights: list[float], k: int, noise: str) -> dict[tuple[int, ...], float]:
    """The chance of each order, by k choices one after another."""
    found = {}
    for order in itertools.permutations(range(len(heights)), k):
        left = list(range(len(heights)))
        chance = 1.0
        for place in order:
            chance *= _weights([heights[one] for one in left], noise)[left.index(place)]
            left.remove(place)
        found[order] = chance
    return found


@pytest.mark.parametrize("law", ["gumbel", "exponential"])
def test_the_race_is_that_of_its_own_digits(law: Any) -> None:
    """The noises from the same 64 digits by 40-digit arithmetic, sorted by hand."""
    scores = np.random.default_rng(0).normal(size=25)
    rate = Fraction(1, 3)
    for seed in range(20):
        words = np.frombuffer(_stream(seed).bytes(8 * 25), dtype=np.uint64)
        with mpmath.workdps(40):
            heights = []
            for word, score in zip(words.tolist(), scores.tolist(), strict=True):
                uniform = (mpmath.mpf(word) + 0.5) / 2**64
                size = -mpmath.log(1 - uniform if law == "gumbel" else uniform)
                heights.append(score / 3 + (-mpmath.log(size) if law == "gumbel" else size))
            expected = sorted(range(25), key=lambda place: -heights[place])
        for count in (1, 4, 25):
            assert leaders(scores, rate, law, count, _stream(seed)).tolist() == expected[:count]
        assert winner(scores, rate, law, _stream(seed)) == expected[0]


def test_the_slow_way_finds_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.linspace(0, 1, 12)
    fast = [leaders(scores, Fraction(2), "gumbel", 6, _stream(n)).tolist() for n in range(25)]
    monkeypatch.setattr(_races, "GUARD", 0.05)
    slow = [leaders(scores, Fraction(2), "gumbel", 6, _stream(n)).tolist() for n in range(25)]
    assert fast == slow


def test_one_shot_has_the_law_of_peeling() -> None:
    """All 24 orders of 3 out of 4; the test rejects a rate that is a quarter more."""
    scores, rate, draws = np.asarray([0.0, 1.0, 2.5, 2.0]), Fraction(1, 2), 6000
    orders = list(itertools.permutations(range(4), 3))
    stream = _stream("law")
    found = np.asarray(
        [orders.index(tuple(leaders(scores, rate, "gumbel", 3, stream))) for _ in range(draws)]
    )
    for factor, right in ((1.0, True), (1.25, False)):
        law = _peeled((0.5 * factor * scores).tolist(), 3, "gumbel")
        assert has_weights(found, np.asarray([law[order] for order in orders])) == right


_TABLES = [list(one) for one in itertools.product([0.0, 1.0, 3.0], repeat=3)]
_AGAINST = [list(one) for one in itertools.product([-1.0, 1.0], repeat=3)]
_ALONG = [list(one) for one in itertools.product([0.0, 1.0], repeat=3)]


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
@pytest.mark.parametrize("monotone", [False, True])
def test_the_event_covers_every_pair_of_neighbours(noise: Any, monotone: bool) -> None:
    """Exact laws of both, from all small tables; pure ε, and δ at several ε, in both directions."""
    asked, k = 1.2, 2
    event = top_k([1, 2, 3], k, sensitivity=1, epsilon=asked, noise=noise, monotone=monotone).event
    rate = asked / k / (1 if monotone else 2)
    at = (0.3, 0.6, 0.9)
    worst, shown = 0.0, dict.fromkeys(at, 0.0)
    for scores in _TABLES:
        laws = [_peeled([rate * one for one in scores], k, noise)]
        for move in _ALONG if monotone else _AGAINST:
            other = [rate * (a + b) for a, b in zip(scores, move, strict=True)]
            laws.append(_peeled(other, k, noise))
        for p, q in ((laws[0], one) for one in laws[1:]):
            for a, b in ((p, q), (q, p)):
                worst = max(worst, *(math.log(a[order] / b[order]) for order in a))
                for epsilon in at:
                    gaps = (a[order] - math.exp(epsilon) * b[order] for order in a)
                    shown[epsilon] = max(shown[epsilon], math.fsum(max(gap, 0.0) for gap in gaps))
    assert worst <= asked * (1 + 1e-12)
    assert worst >= 0.6 * asked
    for epsilon, found in shown.items():
        assert found <= delta_of(event, epsilon)
    assert shown[0.3] > 0.2 * delta_of(event, 0.3)


def test_events_meet_what_was_asked() -> None:
    scores = list(range(40))
    pure = top_k(scores, 3, sensitivity=1, epsilon=0.7).event
    assert pure == Repeated(Exponential(pure.event.epsilon, "add-remove"), 3)
    assert 3 * pure.event.epsilon <= 0.7
    assert 3 * pure.event.epsilon == pytest.approx(0.7, rel=2e-15)
    concentrated = top_k(scores, 8, sensitivity=1, rho=1.0).event
    assert concentrated.event.epsilon == pytest.approx(1.0, rel=1e-12)  # 8·ε²/8 = 1
    replaced = top_k(
        scores, 3, sensitivity=1, epsilon=0.6, noise="exponential", adjacency="replace-one"
    ).event
    assert isinstance(replaced.event, NoisyMax)
    assert replaced.event.replace_distance == 1.0
    for noise in ("gumbel", "exponential"):
        event = top_k(scores, 30, sensitivity=1, epsilon=1, delta=1e-6, noise=noise).event  # type: ignore[arg-type]
        assert 0.999 < epsilon_of(event, 1e-6) <= 1
    few = top_k(scores, 1, sensitivity=1, epsilon=1, delta=1e-6).event
    assert few.event.epsilon == 1.0


def test_composed_choices_are_better_than_divided_ones() -> None:
    shared = top_k(list(range(90)), 60, sensitivity=1, epsilon=1, delta=1e-6).event
    assert shared.event.epsilon > 2.5 / 60


def test_peeling_chooses_among_those_left(monkeypatch: pytest.MonkeyPatch) -> None:
    raced: list[list[float]] = []

    def last(scores: Any, *_: Any) -> int:
        raced.append(scores.tolist())
        return len(scores) - 1

    monkeypatch.setattr(choices, "winner", last)
    chosen = top_k([4, 5, 6, 7], 3, sensitivity=1, epsilon=1, noise="exponential").value
    assert chosen == [3, 2, 1]
    assert raced == [[4, 5, 6, 7], [4, 5, 6], [4, 5]]


def test_what_stands_for_a_candidate() -> None:
    sure: Any = {"sensitivity": 1e-6, "epsilon": 1}
    for noise in ("gumbel", "exponential"):
        sure["noise"] = noise
        assert top_k([0, 9, 3, 5], 3, **sure).value == [1, 3, 2]
        assert top_k(pd.Series([0, 9, 3], index=["a", "b", "c"]), 2, **sure).value == ["b", "c"]
        assert top_k({"x": 0, "y": 9}, 2, **sure).value == ["y", "x"]
        assert top_k([0, 9], 1, **sure, candidates=["low", "high"]).value == ["high"]


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="k must be at most the number of candidates, 2"):
        top_k([1, 2], 3, sensitivity=1, epsilon=1)
    with pytest.raises(InvalidArgument, match="k must be a whole number"):
        top_k([1, 2], 0, sensitivity=1, epsilon=1)
    with pytest.raises(InvalidArgument, match="noise must be 'gumbel' or 'exponential'"):
        top_k([1, 2], 1, sensitivity=1, epsilon=1, noise="laplace")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="scores must be finite"):
        top_k([1, math.nan], 1, sensitivity=1, epsilon=1)
    with pytest.raises(InvalidArgument, match="monotone must be True or False"):
        top_k([1, 2], 1, sensitivity=1, epsilon=1, monotone=1)  # type: ignore[arg-type]
