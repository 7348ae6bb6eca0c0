"""Gaussian noise rounded to whole numbers, exactly: for gradients on a grid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn, final

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument
from tacit.randomness._expansions import GUARD, Expansion, interval_arithmetic, whole_parts

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from tacit.randomness.streams import Stream

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
        reals, edge = _box_muller(words)
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


def _box_muller(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
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
