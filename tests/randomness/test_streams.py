"""Streams: unpredictable ones from the system, repeatable ones only under a name that says so."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.errors import InvalidArgument
from tacit.randomness import Stream, SystemStream, UnsafeSeededStream

_LEVEL = 1e-6


def _looks_uniform(data: bytes) -> bool:
    """Pearson's chi-square over the 256 values of a byte, at a false-alarm rate of 1e-6."""
    counts = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256)
    expected = len(data) / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return bool(chi2.ppf(_LEVEL / 2, 255) < statistic < chi2.isf(_LEVEL / 2, 255))


def test_bytes_are_uniform() -> None:
    assert _looks_uniform(UnsafeSeededStream(0, "bytes").bytes(1_000_000))


def test_the_uniformity_test_has_power() -> None:
    data = bytearray(UnsafeSeededStream(0, "bytes").bytes(1_000_000))
    skewed = bytes(byte & 0xFE if place % 50 == 0 else byte for place, byte in enumerate(data))
    assert not _looks_uniform(skewed)
    assert not _looks_uniform(bytes(range(256)) * 4_000)  # too even to be random


@pytest.mark.parametrize("stream", [SystemStream(), UnsafeSeededStream(1, "any")])
def test_every_call_gives_new_bytes_of_the_asked_length(stream: Stream) -> None:
    assert [len(stream.bytes(count)) for count in (0, 1, 17)] == [0, 1, 17]
    assert stream.bytes(32) != stream.bytes(32)


def test_system_streams_differ() -> None:
    assert SystemStream().bytes(32) != SystemStream().bytes(32)


def test_a_seeded_stream_repeats() -> None:
    one, other = UnsafeSeededStream(3, "noise"), UnsafeSeededStream(3, "noise")
    assert [one.bytes(9) for _ in range(5)] == [other.bytes(9) for _ in range(5)]


def test_seeds_and_purposes_separate_streams() -> None:
    pairs = [(1, "noise"), (2, "noise"), (1, "lots"), (12, ":x"), (1, "2::x"), (1, "")]
    assert len({UnsafeSeededStream(*pair).bytes(32) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("seed", "purpose", "words"),
    [(-1, "lots", "seed .* got -1"), (0.5, "lots", "seed .* got 0.5"), (1, 2, "purpose .* got 2")],
)
def test_refusals(seed: int, purpose: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        UnsafeSeededStream(seed, purpose)
