"""Fast Gaussian noise from a generator of its own, keyed once from a stream."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, NoReturn, final

import numpy as np

from tacit.errors import InvalidArgument, ProtocolError

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
