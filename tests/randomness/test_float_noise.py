"""Floating-point noise of a GPU's kernel: Philox as defined, every entry once, fresh seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.randomness import GaussianSource, UnsafeSeededStream, device_noise
from tacit.randomness.device_noise import FloatNoise

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

triton = pytest.importorskip("triton", reason="needs Triton")

import triton.language as tl  # noqa: E402

from tacit.randomness import kernels  # noqa: E402

_DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
_LANES = device_noise._FLOAT_LANES


def philox(seed: int, counts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Philox-4x32-10 of Salmon et al. 2011, section 3.3, for counters of 64 bits."""
    low = np.uint64(0xFFFFFFFF)
    a, b = counts & low, counts >> np.uint64(32)
    c, d = np.zeros_like(a), np.zeros_like(a)
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    for _ in range(10):
        one, two = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (
            (two >> np.uint64(32)) ^ b ^ k0, two & low, (one >> np.uint64(32)) ^ d ^ k1, one & low,
        )  # fmt: skip
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack([a, b, c, d])


def test_the_oracle_knows_the_published_vector() -> None:
    """The first of the known answers that come with Random123: all zeros."""
    words = philox(0, np.zeros(1, np.uint64))[:, 0]
    assert [hex(int(word)) for word in words] == [
        "0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8",
    ]  # fmt: skip


def expected(seed: int, entries: int) -> NDArray[np.float64]:
    """The normal numbers of a seed, in float64, entry by entry."""
    at = np.arange(entries)
    run, place = np.divmod(at, 8 * _LANES)
    which, lane = np.divmod(place, _LANES)
    block = (run * _LANES + lane).astype(np.uint64)
    words = philox(seed, np.uint64(2) * block + (which // 4).astype(np.uint64))
    pair = (which % 4) // 2
    first, second = (words[2 * pair + one, at].astype(float) for one in (0, 1))
    size = np.sqrt(-2.0 * np.log((first + 0.5) / 2.0**32))
    angle = 2.0 * np.pi * (second + 0.5) / 2.0**32
    return np.asarray(size * np.where(which % 2 == 0, np.cos(angle), np.sin(angle)))


@triton.jit
def _normals_of(words, found, count, LANES: tl.constexpr):  # noqa: N803
    lane = tl.arange(0, LANES)
    one = tl.load(words + lane, mask=lane < count, other=1).to(tl.uint32)
    other = tl.load(words + count + lane, mask=lane < count, other=1).to(tl.uint32)
    first, second = kernels._normals(one, other)
    tl.store(found + lane, first)
    tl.store(found + LANES + lane, second)


def drawn(sums: list[Tensor | None], outs: list[Tensor], scale: float, lot: float) -> int:
    """Draws, and returns the seed, which follows the generator's first number."""
    generators = [torch.Generator(_DEVICE).manual_seed(5) for _ in range(2)]
    FloatNoise(_DEVICE, generators[0]).means_(sums, outs, scale, lot)
    first = torch.empty(1, dtype=torch.int64, device=_DEVICE).random_(generator=generators[1])
    return int(first) + 1


@pytest.mark.parametrize("sizes", [(1,), (3, 700, 5), (8 * _LANES, 8 * _LANES + 1, 2)])
def test_every_entry_has_its_own_number_of_the_seed(sizes: tuple[int, ...]) -> None:
    outs = [torch.empty(size, device=_DEVICE) for size in sizes]
    sums = [
        None if at == 1 else torch.arange(float(n), device=_DEVICE) for at, n in enumerate(sizes)
    ]
    seed = drawn(list(sums), outs, 3.0, 4.0)
    found = torch.cat(outs).cpu().double().numpy()
    of_sums = np.concatenate(
        [
            np.zeros(n) if one is None else one.cpu().numpy()
            for one, n in zip(sums, sizes, strict=True)
        ]
    )
    wanted = (of_sums + 3.0 * expected(seed, sum(sizes))) / 4.0
    assert np.abs(found - wanted).max() < 1e-5 * max(1.0, np.abs(wanted).max())


def test_shares_have_the_numbers_of_the_whole() -> None:
    """Two ranks' pieces of three tensors, one of them empty, are drawn as one process draws all."""
    sizes, ends = (3, 700, 8 * _LANES + 5), ((3, 350, 1500), (0, 350, 8 * _LANES + 5 - 1500))
    firsts = [0, 3, 703]
    sums = [torch.arange(float(n), device=_DEVICE) for n in sizes]
    whole = [torch.empty(n, device=_DEVICE) for n in sizes]
    drawn(list(sums), whole, 3.0, 4.0)
    parts = []
    for rank in range(2):
        begins = [0, 0, 0] if rank == 0 else list(ends[0])
        outs = [torch.empty(n, device=_DEVICE) for n in ends[rank]]
        own = [one[a : a + n] for one, a, n in zip(sums, begins, ends[rank], strict=True)]
        noise = FloatNoise(_DEVICE, torch.Generator(_DEVICE).manual_seed(5))
        starts = [first + a for first, a in zip(firsts, begins, strict=True)]
        noise.means_(own, outs, 3.0, 4.0, starts)
        parts.append(outs)
    for at, one in enumerate(whole):
        assert torch.equal(torch.cat([parts[0][at], parts[1][at]]), one)


def test_other_types_are_rounded_after_the_noise() -> None:
    kinds = [torch.float16, torch.float32]
    outs = [torch.empty(40, dtype=kind, device=_DEVICE) for kind in kinds]
    sums: list[Tensor | None] = [torch.full((40,), 2.0, device=_DEVICE) for _ in kinds]
    seed = drawn(sums, outs, 1.0, 1.0)
    wanted = torch.from_numpy(2.0 + expected(seed, 80))
    assert torch.allclose(outs[0].cpu().double(), wanted[:40], rtol=2**-11, atol=1e-6)
    assert torch.allclose(outs[1].cpu().double(), wanted[40:], rtol=1e-5, atol=1e-6)


def test_the_law_and_that_another_is_refused() -> None:
    out = torch.empty(60_000, device=_DEVICE)
    drawn([None], [out], 2.0, 1.0)
    values = out.cpu().double().numpy()
    assert stats.kstest(values / 2.0, "norm").pvalue > 1e-4
    assert stats.kstest(values / 2.1, "norm").pvalue < 1e-4
    for apart in (1, _LANES, 4 * _LANES):  # neighbours, of one pair, of two counts
        assert abs(np.corrcoef(values[:-apart], values[apart:])[0, 1]) < 5 / np.sqrt(len(values))


def test_no_number_is_zero_and_shows_what_it_covers() -> None:
    """Not even for the words that single precision rounds to a whole turn, or to a size of 0."""
    few = torch.tensor([0, 1, 2**31, 2**32 - 128, 2**32 - 1], device=_DEVICE)
    words = torch.cartesian_prod(few, few).mT.contiguous()
    found = torch.empty(2, 32, device=_DEVICE)
    _normals_of[(1,)](words, found, words.shape[1], LANES=32)
    assert bool(found.isfinite().all())
    assert bool((found != 0).all())


def test_two_draws_of_a_source_share_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_noise, "usable", lambda _: True)
    source = GaussianSource(_DEVICE, UnsafeSeededStream(0, "noise"))
    if source.generator is None:  # the CPU's has none: the interpreter draws seeds of another
        source._native = torch.Generator().manual_seed(1)
    one, other = torch.empty(3_000, device=_DEVICE), torch.empty(3_000, device=_DEVICE)
    assert source.serves([one])
    assert not source.serves([one.double()])
    source.means_([None], [one], 1.0, 1.0)
    source.means_([None], [other], 1.0, 1.0)
    both = torch.cat([one, other])
    assert len(both.unique()) > 5_990
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.1


def test_seeds_in_turn_leave_nothing_in_common() -> None:
    """Forty draws of one source: seeds that follow one another are keys like any others."""
    noise = FloatNoise(_DEVICE, torch.Generator(_DEVICE).manual_seed(5))
    drawn_ones = torch.empty(40, 8 * _LANES, device=_DEVICE)
    for out in drawn_ones:
        noise.means_([None], [out], 1.0, 1.0)
    values = drawn_ones.cpu().double().numpy()
    apart = np.corrcoef(values) - np.eye(40)
    assert np.abs(apart).max() < 5.5 / np.sqrt(values.shape[1])
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(values.sum(0) / np.sqrt(40), "norm").pvalue > 1e-4


def test_a_draw_that_fails_takes_its_seed_along(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = FloatNoise(_DEVICE, torch.Generator(_DEVICE).manual_seed(5))
    before, out = int(noise._seed), torch.empty(5, device=_DEVICE)
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "add_normal", None)
        with pytest.raises(TypeError):
            noise.means_([None], [out], 1.0, 1.0)
    noise.means_([None], [out], 1.0, 1.0)
    assert int(noise._seed) == before + 2
    assert np.allclose(out.cpu().numpy(), expected(before + 2, 5), atol=1e-5)
