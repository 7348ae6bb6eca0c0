"""Gaussian noise: fast, from a generator of its own; and rounded to whole numbers, exactly."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument, ProtocolError
from tacit.randomness.discrete import GUARD, Expansion, interval_arithmetic, whole_parts
from tacit.randomness.streams import KeyedStream, chacha20, one_time_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch
    from numpy.typing import NDArray

    from tacit.randomness.device_noise import DeviceNoise, FloatNoise
    from tacit.randomness.streams import Stream


_BLOCK = 1 << 18
_NEAR = 1 << 13  # pairs that are computed in the time that it takes to begin elsewhere
_DEVICE_TILE = 1 << 20  # numbers that a device draws together where each must be found by its place
_DEVICE_COUNTS = 1 << 13  # of its generator that a tile may take, whatever the device: a fourth is


@final
@dataclass(frozen=True, slots=True)
class Share:
    """Which numbers of a draw of ``of`` are wanted: stretches in order, from a place to another.

    The numbers of a draw have places. Whoever shares a source's stream with others, and draws what
    they draw, finds the same number at a place, whatever shares all of them ask for.

    >>> Share(10, ((2, 5), (8, 10))).count
    5
    """

    of: int
    stretches: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """How many numbers that is."""
        return sum(stop - start for start, stop in self.stretches)

    @property
    def is_whole(self) -> bool:
        """Whether all of the draw is wanted."""
        return self.count == self.of


def _shared(count: int, share: Share | None) -> Share:
    """The share that fills ``count`` numbers; left out, it is the whole draw."""
    if share is None:
        return Share(count, ((0, count),) if count else ())
    ends = [end for stretch in share.stretches for end in stretch]
    if ends != sorted(ends) or share.count != count or not 0 <= max(ends, default=0) <= share.of:
        raise InvalidArgument(
            f"share must have as many places of its draw as the tensor has entries, {count}, one "
            f"after the other, got {share!r}"
        )
    return share


@final
class GaussianSource:
    """Standard normal numbers on one device.

    On the CPU they come from NumPy's Philox-4x64 under a key of 128 bits, elsewhere from the
    device's own counter-based generator under a seed of 64 bits; key and seed are taken from
    ``stream``, used once, and never shown. ``torch.manual_seed`` has no effect on either. A source
    cannot be copied or pickled, nor used in a forked process: its noise would be drawn twice.

    A draw may be a share of a longer one. On the CPU, and in ``means_``, its numbers are those at
    the same places of the whole. Elsewhere shares are drawn in tiles, each with counts of the
    generator to itself: all shares of a draw agree with each other, but not with a whole one.

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

    __slots__ = ("_device", "_fused", "_home", "_host", "_native", "_tiles")

    def __init__(self, device: torch.device, stream: Stream) -> None:
        self._device = device
        self._home = os.getpid()
        self._host: _Words | None = None
        self._native: torch.Generator | None = None
        self._tiles = 0  # of a device's generator that were used up by draws of shares
        if device.type == "cpu":
            self._host = _Words(int.from_bytes(stream.bytes(16), "little"))
        else:
            import torch  # noqa: PLC0415 - randomness is there for those who have no torch

            seed = int.from_bytes(stream.bytes(8), "little")
            self._native = torch.Generator(device=device).manual_seed(seed)
        self._fused: FloatNoise | None = None

    @property
    def generator(self) -> torch.Generator | None:
        """The device's own generator that the numbers come from; None on the CPU."""
        return self._native

    def normal_(
        self, tensor: torch.Tensor, scale: float = 1.0, *, share: Share | None = None
    ) -> None:
        """Fills a float32 or float64 tensor with independent N(0, scale²) numbers.

        With ``share`` they are some of a draw of more.
        """
        import torch  # noqa: PLC0415

        self._check_process()
        if tensor.dtype not in {torch.float32, torch.float64}:
            raise InvalidArgument(
                f"tensor must be float32 or float64, got {tensor.dtype}; noise is never rounded"
            )
        if tensor.device.type != self._device.type:
            raise InvalidArgument(f"tensor must be on {self._device}, got one on {tensor.device}")
        target = tensor.detach()
        if self._host is None and share is None:
            target.normal_(0.0, scale, generator=self._native)
            return
        part = _shared(target.numel(), share)
        plain = target.is_contiguous()
        flat = target.view(-1) if plain else target.new_empty(target.numel())
        if self._host is None:
            self._tiled(flat, part)
        else:
            _fill(self._host, flat, part)
        if not plain:
            target.copy_(flat.view(target.shape))
        if scale != 1.0:
            target.mul_(scale)

    def _check_process(self) -> None:
        if os.getpid() != self._home:
            raise ProtocolError(
                "a forked process cannot go on with its parent's noise, which the parent draws as "
                "well; start the run in the process that trains"
            )

    def serves(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether ``means_`` draws for tensors of these types, on this device."""
        from tacit.randomness import device_noise  # noqa: PLC0415 - it needs torch

        return device_noise.usable(self._device) and all(
            one.dtype in device_noise.SINGLE for one in tensors
        )

    def means_(
        self,
        sums: Sequence[torch.Tensor | None],
        outs: Sequence[torch.Tensor],
        scale: float,
        lot_size: float,
        starts: Sequence[int] | None = None,
    ) -> None:
        """Fills ``outs`` with (sum + N(0, scale²)) / lot_size, in one pass over a GPU's memory.

        All tensors are contiguous. Every call has a seed of its own (see ``FloatNoise``), and its
        numbers are those from a place in ``starts`` on, where tensors are shares of others.
        """
        from tacit.randomness.device_noise import FloatNoise  # noqa: PLC0415 - it needs torch

        self._check_process()
        if self._fused is None:
            assert self._native is not None
            self._fused = FloatNoise(self._device, self._native)
        self._fused.means_(sums, outs, scale, lot_size, starts)

    def _tiled(self, flat: torch.Tensor, share: Share) -> None:
        """The numbers of a device at the places of a share, from tiles that are drawn whole."""
        import torch  # noqa: PLC0415

        assert self._native is not None
        # Whole draws in between have used counts as well: none may come again.
        used = -(-self._native.get_offset() // _DEVICE_COUNTS)
        self._tiles = max(self._tiles, used)
        tile = torch.empty(_DEVICE_TILE, dtype=flat.dtype, device=flat.device)
        at = 0
        for start, stop in share.stretches:
            for number in range(start // _DEVICE_TILE, -(-stop // _DEVICE_TILE)):
                first = number * _DEVICE_TILE
                self._native.set_offset((self._tiles + number) * _DEVICE_COUNTS)
                tile.normal_(generator=self._native)
                wanted = tile[max(start - first, 0) : stop - first]
                flat[at : at + len(wanted)] = wanted
                at += len(wanted)
        self._tiles += -(-share.of // _DEVICE_TILE)
        self._native.set_offset(self._tiles * _DEVICE_COUNTS)

    def __repr__(self) -> str:
        return f"GaussianSource({self._device})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a GaussianSource cannot be copied or pickled: its noise would be drawn twice; "
            "make a new one from a stream"
        )


@final
class _Words:
    """The words of Philox under one key by their number, and how many are used up."""

    __slots__ = ("_bits", "_key", "_next", "used")

    def __init__(self, key: int) -> None:
        self._key = key
        self._bits = np.random.Philox(key=key)
        self._next = 0  # the number of the word that the generator gives next
        self.used = 0

    def at(self, first: int, count: int) -> NDArray[np.uint64]:
        """``count`` words from the number ``first`` on; a count of the generator gives four."""
        skipped = 0
        if first != self._next:
            self._bits = np.random.Philox(key=self._key, counter=first // 4)
            skipped = first % 4
        self._next = first + count
        words: NDArray[np.uint64] = self._bits.random_raw(skipped + count)
        return words[skipped:]


def _fill(words: _Words, flat: torch.Tensor, share: Share) -> None:
    """Fills ``flat`` with a share of a draw, by blocks that fit the cache."""
    double = flat.element_size() == 8
    at = 0
    for first, pieces in groupby(_by_block(share), key=itemgetter(0)):
        wanted = [one for _, one in pieces]
        count = sum(map(len, wanted))
        before = words.used + (first if double else first // 2)
        size = min(_BLOCK, share.of - first)
        if len(wanted) == 1:
            _fill_block(words, flat[at : at + count], before, size, wanted[0])
        else:
            _fill_pieces(words, flat[at : at + count], before, size, wanted)
        at += count
    words.used += _words_of(share.of, double=double)


def _by_block(share: Share) -> Iterator[tuple[int, range]]:
    """The places of a share, in order: the first of a block, and those wanted after it."""
    for start, stop in share.stretches:
        for first in range(start - start % _BLOCK, stop, _BLOCK):
            yield first, range(max(start, first) - first, min(stop - first, _BLOCK))


def _fill_pieces(
    words: _Words, out: torch.Tensor, before: int, size: int, wanted: Sequence[range]
) -> None:
    """What ``_fill_block`` does, for several pieces of a block.

    Pairs that are near each other are computed together, and once: cosines and sines of a pair may
    belong to different pieces, and beginning elsewhere takes its time.
    """
    half = (size + 1) // 2
    parts: list[tuple[range, bool, int]] = []  # pairs; their sines or cosines; where they belong
    at = 0
    for one in wanted:
        cosines = range(one.start, min(one.stop, half))
        sines = range(max(one.start, half) - half, one.stop - half)
        for sine, pairs in ((False, cosines), (True, sines)):
            if len(pairs):
                parts.append((pairs, sine, at))
                at += len(pairs)
    parts.sort(key=lambda part: part[0].start)
    while parts:
        run, count = parts[0][0], 1
        while count < len(parts) and parts[count][0].start <= run.stop + _NEAR:
            run = range(run.start, max(run.stop, parts[count][0].stop))
            count += 1
        both = _pairs(words, before, half, run, out)
        for pairs, sine, at in parts[:count]:
            first = pairs.start - run.start
            out[at : at + len(pairs)] = both[sine][first : first + len(pairs)]
        parts = parts[count:]


def _words_of(count: int, *, double: bool) -> int:
    """How many words a draw of ``count`` numbers takes: one a pair, in double precision two."""
    pairs = (count + 1) // 2
    return 2 * pairs if double else pairs


def _fill_block(words: _Words, out: torch.Tensor, before: int, size: int, wanted: range) -> None:
    """The numbers ``wanted`` of a block of ``size``: cosines of its pairs first, then their sines.

    ``before`` is the number of the block's first word. In double precision a pair has two: those of
    all radii come first.
    """
    half = (size + 1) // 2
    at = 0
    for sine, part in (
        (False, range(wanted.start, min(wanted.stop, half))),
        (True, range(max(wanted.start, half) - half, wanted.stop - half)),
    ):
        if not len(part):
            continue
        if at == 0 and len(wanted) == size and not sine:  # both of all pairs, computed once
            _fill_pairs(words, before, half, out)
            return
        both = _pairs(words, before, half, part, out)
        out[at : at + len(part)] = both[sine]
        at += len(part)


def _fill_pairs(words: _Words, before: int, half: int, out: torch.Tensor) -> None:
    """Both numbers of all pairs of a block, each computed where it belongs."""
    import torch  # noqa: PLC0415

    if out.element_size() == 8:
        first, second = _pairs(words, before, half, range(half), out)
        out[:half], out[half:] = first, second[: len(out) - half]
        return
    radius, angle = _polar(words.at(before, half))
    torch.cos(angle, out=out[:half]).mul_(radius)
    rest = len(out) - half  # of an odd number, the last pair gives one
    torch.sin(angle[:rest], out=out[half:]).mul_(radius[:rest])


def _pairs(
    words: _Words, before: int, half: int, part: range, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if like.element_size() != 8:
        return _box_muller(words.at(before + part.start, len(part)))
    radii = words.at(before + part.start, len(part))
    return _box_muller_double(radii, words.at(before + half + part.start, len(part)))


def _box_muller_double(
    radii: NDArray[np.uint64], turns: NDArray[np.uint64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two normal numbers of two words: 53 bits for the radius, which reaches 8.6 σ."""
    import torch  # noqa: PLC0415

    uniform, turn = (
        torch.from_numpy((one >> np.uint64(11)).astype(np.float64)).add_(0.5).mul_(2.0**-53)
        for one in (radii, turns)
    )
    radius = uniform.clamp_(max=1.0 - 2.0**-53).log_().mul_(-2.0).sqrt_()
    angle = turn.mul_(2.0 * math.pi)
    return angle.cos().mul_(radius), angle.sin_().mul_(radius)


def _box_muller(words: NDArray[np.uint64]) -> tuple[torch.Tensor, torch.Tensor]:
    """Two normal numbers a word: 40 bits for the radius, which reaches 7.5 σ, 24 for the angle.

    It takes half the time of NumPy's ziggurat, whose branches no processor foresees. The words are
    used up.
    """
    radius, angle = _polar(words)
    return angle.cos().mul_(radius), angle.sin_().mul_(radius)


def _polar(words: NDArray[np.uint64]) -> tuple[torch.Tensor, torch.Tensor]:
    """Radius and angle of every word's pair; of the words nothing is left."""
    import torch  # noqa: PLC0415

    # Converted as signed numbers, which they fit: processors are slow at others.
    low = words.astype(np.uint32)
    low &= np.uint32(0xFFFFFF)
    turn = torch.from_numpy(low.view(np.int32).astype(np.float32))
    words >>= np.uint64(24)
    uniform = torch.from_numpy(words.view(np.int64).astype(np.float32))
    # Half a step above the lattice and, where that rounds up to 1, one below: the logarithm is
    # finite and not zero, and neither is the sine. Noise of exactly 0 would show what it covers.
    radius = uniform.add_(0.5).mul_(2.0**-40).clamp_(max=1.0 - 2.0**-24)
    return radius.log_().mul_(-2.0).sqrt_(), turn.add_(0.5).mul_(2.0 * math.pi * 2.0**-24)


# ---- rounded to whole numbers, exactly: for gradients on a grid


_LARGEST_SCALE = 2.0**45
_BLOCKS = 32  # of ChaCha20, four pairs each, whose numbers lie together:
_TILE = 8 * _BLOCKS
_TILES_ON_CPU = 1 << 8  # at a time: what they need fits the cache
_TILES_ELSEWHERE = 1 << 15
_EDGE = 2.0**-18
_LOW_63 = (1 << 63) - 1


@final
class RoundedGaussian:
    """Whole numbers round(s·Z), Z standard normal, on one device, from a stream's bits.

    Two words of 64 bits are the first digits of two uniform numbers U and V, and those give two
    independent normal ones, √(-2 ln U)·cos 2πV and √(-2 ln U)·sin 2πV (Box and Muller 1958). They
    are computed in float64. Where that leaves a doubt about the nearest whole number, further
    digits of U and V are drawn and interval arithmetic decides (`Expansion`).

    Each draw takes a key of 32 bytes from the stream, and its bits are those of ChaCha20 under that
    key: what is drawn depends on the key, the scale and an entry's place, and on no device. Of the
    eight words in a block the first four are those of U, the others those of V. The numbers of 32
    blocks lie together: first the cosines of their first pairs, then of their second ones, and so
    on, then the sines. The further digits of pair p, of which the first block has the pairs 0 to 3,
    are the key stream with p and 1 as its nonce, a word for U and a word for V in turn.

    The share of doubtful entries is about s·2⁻⁴³, and each takes 0.2 ms: few at s = 2²⁰, one in a
    thousand at 2³³, and all of them from 2⁴³ on. On a CUDA device with Triton, and for 1 ≤ s ≤ 2³³,
    all is done there in one pass over memory (`DeviceNoise`), doubtful entries included.

    Guarantee:
        The numbers are independent, and each has exactly the law of a real N(0, s²) rounded to the
        nearest whole number, if the stream's bytes and ChaCha20's are random and float64 logarithm,
        square root, sine and cosine are good to 40 units in the last place. ``x + noise`` for whole
        x is then a real Gaussian mechanism's output, rounded: post-processing of it, with the same
        guarantee. No number is used twice. The time taken depends on the noise.

    >>> import torch
    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> noise = torch.empty(6, dtype=torch.int64)
    >>> source = RoundedGaussian(UnsafeSeededStream(0, "noise"), torch.device("cpu"))
    >>> source.integers_(noise, 100.0)
    >>> noise.tolist()
    [-125, -8, -64, 20, -90, 40]
    """

    __slots__ = ("_device", "_on_device", "_stream")

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self._stream = stream
        self._device = device
        self._on_device: DeviceNoise | None = None

    def integers_(self, tensor: torch.Tensor, scale: float, *, share: Share | None = None) -> None:
        """Fills an int64 tensor with independent round(N(0, scale²)), scale at most 2⁴⁵.

        With ``share`` they are some of a draw of more: those at the same places of the whole.
        """
        import torch  # noqa: PLC0415 - randomness is there for those who have no torch

        if tensor.dtype != torch.int64:
            raise InvalidArgument(f"tensor must be int64, got {tensor.dtype}")
        if tensor.device.type != self._device.type:
            raise InvalidArgument(f"tensor must be on {self._device}, got one on {tensor.device}")
        if positive("scale", scale) > _LARGEST_SCALE:
            raise InvalidArgument(
                f"scale must be at most 2**45, got {scale!r}; take a coarser grid"
            )
        part = _shared(tensor.numel(), share)
        if tensor.is_contiguous():
            self._fill(tensor.view(-1), float(scale), part)
        else:
            numbers = torch.empty(tensor.numel(), dtype=torch.int64, device=tensor.device)
            self._fill(numbers, float(scale), part)
            tensor.copy_(numbers.view(tensor.shape))

    @property
    def draws_on_device(self) -> bool:
        """Whether the device has kernels that draw, for all scales but very small or large ones."""
        from tacit.randomness import device_noise  # noqa: PLC0415 - needs torch

        return device_noise.usable(self._device)

    def in_one_pass(self, scale: float, types: Iterable[torch.dtype]) -> bool:
        """Whether ``means_`` is there for this scale and tensors of these types."""
        if self._device.type != "cuda":
            return False
        from tacit.randomness import device_noise  # noqa: PLC0415 - needs torch

        return device_noise.serves(self._device, scale) and device_noise.TYPES.issuperset(types)

    def means_(
        self,
        outs: Sequence[torch.Tensor],
        sums: Sequence[torch.Tensor | None],
        *,
        scale: float,
        step: float,
        lot_size: float,
        starts: Sequence[int] | None = None,
    ) -> None:
        """Writes (sum + noise)·(step/lot_size), with one pass over memory and no wait.

        Sums in int64 are whole numbers of steps, others are rounded to them. The noise is that of
        ``integers_`` for all tensors after one another, or from the places ``starts`` of the draw
        on. It can be captured in a CUDA graph: then ``renew`` goes before every replay, and without
        it the means are no numbers.
        """
        import torch  # noqa: PLC0415

        noise = self._noise_there()
        draw = noise.draw(sums, outs, scale, step=step, lot_size=lot_size, starts=starts)
        if self._device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
            noise.renew(one_time_key(self._stream))
        draw.launch()

    def renew(self) -> None:
        """Sends a key of the stream to the device for the next replay of a captured draw."""
        if self.draws_on_device:
            self._noise_there().renew(one_time_key(self._stream))

    def _noise_there(self) -> DeviceNoise:
        from tacit.randomness.device_noise import DeviceNoise  # noqa: PLC0415 - needs torch

        if self._on_device is None:
            self._on_device = DeviceNoise(self._device)
        return self._on_device

    def _fill(self, flat: torch.Tensor, scale: float, share: Share) -> None:
        import torch  # noqa: PLC0415

        from tacit.randomness import device_noise  # noqa: PLC0415

        if not share.of:
            return
        if flat.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise ProtocolError("a recording would draw the same noise in every replay")
        key = one_time_key(self._stream)  # also where nothing of the draw is wanted
        there = flat.is_cuda and device_noise.serves(self._device, scale) and len(flat) > _TILE
        at = 0
        for start, stop in share.stretches:
            part = flat[at : at + stop - start]
            at += len(part)
            if not there:
                fill_tiles(part, key, scale, start)
            elif self._noise_there().integers_(part, scale, bytearray(key), start):
                _decide_open(part, key, scale, start)
        key[:] = bytes(len(key))

    def __repr__(self) -> str:
        return f"RoundedGaussian({self._device})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a RoundedGaussian cannot be copied or pickled: its noise could be drawn twice; "
            "make a new one from a stream"
        )


def fill_tiles(flat: torch.Tensor, key: bytes | bytearray, scale: float, first: int = 0) -> None:
    """Fills ``flat`` with the numbers of a key from the place ``first`` on.

    Their words are made on the CPU.
    """
    import torch  # noqa: PLC0415

    most = _TILES_ON_CPU if flat.device.type == "cpu" else _TILES_ELSEWHERE
    before = first % _TILE  # numbers of the first tile that are not wanted
    bits = chacha20(key, block=(first - before) // _TILE * _BLOCKS)
    for start in range(-before, len(flat), most * _TILE):
        part = flat[max(start, 0) : start + most * _TILE]
        skipped = max(-start, 0)
        tiles = -(-(skipped + len(part)) // _TILE)
        drawn = bytearray(bits.stream(8 * _TILE * tiles))
        blocks = torch.frombuffer(drawn, dtype=torch.int64).to(flat.device).view(tiles, _BLOCKS, 8)
        words = blocks.transpose(1, 2).contiguous()
        numbers = rounded_tiles(
            words, scale, key, first=(first + start) // 2, wanted=skipped + len(part)
        ).view(-1)
        part.copy_(numbers[skipped : skipped + len(part)])


def rounded_tiles(
    words: torch.Tensor,
    scale: float,
    key: bytes | bytearray,
    *,
    first: int = 0,
    wanted: int | None = None,
) -> torch.Tensor:
    """The numbers of whole tiles from their words: both int64, of a shape such as (n, 8, 32).

    The first half of the second axis has the words of U, and the cosines; the other half those of
    V, and the sines. ``first`` is the number of the first pair; doubtful numbers behind the first
    ``wanted`` are not decided.
    """
    import torch  # noqa: PLC0415

    reals, edge = _box_muller_within(words)
    reals.mul_(scale)
    numbers = reals.round()
    doubtful = reals.sub_(numbers).abs_() > 0.5 - scale * GUARD
    _, rows, lanes = words.shape
    of_cosine, of_sine = doubtful.chunk(2, dim=1)
    places = (of_cosine | of_sine | edge).nonzero().tolist()
    result = numbers.to(torch.int64)
    intervals = interval_arithmetic() if places else None
    for tile, row, lane in places:
        if wanted is not None and (tile * rows + row) * lanes + lane >= wanted:
            continue
        pair = first + (tile * lanes + lane) * (rows // 2) + row
        u, v = words[tile, row :: rows // 2, lane].tolist()
        decided = _decided(u, v, pair, key, scale, intervals)
        result[tile, row :: rows // 2, lane] = torch.tensor(decided, device=words.device)
    return result


def _decide_open(flat: torch.Tensor, key: bytearray, scale: float, first: int = 0) -> None:
    """Decides by interval arithmetic what a device has left open: it happens about never."""
    from tacit.randomness.device_noise import OPEN  # noqa: PLC0415

    for place in (flat == OPEN).nonzero().flatten().tolist():
        tile, within = divmod(first + place, _TILE)
        which, block = divmod(within, _BLOCKS)
        pair = _TILE // 2 * tile + 4 * block + which % 4
        words = np.frombuffer(chacha20(key, block=pair // 4).stream(64), np.int64)
        u, v = words[which % 4 :: 4].tolist()
        flat[place] = _decided(u, v, pair, key, scale, interval_arithmetic())[which // 4]


def _decided(
    u: int, v: int, pair: int, key: bytes | bytearray, scale: float, intervals: Any
) -> list[int]:
    digits = KeyedStream(key, pair.to_bytes(8, "little") + b"\x01\x00\x00\x00")
    first, second = Expansion(u & _LOW_63, 63, digits), Expansion(v + (1 << 63), 64, digits)
    return _rounded_pair(first, second, scale, intervals)


def rounded_gaussian(scale: float, size: int, stream: Stream) -> NDArray[np.int64]:
    """``size`` numbers of `RoundedGaussian`, with its guarantee, as a NumPy array.

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> rounded_gaussian(100.0, 6, UnsafeSeededStream(0, "noise")).tolist()
    [-125, -8, -64, 20, -90, 40]
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

    of_u, of_v = words.chunk(2, dim=-2)
    uniform = (of_u & _LOW_63).to(torch.float64).mul_(2.0**-63)
    edge = (uniform - 0.5).abs_() > 0.5 - _EDGE
    radius = uniform.log_().mul_(-2.0).sqrt_()
    angle = of_v.to(torch.float64).mul_(2.0 * math.pi * 2.0**-64)
    return torch.cat([angle.cos().mul_(radius), angle.sin().mul_(radius)], dim=-2), edge


def _rounded_pair(u: Expansion, v: Expansion, scale: float, intervals: Any) -> list[int]:
    """Both numbers of a pair, from U and V + 1/2: decided together, for they share the digits."""
    half = intervals.mpf(0.5)

    def shifted() -> list[Any]:
        size = scale * intervals.sqrt(-2 * intervals.log(u.enclosed(intervals)))
        turn = 2 * intervals.pi * (v.enclosed(intervals) - half)
        return [size * intervals.cos(turn) + half, size * intervals.sin(turn) + half]

    return whole_parts(shifted, (u, v), intervals)
