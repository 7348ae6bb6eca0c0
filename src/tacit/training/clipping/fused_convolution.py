"""Norms and sums of convolution kernels' gradients by fused kernels, on CUDA devices.

No gradient of a single unit is written, unless it is smaller than what it is made of and serves the
sum, too. Tensors whose channels do not lie side by side, and single precision where TF32 is
allowed, are packed first: a kernel reads each number once for every kernel offset, so that one cast
beforehand moves less memory than a cast in every load.

Rounding: products of half-precision numbers are exact in single precision, so half-precision inputs
lose nothing but what adding up in single precision loses. Single precision goes through float16
after each unit was multiplied by a power of two that brings its largest number into [2¹⁴, 2¹⁵).
Numbers above 2⁻²⁸ of the unit's largest keep the 11 bits that TF32 has, which the margin for TF32
covers; smaller ones are off by at most 2⁻²⁵ (of the scaled unit). What those may hide from a norm
is at most ``underflow``, which is added to it. A unit's power of two depends on that unit alone, so
nobody's numbers change anybody else's norm.

Imported only where Triton is installed: see ``forms.convolution``.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import torch

from tacit.training.clipping.convolution_kernels import (
    entries,
    grams,
    norms,
    pack,
    pack_whole,
    products,
    project,
    sums,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

# ---- block sizes, by the shapes alone

_PROGRAMS = 528  # of a sum: enough for every processor of a large GPU, few enough partial sums
_SUMMED, _LAST = 256, 64  # numbers that a program of ``sums`` makes, and of its second stage
_MANY_UNITS = 128  # as many as a large GPU has processors: each packs whole units
_LARGEST_SPACE = 2**20  # pixels: up to here positions are found exactly in single precision
_MACS_PER_BYTE = 64  # products in the time that a byte takes from the cache (H200: 350e12, 5.5e12)


@final
@dataclass(frozen=True, slots=True)
class Blocks:
    """The tile of one program of ``products``, and how it is launched."""

    flat: bool
    taps: int
    results: int
    channels: int
    pixels: int
    warps: int
    stages: int
    near: bool = True  # whether images are kept in the nearest cache

    def parts(self, sizes: Sizes) -> int:
        """How many tiles a gradient has."""
        wide = sizes.channels * sizes.taps if self.flat else sizes.channels
        tiles = -(-wide // self.channels) * -(-sizes.results // self.results)
        return sizes.groups * tiles * (1 if self.flat else -(-sizes.taps // self.taps))


@final
@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a convolution, as one in three dimensions; channels are those of a group."""

    units: int
    rows: int
    groups: int
    space: tuple[int, int, int]
    space_out: tuple[int, int, int]
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    padding: tuple[int, int, int]
    dilation: tuple[int, int, int]
    results: int
    channels: int

    @property
    def taps(self) -> int:
        """How many kernel offsets there are."""
        return math.prod(self.kernel)

    @property
    def terms(self) -> int:
        """How many output pixels a unit has."""
        return self.rows * math.prod(self.space_out)

    @property
    def size(self) -> int:
        """How many numbers a unit's gradient has."""
        return self.groups * self.results * self.channels * self.taps

    @property
    def fit(self) -> bool:
        """Whether positions within a row fit the kernels' arithmetic."""
        ends = (math.prod(self.space), math.prod(self.space_out))
        wide = self.groups * max(self.channels, self.results)
        return min(ends) > 0 and max(ends) <= _LARGEST_SPACE and max(ends) * wide < 2**31

    @property
    def by_entries(self) -> bool:
        """Whether groups are too small for matrix products."""
        return self.groups > 1 and self.channels <= 2

    @property
    def by_gram(self) -> bool:
        """Whether Gram matrices of patches cost less than the products: few pixels, many channels.

        Cost is what a program reads from the cache and multiplies, padding of tiles included.
        """
        blocks = self.blocks()
        passes = blocks.parts(self) // self.groups
        steps = math.prod(self.space_out[1:])
        depth = self.rows * self.space_out[0] * -(-steps // blocks.pixels) * blocks.pixels
        read = 2 * passes * depth * (blocks.taps * blocks.channels + blocks.results)
        made = passes * depth * blocks.taps * blocks.channels * blocks.results
        tile = self.gram_tile
        pairs = -(-self.terms // tile)
        pairs = pairs * (pairs + 1) // 2
        deep = self.taps * self.channels + self.results
        gram_read = 2 * tile * deep * (1 if pairs == 1 else 2 * pairs)
        gram_made = pairs * tile * tile * deep
        return gram_read + gram_made / _MACS_PER_BYTE < read + made / _MACS_PER_BYTE

    @property
    def gram_tile(self) -> int:
        """How many output pixels a tile of the Gram matrices has on each side."""
        return 128 if 64 < self.terms <= 128 else _power(self.terms, 16, 64)

    def blocks(self, *, weighted: bool = False) -> Blocks:
        """Three offsets share what is read of the output gradients; few channels lie flat.

        A sum holds each product beside its total, so its tiles are smaller or have more threads.
        """
        flat = self.channels < 16
        taps = 1 if flat or self.taps == 1 else 3
        wide = self.channels * self.taps if flat else self.channels
        results = _power(self.results, 16, 64 if weighted and taps > 1 else 128)
        channels = _power(wide, 16, 64 if taps > 1 or flat else 128)
        pixels = _power(math.prod(self.space_out[1:]), 16, 64)
        most = 64 * 96 if weighted else 64 * 192
        warps = 8 if taps * results * channels > most else 4
        return Blocks(flat, taps, results, channels, pixels, warps, 3)

    def arguments(self, chunk: int, align: int) -> tuple[int, ...]:
        """The sizes that every kernel takes, up to the strides."""
        return (
            self.units, chunk, self.groups, self.rows, *self.space_out, *self.space,
            self.taps, *self.kernel[1:], *self.stride, *self.padding, *self.dilation,
            self.results // align, self.channels // align,
        )  # fmt: skip


def _power(size: int, least: int, most: int) -> int:
    """The power of two that holds ``size``, within bounds."""
    return min(most, max(least, 1 << max(0, size - 1).bit_length()))


def sizes_of(
    image: Tensor,
    grad: Tensor,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Sizes:
    """The arguments of ``forms.Convolution`` as sizes."""
    return Sizes(
        units=image.shape[0],
        rows=image.shape[1],
        groups=groups,
        space=_three(image.shape[3:], 1),
        space_out=_three(grad.shape[3:], 1),
        kernel=_three(shape[2:], 1),
        stride=_three(stride, 1),
        padding=_three(padding, 0),
        dilation=_three(dilation, 1),
        results=shape[0] // groups,
        channels=shape[1],
    )


def _three(sizes: tuple[int, ...], other: int) -> tuple[int, int, int]:
    depth, height, width = (other,) * (3 - len(sizes)) + tuple(sizes)
    return depth, height, width


def underflow(sizes: Sizes) -> float:
    """What numbers below float16's range may hide from a norm, as a multiple of 1/(the factors).

    Each number is off by at most 2⁻²⁵ beside its relative rounding, and meets one of less than 2¹⁵:
    an entry of the gradient, which adds up ``terms`` products, by at most terms·2·2⁻¹⁰ (and 2⁻⁵⁰),
    which ⅛ more covers; the norm by √size times that.
    """
    return 1.125 * math.sqrt(sizes.size) * sizes.terms * 2.0**-9


# ---- memory


@final
@dataclass(frozen=True, slots=True)
class _Laid:
    """A tensor whose pixels are one dimension: where its numbers lie."""

    values: Tensor
    unit: int
    row: int
    channel: int
    pixel: int


def _laid(values: Tensor) -> _Laid:
    """(units, rows, channels, *space), copied only if its space is not one dimension in memory."""
    pixel = _pixel_stride(values)
    if pixel is None:
        values = values.contiguous()
        pixel = 1
    pairs = zip(values.shape[:3], values.stride()[:3], strict=True)
    unit, row, channel = (0 if size == 1 else step for size, step in pairs)
    return _Laid(values, unit, row, 1 if values.shape[2] == 1 else channel, pixel)


def _pixel_stride(values: Tensor) -> int | None:
    step, within = None, 1
    for size, stride in zip(reversed(values.shape[3:]), reversed(values.stride()[3:]), strict=True):
        if size == 1:
            continue
        step = stride if step is None else step
        if stride != step * within:
            return None
        within *= size
    return 1 if step is None else step


def _packed(values: Tensor) -> tuple[_Laid, Tensor | None]:
    """In half precision, channels side by side; with every unit's factor for single precision."""
    laid = _laid(values)
    scaled = values.dtype == torch.float32
    if not scaled and laid.channel == 1:
        return laid, None
    units, rows, channels = values.shape[:3]
    pixels = math.prod(values.shape[3:])
    kind = torch.float16 if scaled else values.dtype
    target = torch.empty((units, rows, pixels, channels), dtype=kind, device=values.device)
    result = _Laid(target, rows * pixels * channels, pixels * channels, 1, channels)
    in_place = (laid.channel, laid.pixel) == (1, channels) and (rows == 1 or laid.row == result.row)
    if scaled and in_place and units >= _MANY_UNITS:
        return result, _pack_whole(laid, result)
    largest = factors = None
    if scaled:
        largest = torch.linalg.vector_norm(values, math.inf, dim=tuple(range(1, values.ndim)))
        factors = torch.empty_like(largest)
    wide, deep = _power(channels, 16, 64), _power(pixels, 16, 64)
    programs = units * rows * -(-pixels // deep) * -(-channels // wide)
    if programs:
        pack[(programs,)](
            laid.values, target, largest, factors, rows, pixels, channels, laid.unit, laid.row,
            laid.pixel, laid.channel, SCALED=scaled, BP=deep, BC=wide, num_warps=4,
        )  # fmt: skip
    return result, factors


def _pack_whole(source: _Laid, target: _Laid) -> Tensor:
    units = target.values.shape[0]
    factors = torch.empty(units, device=target.values.device)
    align = 1 if source.unit % 8 or target.unit % 8 else 8
    pack_whole[(units,)](
        source.values, target.values, factors, source.unit // align, target.unit // align,
        ALIGN=align, BLOCK=4096, num_warps=16,
    )  # fmt: skip
    return factors


def _alignment(sizes: Sizes, image: _Laid, grad: _Laid) -> int:
    """8 where rows of channels can be read 16 bytes at a time."""
    steps = [image.unit, image.row, image.pixel, grad.unit, grad.row, grad.pixel]
    return 1 if any(one % 8 for one in [*steps, sizes.channels, sizes.results]) else 8


def _strides(image: _Laid, grad: _Laid, align: int) -> tuple[int, ...]:
    steps = (image.unit, image.row, image.pixel, grad.unit, grad.row, grad.pixel)
    return tuple(one // align for one in steps)


# ---- launches


@final
@dataclass(frozen=True, slots=True)
class Prepared:
    """A convolution's inputs as the kernels read them."""

    sizes: Sizes
    image: _Laid
    grad: _Laid
    image_factors: Tensor | None  # what every unit was multiplied by; None: as it was
    grad_factors: Tensor | None

    @property
    def scaled(self) -> bool:
        """Whether units were multiplied by factors."""
        return self.image_factors is not None


def prepared(image: Tensor, grad: Tensor, sizes: Sizes) -> Prepared:
    """Packs what needs it."""
    laid, factors = _packed(image)
    other, second = _packed(grad)
    return Prepared(sizes, laid, other, factors, second)


def launch_products(
    of: Prepared, blocks: Blocks, *, writes: bool, scales: Tensor | None = None, chunk: int = 1
) -> tuple[Tensor, Tensor]:
    """Runs ``products``; returns the squares' partial sums and what was written, if asked for.

    With ``scales``, gradients are added up over ``chunk`` units, and nothing is squared.
    """
    sizes, device, squares = of.sizes, of.grad.values.device, scales is None
    parts = blocks.parts(sizes)
    groups_of_units = -(-sizes.units // chunk)
    found = torch.empty((groups_of_units, parts) if squares else 0, device=device)
    written = torch.empty((groups_of_units, sizes.size) if writes else 0, device=device)
    align = _alignment(sizes, of.image, of.grad)
    if groups_of_units:
        products[(groups_of_units * parts,)](
            of.image.values, of.grad.values, scales, of.image_factors, of.grad_factors, found,
            written, *sizes.arguments(chunk, align), *_strides(of.image, of.grad, align),
            ALIGN=align, FLAT=blocks.flat, TAPS=blocks.taps, WEIGHTED=not squares, SQUARES=squares,
            WRITES=writes, SCALED=writes and of.scaled, NEAR=blocks.near and blocks.taps > 1,
            BM=blocks.results, BN=blocks.channels, BK=blocks.pixels, num_warps=blocks.warps,
            num_stages=blocks.stages,
        )  # fmt: skip
    return found, written


def launch_grams(of: Prepared, *, depth: int = 64, stages: int = 3) -> Tensor:
    """Runs ``grams``; returns the partial sums."""
    sizes, tile = of.sizes, of.sizes.gram_tile
    tiles = -(-sizes.terms // tile)
    found = torch.empty((sizes.units, sizes.groups * tiles**2), device=of.grad.values.device)
    align = _alignment(sizes, of.image, of.grad)
    if found.numel():
        grams[(found.numel(),)](
            of.image.values, of.grad.values, found, sizes.terms * 2.0**-24,
            *sizes.arguments(1, align), *_strides(of.image, of.grad, align),
            ALIGN=align, WHOLE=tiles == 1, BT=tile, BK=min(depth, _power(sizes.channels, 16, 64)),
            num_warps=8 if tile > 64 else 4, num_stages=stages,
        )  # fmt: skip
    return found


def launch_entries(image: _Laid, grad: _Laid, sizes: Sizes) -> Tensor:
    """Runs ``entries``: every unit's gradient."""
    written = torch.empty((sizes.units, sizes.size), device=grad.values.device)
    wide = _power(sizes.groups * sizes.results, 16, 64)
    blocks = -(-sizes.groups * sizes.results // wide)
    plain = (sizes.channels, sizes.results, image.channel, grad.channel) == (1, 1, 1, 1)
    aligned = plain and not any(one % 8 for one in (sizes.groups, *_strides(image, grad, 1)))
    align = 8 if aligned else 1
    if sizes.units:
        entries[(sizes.units * blocks * sizes.channels * -(-sizes.taps // 3),)](
            image.values, grad.values, written, image.channel, grad.channel,
            *replace(sizes, groups=sizes.groups // align).arguments(1, 1),
            *_strides(image, grad, align), ALIGN=align, BC=wide, BK=16, num_warps=4,
        )  # fmt: skip
    return written


def launch_sums(values: Tensor, scales: Tensor, shape: Sequence[int]) -> Tensor:
    """Runs ``sums`` over (units, size), in two stages and always in the same order."""
    units, size = values.shape
    chunk = max(1, -(-units // max(1, 4 * _PROGRAMS * _SUMMED // size)))
    parts = -(-units // chunk)
    written = torch.empty((parts, size), device=values.device)
    if parts:
        sums[(parts * -(-size // _SUMMED),)](
            values, scales, written, units, chunk, size, 1, 1, WEIGHTED=True, TURNED=False,
            BU=8, BLOCK=_SUMMED, num_warps=4,
        )  # fmt: skip
    return launch_last_sum(written, shape)


def launch_last_sum(written: Tensor, shape: Sequence[int]) -> Tensor:
    """Runs ``sums`` over partial sums, into the weight's shape."""
    parts, size = written.shape
    total = torch.empty(tuple(shape), device=written.device)
    sums[(-(-size // _LAST),)](
        written, None, total, parts, parts, size, math.prod(shape[2:]), shape[1], WEIGHTED=False,
        TURNED=True, BU=16, BLOCK=_LAST, num_warps=4,
    )  # fmt: skip
    return total


def launch_norms(found: Tensor, of: Prepared) -> Tensor:
    """Runs ``norms``: from partial sums to squared norms, with what underflow may have hidden."""
    units, parts = found.shape
    squares = torch.empty(units, device=found.device)
    if units:
        norms[(-(-units // 8),)](
            found, of.image_factors, of.grad_factors, squares, units, parts, underflow(of.sizes),
            SCALED=of.scaled, BU=8, BP=_power(parts, 16, 128), num_warps=4,
        )  # fmt: skip
    return squares


def launch_project(
    written: Tensor, normal: Tensor, rate: Tensor, divided: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs ``project`` on (units, filters, numbers); its result, ⟨G, n⟩, the squares by filter."""
    units, filters, size = written.shape
    projected = torch.empty((units, filters, size), device=written.device)
    along = torch.empty((units, filters), device=written.device)
    squares = torch.empty_like(along)
    if units:
        project[(units * filters,)](
            written, normal, rate, divided, projected, along, squares, filters, size,
            BLOCK=_power(size, 16, 1024), num_warps=4,
        )  # fmt: skip
    return projected, along, squares


# ---- what forms ask for, as operations that compilers leave alone

_SETTINGS = "int[] shape, int[] stride, int[] padding, int[] dilation, int groups"


@torch.library.custom_op(
    "tacit::convolution_norms",
    mutates_args=(),
    schema=f"(Tensor image, Tensor grad, {_SETTINGS}) -> Tensor",
)
def squared_norms(image: Tensor, grad: Tensor, *settings: Any) -> Tensor:
    """The squared norm of every unit's gradient, shape (units,)."""
    sizes = sizes_of(image, grad, *settings)
    with _on(grad.device):
        if sizes.by_entries:
            return _gradients_by_entries(image, grad, sizes)[0]
        of = prepared(image, grad, sizes)
        if sizes.by_gram:
            return launch_norms(launch_grams(of), of)
        return launch_norms(launch_products(of, sizes.blocks(), writes=False)[0], of)


@torch.library.custom_op(
    "tacit::convolution_gradients",
    mutates_args=(),
    schema=f"(Tensor image, Tensor grad, {_SETTINGS}) -> (Tensor, Tensor)",
)
def gradients(image: Tensor, grad: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    """The squared norms, and the gradients: (units, numbers), for ``weighted_gradients``."""
    sizes = sizes_of(image, grad, *settings)
    with _on(grad.device):
        if sizes.by_entries:
            return _gradients_by_entries(image, grad, sizes)
        of = prepared(image, grad, sizes)
        found, written = launch_products(of, sizes.blocks(), writes=True)
        return launch_norms(found, of), written


@torch.library.custom_op(
    "tacit::convolution_weighted_gradients",
    mutates_args=(),
    schema="(Tensor written, Tensor scales, int[] shape) -> Tensor",
)
def weighted_gradients(written: Tensor, scales: Tensor, shape: list[int]) -> Tensor:
    """Σ scale·gradient of what ``gradients`` wrote, in the weight's ``shape``."""
    with _on(written.device):
        return launch_sums(written, scales.contiguous(), shape)


@torch.library.custom_op(
    "tacit::convolution_sum",
    mutates_args=(),
    schema=f"(Tensor image, Tensor grad, Tensor scales, {_SETTINGS}) -> Tensor",
)
def weighted_sum(image: Tensor, grad: Tensor, scales: Tensor, *settings: Any) -> Tensor:
    """Σ scale·gradient in the weight's shape, in single precision.

    A unit's products are added up before they are multiplied by its scale, so that its part of the
    sum is its scale times the gradient whose norm was taken, up to rounding in single precision.
    The order of addition depends on the shapes alone.
    """
    sizes = sizes_of(image, grad, *settings)
    blocks = sizes.blocks(weighted=True)
    chunk = max(1, -(-sizes.units // max(1, _PROGRAMS // blocks.parts(sizes))))
    with _on(grad.device):
        of = prepared(image, grad, sizes)
        factors = scales.contiguous()
        _, written = launch_products(of, blocks, writes=True, scales=factors, chunk=chunk)
        return launch_last_sum(written, settings[0])


@torch.library.custom_op(
    "tacit::convolution_project",
    mutates_args=(),
    schema="(Tensor written, Tensor normal, Tensor rate, Tensor divided)"
    " -> (Tensor, Tensor, Tensor)",
)
def projected(
    written: Tensor, normal: Tensor, rate: Tensor, divided: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """rate·P·G of gradients that were written out, ⟨G, n⟩, and the units' squared norms.

    It changes nothing, for compilers that are not shown in which order changes happen.
    """
    with _on(written.device):
        given = [one.float().contiguous() for one in (written, normal, rate, divided)]
        found, along, squares = launch_project(*given)
        return found, along, squares.sum(1)


@squared_norms.register_fake
def _(image: Tensor, grad: Tensor, *settings: Any) -> Tensor:
    del grad, settings
    return image.new_empty(image.shape[0], dtype=torch.float32)


@gradients.register_fake
def _(image: Tensor, grad: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    del grad
    like = image.new_empty((image.shape[0], math.prod(settings[0])), dtype=torch.float32)
    return like.new_empty(image.shape[0]), like


@weighted_gradients.register_fake
def _(written: Tensor, scales: Tensor, shape: list[int]) -> Tensor:
    del scales
    return written.new_empty(shape)


@projected.register_fake
def _(
    written: Tensor, normal: Tensor, rate: Tensor, divided: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del normal, rate, divided
    like = written.new_empty(written.shape, dtype=torch.float32)
    return like, like.new_empty(written.shape[:2]), like.new_empty(written.shape[0])


@weighted_sum.register_fake
def _(image: Tensor, grad: Tensor, scales: Tensor, *settings: Any) -> Tensor:
    del grad, scales
    return image.new_empty(settings[0], dtype=torch.float32)


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Kernels are launched on the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _gradients_by_entries(image: Tensor, grad: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
    written = launch_entries(_laid(image), _laid(grad), sizes)
    return written.square().sum(1), written
