"""The kernels of the rounded Gaussian: ChaCha20 as published, and fixed point that decides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest
import torch

from tacit.randomness import device_noise, gaussian
from tacit.randomness.discrete import GUARD, Expansion, interval_arithmetic

from .test_gaussian_rounded import _exact, _words
from .test_streams_secure import _VECTORS

triton = pytest.importorskip("triton", reason="needs Triton")

import triton.language as tl  # noqa: E402

from tacit.randomness import kernels  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _key_stream(key: bytes, nonce: bytes, block: int) -> bytes:
    words = torch.zeros(16, 8, dtype=torch.int64, device=_DEVICE)
    there = torch.frombuffer(bytearray(key), dtype=torch.int64).to(_DEVICE)
    parts = torch.tensor(np.frombuffer(nonce, "<u4").astype(np.int64)).to(_DEVICE)
    kernels.key_stream[(1,)](there, parts, words, block, LANES=16)
    return words.cpu().numpy().tobytes()


@pytest.mark.parametrize(("key", "nonce", "block", "wanted"), _VECTORS)
def test_the_vectors_of_the_standard(key: str, nonce: str, block: int, wanted: str) -> None:
    found = _key_stream(bytes.fromhex(key), bytes.fromhex(nonce), block)
    assert found[:64].hex() == wanted


def test_the_key_stream_is_that_of_the_library() -> None:
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers", reason="needs it")
    rng = np.random.default_rng(0)
    for block in (0, 2**31 - 5, 2**32 - 16):
        key, nonce = rng.bytes(32), rng.bytes(12)
        start = block.to_bytes(4, "little") + nonce
        cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, start), mode=None)
        assert _key_stream(key, nonce, block) == cipher.encryptor().update(bytes(1024))


# ---- fixed point


@triton.jit
def _numbers_of(words, numbers, sheet, table, count, LANES: tl.constexpr,  # noqa: N803
                TERMS: tl.constexpr):  # noqa: N803  # fmt: skip
    """Rows of ``words``: U and four of digits, V and three; of ``numbers``: both, and sure."""
    lane = tl.arange(0, LANES)
    mask = lane < count
    at = words + lane
    scale = tl.load(sheet).to(tl.float64, bitcast=True)
    u, d1, d2, d3, d4, v, e1, e2, e3 = (
        tl.load(at, mask, 0).to(tl.uint64, bitcast=True),
        tl.load(at + count, mask, 0).to(tl.uint64, bitcast=True),
        tl.load(at + 2 * count, mask, 0).to(tl.uint64, bitcast=True),
        tl.load(at + 3 * count, mask, 0).to(tl.uint64, bitcast=True),
        tl.load(at + 4 * count, mask, 0).to(tl.uint64, bitcast=True),
        tl.load(at + 5 * count, mask, 0).to(tl.uint64, bitcast=True),
        tl.load(at + 6 * count, mask, 0).to(tl.uint64, bitcast=True),
        tl.load(at + 7 * count, mask, 0).to(tl.uint64, bitcast=True),
        tl.load(at + 8 * count, mask, 0).to(tl.uint64, bitcast=True),
    )
    number, other, sure = kernels._numbers(
        u, v, d1, d2, d3, d4, e1, e2, e3, scale, sheet, table, TERMS
    )
    tl.store(numbers + lane, number, mask)
    tl.store(numbers + count + lane, other, mask)
    tl.store(numbers + 2 * count + lane, sure.to(tl.int64), mask)


class _Digits:
    """The further digits of a pair, word by word, U's and V's in turn; there are no more."""

    def __init__(self, of_u: list[int], of_v: list[int]) -> None:
        self._words = [word for both in zip(of_u, of_v, strict=True) for word in both]

    def bytes(self, count: int) -> bytes:
        assert count == 8
        return int(self._words.pop(0)).to_bytes(8, "little", signed=True)


def _corners() -> NDArray[np.int64]:
    """Pairs of words and digits, random and where numbers are at their ends: nine rows."""
    pairs = _words()[:, 1_300:]
    digits = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, (7, pairs.shape[1]))
    digits[:4, 200:203] = 0  # where U begins with zeros: nothing else follows, or more of them
    digits[:1, 203:206] = 0
    digits[:4, -60:-40] = 0
    digits[:4, -40:-20] = -1
    return np.ascontiguousarray(np.vstack([pairs[:1], digits[:4], pairs[1:], digits[4:]]))


@pytest.mark.parametrize(
    "scale",
    [
        777.7,
        2.0**33,
        pytest.param(1.0, marks=pytest.mark.slow),
        pytest.param(2.0**25 / 3, marks=pytest.mark.slow),
    ],
)
def test_fixed_point_decides_as_interval_arithmetic_does(scale: float) -> None:
    words = _corners()
    count = words.shape[1]
    sheet = device_noise._sheet((scale, 0.0, 1.0, 1.0), [])
    numbers = torch.zeros(3, count, dtype=torch.int64, device=_DEVICE)
    _numbers_of[(1,)](
        torch.from_numpy(words).to(_DEVICE), numbers, torch.from_numpy(sheet).to(_DEVICE),
        torch.from_numpy(device_noise._table()).to(_DEVICE), count,
        LANES=triton.next_power_of_2(count), TERMS=device_noise._TERMS,
    )  # fmt: skip
    intervals, open_ = interval_arithmetic(), 0
    for column, (number, other, sure) in zip(words.T, numbers.cpu().numpy().T, strict=True):
        of_u, of_v = column[:5].tolist(), [*column[5:].tolist(), 0]
        zeros = 319 - _value([of_u[0] & (2**63 - 1), *of_u[1:]]).bit_length()
        if not sure:
            open_ += 1
            assert zeros >= 128  # and not for want of precision
            continue
        digits = _Digits(of_u[1:], of_v[1:])
        u = Expansion(of_u[0] & (2**63 - 1), 63, digits)
        v = Expansion(of_v[0] + 2**63, 64, digits)
        assert [number, other] == gaussian._rounded_pair(u, v, scale, intervals)
    assert 3 <= open_ <= 6


def _value(words: list[int]) -> int:
    total = 0
    for word in words:
        total = total << 64 | word & (2**64 - 1)
    return total


@triton.jit
def _functions_of(words, found, table, count, LANES: tl.constexpr, TERMS: tl.constexpr):  # noqa: N803
    """-ln U, of a U that has the digits of three words, and cosine and sine of an angle."""
    lane = tl.arange(0, LANES)
    mask = lane < count
    a = tl.load(words + lane, mask, 1).to(tl.uint64, bitcast=True)
    b = tl.load(words + count + lane, mask, 0).to(tl.uint64, bitcast=True)
    c = tl.load(words + 2 * count + lane, mask, 0).to(tl.uint64, bitcast=True)
    f2, f1, f0, g2, g1, g0, s2, s1, s0, _ = kernels._functions(
        a, b, c, a ^ a, a ^ a, a << 1, b, c, table, TERMS
    )
    tl.store(found + lane, f2.to(tl.int64, bitcast=True), mask)
    tl.store(found + count + lane, f1.to(tl.int64, bitcast=True), mask)
    tl.store(found + 2 * count + lane, f0.to(tl.int64, bitcast=True), mask)
    tl.store(found + 3 * count + lane, g2.to(tl.int64, bitcast=True), mask)
    tl.store(found + 4 * count + lane, g1.to(tl.int64, bitcast=True), mask)
    tl.store(found + 5 * count + lane, g0.to(tl.int64, bitcast=True), mask)
    tl.store(found + 6 * count + lane, s2.to(tl.int64, bitcast=True), mask)
    tl.store(found + 7 * count + lane, s1.to(tl.int64, bitcast=True), mask)
    tl.store(found + 8 * count + lane, s0.to(tl.int64, bitcast=True), mask)


def test_fixed_point_is_good_to_a_few_units() -> None:
    """Against 300 bits: far below the 2^16 units that are left for a doubt."""
    rng, count = np.random.default_rng(5), 200
    words = rng.integers(0, 2**63 - 1, (3, count), dtype=np.int64)
    words[0] = words[0] >> np.arange(count) % 50
    words[0, :2] = 2**63 - 1, 1
    found = torch.zeros(9, count, dtype=torch.int64, device=_DEVICE)
    _functions_of[(1,)](
        torch.from_numpy(words).to(_DEVICE), found,
        torch.from_numpy(device_noise._table()).to(_DEVICE), count,
        LANES=256, TERMS=device_noise._TERMS,
    )  # fmt: skip
    worst = [0.0, 0.0, 0.0]
    with mpmath.workprec(300):
        for column, results in zip(words.T.tolist(), found.cpu().numpy().T.tolist(), strict=True):
            uniform = mpmath.mpf(_value(column)) / mpmath.mpf(2) ** 191
            turn = mpmath.mpf(_value([column[0] << 1, *column[1:]])) / mpmath.mpf(2) ** 192
            angle = turn * mpmath.pi / 4
            wanted = (-mpmath.log(uniform) / 128, mpmath.cos(angle), mpmath.sin(angle))
            for at, one in enumerate(wanted):
                units = abs(one * mpmath.mpf(2) ** 192 - _value(results[3 * at : 3 * at + 3]))
                worst[at] = max(worst[at], float(units))
    assert 0.0 < max(worst) < 128.0


# ---- float64


@triton.jit
def _reals_of(words, found, scale, count, LANES: tl.constexpr):  # noqa: N803
    lane = tl.arange(0, LANES)
    mask = lane < count
    u = tl.load(words + lane, mask, 1).to(tl.uint64, bitcast=True)
    v = tl.load(words + count + lane, mask, 0).to(tl.uint64, bitcast=True)
    first, second, edge = kernels._reals(u, v, tl.load(scale))
    tl.store(found + lane, first, mask)
    tl.store(found + count + lane, second, mask)
    tl.store(found + 2 * count + lane, edge.to(tl.float64), mask)


def test_floating_point_stays_within_half_the_guard() -> None:
    """As on the CPU: against 120 bits, at both ends of the interval that the words leave."""
    words = _words()
    count = words.shape[1]
    found = torch.zeros(3, count, dtype=torch.float64, device=_DEVICE)
    scale = torch.ones(1, dtype=torch.float64, device=_DEVICE)
    there = torch.from_numpy(words).to(_DEVICE)
    _reals_of[(1,)](there, found, scale, count, LANES=triton.next_power_of_2(count))
    reals = found.cpu().numpy()
    _, edge = gaussian._box_muller_within(torch.from_numpy(words.copy()))
    assert np.array_equal(reals[2] != 0, edge.numpy()[0])
    worst = 0.0
    with mpmath.workprec(120):
        for column in np.flatnonzero(reals[2] == 0).tolist():
            u, v = int(words[0, column]) & (2**63 - 1), int(words[1, column])
            for more in (0, 1):
                exact = _exact(mpmath.mpf(u + more) / 2**63, mpmath.mpf(v + more) / 2**64)
                for one, wanted in zip(reals[:2, column].tolist(), exact, strict=True):
                    worst = max(worst, float(abs(one - wanted)))
    assert 0.0 < worst < GUARD / 2


def test_the_constants_are_right() -> None:
    with mpmath.workprec(300):
        for at, wanted in ((0, mpmath.log(2)), (1, mpmath.pi / 4)):
            words = _value(device_noise._table()[at].tolist())
            assert 0 <= wanted * mpmath.mpf(2) ** 192 - words < 1
    for at in range(8):
        sign = -1 if at % 2 == 0 else 1
        cosine, sine = (getattr(kernels, f"_{name}{at + 1}").value for name in "CS")
        assert cosine == sign / math.factorial(2 * at + 2)
        assert sine == sign / math.factorial(2 * at + 3)
