"""Shares of a draw: the same number at a place, whoever draws it, and no work for the others'."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.errors import BrokenRandomness, InvalidArgument
from tacit.randomness import (
    GaussianSource,
    KeyedStream,
    RoundedGaussian,
    Share,
    SharedStream,
    UnsafeSeededStream,
)
from tacit.randomness.device_noise import DeviceNoise
from tacit.randomness.gaussian import fill_tiles

from ..forked import Forked

_CPU = torch.device("cpu")
_BLOCK = 1 << 18


def _fast(dtype: torch.dtype) -> GaussianSource:
    return GaussianSource(_CPU, UnsafeSeededStream(0, f"shares {dtype}"))


def _cut(of: int, ends: list[int]) -> list[Share]:
    """The draw in as many shares as there are ends, the last with two stretches."""
    places = [0, *sorted(end % (of + 1) for end in ends), of]
    parts = [(a, b) for a, b in pairwise(places) if b > a]
    if len(parts) > 2:
        return [Share(of, (part,)) for part in parts[1:-1]] + [Share(of, (parts[0], parts[-1]))]
    return [Share(of, (part,)) for part in parts]


@given(of=st.integers(1, 3000), ends=st.lists(st.integers(0, 3000), min_size=1, max_size=4))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shares_of_fast_noise_are_those_of_the_whole(
    dtype: torch.dtype, of: int, ends: list[int]
) -> None:
    whole, shared = _fast(dtype), _fast(dtype)
    for _ in range(2):  # and so are those of the next draw
        numbers = torch.empty(of, dtype=dtype)
        whole.normal_(numbers, 2.0)
    for share in _cut(of, ends):
        source = _fast(dtype)
        for _ in range(2):
            part = torch.empty(share.count, dtype=dtype)
            source.normal_(part, 2.0, share=share)
        wanted = torch.cat([numbers[a:b] for a, b in share.stretches])
        assert torch.equal(part, wanted)
    nothing = torch.empty(0, dtype=dtype)
    for _ in range(2):
        shared.normal_(nothing, 2.0, share=Share(of, ()))
    one, other = torch.empty(7, dtype=dtype), torch.empty(7, dtype=dtype)
    whole.normal_(one)
    shared.normal_(other)
    assert torch.equal(one, other), "whoever wanted nothing goes on as the others do"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shares_that_cross_blocks(dtype: torch.dtype) -> None:
    of = 2 * _BLOCK + 12_345
    numbers = torch.empty(of, dtype=dtype)
    _fast(dtype).normal_(numbers)
    few = ((5, 9), (_BLOCK - 3, _BLOCK + 1001), (of - 77, of))
    near, far = (tuple((a, a + 777) for a in range(0, of - 777, b)) for b in (1001, 40_001))
    for stretches in (few, near, far):  # pieces of a block, computed together or not
        share = Share(of, stretches)
        part = torch.empty(share.count, dtype=dtype)
        _fast(dtype).normal_(part, share=share)
        assert torch.equal(part, torch.cat([numbers[a:b] for a, b in share.stretches]))


def test_double_precision_is_normal_to_its_tails() -> None:
    numbers = torch.empty(400_001, dtype=torch.float64)
    _fast(torch.float64).normal_(numbers)
    values = numbers.numpy()
    assert stats.kstest(values, "norm").pvalue > 1e-4
    assert stats.kstest(1.02 * values, "norm").pvalue < 1e-4  # it would notice two per cent
    assert len(np.unique(values)) == len(values)
    pairs = np.corrcoef(values[:200_000], values[200_001:])[0, 1]
    assert abs(pairs) < 5 / np.sqrt(200_000)
    assert abs(float((np.abs(values) > 3).mean()) / (2 * stats.norm.sf(3)) - 1.0) < 0.2


@given(of=st.integers(1, 2000), ends=st.lists(st.integers(0, 2000), min_size=1, max_size=4))
def test_shares_of_whole_noise_are_those_of_the_whole(of: int, ends: list[int]) -> None:
    scale = (
        2.0**41
    )  # some of the numbers are decided by interval arithmetic, further digits and all
    numbers = torch.empty(of, dtype=torch.int64)
    RoundedGaussian(UnsafeSeededStream(0, "whole"), _CPU).integers_(numbers[:of], 2.0**20)
    close = torch.empty(min(of, 40), dtype=torch.int64)
    RoundedGaussian(UnsafeSeededStream(1, "whole"), _CPU).integers_(close, scale)
    for share in _cut(of, ends):
        part = torch.empty(share.count, dtype=torch.int64)
        RoundedGaussian(UnsafeSeededStream(0, "whole"), _CPU).integers_(part, 2.0**20, share=share)
        assert torch.equal(part, torch.cat([numbers[a:b] for a, b in share.stretches]))
    few = len(close) // 3
    part = torch.empty(len(close) - few, dtype=torch.int64)
    share = Share(len(close), ((few, len(close)),))
    RoundedGaussian(UnsafeSeededStream(1, "whole"), _CPU).integers_(part, scale, share=share)
    assert torch.equal(part, close[few:])


@pytest.mark.slow
def test_kernels_draw_from_a_place_on() -> None:
    key, of, first = bytes(range(32)), 3000, 1234
    known = torch.empty(of, dtype=torch.int64)
    fill_tiles(known, key, 1e6)
    found = torch.empty(of - first, dtype=torch.int64)
    assert not DeviceNoise(_CPU).integers_(found, 1e6, bytearray(key), first)
    assert torch.equal(found, known[first:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_shares_on_a_device_agree_and_never_repeat() -> None:
    device, of = torch.device("cuda"), (1 << 21) + 1000
    drawn = []
    for share in (Share(of, ((0, of),)), Share(of, ((77, 1 << 20), (of - 999, of)))):
        source = GaussianSource(device, UnsafeSeededStream(0, "device"))
        parts = []
        for _ in range(2):
            part, single = torch.empty(share.count, device=device), torch.empty(1, device=device)
            source.normal_(part, share=share)
            source.normal_(single)  # a count, between two draws
            parts += [part.cpu(), single.cpu()]
        drawn.append(parts)
    (first, count, second, other), few = drawn
    for whole, part in ((first, few[0]), (second, few[2])):
        assert torch.equal(part, torch.cat([whole[77 : 1 << 20], whole[of - 999 :]]))
    assert torch.equal(count, few[1])
    everything = torch.cat([first, count, second, other]).numpy()
    assert len(np.unique(everything)) > 0.9 * len(everything)
    assert not np.isin(count.numpy(), second[:4].numpy()).any()
    assert not torch.equal(first[: 1 << 20], first[1 << 20 : 1 << 21])


def test_work_follows_the_share() -> None:
    """A quarter of a draw takes about a quarter of the time, not all of it."""

    def seconds(share: Share) -> float:
        source, part = _fast(torch.float32), torch.empty(share.count)
        best = float("inf")
        for _ in range(5):
            began = time.process_time()
            source.normal_(part, share=share)
            best = min(best, time.process_time() - began)
        return best

    of = 1 << 22
    assert seconds(Share(of, ((of // 2, 3 * of // 4),))) < 0.5 * seconds(Share(of, ((0, of),)))


@pytest.mark.parametrize(
    "share", [Share(4, ((0, 5),)), Share(9, ((3, 6), (0, 2))), Share(9, ((0, 4),)), Share(9, ())]
)
def test_a_share_must_fit(share: Share) -> None:
    with pytest.raises(InvalidArgument, match="share must have"):
        _fast(torch.float32).normal_(torch.empty(5), share=share)


# ---- streams


def test_shared_streams_say_the_same_and_forget() -> None:
    key = bytes(range(32))
    one, other = SharedStream(key, "lots"), SharedStream(key, "lots")
    counts = (1, 32, 100_000, 3)
    assert [one.bytes(n) for n in counts] == [other.bytes(n) for n in counts]
    assert SharedStream(key, "noise").bytes(32) != SharedStream(key, "lots").bytes(32)
    assert key[:16] not in bytes(one._key)
    assert repr(one) == "SharedStream('lots')"
    with pytest.raises(BrokenRandomness, match="repeats itself"):
        SharedStream(bytes(32), "lots")
    with pytest.raises(InvalidArgument, match="key must be 32 bytes"):
        SharedStream(bytes(range(16)), "lots")


def test_a_forked_child_cannot_go_on_with_a_shared_stream() -> None:
    stream = SharedStream(bytes(range(32)), "lots")

    def work() -> int:
        try:
            stream.bytes(4)
        except BrokenRandomness:
            return 7
        return 0

    child = Forked(work, {})
    child.communicate(20.0)
    assert child.returncode == 7


def test_keyed_streams_of_other_places_are_others() -> None:
    key = bytes(range(32))
    found = {KeyedStream(key, place.to_bytes(12, "little")).bytes(16) for place in range(50)}
    assert len(found) == 50
    stream = KeyedStream(key, bytes(12))
    assert b"".join(stream.bytes(n) for n in (0, 1, 63, 64, 200)) == KeyedStream(
        key, bytes(12)
    ).bytes(328)
