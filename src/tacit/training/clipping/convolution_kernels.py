# ruff: noqa: N803, ARG001, PLR0915 - constants of kernels are written so; all take the same sizes
"""Kernels for the gradients of convolutions, in Triton; ``fused_convolution`` launches them.

Every number that they read is in half precision unless said otherwise, and the channels of a pixel
lie side by side: (units, rows, pixels, channels), with any strides in front of the channels. Sums
are in single precision. Sizes and strides are arguments, so that a kernel is compiled once for each
tile and precision, not once for each layer.
"""

from __future__ import annotations

import triton
import triton.language as tl

_SIZES = [
    "units", "chunk", "groups", "rows", "depth_out", "height_out", "width_out", "depth", "height",
    "width", "taps", "taps_h", "taps_w", "stride_d", "stride_h", "stride_w", "pad_d", "pad_h",
    "pad_w", "step_d", "step_h", "step_w", "results", "channels", "image_unit", "image_row",
    "image_pixel", "grad_unit", "grad_row", "grad_pixel",
]  # fmt: skip
_UNALIGNED = [name for name in _SIZES if not name.endswith(("_pixel", "results", "channels"))]


@triton.jit
def _pixels(
    image, od, oh, ow, inside, at_d, at_h, at_w, depth, height, width,
    stride_d, stride_h, stride_w, pixel, n, channels, NEAR: tl.constexpr,
):  # fmt: skip
    """(pixels, channels) of the image where one kernel offset meets the given output pixels."""
    d, h, w = od * stride_d + at_d, oh * stride_h + at_h, ow * stride_w + at_w
    limit = tl.where((d >= 0) & (d < depth), height, 0)
    inside = inside & (h >= 0) & (h < limit) & (w >= 0) & (w < width)
    where = ((d * height + h) * width + w) * pixel
    mask = inside[:, None] & (n < channels)[None, :]
    # Offsets overlap: in the nearest cache, the second finds what the first has read.
    cache: tl.constexpr = ".ca" if NEAR else ""
    return tl.load(image + where[:, None] + n[None, :], mask, other=0.0, cache_modifier=cache)


@triton.jit
def _offset(tap, taps, taps_h, taps_w, step_d, step_h, step_w, pad_d, pad_h, pad_w):
    """Where kernel offset number ``tap`` looks; out of every image if there is no such offset."""
    d = tap // (taps_h * taps_w) * step_d - pad_d
    h = (tap // taps_w) % taps_h * step_h - pad_h
    w = tap % taps_w * step_w - pad_w
    return tl.where(tap < taps, d, -1073741824), h, w


@triton.jit
def _added(total, left, right, scale, WEIGHTED: tl.constexpr):
    if WEIGHTED:
        product = tl.dot(left, right)
        total += tl.where(scale > 0, product * scale, 0.0)
    else:
        total = tl.dot(left, right, total)
    return total


@triton.jit
def _write(total, written, m, n, results, channels, taps, tap, first):
    where = ((first + m)[:, None] * taps + tap) * channels + n[None, :]
    mask = (m < results)[:, None] & (n < tl.where(tap < taps, channels, 0))[None, :]
    tl.store(written + where, total, mask=mask)


@triton.jit(do_not_specialize=_SIZES)
def products(
    image, grad, scales, image_factors, grad_factors, squares, written,
    units, chunk, groups, rows, depth_out, height_out, width_out, depth, height, width,
    taps, taps_h, taps_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, step_d, step_h, step_w,
    results, channels, image_unit, image_row, image_pixel, grad_unit, grad_row, grad_pixel,
    ALIGN: tl.constexpr,
    FLAT: tl.constexpr,
    TAPS: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SQUARES: tl.constexpr,
    WRITES: tl.constexpr,
    SCALED: tl.constexpr,
    NEAR: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """A tile (results, channels) of the gradients at ``TAPS`` kernel offsets, over ``chunk`` units.

    ``WEIGHTED`` multiplies each unit's product by its scale before it is added; a unit whose scale
    is not positive adds exactly nothing. ``SQUARES`` stores the sum of the tile's squares, for one
    unit; ``WRITES`` the tile, as (blocks of units, results, offsets, channels). ``SCALED``: what is
    written is divided by the unit's factors. ``FLAT`` is for few channels: offsets and channels are
    one dimension of the tile. Sizes along the channels are given in multiples of ``ALIGN``.
    """
    results, channels = results * ALIGN, channels * ALIGN
    image_pixel, grad_pixel = image_pixel * ALIGN, grad_pixel * ALIGN
    wide = taps * channels if FLAT else channels
    in_blocks, out_blocks = tl.cdiv(wide, BN), tl.cdiv(results, BM)
    tap_blocks = 1 if FLAT else tl.cdiv(taps, TAPS)
    parts = groups * tap_blocks * out_blocks * in_blocks
    program = tl.program_id(0)
    block, part = program // parts, program % parts
    n = part % in_blocks * BN + tl.arange(0, BN)
    part = part // in_blocks
    m = part % out_blocks * BM + tl.arange(0, BM)
    part = part // out_blocks
    tap, group = part % tap_blocks * TAPS, part // tap_blocks

    if FLAT:
        d0, h0, w0 = _offset(
            n // channels, taps, taps_h, taps_w, step_d, step_h, step_w, pad_d, pad_h, pad_w
        )
        channel = n % channels
    else:
        d0, h0, w0 = _offset(tap, taps, taps_h, taps_w, step_d, step_h, step_w, pad_d, pad_h, pad_w)
        d1, h1, w1 = _offset(
            tap + 1, taps, taps_h, taps_w, step_d, step_h, step_w, pad_d, pad_h, pad_w
        )
        d2, h2, w2 = _offset(
            tap + 2, taps, taps_h, taps_w, step_d, step_h, step_w, pad_d, pad_h, pad_w
        )
    total0 = tl.zeros((BM, BN), tl.float32)
    if TAPS > 1:
        total1 = tl.zeros((BM, BN), tl.float32)
        total2 = tl.zeros((BM, BN), tl.float32)

    count = height_out * width_out
    inverse = 1.0 / width_out.to(tl.float32)
    unit = block * chunk
    steps = tl.minimum(chunk, units - unit) * rows * depth_out * tl.cdiv(count, BK)
    row, od, start = 0, 0, 0
    scale = 1.0
    for _ in range(steps):
        p = start + tl.arange(0, BK)
        # p // width: exact for the sizes allowed, and a fraction of an integer division's cost.
        oh = ((p.to(tl.float32) + 0.5) * inverse).to(tl.int32)
        ow = p - oh * width_out
        inside = p < count
        offset = unit.to(tl.int64) * grad_unit * ALIGN + row * grad_row.to(tl.int64) * ALIGN
        offset += group * results + od * count * grad_pixel
        left = tl.load(
            grad + offset + (p * grad_pixel)[None, :] + m[:, None],
            mask=inside[None, :] & (m < results)[:, None],
            other=0.0,
        )
        offset = unit.to(tl.int64) * image_unit * ALIGN + row * image_row.to(tl.int64) * ALIGN
        pixels = image + offset + group * channels
        if WEIGHTED:
            scale = tl.load(scales + unit).to(tl.float32)
            if SCALED:
                scale *= 1.0 / tl.load(image_factors + unit) / tl.load(grad_factors + unit)
        if FLAT:
            d = od * stride_d + d0
            h = (oh * stride_h)[:, None] + h0[None, :]
            w = (ow * stride_w)[:, None] + w0[None, :]
            mask = inside[:, None] & ((d >= 0) & (d < depth) & (n < wide))[None, :]
            mask = mask & (h >= 0) & (h < height) & (w >= 0) & (w < width)
            where = ((d[None, :] * height + h) * width + w) * image_pixel + channel[None, :]
            right = tl.load(pixels + where, mask=mask, other=0.0)
            total0 = _added(total0, left, right, scale, WEIGHTED)
        else:
            right = _pixels(
                pixels, od, oh, ow, inside, d0, h0, w0, depth, height, width,
                stride_d, stride_h, stride_w, image_pixel, n, channels, NEAR,
            )  # fmt: skip
            total0 = _added(total0, left, right, scale, WEIGHTED)
        if TAPS > 1:
            right = _pixels(
                pixels, od, oh, ow, inside, d1, h1, w1, depth, height, width,
                stride_d, stride_h, stride_w, image_pixel, n, channels, NEAR,
            )  # fmt: skip
            total1 = _added(total1, left, right, scale, WEIGHTED)
            right = _pixels(
                pixels, od, oh, ow, inside, d2, h2, w2, depth, height, width,
                stride_d, stride_h, stride_w, image_pixel, n, channels, NEAR,
            )  # fmt: skip
            total2 = _added(total2, left, right, scale, WEIGHTED)
        start += BK
        over = start >= count
        start = tl.where(over, 0, start)
        od += over.to(tl.int32)
        over = od >= depth_out
        od = tl.where(over, 0, od)
        row += over.to(tl.int32)
        over = row >= rows
        row = tl.where(over, 0, row)
        unit += over.to(tl.int32)

    if SQUARES:
        found = tl.sum(tl.sum(total0 * total0, 1), 0)
        if TAPS > 1:
            found += tl.sum(tl.sum(total1 * total1, 1), 0)
            found += tl.sum(tl.sum(total2 * total2, 1), 0)
        tl.store(squares + program, found)
    if WRITES:
        written += block.to(tl.int64) * groups * results * taps * channels
        first = group * results
        if SCALED and SQUARES:
            scale = 1.0 / tl.load(image_factors + block) / tl.load(grad_factors + block)
            total0 *= scale
            if TAPS > 1:
                total1 *= scale
                total2 *= scale
        if FLAT:
            _write(total0, written, m, n, results, wide, 1, 0, first)
        else:
            _write(total0, written, m, n, results, channels, taps, tap, first)
        if TAPS > 1:
            _write(total1, written, m, n, results, channels, taps, tap + 1, first)
            _write(total2, written, m, n, results, channels, taps, tap + 2, first)


@triton.jit(do_not_specialize=[*_SIZES, "slack"])
def grams(
    image, grad, squares, slack,
    units, chunk, groups, rows, depth_out, height_out, width_out, depth, height, width,
    taps, taps_h, taps_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, step_d, step_h, step_w,
    results, channels, image_unit, image_row, image_pixel, grad_unit, grad_row, grad_pixel,
    ALIGN: tl.constexpr,
    WHOLE: tl.constexpr,
    BT: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """A tile of the Gram matrices of patches and of output gradients: Σ over it of their product.

    ``WHOLE``: one tile holds all output pixels. Tiles below the diagonal are counted by the ones
    above. Rounding is relative to the diagonal's sum (see ``forms.matrix.gram_total``), of which
    ``slack`` is added.
    """
    results, channels = results * ALIGN, channels * ALIGN
    image_pixel, grad_pixel = image_pixel * ALIGN, grad_pixel * ALIGN
    count = height_out * width_out * depth_out
    terms = rows * count
    tiles = tl.cdiv(terms, BT)
    program = tl.program_id(0)
    tile = program % (tiles * tiles)
    group, unit = program // (tiles * tiles) % groups, program // (tiles * tiles) // groups
    first, second = tile // tiles, tile % tiles
    s, t = first * BT + tl.arange(0, BT), second * BT + tl.arange(0, BT)
    wanted = (first <= second).to(tl.int32)
    image += unit.to(tl.int64) * image_unit * ALIGN + group * channels
    grad += unit.to(tl.int64) * grad_unit * ALIGN + group * results
    image_row, grad_row = image_row.to(tl.int64) * ALIGN, grad_row.to(tl.int64) * ALIGN

    row_s, at_s = s // count, s % count
    image_s = image + row_s * image_row
    od_s, oh_s, ow_s = (
        at_s // (height_out * width_out), at_s // width_out % height_out, at_s % width_out
    )  # fmt: skip
    row_t, at_t = t // count, t % count
    image_t = image + row_t * image_row
    od_t, oh_t, ow_t = (
        at_t // (height_out * width_out), at_t // width_out % height_out, at_t % width_out
    )  # fmt: skip

    patches = tl.zeros((BT, BT), tl.float32)
    tap, start = 0, 0
    for _ in range(wanted * taps * tl.cdiv(channels, BK)):
        d0, h0, w0 = _offset(tap, taps, taps_h, taps_w, step_d, step_h, step_w, pad_d, pad_h, pad_w)
        c = start + tl.arange(0, BK)
        d, h, w = od_s * stride_d + d0, oh_s * stride_h + h0, ow_s * stride_w + w0
        inside = (s < terms) & (d >= 0) & (d < depth) & (h >= 0)
        inside = inside & (h < height) & (w >= 0) & (w < width)
        where = image_s + ((d * height + h) * width + w) * image_pixel
        mask = inside[:, None] & (c < channels)[None, :]
        left = tl.load(where[:, None] + c[None, :], mask=mask, other=0.0)
        if WHOLE:
            right = tl.trans(left)
        else:
            d, h, w = od_t * stride_d + d0, oh_t * stride_h + h0, ow_t * stride_w + w0
            inside = (t < terms) & (d >= 0) & (d < depth) & (h >= 0)
            inside = inside & (h < height) & (w >= 0) & (w < width)
            where = image_t + ((d * height + h) * width + w) * image_pixel
            mask = inside[None, :] & (c < channels)[:, None]
            right = tl.load(where[None, :] + c[:, None], mask=mask, other=0.0)
        patches = tl.dot(left, right, patches)
        start += BK
        over = start >= channels
        start = tl.where(over, 0, start)
        tap += over.to(tl.int32)

    grads = tl.zeros((BT, BT), tl.float32)
    grad_s = grad + row_s * grad_row + at_s * grad_pixel
    grad_t = grad + row_t * grad_row + at_t * grad_pixel
    for start_c in range(0, wanted * results, BK):
        c = start_c + tl.arange(0, BK)
        mask = (s < terms)[:, None] & (c < results)[None, :]
        left = tl.load(grad_s[:, None] + c[None, :], mask=mask, other=0.0)
        if WHOLE:
            right = tl.trans(left)
        else:
            mask = (t < terms)[None, :] & (c < results)[:, None]
            right = tl.load(grad_t[None, :] + c[:, None], mask=mask, other=0.0)
        grads = tl.dot(left, right, grads)

    weight = tl.where(s[:, None] == t[None, :], 1.0 + slack, 1.0)
    found = tl.sum(tl.sum(patches * grads * weight, 1), 0)
    tl.store(squares + program, tl.where(first < second, 2 * found, found))


@triton.jit
def _entries_of(
    image, right, od, oh, ow, inside, at_d, at_h, at_w, depth, height, width,
    stride_d, stride_h, stride_w, pixel, where, real,
):  # fmt: skip
    d, h, w = od * stride_d + at_d, oh * stride_h + at_h, ow * stride_w + at_w
    limit = tl.where((d >= 0) & (d < depth), height, 0)
    mask = (inside & (h >= 0) & (h < limit) & (w >= 0) & (w < width))[:, None] & real[None, :]
    at = ((d * height + h) * width + w) * pixel
    left = tl.load(image + at[:, None] + where[None, :], mask, other=0.0, cache_modifier=".ca")
    return left.to(tl.float32) * right


@triton.jit(do_not_specialize=_UNALIGNED)
def entries(
    image, grad, written, image_channel, grad_channel,
    units, chunk, groups, rows, depth_out, height_out, width_out, depth, height, width,
    taps, taps_h, taps_w, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w, step_d, step_h, step_w,
    results, channels, image_unit, image_row, image_pixel, grad_unit, grad_row, grad_pixel,
    ALIGN: tl.constexpr,
    BC: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """Every unit's gradient at three kernel offsets and one input channel of a group, written out.

    For groups of a channel or two: nothing here is a matrix product. All arithmetic is in single
    precision, whatever the inputs. Groups and strides are given in multiples of ``ALIGN``, which is
    1 unless each group has one channel, and these lie side by side.
    """
    groups = groups * ALIGN
    image_pixel, grad_pixel = image_pixel * ALIGN, grad_pixel * ALIGN
    blocks, tap_blocks = tl.cdiv(groups * results, BC), tl.cdiv(taps, 3)
    program = tl.program_id(0)
    tap, rest = program % tap_blocks * 3, program // tap_blocks
    among, rest = rest % channels, rest // channels
    co = rest % blocks * BC + tl.arange(0, BC)
    unit = (rest // blocks).to(tl.int64)
    ci = co if ALIGN > 1 else (co // results * channels + among) * image_channel
    real = co < groups * results
    d0, h0, w0 = _offset(tap, taps, taps_h, taps_w, step_d, step_h, step_w, pad_d, pad_h, pad_w)
    d1, h1, w1 = _offset(tap + 1, taps, taps_h, taps_w, step_d, step_h, step_w, pad_d, pad_h, pad_w)
    d2, h2, w2 = _offset(tap + 2, taps, taps_h, taps_w, step_d, step_h, step_w, pad_d, pad_h, pad_w)
    count = height_out * width_out
    inverse = 1.0 / width_out.to(tl.float32)
    total0 = tl.zeros((BK, BC), tl.float32)
    total1 = tl.zeros((BK, BC), tl.float32)
    total2 = tl.zeros((BK, BC), tl.float32)
    row, od, start = 0, 0, 0
    for _ in range(rows * depth_out * tl.cdiv(count, BK)):
        p = start + tl.arange(0, BK)
        oh = ((p.to(tl.float32) + 0.5) * inverse).to(tl.int32)
        ow = p - oh * width_out
        inside = p < count
        base = grad + unit * grad_unit * ALIGN + row * grad_row.to(tl.int64) * ALIGN
        where = (od * count + p) * grad_pixel
        channel = co if ALIGN > 1 else co * grad_channel
        mask = inside[:, None] & real[None, :]
        right = tl.load(base + where[:, None] + channel[None, :], mask, other=0.0).to(tl.float32)
        base = image + unit * image_unit * ALIGN + row * image_row.to(tl.int64) * ALIGN
        total0 += _entries_of(
            base, right, od, oh, ow, inside, d0, h0, w0, depth, height, width,
            stride_d, stride_h, stride_w, image_pixel, ci, real,
        )  # fmt: skip
        total1 += _entries_of(
            base, right, od, oh, ow, inside, d1, h1, w1, depth, height, width,
            stride_d, stride_h, stride_w, image_pixel, ci, real,
        )  # fmt: skip
        total2 += _entries_of(
            base, right, od, oh, ow, inside, d2, h2, w2, depth, height, width,
            stride_d, stride_h, stride_w, image_pixel, ci, real,
        )  # fmt: skip
        start += BK
        over = start >= count
        start = tl.where(over, 0, start)
        od += over.to(tl.int32)
        over = od >= depth_out
        od = tl.where(over, 0, od)
        row += over.to(tl.int32)
    where = ((unit * groups * results + co) * taps + tap) * channels + among
    left = tl.where(real, taps - tap, 0)  # how many of the three offsets there are
    tl.store(written + where, tl.sum(total0, 0), mask=left > 0)
    tl.store(written + where + channels, tl.sum(total1, 0), mask=left > 1)
    tl.store(written + where + 2 * channels, tl.sum(total2, 0), mask=left > 2)


@triton.jit
def _factor(largest):
    """The power of two that brings ``largest`` into [2¹⁴, 2¹⁵).

    2¹²⁶ at most, and 1 where the largest is not finite.
    """
    exponent = largest.to(tl.int32, bitcast=True) >> 23 & 255
    field = tl.where(exponent == 255, 127, tl.minimum(268 - exponent, 253))
    return (field << 23).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["rows"])
def pack(
    source, target, largest, factors, rows, pixels, channels, unit, row, pixel, channel,
    SCALED: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """(units, rows, channels, pixels) of any strides as (units, rows, pixels, channels).

    ``SCALED``: times a factor by the unit's ``largest`` number, which is stored in ``factors``.
    """
    channel_blocks, pixel_blocks = tl.cdiv(channels, BC), tl.cdiv(pixels, BP)
    program = tl.program_id(0)
    c = program % channel_blocks * BC + tl.arange(0, BC)
    rest = program // channel_blocks
    p = rest % pixel_blocks * BP + tl.arange(0, BP)
    rest = (rest // pixel_blocks).to(tl.int64)
    mask = (p < pixels)[:, None] & (c < channels)[None, :]
    where = source + rest // rows * unit + rest % rows * row
    value = tl.load(where + (p * pixel)[:, None] + (c * channel)[None, :], mask=mask, other=0.0)
    if SCALED:
        factor = _factor(tl.load(largest + rest // rows))
        value = value * factor
        tl.store(factors + rest // rows, factor)
    where = target + rest * pixels * channels
    value = value.to(target.dtype.element_ty)
    tl.store(where + (p * channels)[:, None] + c[None, :], value, mask=mask)


@triton.jit(do_not_specialize=["unit", "size"])
def pack_whole(source, target, factors, unit, size, ALIGN: tl.constexpr, BLOCK: tl.constexpr):
    """A unit whose numbers lie as they are to, in two passes: the second finds them in the cache.

    Sizes are given in multiples of ``ALIGN``.
    """
    size = size * ALIGN
    program = tl.program_id(0).to(tl.int64)
    source += program * unit * ALIGN
    target += program * size
    blocks = tl.cdiv(size, BLOCK)
    largest = tl.zeros((BLOCK,), tl.float32)
    for block in range(blocks):
        at = block * BLOCK + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.abs(tl.load(source + at, mask=at < size, other=0.0)))
    factor = _factor(tl.max(largest, 0))
    tl.store(factors + program, factor)
    for block in range(blocks):  # what was read last is nearest
        at = (blocks - 1 - block) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(source + at, mask=at < size, other=0.0) * factor
        tl.store(target + at, value.to(tl.float16), mask=at < size)


@triton.jit(do_not_specialize=["units", "chunk", "size", "taps", "channels"])
def sums(
    values, scales, written, units, chunk, size, taps, channels,
    WEIGHTED: tl.constexpr,
    TURNED: tl.constexpr,
    BU: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ over ``chunk`` rows of (units, size); ``WEIGHTED``: each times its scale.

    A row whose scale is not positive adds nothing. ``TURNED`` writes (results, channels, offsets)
    where the rows have (results, offsets, channels).
    """
    blocks = tl.cdiv(size, BLOCK)
    program = tl.program_id(0)
    at = program % blocks * BLOCK + tl.arange(0, BLOCK)
    part = program // blocks
    end = tl.minimum(part * chunk + chunk, units)
    total = tl.zeros((BU, BLOCK), tl.float32)
    for start in range(part * chunk, end, BU):
        unit = start + tl.arange(0, BU)
        where = values + unit.to(tl.int64)[:, None] * size + at[None, :]
        value = tl.load(where, mask=(unit < end)[:, None] & (at < size)[None, :], other=0.0)
        if WEIGHTED:
            scale = tl.load(scales + unit, mask=unit < end, other=0.0).to(tl.float32)[:, None]
            value = tl.where(scale > 0, value * scale, 0.0)
        total += value
    to = at
    if TURNED:
        channel, rest = at % channels, at // channels
        to = (rest // taps * channels + channel) * taps + rest % taps
    tl.store(written + part.to(tl.int64) * size + to, tl.sum(total, 0), mask=at < size)


@triton.jit(do_not_specialize=["units", "parts", "hidden"])
def norms(
    found, image_factors, grad_factors, squares, units, parts, hidden,
    SCALED: tl.constexpr,
    BU: tl.constexpr,
    BP: tl.constexpr,
):  # fmt: skip
    """Adds up every unit's partial sums; ``SCALED``: adds ``hidden`` and undoes the factors.

    What is beyond the range of single precision comes out infinite, as it would without factors.
    """
    unit = tl.program_id(0) * BU + tl.arange(0, BU)
    total = tl.zeros((BU, BP), tl.float32)
    for start in range(0, parts, BP):
        part = start + tl.arange(0, BP)
        where = found + unit.to(tl.int64)[:, None] * parts + part[None, :]
        mask = (unit < units)[:, None] & (part < parts)[None, :]
        total += tl.load(where, mask=mask, other=0.0)
    square = tl.sum(total, 1)
    square = tl.where(square < 0.0, square - square, square)  # -∞ and no numbers stay none
    if SCALED:
        norm = (tl.sqrt(square) + hidden).to(tl.float64)
        norm = norm / tl.load(image_factors + unit, mask=unit < units, other=1.0).to(tl.float64)
        norm = norm / tl.load(grad_factors + unit, mask=unit < units, other=1.0).to(tl.float64)
        square = (norm * norm).to(tl.float32)
    tl.store(squares + unit, square, mask=unit < units)


@triton.jit(do_not_specialize=["filters"])
def project(
    gradients, normal, rates, divided, projected, along, squares, filters, size,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """rate·P·G of one unit's filter, with ⟨G, n⟩ and the square: see ``forms.projected``.

    All of it is in single precision. The second pass finds what it reads in the cache.
    """
    program = tl.program_id(0)
    of = program % filters
    gradients += program.to(tl.int64) * size
    projected += program.to(tl.int64) * size
    normal += of * size
    total = tl.zeros((BLOCK,), tl.float32)
    product = tl.zeros((BLOCK,), tl.float32)
    around = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(gradients + at, mask=at < size, other=0.0)
        direction = tl.load(normal + at, mask=at < size, other=0.0)
        total += value
        product += value * direction
        around += direction
    mean = tl.sum(total, 0) / size
    inner = tl.sum(product, 0) - mean * tl.sum(around, 0)
    tl.store(along + program, inner)
    rate = tl.load(rates + of)
    taken = inner * tl.load(divided + of)
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(gradients + at, mask=at < size, other=0.0)
        direction = tl.load(normal + at, mask=at < size, other=0.0)
        value = tl.where(at < size, (value - mean - taken * direction) * rate, 0.0)
        tl.store(projected + at, value, mask=at < size)
        square += value * value
    tl.store(squares + program, tl.sum(square, 0))
