"""Gaussian noise: fast, from a generator of its own; and rounded to whole numbers, exactly."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument, ProtocolError
from tacit.randomness.discrete import GUARD, Expansion, interval_arithmetic, whole_parts

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from tacit.randomness.streams import Stream


_BLOCK = 1 << 18


@final
class GaussianSource:
    """Standard normal numbers on one device.

    On the CPU they come from NumPy's Philox-4x64 under a key of 128 bits, elsewhere from the
    device's own counter-based generator under a seed of 64 bits; key and seed are taken from
    ``stream``, used once, and never shown. ``torch.manual_seed`` has no effect on either. A source
    cannot be copied or pickled, nor used in a forked process: its noise would be drawn twice.

    Guarantee:
        No number is used twice. The numbers are floating-point ones from a statistical generator:
        good for training, but neither a proof against an attacker who breaks Philox nor one against
        attacks on the low bits of floating-point noise (Mironov 2012).

    >>> import torch
    >>> from tacit.randomness.streams import SystemStream
    >>> noise = torch.empty(3)
    >>> GaussianSource(torch.device("cpu"), SystemStream()).normal_(noise)
    >>> bool((noise != 0).all())
    True
    """

    __slots__ = ("_device", "_home", "_host", "_native")

    def __init__(self, device: torch.device, stream: Stream) -> None:
        self._device = device
        self._home = os.getpid()
        self._host: np.random.Philox | None = None
        self._native: torch.Generator | None = None
        if device.type == "cpu":
            key = int.from_bytes(stream.bytes(16), "little")
            self._host = np.random.Philox(key=key)
        else:
            import torch  # noqa: PLC0415 - randomness is there for those who have no torch

            seed = int.from_bytes(stream.bytes(8), "little")
            self._native = torch.Generator(device=device).manual_seed(seed)

    @property
    def generator(self) -> torch.Generator | None:
        """The device's own generator that the numbers come from; None on the CPU."""
        return self._native

    def normal_(self, tensor: torch.Tensor, scale: float = 1.0) -> None:
        """Fills a float32 or float64 tensor with independent N(0, scale²) numbers."""
        import torch  # noqa: PLC0415

        if os.getpid() != self._home:
            raise ProtocolError(
                "a forked process cannot go on with its parent's noise, which the parent draws as "
                "well; start the run in the process that trains"
            )
        if tensor.dtype not in {torch.float32, torch.float64}:
            raise InvalidArgument(
                f"tensor must be float32 or float64, got {tensor.dtype}; noise is never rounded"
            )
        if tensor.device.type != self._device.type:
            raise InvalidArgument(f"tensor must be on {self._device}, got one on {tensor.device}")
        target = tensor.detach()
        if self._host is None:
            target.normal_(0.0, scale, generator=self._native)
            return
        if target.is_contiguous():
            _fill(self._host, target.view(-1))
        else:
            values = torch.empty(target.numel(), dtype=target.dtype)
            _fill(self._host, values)
            target.copy_(values.view(target.shape))
        if scale != 1.0:
            target.mul_(scale)

    def __repr__(self) -> str:
        return f"GaussianSource({self._device})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a GaussianSource cannot be copied or pickled: its noise would be drawn twice; "
            "make a new one from a stream"
        )


def _fill(bits: np.random.Philox, flat: torch.Tensor) -> None:
    """Single precision by blocks that fit the cache; double precision by NumPy's own ziggurat."""
    if flat.element_size() == 8:
        np.random.Generator(bits).standard_normal(out=flat.numpy())
        return
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        half = (len(block) + 1) // 2
        first, second = _box_muller(bits.random_raw(half))
        block[:half] = first
        block[half:] = second[: len(block) - half]


def _box_muller(words: NDArray[np.uint64]) -> tuple[torch.Tensor, torch.Tensor]:
    """Two normal numbers a word: 40 bits for the radius, which reaches 7.5 σ, 24 for the angle.

    It takes half the time of NumPy's ziggurat, whose branches no processor foresees.
    """
    import torch  # noqa: PLC0415

    uniform = torch.from_numpy((words >> np.uint64(24)).astype(np.float32))
    turn = torch.from_numpy((words & np.uint64(0xFFFFFF)).astype(np.float32))
    # Half a step above the lattice and, where that rounds up to 1, one below: the logarithm is
    # finite and not zero, and neither is the sine. Noise of exactly 0 would show what it covers.
    radius = uniform.add_(0.5).mul_(2.0**-40).clamp_(max=1.0 - 2.0**-24)
    radius = radius.log_().mul_(-2.0).sqrt_()
    angle = turn.add_(0.5).mul_(2.0 * math.pi * 2.0**-24)
    return angle.cos().mul_(radius), angle.sin_().mul_(radius)


# ---- rounded to whole numbers, exactly: for gradients on a grid


_LARGEST_SCALE = 2.0**45
_PAIRS_ON_CPU = 1 << 15  # at a time: what they need fits the cache
_PAIRS_ELSEWHERE = 1 << 22
_EDGE = 2.0**-18
_LOW_63 = (1 << 63) - 1


@final
class RoundedGaussian:
    """Whole numbers round(s·Z), Z standard normal, on one device, from a stream's bits.

    Two words of 64 bits are the first digits of two uniform numbers U and V, and those give two
    independent normal ones, √(-2 ln U)·cos 2πV and √(-2 ln U)·sin 2πV (Box and Muller 1958). They
    are computed in float64 on the device. Where that leaves a doubt about the nearest whole number,
    further digits of U and V are drawn and interval arithmetic decides (`_expansions`).

    The share of doubtful entries is about s·2⁻⁴³, and each takes 0.2 ms: few at s = 2²⁰, one in a
    thousand at 2³³, and all of them from 2⁴³ on.

    Guarantee:
        The numbers are independent, and each has exactly the law of a real N(0, s²) rounded to the
        nearest whole number, if the stream's bytes are random and float64 logarithm, square root,
        sine and cosine are good to 40 units in the last place. ``x + noise`` for whole x is then a
        real Gaussian mechanism's output, rounded: post-processing of it, with the same guarantee.
        No number is used twice. The time taken depends on the noise.

    >>> import torch
    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> noise = torch.empty(6, dtype=torch.int64)
    >>> source = RoundedGaussian(UnsafeSeededStream(0, "noise"), torch.device("cpu"))
    >>> source.integers_(noise, 100.0)
    >>> noise.tolist()
    [21, -51, 205, 108, -85, 121]
    """

    __slots__ = ("_device", "_stream")

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self._stream = stream
        self._device = device

    def integers_(self, tensor: torch.Tensor, scale: float) -> None:
        """Fills an int64 tensor with independent round(N(0, scale²)), scale at most 2⁴⁵."""
        import torch  # noqa: PLC0415 - randomness is there for those who have no torch

        if tensor.dtype != torch.int64:
            raise InvalidArgument(f"tensor must be int64, got {tensor.dtype}")
        if tensor.device.type != self._device.type:
            raise InvalidArgument(f"tensor must be on {self._device}, got one on {tensor.device}")
        if positive("scale", scale) > _LARGEST_SCALE:
            raise InvalidArgument(
                f"scale must be at most 2**45, got {scale!r}; take a coarser grid"
            )
        if tensor.is_contiguous():
            self._fill(tensor.view(-1), float(scale))
        else:
            numbers = torch.empty(tensor.numel(), dtype=torch.int64, device=tensor.device)
            self._fill(numbers, float(scale))
            tensor.copy_(numbers.view(tensor.shape))

    def _fill(self, flat: torch.Tensor, scale: float) -> None:
        most = 2 * (_PAIRS_ON_CPU if flat.device.type == "cpu" else _PAIRS_ELSEWHERE)
        for start in range(0, len(flat), most):
            block = flat[start : start + most]
            pairs = (len(block) + 1) // 2
            first, second = self._pairs(pairs, scale, flat.device)
            block[:pairs] = first
            block[pairs:] = second[: len(block) - pairs]

    def _pairs(self, count: int, scale: float, device: torch.device) -> torch.Tensor:
        """Two rows of ``count`` numbers; a column is made of two words."""
        import torch  # noqa: PLC0415

        drawn = bytearray(self._stream.bytes(16 * count))
        words = torch.frombuffer(drawn, dtype=torch.int64).view(2, count).to(device)
        reals, edge = _box_muller_within(words)
        reals.mul_(scale)
        numbers = reals.round()
        doubtful = reals.sub_(numbers).abs_() > 0.5 - scale * GUARD
        places = (doubtful[0] | doubtful[1] | edge).nonzero().flatten()
        result = numbers.to(torch.int64)
        if len(places):
            decided = self._decided(words[:, places].T.tolist(), scale)
            result[:, places] = torch.tensor(decided, dtype=torch.int64, device=device).T
        return result

    def _decided(self, columns: list[list[int]], scale: float) -> list[list[int]]:
        intervals = interval_arithmetic()
        numbers = (
            (Expansion(u & _LOW_63, 63, self._stream), Expansion(v + (1 << 63), 64, self._stream))
            for u, v in columns
        )
        return [_rounded_pair(u, v, scale, intervals) for u, v in numbers]

    def __repr__(self) -> str:
        return f"RoundedGaussian({self._device})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a RoundedGaussian cannot be copied or pickled: its noise could be drawn twice; "
            "make a new one from a stream"
        )


def rounded_gaussian(scale: float, size: int, stream: Stream) -> NDArray[np.int64]:
    """``size`` numbers of `RoundedGaussian`, with its guarantee, as a NumPy array.

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> rounded_gaussian(100.0, 6, UnsafeSeededStream(0, "noise")).tolist()
    [21, -51, 205, 108, -85, 121]
    """
    import torch  # noqa: PLC0415

    cpu = torch.device("cpu")
    numbers = torch.empty(whole("size", size, at_least=0), dtype=torch.int64, device=cpu)
    RoundedGaussian(stream, cpu).integers_(numbers, scale)
    result: NDArray[np.int64] = numbers.numpy()
    return result


def _box_muller_within(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Standard normal numbers to within GUARD/2, and where U is too near its ends for that.

    A word's low 63 bits are the first digits of U; the other's 64 bits are those of V + 1/2. With
    ``edge`` ≤ U ≤ 1 - ``edge`` the radius R lies between 2⁻⁸·⁵ and 5. Its error is that of U over
    U·R: at most 2⁻⁴⁵·⁴ near U = 1 (53 bits are kept of 63) and 2⁻⁴⁷ near U = 0 (the digits not yet
    drawn). Angle and functions, good to 2⁻⁴⁹, add 5·2⁻⁴⁹ at most, where the first is far smaller.
    """
    import torch  # noqa: PLC0415

    uniform = (words[0] & _LOW_63).to(torch.float64).mul_(2.0**-63)
    edge = (uniform - 0.5).abs_() > 0.5 - _EDGE
    radius = uniform.log_().mul_(-2.0).sqrt_()
    angle = words[1].to(torch.float64).mul_(2.0 * math.pi * 2.0**-64)
    reals = torch.stack([angle.cos(), angle.sin()])
    return reals.mul_(radius), edge


def _rounded_pair(u: Expansion, v: Expansion, scale: float, intervals: Any) -> list[int]:
    """Both numbers of a pair, from U and V + 1/2: decided together, for they share the digits."""
    half = intervals.mpf(0.5)

    def shifted() -> list[Any]:
        size = scale * intervals.sqrt(-2 * intervals.log(u.enclosed(intervals)))
        turn = 2 * intervals.pi * (v.enclosed(intervals) - half)
        return [size * intervals.cos(turn) + half, size * intervals.sin(turn) + half]

    return whole_parts(shifted, (u, v), intervals)
