"""The rounded Gaussian on a CUDA device: bits, numbers, rounding and means in one pass over memory.

What `RoundedGaussian` computes on the CPU, two kernels compute there: ``draw`` makes the words by
ChaCha20, decides in float64 and lists the pairs that this leaves open; ``decide`` takes up those
with 256 more digits in fixed point of 192 binary places. Nothing but a key of 32 bytes and a few
numbers goes to the device, and nobody waits for it.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch

from tacit.errors import BrokenRandomness
from tacit.randomness.discrete import GUARD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

_LANES = 128  # blocks of ChaCha20 that a program makes, each of eight numbers
_FLOAT_LANES = 256  # of a program of floating-point noise, each of eight numbers
_WARPS = 4
_PAIRS = 32  # that one program decides in fixed point
_TERMS = 22  # of the series, and 66 of the logarithm's: they leave out less than 2^-192
_HEAD = 8  # words of the sheet before the addresses
_MOST_ENTRIES = 2**34  # a block gives eight, and its number has 32 bits
_LETTERS = 16  # of a size that are made at a time, and half as many kept ready
OPEN: Final = -(2**63)
"""The whole number that stands for one that is not decided."""


TYPES: Final = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64})
"""What the kernels read and write."""
SINGLE: Final = TYPES - {torch.float64, torch.int64}
"""What kernels in single precision do."""


def usable(device: torch.device) -> bool:
    """Whether the kernels run on this device."""
    return device.type == "cuda" and _has_triton()


def serves(device: torch.device, scale: float) -> bool:
    """Whether the kernels draw noise of this scale on this device."""
    return usable(device) and 1.0 <= scale <= 2.0**33


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@final
class DeviceNoise:
    """Rounded Gaussian noise on one device, a one-time key a draw.

    Guarantee:
        The numbers are those of the CPU for the same key, bit for bit. An entry that 192 binary
        places leave open, with probability below 2⁻¹²⁰, becomes ``OPEN`` or, of means, NaN: never a
        number, and a weight that is NaN ends the training. So do means that are drawn without a
        new key. A key's memory is set to 0 on the device once the draw is done, and on the host at
        the first draw after the key has arrived there. Time and power that the device takes may
        depend on the noise: this is not constant-time code.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._table = _to_device(_table(), device)
        self._key = torch.zeros(4, dtype=torch.int64, device=device)
        self._layouts = _Layouts(device, _LANES)
        self._checked: set[tuple[torch.dtype, torch.dtype, bool]] = set()
        self._letters = _Letters()

    def renew(self, key: bytearray) -> None:
        """Sends the key of the next draw to the device, and sets it to 0 here."""
        self._letters.send(np.frombuffer(key, np.int64), self._key)
        key[:] = bytes(len(key))

    def integers_(self, flat: Tensor, scale: float, key: bytearray, first: int = 0) -> int:
        """Fills an int64 tensor, one-dimensional and contiguous; how many pairs are left open.

        ``first`` is the place of its first number among those of the key.
        """
        draw = self.draw([None], [flat], scale, means=False, starts=[first])
        self.renew(key)
        draw.launch()
        return draw.left_open()

    def draw(
        self,
        sums: Sequence[Tensor | None],
        outs: Sequence[Tensor],
        scale: float,
        *,
        step: float = 1.0,
        lot_size: float = 1.0,
        means: bool = True,
        guard: float = GUARD,
        starts: Sequence[int] | None = None,
    ) -> Draw:
        """A draw of (sum in steps + noise)·(step/lot_size) for these tensors, all contiguous.

        Sums are rounded to steps, except those in int64, which are whole numbers of steps. If they
        are not ``means``, the results are the whole numbers of the noise alone, in int64. A
        tensor's numbers begin at its place among the key's in ``starts``, or where those of the one
        before end. The first time that tensors have certain types, their kernels are checked.
        """
        sizes = [out.numel() for out in outs]
        firsts = [*accumulate(sizes, initial=0)][:-1] if starts is None else list(starts)
        assert max(map(sum, zip(firsts, sizes, strict=True)), default=0) <= _MOST_ENTRIES
        assert all(one is None or one.is_contiguous() for one in (*sums, *outs))
        kinds = [
            _Kind(self._layouts.rows(sizes, firsts, members), of_sum, of_out)
            for (of_sum, of_out), members in _kinds(sums, outs).items()
            if any(sizes[at] for at in members)
        ]
        for kind in kinds:
            self._check_once(kind.of_sum, kind.of_out, means=means)
        addresses = [
            (0 if one is None else one.data_ptr(), out.data_ptr())
            for one, out in zip(sums, outs, strict=True)
        ]
        numbers = (scale, 0.5 - scale * guard, 1.0 / step, step / lot_size)
        sheet = torch.empty(_HEAD + 2 * len(outs), dtype=torch.int64, device=self._device)
        self._letters.send(_sheet(numbers, addresses), sheet)
        capacity = _capacity(sum(sizes), scale, guard)
        return Draw(kinds, means, self._key, self._table, sheet, capacity)

    def _check_once(self, of_sum: torch.dtype, of_out: torch.dtype, *, means: bool) -> None:
        types = (of_sum, of_out, means)
        if types in self._checked:
            return
        self._checked.add(types)  # the check draws as well
        try:
            self._check(of_sum, of_out, means=means)
        except BaseException:
            self._checked.discard(types)
            raise

    def _check(self, of_sum: torch.dtype, of_out: torch.dtype, *, means: bool) -> None:
        """Refuses kernels whose numbers are not the CPU's: whatever compiled them did it wrongly.

        A known key gives the numbers of a thousand entries, decided as usual and then all of them
        in fixed point.
        """
        from tacit.randomness.gaussian import fill_tiles  # noqa: PLC0415 - it imports this module

        key, entries, scale = bytes(range(32)), 1000, 2.0**25 / 3
        known = torch.empty(entries, dtype=torch.int64)
        fill_tiles(known, key, scale)
        sums = torch.ones(entries, dtype=of_sum, device=self._device) if means else None
        wanted = ((known + 1).double() / 2.0**25).to(of_out) if means else known
        for guard in (GUARD, 1.0 / scale):
            found = torch.empty(entries, dtype=of_out, device=self._device)
            draw = self.draw([sums], [found], scale, lot_size=2.0**25, means=means, guard=guard)
            self.renew(bytearray(key))
            draw.launch()
            if not torch.equal(found.cpu(), wanted):
                raise BrokenRandomness(
                    "the noise that Triton's kernels draw on this device is not the right one; "
                    "use another version of Triton, or noise='fast'"
                )


@dataclass(frozen=True)
class _Kind:
    """The tensors whose sums and results have the same types."""

    rows: Tensor
    of_sum: torch.dtype
    of_out: torch.dtype


@final
class Draw:
    """A draw for tensors that stay where they are. A new key goes before every launch.

    A launch can be captured, with all its memory but the sheet's in the recording's own pool.
    """

    def __init__(
        self,
        kinds: Sequence[_Kind],
        means: bool,
        key: Tensor,
        table: Tensor,
        sheet: Tensor,
        capacity: int,
    ) -> None:
        device = key.device
        self._kinds, self._means, self._capacity = kinds, means, capacity
        self._key, self._table, self._sheet = key, table, sheet
        self._status = torch.empty(2, dtype=torch.int32, device=device)  # listed; left open
        self._listed = torch.empty(capacity, dtype=torch.int64, device=device)

    def launch(self) -> None:
        """Runs the kernels and sets the key on the device to 0. Nobody waits."""
        with torch.cuda.device(self._key.device) if self._key.is_cuda else nullcontext():
            self._launch()

    def _launch(self) -> None:
        from tacit.randomness import kernels  # noqa: PLC0415 - only where Triton is

        self._status.zero_()
        for kind in self._kinds:
            common: dict[str, Any] = {
                "SUM": _types()[kind.of_sum], "OUT": _types()[kind.of_out], "MEANS": self._means,
                "WHOLE": kind.of_sum == torch.int64, "SINGLE": kind.of_out != torch.float64,
                "LANES": _LANES,
            }  # fmt: skip
            arguments = (self._key, self._sheet, kind.rows, self._status, self._listed)
            kernels.draw[(len(kind.rows),)](*arguments, self._capacity, **common, num_warps=_WARPS)
            kernels.decide[(-(-self._capacity // _PAIRS),)](
                *arguments, self._capacity, self._table, **common, PAIRS=_PAIRS, TERMS=_TERMS,
                num_warps=1,
            )  # fmt: skip
            self._status[:1].zero_()
        self._key.zero_()

    def left_open(self) -> int:
        """How many pairs the last launch left open; waits for the device."""
        return int(self._status[1])


@final
class _Layouts:
    """Tables of what each program draws, for tensors of certain sizes. They stay on the device."""

    def __init__(self, device: torch.device, lanes: int) -> None:
        self._device, self._lanes = device, lanes
        self._known: dict[tuple[int, ...], Tensor] = {}

    def rows(self, sizes: Sequence[int], firsts: Sequence[int], members: Sequence[int]) -> Tensor:
        """The table of the tensors ``members``: the tensor, a first block, its first entry and end.

        A run of blocks that holds two tensors' entries is drawn for each of them, the same numbers
        both times.
        """
        layout = (*sizes, -1, *firsts, -1, *members)
        found = self._known.get(layout)
        if found is None:
            rows = [
                _rows_of(at, firsts[at], firsts[at] + sizes[at], self._lanes)
                for at in members
                if sizes[at]
            ]
            found = _to_device(np.concatenate(rows), self._device)
            self._known[layout] = found
        return found


@final
class FloatNoise:
    """Floating-point noise and means in one pass over memory, a seed of 64 bits a draw.

    Seeds are the numbers after one that ``generator`` draws, counted on the device itself, so that
    a draw that is captured has another at every replay. A seed is the key of Philox-4x32-10 (Salmon
    et al. 2011), whose numbers come in single precision.
    """

    def __init__(self, device: torch.device, generator: torch.Generator) -> None:
        self._device = device
        self._layouts, self._letters = _Layouts(device, _FLOAT_LANES), _Letters()
        self._seed = torch.empty(1, dtype=torch.int64, device=device).random_(generator=generator)

    def means_(
        self,
        sums: Sequence[Tensor | None],
        outs: Sequence[Tensor],
        scale: float,
        lot_size: float,
        starts: Sequence[int] | None = None,
    ) -> None:
        """Fills ``outs`` with (sum + N(0, scale²)) / lot_size; all tensors are contiguous.

        A tensor's numbers begin at its place among the seed's in ``starts``, or where those of the
        one before end. No number is drawn in less than single precision, whatever it is rounded to
        afterwards.
        """
        from tacit.randomness import kernels  # noqa: PLC0415 - only where Triton is

        sizes = [out.numel() for out in outs]
        firsts = [*accumulate(sizes, initial=0)][:-1] if starts is None else list(starts)
        addresses = [
            (0 if one is None else one.data_ptr(), out.data_ptr())
            for one, out in zip(sums, outs, strict=True)
        ]
        sheet = torch.empty(_HEAD + 2 * len(outs), dtype=torch.int64, device=self._device)
        self._letters.send(_sheet((scale / lot_size, 0.0, 0.0, 1.0 / lot_size), addresses), sheet)
        self._seed.add_(1)  # first: whatever goes wrong from here on, no number comes again
        with torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext():
            for (of_sum, of_out), members in _kinds(sums, outs).items():
                if any(sizes[at] for at in members):
                    rows = self._layouts.rows(sizes, firsts, members)
                    kernels.add_normal[(len(rows),)](
                        self._seed, sheet, rows, SUM=_types()[of_sum], OUT=_types()[of_out],
                        LANES=_FLOAT_LANES, num_warps=_WARPS,
                    )  # fmt: skip


def _rows_of(tensor: int, start: int, end: int, lanes: int) -> NDArray[np.int64]:
    """A row for every run of blocks that has an entry of the tensor."""
    first = np.arange(start // (8 * lanes), -(-end // (8 * lanes))) * lanes
    same = np.full((3, len(first)), [[tensor], [start], [end]])
    return np.stack([same[0], first, same[1], same[2]], axis=1)


def _kinds(
    sums: Sequence[Tensor | None], outs: Sequence[Tensor]
) -> dict[tuple[torch.dtype, torch.dtype], list[int]]:
    """The tensors by the types of their sums and results; those without a sum join the first."""
    there = [one.dtype for one in sums if one is not None]
    usual = there[0] if there else torch.float32
    kinds: dict[tuple[torch.dtype, torch.dtype], list[int]] = {}
    for at, (one, out) in enumerate(zip(sums, outs, strict=True)):
        kinds.setdefault((usual if one is None else one.dtype, out.dtype), []).append(at)
    return kinds


@functools.cache
def _types() -> dict[torch.dtype, Any]:
    import triton.language as tl  # noqa: PLC0415

    return {one: getattr(tl, str(one).removeprefix("torch.")) for one in TYPES}


def _capacity(entries: int, scale: float, guard: float) -> int:
    """Room for twice the pairs that are open on average, and 256: more have probability < 2⁻²⁰⁰."""
    share = min(0.5, 2.0 * scale * guard + 2.0**-18)
    return 256 + math.ceil(2.0 * entries * share)


def _sheet(numbers: tuple[float, ...], addresses: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """What the kernels read: scale and three more numbers, scale² and its exponent, addresses."""
    sheet = np.zeros(_HEAD + 2 * len(addresses), np.int64)
    sheet[:4].view(np.float64)[:] = numbers
    part, exponent = math.frexp(numbers[0])
    sheet[4:7] = _words(int(part * 2**53) ** 2 << (192 - 106))
    sheet[7] = 118 - 2 * exponent
    sheet[_HEAD:] = np.array(addresses, np.int64).ravel()
    return sheet


@final
class _Letters:
    """Numbers on their way to the device, in memory that it reads while nobody waits for it.

    Memory of letters that have arrived is set to 0 and used again. A letter that is sent while a
    draw is captured is read again at every replay, and so it stays. No such memory can be had then,
    so some is kept ready.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Tensor]] = {}
        self._under_way: deque[tuple[Tensor, torch.cuda.Event]] = deque()
        self._kept: list[Tensor] = []

    def send(self, numbers: NDArray[np.int64], there: Tensor) -> None:
        if there.device.type != "cuda":  # the interpreter's
            there.copy_(torch.from_numpy(numbers.copy()))
            return
        captured = torch.cuda.is_current_stream_capturing()
        if not captured:
            self._take_back()
        letter = self._taken(len(numbers), captured=captured)
        letter.numpy()[:] = numbers
        there.copy_(letter, non_blocking=True)
        if captured:
            self._kept.append(letter)
        else:
            arrival = torch.cuda.Event()
            arrival.record(torch.cuda.current_stream(there.device))
            self._under_way.append((letter, arrival))

    def _take_back(self) -> None:
        while self._under_way and self._under_way[0][1].query():
            letter, _ = self._under_way.popleft()
            letter.zero_()
            self._free[len(letter)].append(letter)

    def _taken(self, length: int, *, captured: bool) -> Tensor:
        free = self._free.setdefault(length, [])
        if len(free) <= _LETTERS // 2 and not captured:
            free.extend(torch.zeros(_LETTERS, length, dtype=torch.int64).pin_memory())
        if not free:
            raise RuntimeError("noise must be drawn once before it is captured")
        return free.pop()


def _to_device(numbers: NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers)).to(device)


# ---- constants


@functools.cache
def _table() -> NDArray[np.int64]:
    """The logarithm of 2, π/4, and the series' coefficients, each in three words."""
    numbers = [
        _ln2(),
        _quarter_pi(),
        *(Fraction(1, 2 * k + 1) for k in range(3 * _TERMS, 0, -1)),
        *(Fraction(1, (2 * k - 1) * 2 * k) for k in range(_TERMS, 0, -1)),
        *(Fraction(1, 2 * k * (2 * k + 1)) for k in range(_TERMS, 0, -1)),
    ]
    return np.stack([_words(int(number * 2**192)) for number in numbers])


def _words(number: int) -> NDArray[np.int64]:
    parts = [number >> 128, number >> 64 & (2**64 - 1), number & (2**64 - 1)]
    return np.array(parts, np.uint64).view(np.int64)


def _ln2() -> Fraction:
    """2·artanh(1/3), to 2⁻²⁵⁰."""
    return 2 * sum((Fraction(1, (2 * k + 1) * 3 ** (2 * k + 1)) for k in range(80)), Fraction(0))


def _quarter_pi() -> Fraction:
    """4·arctan(1/5) - arctan(1/239) (Machin 1706), to 2⁻²⁵⁰."""

    def arctan_of_one_over(n: int) -> Fraction:
        terms = (Fraction((-1) ** k, (2 * k + 1) * n ** (2 * k + 1)) for k in range(60))
        return sum(terms, Fraction(0))

    return 4 * arctan_of_one_over(5) - arctan_of_one_over(239)
