"""Rounded Gaussian noise: exactly the law it claims, by its fast way and by its slow way."""

from __future__ import annotations

import copy
import math
import pickle
import time

import mpmath
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import chi2, kstest, norm

from tacit.errors import InvalidArgument
from tacit.randomness import (
    RoundedGaussian,
    SecureStream,
    Stream,
    UnsafeSeededStream,
    gaussian,
    rounded_gaussian,
)
from tacit.randomness.discrete import GUARD, Expansion, interval_arithmetic

_LEVEL = 1e-6
_DRAWS = 1_000_000
_CPU = torch.device("cpu")

Integers = NDArray[np.int64]


def _drawn_from(words: Integers, scale: float) -> Integers:
    """The numbers of these pairs of words, and of further digits from a key."""
    tiles = torch.from_numpy(words.reshape(1, 2, -1).copy())
    return gaussian.rounded_tiles(tiles, scale, bytes(range(32))).numpy().reshape(2, -1)


def _draw(scale: float, count: int = _DRAWS, stream: Stream | None = None) -> Integers:
    tensor = torch.empty(count, dtype=torch.int64)
    source = RoundedGaussian(stream or UnsafeSeededStream(0, f"noise {scale}"), _CPU)
    source.integers_(tensor, scale)
    return tensor.numpy()


def _accepts(values: Integers, scale: float) -> bool:
    """Pearson's chi-square against the exact law, cells of at least 20 expected, at 1e-6."""
    reach = math.ceil(6 * scale) + 1
    edges = np.arange(-reach, reach) + 0.5
    expected = np.diff(norm.cdf(edges / scale), prepend=0.0, append=1.0) * len(values)
    found = np.bincount(np.clip(values, -reach, reach) + reach, minlength=2 * reach + 1)
    full = expected >= 20
    expected = np.append(expected[full], expected[~full].sum())
    found = np.append(found[full], found[~full].sum())
    kept = expected > 0
    statistic = float(((found - expected)[kept] ** 2 / expected[kept]).sum())
    degrees = int(kept.sum()) - 1
    return bool(chi2.ppf(_LEVEL / 2, degrees) < statistic < chi2.isf(_LEVEL / 2, degrees))


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, 40.0])
def test_the_law(scale: float) -> None:
    values = _draw(scale)
    assert _accepts(values, scale)
    for off in (0.98, 1.02):
        assert not _accepts(values, off * scale)


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_the_law_is_not_the_discrete_gaussian(scale: float) -> None:
    support = np.arange(-20, 21)
    weights = np.exp(-(support**2) / (2 * scale**2))
    rng = np.random.default_rng(0)
    assert not _accepts(rng.choice(support, _DRAWS, p=weights / weights.sum()), scale)
    assert _accepts(np.rint(rng.normal(0, scale, _DRAWS)).astype(np.int64), scale)


@pytest.mark.parametrize("scale", [2.0**20, 2.0**31 / 3])
def test_a_large_scale(scale: float) -> None:
    draws = 300_000
    values = _draw(scale, draws)
    assert float(kstest(values / scale, "norm").pvalue) > _LEVEL
    assert float(kstest(values / (1.05 * scale), "norm").pvalue) < _LEVEL
    statistic = float((values.astype(np.float64) ** 2).sum()) / scale**2
    assert chi2.ppf(_LEVEL / 2, draws) < statistic < chi2.isf(_LEVEL / 2, draws)
    low = np.bincount(values & 255, minlength=256)  # the low bits are random, none is preferred
    even = float(((low - draws / 256) ** 2).sum()) / (draws / 256)
    assert chi2.ppf(_LEVEL / 2, 255) < even < chi2.isf(_LEVEL / 2, 255)


def _words() -> Integers:
    """Random pairs of words, and pairs at every place where floating point is at its worst."""
    rng = np.random.default_rng(1)
    random = rng.integers(-(2**63), 2**63 - 1, (2, 1_500), dtype=np.int64)
    top = 2**63 - 1
    ends = [0, 1, 2**45, 2**45 + 1, 2**46, 2**62, top - 2**45, top - 2**46, top - 2**10, top]
    turns = [-(2**63), -(2**62), -(2**62) + 1, -1, 0, 1, 2**61, 2**62, 2**62 + 1, top]
    corners = [(u, v) for u in ends for v in turns]
    return np.ascontiguousarray(np.concatenate([random, np.array(corners).T], axis=1))


def _exact(u: mpmath.mpf, v: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
    radius = mpmath.sqrt(-2 * mpmath.log(u))
    return radius * mpmath.cos(2 * mpmath.pi * v), radius * mpmath.sin(2 * mpmath.pi * v)


def test_floating_point_stays_within_half_the_guard() -> None:
    """Against 120 bits, at both ends of the interval that the words leave."""
    words = _words()
    reals, edge = gaussian._box_muller_within(torch.from_numpy(words.copy()))
    worst, used = 0.0, 0
    with mpmath.workprec(120):
        for column in np.flatnonzero(~edge.numpy()[0]).tolist():
            u, v = int(words[0, column]) & (2**63 - 1), int(words[1, column])
            for more in (0, 1):
                exact = _exact(mpmath.mpf(u + more) / 2**63, mpmath.mpf(v + more) / 2**64)
                for found, wanted in zip(reals[:, column].tolist(), exact, strict=True):
                    worst = max(worst, float(abs(found - wanted)))
            used += 1
    assert used >= 1_500
    assert 0.0 < worst < GUARD / 2


@pytest.mark.parametrize("scale", [0.7, 1000.0, 2.0**20, 2.0**36])
def test_every_number_is_the_nearest_to_the_exact_one(scale: float) -> None:
    words = _words()
    found = _drawn_from(words, scale)
    decided = 0
    with mpmath.workprec(120):
        for column in range(words.shape[1]):
            u, v = int(words[0, column]) & (2**63 - 1), int(words[1, column])
            if u == 0:
                continue
            corners = [
                _exact(mpmath.mpf(u + a) / 2**63, mpmath.mpf(v + b) / 2**64)
                for a in (0, 1)
                for b in (0, 1)
            ]
            for row in (0, 1):
                nearest = {int(mpmath.floor(scale * one[row] + 0.5)) for one in corners}
                if len(nearest) == 1:  # else further digits decide
                    assert found[row, column] == nearest.pop()
                    decided += 1
    assert decided > 0.9 * found.size


@pytest.mark.parametrize(
    "scale",
    [pytest.param(0.3, marks=pytest.mark.slow), 1.0, pytest.param(5.0, marks=pytest.mark.slow)],
)
def test_the_slow_way_alone_has_the_law(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = _draw(scale, 6_000)
    monkeypatch.setattr(gaussian, "GUARD", 1.0 / scale)  # everything is doubtful
    slow = _draw(scale, 6_000)
    assert _accepts(slow, scale)
    # The words are the same, and 63 digits decide all of these: so are the numbers.
    assert np.array_equal(slow, fast)


@pytest.mark.parametrize(
    "bits", [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(3, marks=pytest.mark.slow)]
)
def test_the_slow_way_continues_the_digits(bits: int) -> None:
    """From a few digits the law must come out as from endless ones; the pair stays independent."""
    stream, intervals = UnsafeSeededStream(bits, "few digits"), interval_arithmetic()
    pairs = 2_500
    first = np.frombuffer(stream.bytes(2 * pairs), dtype=np.uint8).reshape(2, -1) >> (8 - bits)
    found = np.array(
        [
            gaussian._rounded_pair(
                Expansion(u, bits, stream), Expansion(v, bits, stream), 2.0, intervals
            )
            for u, v in first.T.tolist()
        ]
    )
    assert _accepts(found.ravel(), 2.0)
    assert not _accepts(found.ravel(), 2.4)
    products = found[:, 0] * found[:, 1], (found[:, 0] ** 2 - 4) * (found[:, 1] ** 2 - 4)
    assert abs(products[0].mean()) < 5 * (4 + 1 / 12) / math.sqrt(pairs)
    assert abs(products[1].mean()) < 5 * 2 * (4 + 1 / 12) ** 2 / math.sqrt(pairs)


def test_some_are_doubtful_and_few() -> None:
    """At 2³³ about one number in a thousand must take the slow way; here they are counted."""
    calls = []

    class Counting:
        def bytes(self, count: int) -> bytes:
            calls.append(count)
            return stream.bytes(count)

    stream = UnsafeSeededStream(0, "doubts")
    kept = gaussian._rounded_pair
    slow = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "_rounded_pair", lambda *a: slow.append(1) or kept(*a))
        _draw(2.0**33, 200_000, Counting())
        assert 100 < len(slow) < 300  # 195 expected
        slow.clear()
        _draw(2.0**20, 1_000_000, Counting())
        assert len(slow) < 30  # 4 expected: those with U at its ends


@pytest.mark.parametrize("lag", [1, 2, 7, 32, 128, 256, 1 << 16, 500_000])
def test_draws_do_not_depend_on_each_other(lag: int) -> None:
    # A tile of 256 holds the cosines of its words, then their sines: 128 apart.
    values = _draw(2.0**20).astype(np.float64)
    for a, b in ((values[:-lag], values[lag:]), (values[:-lag] ** 2, values[lag:] ** 2)):
        assert abs(float(np.corrcoef(a, b)[0, 1])) < 5.0 / math.sqrt(len(a))


def test_nothing_is_drawn_twice() -> None:
    source = RoundedGaussian(SecureStream("noise"), _CPU)
    tensors = [torch.empty(10_000, dtype=torch.int64) for _ in range(3)]
    for tensor in tensors:
        source.integers_(tensor, 2.0**40)
    other = RoundedGaussian(SecureStream("noise"), _CPU)
    tensors.append(torch.empty(10_000, dtype=torch.int64))
    other.integers_(tensors[-1], 2.0**40)
    assert len(torch.unique(torch.cat(tensors))) >= 39_990


def test_as_an_array_the_numbers_are_the_same() -> None:
    for size in (0, 1, 1_001):
        values = rounded_gaussian(5.0, size, UnsafeSeededStream(0, "array"))
        assert values.dtype == np.int64
        assert np.array_equal(values, _draw(5.0, size, UnsafeSeededStream(0, "array")))
    with pytest.raises(InvalidArgument, match=r"size .* got -1"):
        rounded_gaussian(5.0, -1, UnsafeSeededStream(0, "array"))


def test_torch_and_numpy_seeds_have_no_effect() -> None:
    first = _draw(100.0, 1_000)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert np.array_equal(_draw(100.0, 1_000), first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (7, 11), (65_537,)])
def test_every_shape_is_filled_once(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaussian, "_TILES_ON_CPU", 4)
    tensor = torch.zeros(shape, dtype=torch.int64)
    RoundedGaussian(UnsafeSeededStream(0, "shapes"), _CPU).integers_(tensor, 2.0**36)
    assert bool((tensor != 0).all())
    assert len(torch.unique(tensor)) >= tensor.numel() - 1


def test_a_strided_view_is_filled_and_nothing_else() -> None:
    whole = torch.zeros(6, 10, dtype=torch.int64)
    view = whole[::2, 1::3].T
    RoundedGaussian(UnsafeSeededStream(0, "view"), _CPU).integers_(view, 2.0**30)
    assert bool((view != 0).all())
    assert int((whole != 0).sum()) == view.numel()


def test_the_ends_of_the_scale() -> None:
    assert not _draw(1e-300, 1_000).any()
    values = _draw(2.0**45, 300)
    assert 0.7 < values.std() / 2.0**45 < 1.4
    assert len(np.unique(values)) == 300


def test_a_word_of_zeros_is_no_infinite_number() -> None:
    values = _drawn_from(np.zeros((2, 1), dtype=np.int64), 10.0)  # U below 2^-63, V = 0
    assert 90 <= values[0, 0] < 300  # √(2·63·ln 2) = 9.3 and a little more, at no turn
    assert values[1, 0] == 0


def test_it_is_fast() -> None:
    tensor, times = torch.empty(1_000_000, dtype=torch.int64), []
    source = RoundedGaussian(SecureStream("speed"), _CPU)
    for _ in range(5):
        start = time.process_time()  # the clock would count the test beside this one, too
        source.integers_(tensor, 2.0**20)
        times.append(time.process_time() - start)
    assert min(times) < 0.15  # 20 ms on the machine this was written on


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 2.0**45 + 2**-7, "wide"])
def test_scales_that_are_refused(scale: float) -> None:
    with pytest.raises(InvalidArgument, match=r"scale must be .* got"):
        _draw(scale, 3, UnsafeSeededStream(0, "x"))


def test_tensors_that_are_refused() -> None:
    source = RoundedGaussian(UnsafeSeededStream(0, "x"), _CPU)
    for dtype in (torch.int32, torch.float64):
        with pytest.raises(InvalidArgument, match=f"tensor must be int64, got {dtype}"):
            source.integers_(torch.zeros(2, dtype=dtype), 1.0)
    with pytest.raises(InvalidArgument, match="tensor must be on cpu, got one on meta"):
        source.integers_(torch.zeros(2, dtype=torch.int64, device="meta"), 1.0)


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_cannot_be_copied(take: object) -> None:
    with pytest.raises(InvalidArgument, match="cannot be copied or pickled"):
        take(RoundedGaussian(UnsafeSeededStream(0, "x"), _CPU))  # type: ignore[operator]


def test_its_text() -> None:
    assert repr(RoundedGaussian(SecureStream("x"), _CPU)) == "RoundedGaussian(cpu)"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_numbers_are_the_same() -> None:
    """The words are, and the numbers are exact: no device may differ in a single one."""
    device = torch.device("cuda")
    for scale in (0.3, 5.0, 2.0**20, 2.0**30):
        tensor = torch.empty(60_000, dtype=torch.int64, device=device)
        RoundedGaussian(UnsafeSeededStream(0, f"noise {scale}"), device).integers_(tensor, scale)
        assert np.array_equal(tensor.cpu().numpy(), _draw(scale, 60_000))
    words = torch.from_numpy(_words().copy())
    here, edge = gaussian._box_muller_within(words)
    there, _ = gaussian._box_muller_within(words.to(device))
    assert float((here - there.cpu())[:, ~edge[0]].abs().max()) < GUARD / 8
