"""Inclusion: each record by its own coin of exactly the right bias."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom, chi2

from tacit.errors import InvalidArgument
from tacit.randomness import SystemStream, UnsafeSeededStream, included, inclusion, subset

_LEVEL = 1e-6


class _Script:
    """A stream that gives out what it was told to."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)

    def bytes(self, count: int) -> bytes:
        part = self._parts.pop(0)
        assert len(part) == count
        return part


def _words(*values: int) -> bytes:
    return np.array(values, dtype=np.uint64).tobytes()


@pytest.mark.parametrize("rate", [0.01, 1 / 3, 0.5, 256 / 60_000, 1e-5, 2.0**-19, math.pi / 4])
def test_the_threshold_is_the_rate_to_its_last_bit(rate: float) -> None:
    exact = Fraction(rate) * 2**72
    assert exact.denominator == 1  # 72 bits hold these rates
    top, rest = divmod(int(exact), 2**64)
    # Records 0 and 1 are decided by their byte; 2 to 4 leave it open, and their words decide.
    first = bytes([max(top - 1, 0), top + 1, top, top, top])
    words = [max(rest - 1, 0), rest, min(rest + 1, 2**64 - 1)]
    opened = [top] * (first.count(top) - 3)
    stream = _Script(first, _words(*([2**64 - 1] * len(opened)), *words))
    expected = ([0] if top > 0 else []) + ([2] if rest > 0 else [])
    assert included(5, rate, stream).tolist() == expected


@pytest.mark.parametrize("count", [1, 7, 8, 20_001])
@pytest.mark.parametrize(
    "rate", [1e-5, 1 / 300, 1 / 256, 0.03, 23 / 256, 24 / 256, 0.0999, 0.1, 0.5, 255.5 / 256]
)
def test_it_is_who_the_coins_say_one_by_one(rate: float, count: int) -> None:
    """However places are looked for: by single records, from the same bytes of the stream."""
    for seed in range(3):
        stream = UnsafeSeededStream(seed, "coins")
        top, rest = divmod(int(Fraction(rate) * 2**72), 2**64)
        first = stream.bytes(count)
        words = iter(np.frombuffer(stream.bytes(8 * first.count(top)), np.uint64).tolist())
        one_by_one = [
            at
            for at, byte in enumerate(first)
            if byte < top or (byte == top and next(words) < rest)
        ]
        assert included(count, rate, UnsafeSeededStream(seed, "coins")).tolist() == one_by_one


def test_the_ends_of_the_rate() -> None:
    stream = UnsafeSeededStream(0, "ends")
    assert included(1_000, 0.0, stream).tolist() == []
    assert included(1_000, 1.0, stream).tolist() == list(range(1_000))
    assert included(0, 0.5, stream).tolist() == []
    assert included(100_000, 1e-12, stream).tolist() == []
    almost = included(100_000, 1.0 - 1e-12, stream)
    assert len(almost) == 100_000
    assert almost.dtype == np.int64


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.3, 0.9])
def test_the_number_included_is_binomial(rate: float) -> None:
    def accepts(found: int, claimed: float) -> bool:
        count = 1_000_000
        low, high = binom.ppf(_LEVEL / 2, count, claimed), binom.isf(_LEVEL / 2, count, claimed)
        return bool(low <= found <= high)

    found = len(included(1_000_000, rate, UnsafeSeededStream(0, f"binomial {rate}")))
    assert accepts(found, rate)
    off = 1.25 if rate == 0.001 else 1.07
    assert not accepts(found, min(rate * off, 1.0))
    assert not accepts(found, rate / off)


def test_blocks_are_joined_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inclusion, "_BLOCK", 1_000)
    found = included(10_500, 0.5, UnsafeSeededStream(0, "blocks"))
    assert np.all(np.diff(found) > 0)
    shares = np.bincount(found // 1_000, minlength=11) / np.array([1_000] * 10 + [500])
    assert np.all(abs(shares - 0.5) < 5 * math.sqrt(0.25 / 500))
    assert found.max() < 10_500


def test_system_samples_differ() -> None:
    one, other = (included(10_000, 0.5, SystemStream()) for _ in range(2))
    assert not np.array_equal(one, other)


def test_it_is_fast() -> None:
    def best(count: int) -> float:
        times = []
        for _ in range(20):
            start = time.thread_time()
            included(count, 0.01, SystemStream())
            times.append(time.thread_time() - start)
        return min(times)

    # Of the processor: 0.25 ms and 6 ms on the machine this was written on.
    assert best(60_000) < 2e-3
    assert best(1_000_000) < 40e-3


def test_every_subset_is_equally_likely() -> None:
    def accepts(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
        expected = counts.sum() / len(counts)
        statistic = float(((counts - expected) ** 2 / expected).sum())
        return bool(statistic < chi2.isf(_LEVEL, len(counts) - 1))

    stream, draws = UnsafeSeededStream(0, "subsets"), 20_000
    choices = {choice: place for place, choice in enumerate(combinations(range(5), 2))}
    records = np.arange(5, dtype=np.int64)
    fair = [choices[tuple(subset(records, 2, stream).tolist())] for _ in range(draws)]
    assert accepts(np.bincount(fair, minlength=10))
    # The classical mistake, a remainder: of eight equally likely numbers, 0 to 2 come twice.
    bits = np.frombuffer(stream.bytes(2 * draws), dtype=np.uint8).reshape(draws, 2) % 8 % 5
    biased = [choices[(min(pair), max(pair))] for pair in bits.tolist() if pair[0] != pair[1]]
    assert not accepts(np.bincount(biased, minlength=10))


def test_equal_keys_are_drawn_again() -> None:
    stream = _Script(_words(7, 7, 9), _words(3, 2, 1))
    assert subset(np.array([10, 20, 30]), 2, stream).tolist() == [20, 30]


def test_subsets_of_every_size() -> None:
    records = np.array([4, 8, 15], dtype=np.int64)
    assert subset(records, 0, UnsafeSeededStream(0, "none")).tolist() == []
    assert subset(records, 3, UnsafeSeededStream(0, "all")).tolist() == [4, 8, 15]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: included(-1, 0.5, s), "count .* got -1"),
        (lambda s: included(10, 1.5, s), "rate .* got 1.5"),
        (lambda s: included(10, math.nan, s), "rate .* got nan"),
        (lambda s: subset(np.arange(3), 4, s), "size must be at most the 3 indices, got 4"),
    ],
)
def test_refusals(call: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        call(SystemStream())  # type: ignore[operator]
