"""Whether tensors still hold the bits they held: keyed fingerprints of weights and buffers.

Versions and identities do not show it: fused optimizers, ``.data``, NumPy views and other aliases
change memory without a trace. So the memory itself is read. On the CPU small tensors are compared
with a copy, and larger ones get a Poly1305 tag (RFC 8439); on a CUDA device one Triton kernel reads
all of them in one pass, and nothing waits for it. Elsewhere the values are copied to the CPU first.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import importlib.util
import math
import os
from operator import attrgetter
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from tacit.training.clipping.structure import is_packed
from tacit.training.distributed.sharded import local

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

_SMALL = 1 << 22  # bytes of a tensor on the CPU that are kept, and compared bit by bit
_LANES = 1024  # words that one program of the kernel reads at a time,
_ROWS, _FEW_ROWS = 16, 4  # row by row: fewer rows where there are
_FEW_WORDS = 1 << 22  # few words, and a device would be waiting for a few programs
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# The exponent's bits: where all are set, the number is infinite or not a number.
_EXPONENTS = {
    torch.float16: 0x7C00,
    torch.bfloat16: 0x7F80,
    torch.float32: 0x7F80_0000,
    torch.float64: 0x7FF0_0000_0000_0000,
}
_is_alarmed = attrgetter("is_alarmed")  # a generator would take twice as long


@final
class Fingerprint:
    """The bits of some tensors as they were when last noted.

    Guarantee:
        A change of any bit of any tensor, by whatever means, goes unnoticed with probability at
        most 2⁻³⁰ over a key that is drawn for this object alone and never shown. On a CUDA device
        a change is known once the device has done its work: ``changed(wait=True)`` waits for it.

    >>> weights = {"w": torch.zeros(3)}
    >>> print_of = Fingerprint(weights)
    >>> weights["w"].data.numpy()[1] = 1e-30
    >>> print_of.compare()
    >>> print_of.changed()
    ['w']
    """

    def __init__(self, tensors: Mapping[str, Tensor], *, finite: frozenset[str] = frozenset()):
        """Fingerprints ``tensors``; those named in ``finite`` must hold finite numbers."""
        tensors = {name: local(tensor) for name, tensor in tensors.items()}
        on_device = {n: t for n, t in tensors.items() if _for_kernel(t)}
        others = {n: t for n, t in tensors.items() if n not in on_device}
        self._parts: list[_Tags | _Kernel] = [_Tags(others, finite)] if others else []
        for device in {tensor.device for tensor in on_device.values()}:
            part = {n: t for n, t in on_device.items() if t.device == device}
            self._parts.append(_Kernel(part, finite, device))
        # Whether a comparison is cheap to start, and answered later.
        self.lags = any(isinstance(part, _Kernel) for part in self._parts)
        # Whether a tensor is read on the CPU, which no recording of a device repeats.
        self.on_the_cpu = any(isinstance(part, _Tags) for part in self._parts)
        # Whether notes and comparisons are one device's work; a CPU is one, too.
        self.is_recordable = len(self._parts) <= 1 and all(one.on_one_device for one in self._parts)

    def check_places(self) -> None:
        """Notices tensors that lie elsewhere, before a recorded comparison reads their memory."""
        for part in self._parts:
            if isinstance(part, _Kernel):
                part.check_places()

    def note(self) -> None:
        """Takes the tensors as they are."""
        for part in self._parts:
            part.note()

    def compare(self) -> None:
        """Compares the tensors with what was noted; ``changed`` names those that differ."""
        for part in self._parts:
            part.compare()

    @property
    def is_alarmed(self) -> bool:
        """Whether ``changed`` or ``not_finite`` names any, as far as is known now."""
        return any(map(_is_alarmed, self._parts))

    def changed(self, *, wait: bool = False) -> list[str]:
        """The tensors that differed in any comparison so far, as far as is known."""
        return [name for part in self._parts for name in part.changed(wait=wait)]

    def not_finite(self, *, wait: bool = False) -> list[str]:
        """Those that were to be finite and were not when noted, as far as is known."""
        return [name for part in self._parts for name in part.not_finite(wait=wait)]


def tags(tensors: Mapping[str, Tensor], key: bytes) -> dict[str, bytes]:
    """A keyed tag of each tensor's values, the same on every device and in every memory layout."""
    return {name: _tag(tensor.detach().cpu(), key) for name, tensor in tensors.items()}


def new_key() -> bytes:
    """A key for ``tags``."""
    return os.urandom(32)


@final
class _Tags:
    """By a message authentication code on the CPU; what is small, by itself."""

    def __init__(self, tensors: Mapping[str, Tensor], finite: frozenset[str]) -> None:
        self._tensors, self._finite = dict(tensors), finite
        self.on_one_device = all(one.device.type == "cpu" for one in tensors.values())
        self._key = new_key()
        self._changed: dict[str, None] = {}
        self._laid: dict[str, tuple[object, bytes, NDArray[np.uint8]]] = {}
        self.note()

    def note(self) -> None:
        self._noted = self._marks()
        self._wild = [n for n, t in self._tensors.items() if n in self._finite and not _finite(t)]

    def compare(self) -> None:
        now, noted = self._marks(), self._noted
        if now != noted:
            self._changed.update(dict.fromkeys(n for n in now if now[n] != noted[n]))

    def _marks(self) -> dict[str, tuple[bytes, bytes]]:
        """Of each tensor what it is, and its bits or their tag.

        Where its numbers lie is looked up once, as long as they stay.
        """
        found: dict[str, tuple[bytes, bytes]] = {}
        for name, tensor in self._tensors.items():
            known = self._laid.get(name)
            if known is not None and known[0] == _laid(tensor):
                found[name] = (known[1], self._mark(known[2]))
                continue
            said = _described(tensor)
            found[name] = (said, self._mark(_bytes(_values(tensor.detach().cpu()))))
            self._laid.pop(name, None)
            if _is_plain(tensor):
                self._laid[name] = (_laid(tensor), said, _bytes(tensor.detach()))
        return found

    def _mark(self, bits: NDArray[np.uint8]) -> bytes:
        """A small tensor's bits are kept as they are: to begin a tag takes longer."""
        return bits.tobytes() if len(bits) <= _SMALL else _code()(self._key, bits)

    @property
    def is_alarmed(self) -> bool:
        return bool(self._changed or self._wild)

    def changed(self, *, wait: bool) -> list[str]:
        del wait
        return list(self._changed)

    def not_finite(self, *, wait: bool) -> list[str]:
        del wait
        return self._wild


def _finite(tensor: Tensor) -> bool:
    values = tensor.detach()
    if values.numel() == 0:
        return True
    # What is not finite makes the sum so, too; a sum of finite numbers may overflow.
    if values.dtype in (torch.float32, torch.float64) and math.isfinite(values.sum().item()):
        return True
    return all(math.isfinite(float(end)) for end in torch.aminmax(values))


def _tag(tensor: Tensor, key: bytes) -> bytes:
    return _described(tensor) + _code()(key, _bytes(_values(tensor)))


def _values(tensor: Tensor) -> Tensor:
    """The numbers of a tensor of the CPU, one after the other."""
    plain = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return plain.resolve_conj().resolve_neg().contiguous()


def _described(tensor: Tensor) -> bytes:
    return f"{tensor.dtype} {tuple(tensor.shape)} ".encode()


def _bytes(tensor: Tensor) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = tensor.view(-1).view(torch.uint8).numpy()
    return found


def _laid(tensor: Tensor) -> tuple[object, ...]:
    """Where a tensor's numbers lie, and all that says what they are beside the bits there."""
    return (tensor.shape, tensor.is_neg(), *_place(tensor))


def _is_plain(tensor: Tensor) -> bool:
    """Whether real numbers lie on the CPU one after the other, and nothing but memory says which.

    Of an imaginary part the sign may be that of a view; numbers of a subclass lie anywhere.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
        return False
    strided = tensor.layout == torch.strided and tensor.is_contiguous()
    return strided and not (tensor.is_complex() or tensor.is_neg())


@functools.cache
def _code() -> Callable[[bytes, Any], bytes]:
    """Poly1305; where `cryptography` is not installed, HMAC-SHA256, which takes 8 times as long.

    Poly1305's key is for one message: two tags under one key would let somebody who sees them forge
    a third. Here nobody sees a tag, and what counts is that two given messages have the same tag
    with probability 8⌈length/16⌉/2¹⁰⁶ over the key (Bernstein 2005).
    """
    if importlib.util.find_spec("cryptography") is None:
        return lambda key, data: hmac.new(key, data, hashlib.sha256).digest()
    from cryptography.hazmat.primitives.poly1305 import Poly1305  # noqa: PLC0415 - only when used

    return Poly1305.generate_tag


@final
class _Kernel:
    """By one pass of a kernel over the memory of all tensors of a CUDA device.

    A tensor is read in pieces of a few rows of ``_LANES`` words. The hash of a piece is Σ word·key
    modulo 2⁶⁴. A lane's first key is random, and a random odd factor and an addend lead from the
    keys of one row to those of the next: two pieces that differ have the same hash only if one
    random first key solves an equation in which it is multiplied by something with at most about 31
    factors 2.
    """

    on_one_device = True

    def __init__(
        self, tensors: Mapping[str, Tensor], finite: frozenset[str], device: torch.device
    ) -> None:
        self._names, self._tensors = list(tensors), list(tensors.values())
        self._finite, self._device = finite, device
        few = sum(tensor.numel() for tensor in self._tensors) <= _FEW_WORDS
        self._rows = _FEW_ROWS if few else _ROWS
        # Lanes' first keys, then the odd factor and the addend from one row's keys to the next.
        secret = np.frombuffer(os.urandom(8 * (_LANES + 2)), np.int64).copy()
        secret[_LANES] |= 1
        self._secret = torch.from_numpy(secret).to(device)
        # Changed; not finite. The kernel sets them, should it come to that, in the host's own
        # page-locked memory: nothing is copied where all is well.
        self._flags = torch.zeros(2, dtype=torch.int32).pin_memory()
        self._flags_here = self._flags.numpy().data
        self._places: list[tuple[object, ...]] = []
        self._moved: dict[str, None] = {}
        self.note()

    def note(self) -> None:
        places = [_place(tensor) for tensor in self._tensors]
        if places != self._places:
            if self._places:
                self._moved.update(dict.fromkeys(self.changed(wait=True)))
            self._places = places
            self._lay_out()
        self._read(noting=True)

    def compare(self) -> None:
        self.check_places()
        if not self._moved:  # memory that was given back must not be read
            self._read(noting=False)

    def check_places(self) -> None:
        now = [(t.data_ptr(), t.dtype, t.numel(), t.stride(), t.device) for t in self._tensors]
        if now != self._places:
            each = zip(self._names, now, self._places, strict=True)
            self._moved.update(dict.fromkeys(name for name, one, other in each if one != other))

    @property
    def is_alarmed(self) -> bool:
        return bool(self._moved) or any(self._flags_here)

    def changed(self, *, wait: bool) -> list[str]:
        return list(self._moved) or self._named(0, self._differs, wait=wait)

    def not_finite(self, *, wait: bool) -> list[str]:
        return self._named(1, self._wild, wait=wait)

    def _named(self, flag: int, pieces: Tensor, *, wait: bool) -> list[str]:
        if wait:
            torch.cuda.synchronize(self._device)
        if not self._flags_here[flag]:
            return []
        owners = self._owners[pieces.cpu().numpy() != 0]
        return [self._names[at] for at in dict.fromkeys(owners.tolist())]

    def _lay_out(self) -> None:
        """Lists the pieces, those with words of one size after one another."""
        rows, piece = [], _LANES * self._rows
        for at, tensor in enumerate(self._tensors):
            exponent = _EXPONENTS.get(tensor.dtype, 0) if self._names[at] in self._finite else 0
            for size, looked_for in _words_of(tensor.element_size(), exponent):
                count = tensor.numel() * tensor.element_size() // size
                rows += [
                    (size, tensor.data_ptr() + size * start, min(count - start, piece),
                     looked_for, at)
                    for start in range(0, count, piece)
                ]  # fmt: skip
        rows.sort(key=lambda row: row[0])
        table = np.array(rows, np.int64).reshape(-1, 5)
        self._owners = table[:, 4]
        places = torch.from_numpy(np.ascontiguousarray(table[:, 1:4])).to(self._device)
        noted = torch.zeros(len(table), dtype=torch.int64, device=self._device)
        self._differs = torch.zeros(len(table), dtype=torch.int32, device=self._device)
        self._wild = torch.zeros(len(table), dtype=torch.int32, device=self._device)
        self._launches = []
        for size in np.unique(table[:, 0]).tolist():
            start, end = (np.searchsorted(table[:, 0], size, side) for side in ("left", "right"))
            part = slice(int(start), int(end))
            per_piece = (noted[part], self._differs[part], self._wild[part])
            arguments = (places[part], self._secret, *per_piece, self._flags)
            self._launches.append((size, int(end - start), arguments))

    def _read(self, *, noting: bool) -> None:
        from tacit.training.kernels import hashed  # noqa: PLC0415 - only where there is a GPU

        with torch.cuda.device(self._device):
            for size, pieces, arguments in self._launches:
                hashed[(pieces,)](
                    *arguments,
                    NOTING=noting,
                    BITS=8 * size,
                    LANES=_LANES,
                    ROWS=self._rows,
                    num_warps=8,
                )


def _words_of(size: int, exponent: int) -> list[tuple[int, int]]:
    """The words in which numbers of ``size`` bytes are read, and what is looked for in them.

    Words of 64 bits are read in halves: one that changes in its highest bits alone would keep its
    hash, of 64 bits itself, with as many of the keys as have zeros in their lowest. They are read
    whole only to look for what is not finite.
    """
    if size < 8:
        return [(size, exponent)]
    return [(4, 0), (8, exponent)] if exponent else [(4, 0)]


def _place(tensor: Tensor) -> tuple[object, ...]:
    """Where and how a tensor's numbers lie."""
    return tensor.data_ptr(), tensor.dtype, tensor.numel(), tensor.stride(), tensor.device


def _for_kernel(tensor: Tensor) -> bool:
    """Whether a tensor is plain memory of a CUDA device without gaps, and Triton is there."""
    return (
        tensor.device.type == "cuda"
        and tensor.layout == torch.strided
        and tensor.element_size() in _WORDS
        and is_packed(tensor)
        and importlib.util.find_spec("triton") is not None
    )
