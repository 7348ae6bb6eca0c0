"""Per-unit norms and weighted sums of matrix weights on a CUDA device, in Triton.

What a form needs takes one or two launches and writes no gradient and no Gram matrix. The functions
take (units, terms, size) tensors of half or single precision whatever their strides, add up in
single precision, read nothing back to the host and choose their blocks by shapes alone, so that a
CUDA graph can hold them. A kernel is compiled once for each precision and size of its blocks; no
layer's sizes are compiled into it. Each sum has a fixed order: no floats are added by atomics.

Squared norms come in parts, (pieces, units), which are yet to be added up: those of all weights at
once. A unit is read by programs of its own: NaN or infinity in one reaches that unit's norm, and no
other.

Imported only where Triton is; ``forms.matrix.for_kernels`` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, final

import torch
import triton
import triton.language as tl

from tacit.training.clipping.forms.matrix import tf32_matrices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_PROGRAMS = 512  # that keep a GPU busy: a few for each of its processors
_LIBRARYS = 128  # rows of a product that a library takes
_NARROW = 64  # rows of a product at most, where one pass finds its norms and what covers them
MOST_PRODUCTS = 4  # that ``several_products`` takes,
_SEVERALS = 32  # and the side of their blocks: the program is short


# ---- Gram norms


@triton.jit(do_not_specialize=["units", "terms", "pairs"])
def _gram_kernel(
    left,
    right,
    out,
    units,
    terms,
    pairs,
    left_size,
    right_size,
    left_unit,
    left_term,
    right_unit,
    right_term,
    grow,
    share,
    EQUAL: tl.constexpr,
    ONE: tl.constexpr,
    PRECISION: tl.constexpr,
    TERMS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """One pair of blocks of terms of one unit, the first not after the second.

    ``left`` holds ids where ``EQUAL``; ``ONE``: all terms are in one block.
    """
    program = tl.program_id(0)
    unit = program // pairs
    pair = program % pairs
    first, second = _places(pair)
    at = unit.to(tl.int64)
    rows = first * TERMS + tl.arange(0, TERMS)
    columns = second * TERMS + tl.arange(0, TERMS)
    gram = _gram_block(
        right + at * right_unit, rows, columns, first == second, terms, right_size, right_term,
        ONE, PRECISION, TERMS, DEPTH,
    )  # fmt: skip
    if EQUAL:
        ids = left + at * left_unit
        own = tl.load(ids + rows.to(tl.int64) * left_term, mask=rows < terms, other=-1)
        others = tl.load(ids + columns.to(tl.int64) * left_term, mask=columns < terms, other=-1)
        products = tl.where(own[:, None] == others[None, :], gram, 0.0)
    else:
        products = gram * _gram_block(
            left + at * left_unit, rows, columns, first == second, terms, left_size, left_term,
            ONE, PRECISION, TERMS, DEPTH,
        )  # fmt: skip
    diagonal = tl.where(rows[:, None] == columns[None, :], products, 0.0)
    total = tl.sum(tl.sum(products, 1), 0)
    if first != second:
        total = 2.0 * total
    total = grow * total + share * tl.sum(tl.sum(diagonal, 1), 0)
    if ONE:
        total = tl.where(total < 0.0, total - total, total)  # -∞ becomes NaN, which stays
    tl.store(out + pair.to(tl.int64) * units + unit, total)


@triton.jit
def _places(pair):
    """(row, column) of the ``pair``-th entry of an upper triangle, column by column."""
    column = ((tl.sqrt(8.0 * pair.to(tl.float32) + 1.0) - 1.0) * 0.5).to(tl.int32)
    column = tl.where(column * (column + 1) // 2 > pair, column - 1, column)
    column = tl.where((column + 1) * (column + 2) // 2 <= pair, column + 1, column)
    return pair - column * (column + 1) // 2, column


@triton.jit
def _gram_block(
    base,
    rows,
    columns,
    same,
    terms,
    size,
    stride,
    ONE: tl.constexpr,
    PRECISION: tl.constexpr,
    TERMS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Inner products of ``rows`` and ``columns``, which are read once if they are the ``same``."""
    total = tl.zeros((TERMS, TERMS), tl.float32)
    if ONE:  # noqa: SIM114 - known when the kernel is compiled; ``same`` is not
        total = _own_products(base, rows, terms, size, stride, total, PRECISION, DEPTH)
    elif same:
        total = _own_products(base, rows, terms, size, stride, total, PRECISION, DEPTH)
    else:
        total = _products(
            base, base, rows, columns, terms, terms, size, stride, stride, total, PRECISION, DEPTH
        )
    return total


@triton.jit
def _own_products(
    base, rows, terms, size, stride, total, PRECISION: tl.constexpr, DEPTH: tl.constexpr
):
    lines = base + rows.to(tl.int64)[:, None] * stride
    for start in range(0, size, DEPTH):
        at = start + tl.arange(0, DEPTH)
        mask = (at < size)[None, :] & (rows < terms)[:, None]
        one = tl.load(lines + at[None, :], mask=mask, other=0.0)
        total = tl.dot(one, tl.trans(one), total, input_precision=PRECISION)
    return total


@triton.jit
def _products(
    base,
    other,
    rows,
    columns,
    terms,
    other_terms,
    size,
    stride,
    other_stride,
    total,
    PRECISION: tl.constexpr,
    DEPTH: tl.constexpr,
):
    lines = base + rows.to(tl.int64)[:, None] * stride
    other_lines = other + columns.to(tl.int64)[:, None] * other_stride
    for start in range(0, size, DEPTH):
        at = start + tl.arange(0, DEPTH)
        inside = (at < size)[None, :]
        one = tl.load(lines + at[None, :], mask=inside & (rows < terms)[:, None], other=0.0)
        mask = inside & (columns < other_terms)[:, None]
        two = tl.load(other_lines + at[None, :], mask=mask, other=0.0)
        total = tl.dot(one, tl.trans(two), total, input_precision=PRECISION)
    return total


@triton.jit(do_not_specialize=["units", "ids_terms", "terms", "tiles"])
def _cross_kernel(
    ids,
    table,
    left,
    right,
    out,
    units,
    ids_terms,
    terms,
    tiles,
    rows_of_table,
    size,
    ids_unit,
    table_unit,
    table_term,
    left_unit,
    left_term,
    right_unit,
    right_term,
    PRECISION: tl.constexpr,
    TERMS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Σ left_s[id_t]·⟨right_s, table_t⟩ over one block of s and one of t, for one unit."""
    program = tl.program_id(0)
    unit = program // tiles
    tile = program % tiles
    across = tl.cdiv(ids_terms, TERMS)
    at = unit.to(tl.int64)
    s = (tile // across) * TERMS + tl.arange(0, TERMS)
    t = (tile % across) * TERMS + tl.arange(0, TERMS)
    gram = _products(
        right + at * right_unit, table + at * table_unit, s, t, terms, ids_terms, size,
        right_term, table_term, tl.zeros((TERMS, TERMS), tl.float32), PRECISION, DEPTH,
    )  # fmt: skip
    row = tl.load(ids + at * ids_unit + t, mask=t < ids_terms, other=0)
    known = (row >= 0) & (row < rows_of_table) & (t < ids_terms)
    entries = left + at * left_unit + s.to(tl.int64)[:, None] * left_term + row[None, :]
    factors = tl.load(entries, mask=(s < terms)[:, None] & known[None, :], other=0.0)
    products = factors.to(tl.float32) * gram
    total = tl.sum(tl.sum(products, 1), 0)
    tl.store(out + tile.to(tl.int64) * units + unit, total)


@final
@dataclass(frozen=True, slots=True)
class _Blocks:
    """How a kernel is cut: terms, what is added up at a time, warps, and loads under way."""

    terms: int
    depth: int
    warps: int
    stages: int


def _gram_blocks(units: int, terms: int, half: bool) -> _Blocks:
    """Larger blocks read less, and need enough units to keep the device busy."""
    size = min(64, max(16, triton.next_power_of_2(terms)))
    if not half and _precision() == "ieee":  # unrolled: small blocks compile fast
        return _Blocks(min(size, 32), 32, 4, 2)
    if not half:
        return _Blocks(size, 32, 4, 4)
    large = triton.cdiv(terms, 128)
    if terms > 256 and units * large * (large + 1) // 2 >= _PROGRAMS // 2:
        return _Blocks(128, 64, 8, 3)
    return {
        16: _Blocks(16, 128, 1, 3),
        32: _Blocks(32, 128, 2, 3),
        64: _Blocks(64, 64, 4, 4),
    }[size]


def gram_norms(left: Tensor, right: Tensor, raised: tuple[float, float]) -> Tensor:
    """‖Σ_t l_t⊗r_t‖² = Σ_{s,t} ⟨l_s,l_t⟩⟨r_s,r_t⟩ for every unit: half of it, counted twice.

    ``raised`` for what cancellation may hide: times its first number, and with the second times the
    diagonal (see ``forms.matrix.cover``).
    """
    left, right = _lines(left), _lines(right)
    sizes = (left.shape[2], right.shape[2])
    strides = (left.stride(0), left.stride(1), right.stride(0), right.stride(1))
    return _gram(left, right, right, sizes, strides, raised, equal=False)


def equal_id_norms(ids: Tensor, right: Tensor, raised: tuple[float, float]) -> Tensor:
    """Σ_{s,t} [id_s = id_t]·⟨r_s,r_t⟩ for every unit, ``raised`` alike."""
    right = _lines(right)
    sizes = (1, right.shape[2])
    strides = (ids.stride(0), ids.stride(1), right.stride(0), right.stride(1))
    return _gram(ids, right, right, sizes, strides, raised, equal=True)


def _gram(
    left: Tensor,
    right: Tensor,
    like: Tensor,
    sizes: tuple[int, int],
    strides: tuple[int, int, int, int],
    raised: tuple[float, float],
    *,
    equal: bool,
) -> Tensor:
    units, terms = like.shape[:2]
    blocks = _gram_blocks(units, terms, _is_half(like))
    tiles = triton.cdiv(terms, blocks.terms)
    pairs = tiles * (tiles + 1) // 2
    parts = _parts(pairs, units, like)
    if units:
        with torch.cuda.device_of(like):
            _gram_kernel[(units * pairs,)](
                left, right, parts, units, terms, pairs, *sizes, *strides, *raised,
                EQUAL=equal, ONE=tiles == 1, PRECISION=_precision(), TERMS=blocks.terms,
                DEPTH=blocks.depth, num_warps=blocks.warps, num_stages=blocks.stages,
            )  # fmt: skip
    return parts


def cross_products(ids: Tensor, table: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Σ_{s,t} l_s[id_t]·⟨r_s, table_t⟩: what a table's use as table and as product share."""
    table, left, right, ids = _lines(table), _lines(left), _lines(right), ids.contiguous()
    units, terms = left.shape[:2]
    blocks = _gram_blocks(units, max(terms, ids.shape[1]), _is_half(right))
    tiles = triton.cdiv(terms, blocks.terms) * triton.cdiv(ids.shape[1], blocks.terms)
    parts = _parts(tiles, units, right)
    if units:
        with torch.cuda.device_of(right):
            _cross_kernel[(units * tiles,)](
                ids, table, left, right, parts, units, ids.shape[1], terms, tiles,
                left.shape[2], right.shape[2], ids.stride(0), *table.stride()[:2],
                *left.stride()[:2], *right.stride()[:2],
                PRECISION=_precision(), TERMS=blocks.terms, DEPTH=blocks.depth,
                num_warps=blocks.warps, num_stages=blocks.stages,
            )  # fmt: skip
    return parts.sum(0)


# ---- norms of products


@triton.jit(do_not_specialize=["units", "terms", "tiles"])
def _product_kernel(
    left,
    right,
    out,
    units,
    terms,
    tiles,
    left_size,
    right_size,
    left_unit,
    left_term,
    right_unit,
    right_term,
    grow,
    share,
    COVERS: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TERMS: tl.constexpr,
):
    """The squares of one block of one unit's gradient, added up.

    Where it ``COVERS``, they are raised by the block's part of Σ‖l_t‖²‖r_t‖², too.
    """
    program = tl.program_id(0)
    unit = program // tiles
    tile = program % tiles
    across = tl.cdiv(right_size, COLUMNS)
    at = unit.to(tl.int64)
    rows = (tile // across) * ROWS + tl.arange(0, ROWS)
    columns = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)
    lefts = left + at * left_unit + rows[None, :]
    rights = right + at * right_unit + columns[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    lengths = tl.zeros((TERMS,), tl.float32)
    for start in range(0, terms, TERMS):
        t = start + tl.arange(0, TERMS)
        line, inside = t.to(tl.int64)[:, None], (t < terms)[:, None]
        one = tl.load(
            lefts + line * left_term, mask=inside & (rows < left_size)[None, :], other=0.0
        )
        two = tl.load(
            rights + line * right_term, mask=inside & (columns < right_size)[None, :], other=0.0
        )
        total = tl.dot(tl.trans(one), two, total, input_precision=PRECISION)
        if COVERS:
            wide, broad = one.to(tl.float32), two.to(tl.float32)
            lengths += tl.sum(wide * wide, 1) * tl.sum(broad * broad, 1)
    squares = grow * tl.sum(tl.sum(total * total, 1), 0)
    if COVERS:
        squares += share * tl.sum(lengths, 0)
    tl.store(out + tile.to(tl.int64) * units + unit, squares)


@final
@dataclass(frozen=True, slots=True)
class _Tiles:
    """How a product is cut: rows, columns and terms at a time, warps, and loads under way."""

    rows: int
    columns: int
    terms: int
    warps: int
    stages: int


def _product_tiles(terms: int, rows: int, columns: int, half: bool) -> _Tiles:
    """For ``rows`` ≤ ``columns``; what was fastest on an H200."""
    deep = min(64, max(16, triton.next_power_of_2(terms)))
    high = max(16, triton.next_power_of_2(rows))
    wide = max(16, triton.next_power_of_2(columns))
    if not half:
        return _Tiles(min(high, 32), min(wide, 64), min(deep, 32), 4, 2)
    if high <= 32:  # reading takes longest: many loads of few terms
        return _Tiles(high, min(wide, 256), 16, 4, 4)
    if high == 64:
        return _Tiles(64, min(wide, 128), deep, 4, 3)
    return _Tiles(128, 128, deep, 8, 3)


def product_norms(left: Tensor, right: Tensor, raised: tuple[float, float]) -> Tensor:
    """‖Σ_t l_t⊗r_t‖² for every unit: blocks of the product, squared and added up where they are.

    ``raised`` for what cancellation may hide: times its first number, and with the second times
    Σ_t ‖l_t‖²‖r_t‖² (see ``forms.matrix.cover``). Where a weight is narrow, reading its sides takes
    longest, and one pass finds both; elsewhere this would keep the products waiting.

    Rounding: each entry of the product is added up in single precision, as a product that is
    written out would be; squares do not cancel.
    """
    if left.shape[2] > right.shape[2]:
        left, right = right, left
    left, right = _lines(left), _lines(right)
    units, terms, rows = left.shape
    cut = _product_tiles(terms, rows, right.shape[2], _is_half(left))
    covers = cut.rows <= _NARROW
    tiles = triton.cdiv(rows, cut.rows) * triton.cdiv(right.shape[2], cut.columns)
    parts = _parts(tiles, units, left)
    if units:
        with torch.cuda.device_of(left):
            _product_kernel[(units * tiles,)](
                left, right, parts, units, terms, tiles, rows, right.shape[2],
                *left.stride()[:2], *right.stride()[:2], *raised, COVERS=covers,
                PRECISION=_precision(), ROWS=cut.rows, COLUMNS=cut.columns, TERMS=cut.terms,
                num_warps=cut.warps, num_stages=cut.stages,
            )  # fmt: skip
    if covers:
        return parts
    flat = (side.flatten(0, 1).unsqueeze(1) for side in (left, right))
    lengths = added(product_of_squares(*flat)).view(units, terms).sum(1)
    return torch.cat([parts, raised[1] * lengths.unsqueeze(0)])


# ---- squares


@triton.jit(do_not_specialize=["units", "pieces", "each"])
def _squares_kernel(
    values,
    others,
    out,
    units,
    length,
    pieces,
    each,
    other_length,
    values_unit,
    others_unit,
    PAIR: tl.constexpr,
    BOTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Σ v², times those of the other line where they are a ``PAIR``; ``BOTH``: then Σ v², too."""
    program = tl.program_id(0)
    unit = program // pieces
    piece = program % pieces
    at = unit.to(tl.int64)
    begin = piece * each
    end = tl.minimum(length, begin + each)
    total = _squared_line(values + at * values_unit, begin, end, length, BLOCK)
    if BOTH:
        tl.store(out + (pieces + piece).to(tl.int64) * units + unit, total)
    if PAIR:
        other_line = others + at * others_unit
        total *= _squared_line(other_line, 0, other_length, other_length, BLOCK)
    tl.store(out + piece.to(tl.int64) * units + unit, total)


@triton.jit
def _squared_line(line, begin, end, length, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(line + at, mask=at < length, other=0.0).to(tl.float32)
        total += value * value
    return tl.sum(total, 0)


_SQUARES_BLOCK = 1024
_SQUARES_STEPS = 64


def squares(values: Tensor) -> Tensor:
    """Σ v² over all but the first dimension: pieces of 2¹⁶ at most, which are then added up."""
    lines = _rows(values)
    return _squared(lines, lines, pair=False)


def product_of_squares(left: Tensor, right: Tensor) -> Tensor:
    """‖l‖²·‖r‖² for every unit: the squared norm of l ⊗ r, if there is one term."""
    first, second = left[:, 0], right[:, 0]
    if max(first.shape[1], second.shape[1]) > _SQUARES_BLOCK * _SQUARES_STEPS:
        return (added(squares(first)) * added(squares(second))).unsqueeze(0)
    first, second = (one if one.stride(1) == 1 else one.contiguous() for one in (first, second))
    return _squared(first, second, pair=True)


def product_and_left(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """``product_of_squares``, and ‖l‖² in the same launch: a bias's gradient is the left side."""
    first, second = left[:, 0], right[:, 0]
    if max(first.shape[1], second.shape[1]) > _SQUARES_BLOCK * _SQUARES_STEPS:
        return product_of_squares(left, right), added(squares(first)).unsqueeze(0)
    first, second = (one if one.stride(1) == 1 else one.contiguous() for one in (first, second))
    both = _squared(first, second, pair=True, both=True)
    return both[:1], both[1:]


def _squared(lines: Tensor, others: Tensor, *, pair: bool, both: bool = False) -> Tensor:
    units, length = lines.shape
    blocks = max(1, triton.cdiv(length, _SQUARES_BLOCK))
    # A pair's other side is read whole by every piece: there is one.
    steps = blocks if pair else min(_SQUARES_STEPS, max(1, units * blocks // (4 * _PROGRAMS)))
    pieces = triton.cdiv(blocks, steps)
    parts = _parts(2 * pieces if both else pieces, units, lines)
    if units:
        with torch.cuda.device_of(lines):
            _squares_kernel[(units * pieces,)](
                lines, others, parts, units, length, pieces, steps * _SQUARES_BLOCK,
                others.shape[1], lines.stride(0), others.stride(0),
                PAIR=pair, BOTH=both, BLOCK=_SQUARES_BLOCK, num_warps=4,
            )  # fmt: skip
    return parts


@triton.jit(do_not_specialize=["units", "pieces"])
def _added_kernel(parts, out, units, pieces, UNITS: tl.constexpr, PIECES: tl.constexpr):
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    total = tl.zeros((PIECES, UNITS), tl.float32)
    for start in range(0, pieces, PIECES):
        piece = start + tl.arange(0, PIECES)
        mask = (piece < pieces)[:, None] & (unit < units)[None, :]
        place = piece.to(tl.int64)[:, None] * units + unit[None, :]
        total += tl.load(parts + place, mask=mask, other=0.0)
    whole = tl.sum(total, 0)
    whole = tl.where(whole < 0.0, whole - whole, whole)  # -∞ becomes NaN, which stays
    tl.store(out + unit, whole, mask=unit < units)


def added(parts: Tensor) -> Tensor:
    """Σ of the parts of squared norms, which is not negative."""
    if len(parts) == 1:
        return parts[0]
    pieces, units = parts.shape
    out = torch.empty(units, dtype=parts.dtype, device=parts.device)
    if units:
        with torch.cuda.device_of(parts):
            _added_kernel[(triton.cdiv(units, 16),)](
                parts.contiguous(), out, units, pieces, UNITS=16, PIECES=64, num_warps=4
            )
    return out


@triton.jit(do_not_specialize=["units"])
def _totals_kernel(
    r0, r1, r2, r3, r4, r5, r6, r7, out, units, COUNT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    unit = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = unit < units
    total = tl.load(r0 + unit, mask=inside, other=0.0).to(tl.float64)
    if COUNT > 1:
        total += tl.load(r1 + unit, mask=inside, other=0.0).to(tl.float64)
    if COUNT > 2:
        total += tl.load(r2 + unit, mask=inside, other=0.0).to(tl.float64)
    if COUNT > 3:
        total += tl.load(r3 + unit, mask=inside, other=0.0).to(tl.float64)
    if COUNT > 4:
        total += tl.load(r4 + unit, mask=inside, other=0.0).to(tl.float64)
    if COUNT > 5:
        total += tl.load(r5 + unit, mask=inside, other=0.0).to(tl.float64)
    if COUNT > 6:
        total += tl.load(r6 + unit, mask=inside, other=0.0).to(tl.float64)
    if COUNT > 7:
        total += tl.load(r7 + unit, mask=inside, other=0.0).to(tl.float64)
    tl.store(out + unit, total, mask=inside)


MOST_ROWS = 8  # that ``totals`` takes: the kernel's arguments


def totals(rows: Sequence[Tensor]) -> Tensor:
    """Σ of up to eight vectors, each a weight's squared norms, in double precision: one launch."""
    units = len(rows[0])
    out = torch.empty(units, dtype=torch.float64, device=rows[0].device)
    lines = [one.contiguous() for one in rows]
    if units:
        with torch.cuda.device_of(out):
            _totals_kernel[(triton.cdiv(units, 128),)](
                *lines, *lines[:1] * (MOST_ROWS - len(lines)), out, units,
                COUNT=len(lines), BLOCK=128, num_warps=4,
            )  # fmt: skip
    return out


# ---- scales


@triton.jit(do_not_specialize=["units", "groups"])
def _scales_kernel(
    squared,
    bounds,
    mask,
    out,
    units,
    groups,
    stability,
    slack,
    STABLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    unit = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = unit < units
    usable = tl.load(mask + unit, mask=inside, other=0) != 0
    for group in range(groups):
        value = tl.load(squared + group * units + unit, mask=inside, other=0.0)
        usable = usable & (value >= 0) & (value - value == 0)  # ∞ - ∞ is not a number
    for group in range(groups):
        value = tl.load(squared + group * units + unit, mask=inside, other=0.0)
        limit = tl.load(bounds + group).to(value.dtype)
        norm = tl.sqrt(value)
        norm += norm * slack
        if STABLE:
            factor = limit / (norm + stability)
        else:
            factor = limit / tl.maximum(norm, 1e-30)
            factor = tl.minimum(factor, 1.0)
        tl.store(out + group * units + unit, tl.where(usable, factor, 0.0), mask=inside)


def scales(
    squared: Tensor, bounds: Tensor, mask: Tensor, stability: float | None, slack: float
) -> Tensor:
    """``sums.scales_of`` in one launch, in the precision of the norms."""
    groups, units = squared.shape
    out = torch.empty_like(squared, memory_format=torch.contiguous_format)
    if out.numel():
        with torch.cuda.device_of(squared):
            _scales_kernel[(triton.cdiv(units, 128),)](
                squared.contiguous(), bounds.contiguous(), mask.contiguous(), out, units, groups,
                stability or 0.0, slack, STABLE=stability is not None, BLOCK=128, num_warps=4,
            )  # fmt: skip
    return out


# ---- sums over terms


@triton.jit(do_not_specialize=["units", "terms", "each", "splits"])
def _terms_kernel(
    grad,
    factor,
    values,
    squared,
    units,
    terms,
    each,
    splits,
    size,
    grad_unit,
    grad_term,
    factor_unit,
    factor_term,
    FACTOR: tl.constexpr,
    TERMS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    unit = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    split = tl.program_id(2)
    column = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < size
    total = tl.zeros((TERMS, COLUMNS), tl.float32)
    end = tl.minimum(terms, (split + 1) * each)
    for start in range(split * each, end, TERMS):
        t = start + tl.arange(0, TERMS)
        mask = (t < end)[:, None] & inside[None, :]
        line = t.to(tl.int64)[:, None]
        entries = grad + unit * grad_unit + line * grad_term + column[None, :]
        value = tl.load(entries, mask=mask, other=0.0).to(tl.float32)
        if FACTOR:
            others = factor + unit * factor_unit + line * factor_term + column[None, :]
            value *= tl.load(others, mask=mask, other=0.0).to(tl.float32)
        total += value
    whole = tl.sum(total, 0)
    tl.store(values + (unit * splits + split) * size + column, whole, mask=inside)
    tl.store(squared + block.to(tl.int64) * units + unit, tl.sum(whole * whole, 0))


def term_sums(grad: Tensor, factor: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Σ_t grad_t·factor_t (or Σ_t grad_t), shape (units, size), and its squared norms.

    Added up in single precision in at most 64 stretches of terms, whatever their precision.
    """
    grad = _lines(grad)
    other = grad if factor is None else _lines(factor)
    units, terms, size = grad.shape
    cut = _term_block(terms)
    blocks = triton.cdiv(size, cut[1])
    splits = _splits(units * blocks, triton.cdiv(terms, 64))
    each = triton.cdiv(terms, splits)
    values = torch.empty(units, splits, size, dtype=torch.float32, device=grad.device)
    parts = _parts(blocks, units, grad)
    if units and size:
        with torch.cuda.device_of(grad):
            _terms_kernel[(units, blocks, splits)](
                grad, other, values, parts, units, terms, each, splits, size,
                *grad.stride()[:2], *other.stride()[:2],
                FACTOR=factor is not None, TERMS=cut[0], COLUMNS=cut[1], num_warps=cut[2],
            )  # fmt: skip
    if splits > 1:
        return term_sums(values)
    return values[:, 0], parts


def _term_block(terms: int) -> tuple[int, int, int]:
    """How many terms and columns are loaded together, and by how many warps."""
    return min(16, max(4, triton.next_power_of_2(terms))), 128, 4


@triton.jit(do_not_specialize=["terms", "each", "splits"])
def _normalised_kernel(
    x,
    grad,
    weights,
    biases,
    weight_squares,
    bias_squares,
    terms,
    each,
    splits,
    size,
    epsilon,
    x_unit,
    x_term,
    grad_unit,
    grad_term,
    CENTRED: tl.constexpr,
    TERMS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    unit = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    column = tl.arange(0, COLUMNS)
    inside = column < size
    weight = tl.zeros((TERMS, COLUMNS), tl.float32)
    bias = tl.zeros((TERMS, COLUMNS), tl.float32)
    end = tl.minimum(terms, (split + 1) * each)
    for start in range(split * each, end, TERMS):
        t = start + tl.arange(0, TERMS)
        mask = (t < end)[:, None] & inside[None, :]
        line = t.to(tl.int64)[:, None]
        value = tl.load(x + unit * x_unit + line * x_term + column[None, :], mask=mask, other=0.0)
        entries = grad + unit * grad_unit + line * grad_term + column[None, :]
        change = tl.load(entries, mask=mask, other=0.0).to(tl.float32)
        value = value.to(tl.float32)
        if CENTRED:
            mean = tl.sum(value, 1) / size
            value = tl.where(mask, value - mean[:, None], 0.0)
        variance = tl.sum(value * value, 1) / size
        normalised = value * (1.0 / tl.sqrt(variance + epsilon))[:, None]
        weight += tl.where(mask, change * normalised, 0.0)  # 0/0 beyond the last term
        bias += change
    at = (unit * splits + split) * size + column
    whole = tl.sum(weight, 0)
    tl.store(weights + at, whole, mask=inside)
    tl.store(weight_squares + unit, tl.sum(whole * whole, 0))
    if CENTRED:
        whole = tl.sum(bias, 0)
        tl.store(biases + at, whole, mask=inside)
        tl.store(bias_squares + unit, tl.sum(whole * whole, 0))


Sums = tuple["Tensor", "Tensor"]  # (units, size) values, and the parts of their squared norms


def normalised_sums(
    x: Tensor, grad: Tensor, epsilon: float, kind: Literal["layer", "rms"]
) -> tuple[Sums, Sums]:
    """Σ_t grad_t·x̂_t and Σ_t grad_t, with x̂ = x normalised as a layer or RMS norm does it.

    Only a layer norm has the second; for an RMS norm it is left as it lay in memory.
    """
    x, grad = _lines(x), _lines(grad)
    units, terms, size = grad.shape
    wide = triton.next_power_of_2(size)
    rows, warps = _row_block(wide)
    splits = _splits(units, triton.cdiv(terms, 2 * rows))
    each = triton.cdiv(terms, splits)
    both = torch.empty(2, units, splits, size, dtype=torch.float32, device=grad.device)
    squared = torch.empty(2, units, dtype=torch.float32, device=grad.device)
    if units:
        with torch.cuda.device_of(grad):
            _normalised_kernel[(units, splits)](
                x, grad, both[0], both[1], squared[0], squared[1], terms, each, splits,
                size, epsilon, *x.stride()[:2], *grad.stride()[:2],
                CENTRED=kind == "layer", TERMS=rows, COLUMNS=wide, num_warps=warps,
            )  # fmt: skip
    if splits > 1:
        values, parts = term_sums(both.flatten(0, 1) if kind == "layer" else both[0])
        whole = (values[:units], parts[:, :units]), (values[units:], parts[:, units:])
    else:
        whole = (both[0, :, 0], squared[:1]), (both[1, :, 0], squared[1:])
    return whole


def _row_block(size: int) -> tuple[int, int]:
    """How many rows are normalised together, and by how many warps."""
    return max(1, 2048 // size), 8 if size > 4096 else 4


@triton.jit(do_not_specialize=["rows", "each"])
def _grouped_kernel(
    x,
    grad,
    weights,
    biases,
    weight_squares,
    bias_squares,
    rows,
    space,
    channels,
    each,
    whole,
    count,
    epsilon,
    x_row,
    x_channel,
    x_pixel,
    grad_row,
    grad_channel,
    grad_pixel,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    ALONE: tl.constexpr,
):
    """A few groups of ``each`` channels of one row, ``whole`` channels in all.

    ``ALONE``: one group, so that its channels need not be told from another's.
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    lane = tl.arange(0, CHANNELS)
    channel = block * whole + lane
    inside = (lane < whole) & (channel < channels)
    images = x + row * x_row + channel.to(tl.int64)[None, :] * x_channel
    changes = grad + row * grad_row + channel.to(tl.int64)[None, :] * grad_channel
    total = tl.zeros((PIXELS, CHANNELS), tl.float32)
    for start in range(0, space, PIXELS):
        at = start + tl.arange(0, PIXELS)
        mask = (at < space)[:, None] & inside[None, :]
        total += tl.load(images + at[:, None] * x_pixel, mask=mask, other=0.0).to(tl.float32)
    mean = _by_group(tl.sum(total, 0), lane, each, ALONE) / count
    rest = tl.zeros((PIXELS, CHANNELS), tl.float32)  # what rounding left of the mean
    squared = tl.zeros((PIXELS, CHANNELS), tl.float32)
    weight = tl.zeros((PIXELS, CHANNELS), tl.float32)
    bias = tl.zeros((PIXELS, CHANNELS), tl.float32)
    for start in range(0, space, PIXELS):
        at = start + tl.arange(0, PIXELS)
        mask = (at < space)[:, None] & inside[None, :]
        value = tl.load(images + at[:, None] * x_pixel, mask=mask, other=0.0).to(tl.float32)
        value = tl.where(mask, value - mean[None, :], 0.0)
        change = tl.load(changes + at[:, None] * grad_pixel, mask=mask, other=0.0).to(tl.float32)
        rest += value
        squared += value * value
        weight += value * change
        bias += change
    variance = _by_group(tl.sum(squared, 0), lane, each, ALONE) / count
    shift = tl.sum(bias, 0)
    rounded = _by_group(tl.sum(rest, 0), lane, each, ALONE) / count
    scaled = (tl.sum(weight, 0) - rounded * shift) / tl.sqrt(variance + epsilon)
    scaled = tl.where(inside, scaled, 0.0)
    tl.store(weights + row * channels + channel, scaled, mask=inside)
    tl.store(biases + row * channels + channel, shift, mask=inside)
    place = block.to(tl.int64) * rows + row
    tl.store(weight_squares + place, tl.sum(scaled * scaled, 0))
    tl.store(bias_squares + place, tl.sum(shift * shift, 0))


@triton.jit
def _by_group(values, lane, each, ALONE: tl.constexpr):
    """For every channel, the sum over the channels of its group."""
    if ALONE:
        return tl.sum(values, 0) + tl.zeros_like(values)
    group = lane // each
    return tl.sum(tl.where(group[:, None] == group[None, :], values[None, :], 0.0), 1)


def grouped_sums(x: Tensor, grad: Tensor, groups: int, epsilon: float) -> tuple[Sums, Sums]:
    """Σ grad·x̂ and Σ grad over the pixels of every channel, with x̂ as a group norm has it.

    ``x`` and ``grad`` are (rows, channels, pixels) with pixels or channels side by side; what is
    returned is (rows, channels). Mean and variance are taken in two sweeps, in single precision;
    what rounding left of the mean is taken off afterwards.
    """
    rows, channels, space = x.shape
    each = channels // groups
    wide = triton.next_power_of_2(min(channels, max(each, 64 if x.stride(1) == 1 else 16)))
    together = max(1, wide // each)
    blocks = triton.cdiv(groups, together)
    both = torch.empty(2, rows, channels, dtype=torch.float32, device=x.device)
    squared = torch.empty(2, blocks, rows, dtype=torch.float32, device=x.device)
    if rows:
        with torch.cuda.device_of(x):
            _grouped_kernel[(rows, blocks)](
                x, grad, both[0], both[1], squared[0], squared[1], rows, space, channels, each,
                together * each, float(each * space), epsilon, *x.stride(), *grad.stride(),
                PIXELS=max(1, 2048 // wide), CHANNELS=wide, ALONE=together == 1, num_warps=4,
            )  # fmt: skip
    return (both[0], squared[0]), (both[1], squared[1])


# ---- weighted sums


@triton.jit
def _scaled_kernel(
    values,
    scales,
    out,
    length,
    values_unit,
    SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    unit = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(scales + unit).to(tl.float32)
    read = tl.where(scale > 0, length, 0)
    value = tl.load(values + unit * values_unit + at, mask=at < read, other=0.0)
    if SCALED:
        value = tl.where(at < read, value.to(tl.float32) * scale, 0.0)
    tl.store(out + unit * length + at, value.to(out.dtype.element_ty), mask=at < length)


_SCALED_BLOCK = 4096


def rows_scaled(values: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """``values`` times their unit's scale, rounded once, to ``dtype``.

    Guarantee:
        A unit whose scale is not above zero becomes exactly zero: its values are not even read.
    """
    return _scaled(values, scales, dtype, scaled=True)


def rows_kept(values: Tensor, scales: Tensor) -> Tensor:
    """``values`` as they are, but exactly zero for units whose scale is not above zero."""
    return _scaled(values, scales, values.dtype, scaled=False)


def _scaled(values: Tensor, scales: Tensor, dtype: torch.dtype, *, scaled: bool) -> Tensor:
    units, length = len(values), values[:1].numel()
    lines = _rows(values)
    out = torch.empty(values.shape, dtype=dtype, device=values.device)
    if out.numel():
        with torch.cuda.device_of(lines):
            _scaled_kernel[(units, triton.cdiv(length, _SCALED_BLOCK))](
                lines, scales.contiguous(), out, length, lines.stride(0),
                SCALED=scaled, BLOCK=_SCALED_BLOCK, num_warps=8,
            )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["units", "each"])
def _rows_sum_kernel(
    values,
    scales,
    out,
    units,
    each,
    length,
    values_unit,
    UNITS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    split = tl.program_id(1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < length
    total = tl.zeros((UNITS, COLUMNS), tl.float32)
    end = tl.minimum(units, (split + 1) * each)
    for start in range(split * each, end, UNITS):
        unit = start + tl.arange(0, UNITS)
        scale = tl.load(scales + unit, mask=unit < end, other=0.0).to(tl.float32)
        scale = tl.where(scale > 0, scale, 0.0)
        mask = (scale > 0)[:, None] & inside[None, :]
        entries = values + unit.to(tl.int64)[:, None] * values_unit + column[None, :]
        total += scale[:, None] * tl.load(entries, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + split.to(tl.int64) * length + column, tl.sum(total, 0), mask=inside)


@triton.jit(do_not_specialize=["units"])
def _long_rows_kernel(
    values,
    scales,
    out,
    units,
    length,
    values_unit,
    UNITS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The same for long rows: a thread keeps its columns, and asks for several units at once."""
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, units, UNITS):
        few = tl.zeros((COLUMNS,), tl.float32)  # by themselves, which keeps the rounding small
        for at in tl.static_range(UNITS):
            unit = start + at
            scale = tl.load(scales + unit, mask=unit < units, other=0.0).to(tl.float32)
            scale = tl.where(scale > 0, scale, 0.0)
            read = tl.where(scale > 0, length, 0)
            entries = values + unit.to(tl.int64) * values_unit + column
            few += scale * tl.load(entries, mask=column < read, other=0.0).to(tl.float32)
        total += few
    tl.store(out + column, total, mask=column < length)


_LONG_ROWS = 1024  # columns of a program


def rows_sum(values: Tensor, scales: Tensor) -> Tensor:
    """Σ_i scale_i·values_i, in single precision; a unit of scale 0 is not read."""
    units, length = len(values), values[:1].numel()
    lines, scales = _rows(values), scales.contiguous()
    if 2 * length >= _LONG_ROWS * _PROGRAMS:
        return _long_rows_sum(lines, scales).view(values.shape[1:])
    few = min(32, max(8, triton.next_power_of_2(units)))
    wide = 2048 // few
    blocks = max(1, triton.cdiv(length, wide))
    splits = _splits(blocks, triton.cdiv(units, 64))
    each = triton.cdiv(units, splits)
    out = torch.empty(splits, length, dtype=torch.float32, device=values.device)
    if out.numel():
        with torch.cuda.device_of(lines):
            _rows_sum_kernel[(blocks, splits)](
                lines, scales, out, units, each, length, lines.stride(0),
                UNITS=few, COLUMNS=wide, num_warps=4,
            )  # fmt: skip
    return (out[0] if splits == 1 else out.sum(0)).view(values.shape[1:])


def _long_rows_sum(lines: Tensor, scales: Tensor) -> Tensor:
    """In a sixth of the time, where eight units have rows of a million numbers."""
    units, length = lines.shape
    out = torch.empty(length, dtype=torch.float32, device=lines.device)
    with torch.cuda.device_of(lines):
        _long_rows_kernel[(triton.cdiv(length, _LONG_ROWS),)](
            lines, scales, out, units, length, lines.stride(0),
            UNITS=8, COLUMNS=_LONG_ROWS, num_warps=4,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["count", "terms", "each"])
def _weighted_kernel(
    left,
    right,
    scales,
    out,
    count,
    terms,
    each,
    left_size,
    right_size,
    left_unit,
    left_term,
    right_unit,
    right_term,
    out_split,
    out_row,
    out_column,
    PRECISION: tl.constexpr,
    FINE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TERMS: tl.constexpr,
):
    """One block of Σ scale·l ⊗ r over one stretch of the ``count`` terms of all units."""
    split = tl.program_id(1)
    _weighted_block(
        left, right, scales, out + split.to(tl.int64) * out_split, tl.program_id(0), split * each,
        tl.minimum(count, (split + 1) * each), terms, left_size, right_size, left_unit, left_term,
        right_unit, right_term, out_row, out_column, PRECISION, FINE, ROWS, COLUMNS, TERMS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["count", "terms", "tiles"])
def _repair_kernel(
    left,
    right,
    scales,
    finite,
    out,
    count,
    terms,
    tiles,
    left_size,
    right_size,
    left_unit,
    left_term,
    right_unit,
    right_term,
    PRECISION: tl.constexpr,
    FINE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TERMS: tl.constexpr,
):
    """Σ scale·l ⊗ r again, over what is in ``out``, unless all was ``finite``."""
    if tl.load(finite) == 0:
        for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
            _weighted_block(
                left, right, scales, out, tile, 0, count, terms, left_size, right_size,
                left_unit, left_term, right_unit, right_term, right_size, 1,
                PRECISION, FINE, ROWS, COLUMNS, TERMS,
            )  # fmt: skip


@triton.jit
def _weighted_block(
    left,
    right,
    scales,
    out,
    tile,
    begin,
    end,
    terms,
    left_size,
    right_size,
    left_unit,
    left_term,
    right_unit,
    right_term,
    out_row,
    out_column,
    PRECISION: tl.constexpr,
    FINE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TERMS: tl.constexpr,
):
    across = tl.cdiv(right_size, COLUMNS)
    rows = (tile // across) * ROWS + tl.arange(0, ROWS)
    columns = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(begin, end, TERMS):
        at = start + tl.arange(0, TERMS)
        unit, term = (at // terms).to(tl.int64), (at % terms).to(tl.int64)
        scale = tl.load(scales + unit, mask=at < end, other=0.0).to(tl.float32)
        scale = tl.where(scale > 0, scale, 0.0)
        counts = (scale > 0)[:, None]
        lefts = left + (unit * left_unit + term * left_term)[:, None] + rows[None, :]
        rights = right + (unit * right_unit + term * right_term)[:, None] + columns[None, :]
        one = tl.load(lefts, mask=counts & (rows < left_size)[None, :], other=0.0)
        two = tl.load(rights, mask=counts & (columns < right_size)[None, :], other=0.0)
        weighted = one.to(tl.float32) * scale[:, None]
        most = weighted.to(one.dtype)
        total = tl.dot(tl.trans(most), two, total, input_precision=PRECISION)
        if FINE:  # what rounding left of it, which cancellation would show
            rest = (weighted - most.to(tl.float32)).to(one.dtype)
            total = tl.dot(tl.trans(rest), two, total, input_precision=PRECISION)
    place = rows.to(tl.int64)[:, None] * out_row + columns[None, :] * out_column
    mask = (rows < left_size)[:, None] & (columns < right_size)[None, :]
    tl.store(out + place, total, mask=mask)


def weighted_product(left: Tensor, right: Tensor, scales: Tensor) -> Tensor:
    """Σ_{i,t} scale_i·l_it ⊗ r_it in single precision, from scaled terms in two parts of their own.

    For a weight with few rows or columns, where reading takes longer than multiplying: it reads
    both sides once, where a library's product would need scaled copies of them first.

    Guarantee:
        A unit whose scale is not above zero is not read.
    """
    turned = left.shape[2] > right.shape[2]
    first, second = (_lines(one) for one in ((right, left) if turned else (left, right)))
    units, terms, rows = first.shape
    columns, count = second.shape[2], units * terms
    cut = _weighted_tiles(rows, _is_half(first))
    tiles = triton.cdiv(rows, cut.rows) * triton.cdiv(columns, cut.columns)
    splits = _splits(tiles, triton.cdiv(count, 4 * cut.terms), programs=2 * _PROGRAMS)
    each = triton.cdiv(triton.cdiv(count, splits), cut.terms) * cut.terms
    shape = (splits, columns, rows) if turned else (splits, rows, columns)
    out = torch.empty(shape, dtype=torch.float32, device=first.device)
    along = out.stride()[:0:-1] if turned else out.stride()[1:]
    with torch.cuda.device_of(first):
        _weighted_kernel[(tiles, splits)](
            first, second, scales.contiguous(), out, count, terms, each, rows, columns,
            *first.stride()[:2], *second.stride()[:2], out.stride(0), *along,
            PRECISION=_precision(), FINE=_is_half(first), ROWS=cut.rows, COLUMNS=cut.columns,
            TERMS=cut.terms, num_warps=cut.warps, num_stages=cut.stages,
        )  # fmt: skip
    return out[0] if splits == 1 else out.sum(0)


# Whatever these numbers are, one program serves.
_NUMBERS = [
    "units", "each", "whole", "end0", "end1", "end2",
    "p0", "q0", "p1", "q1", "p2", "q2", "p3", "q3",
    "lu0", "ru0", "lu1", "ru1", "lu2", "ru2", "lu3", "ru3", "at1", "at2", "at3",
    "b0", "b1", "b2", "b3",
]  # fmt: skip


@triton.jit(do_not_specialize=_NUMBERS)
def _several_kernel(
    l0,
    r0,
    l1,
    r1,
    l2,
    r2,
    l3,
    r3,
    scales,
    out,
    units,
    each,
    whole,
    end0,
    end1,
    end2,
    p0,
    q0,
    p1,
    q1,
    p2,
    q2,
    p3,
    q3,
    lu0,
    ru0,
    lu1,
    ru1,
    lu2,
    ru2,
    lu3,
    ru3,
    at1,
    at2,
    at3,
    b0,
    b1,
    b2,
    b3,
    COUNT: tl.constexpr,
    PRECISION: tl.constexpr,
    SIDE: tl.constexpr,
):
    """One block of one weight's Σ scale·l ⊗ r over one stretch of units; ``ends`` say of which.

    A weight's sum lies at its place in a line of ``whole`` numbers a stretch. Behind it is that of
    its bias, Σ scale·l, which the first of the blocks side by side has. The block is written down
    once, with numbers of 32 bits: to fetch the program takes longer than to run it.
    """
    tile = tl.program_id(0)
    split = tl.program_id(1)
    left, right, p, q = l0, r0, p0, q0
    left_unit, right_unit, biased, at, first = lu0, ru0, b0, 0, 0
    if COUNT > 1:  # noqa: SIM102 - known when the kernel is compiled
        if tile >= end0:
            left, right, p, q = l1, r1, p1, q1
            left_unit, right_unit, biased, at, first = lu1, ru1, b1, at1, end0
    if COUNT > 2:  # noqa: SIM102 - known when the kernel is compiled
        if tile >= end1:
            left, right, p, q = l2, r2, p2, q2
            left_unit, right_unit, biased, at, first = lu2, ru2, b2, at2, end1
    if COUNT > 3:  # noqa: SIM102 - known when the kernel is compiled
        if tile >= end2:
            left, right, p, q = l3, r3, p3, q3
            left_unit, right_unit, biased, at, first = lu3, ru3, b3, at3, end2
    across = tl.cdiv(q, SIDE)
    block = tile - first
    rows = (block // across) * SIDE + tl.arange(0, SIDE)
    columns = (block % across) * SIDE + tl.arange(0, SIDE)
    total = tl.zeros((SIDE, SIDE), tl.float32)
    own = tl.zeros((SIDE,), tl.float32)
    for start in range(split * each, tl.minimum(units, (split + 1) * each), SIDE):
        unit = start + tl.arange(0, SIDE)
        inside = (unit < units)[:, None]
        scale = tl.load(scales + unit, mask=unit < units, other=0.0)
        lefts = left + unit[:, None] * left_unit + rows[None, :]
        rights = right + unit[:, None] * right_unit + columns[None, :]
        one = tl.load(lefts, mask=inside & (rows < p)[None, :], other=0.0)
        two = tl.load(rights, mask=inside & (columns < q)[None, :], other=0.0)
        counts = (scale > 0)[:, None]  # chosen after loading, for which nobody waits
        weighted = tl.where(counts, one * scale[:, None], 0.0)
        own += tl.sum(weighted, 0)
        total = tl.dot(
            tl.trans(weighted), tl.where(counts, two, 0.0), total, input_precision=PRECISION
        )
    line = out + split * whole + at
    kept = rows < p
    place = rows[:, None] * q + columns[None, :]
    tl.store(line + place, total, mask=kept[:, None] & (columns < q)[None, :])
    tl.store(line + p * q + rows, own, mask=kept & (biased != 0) & (block % across == 0))


@final
@dataclass(frozen=True, slots=True)
class Product:
    """Σ scale·l ⊗ r of units of one term in single precision; ``biased``: and Σ scale·l."""

    left: Tensor  # (units, 1, p)
    right: Tensor  # (units, 1, q)
    biased: bool

    @property
    def size(self) -> int:
        """How many numbers it comes to."""
        rows, columns = self.left.shape[2], self.right.shape[2]
        return rows * columns + rows * self.biased


def several_products(products: Sequence[Product], scales: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The sums of up to four weights, each (p, q), and of their biases, (p,) or empty.

    For small weights, whose products take less time than a library's launches: here are two.

    Guarantee:
        A unit whose scale is not above zero adds nothing, not even NaN.
    """
    assert 0 < len(products) <= MOST_PRODUCTS
    lefts, rights = ([_lines(getattr(one, side)) for one in products] for side in ("left", "right"))
    shapes = [(left.shape[2], right.shape[2]) for left, right in zip(lefts, rights, strict=True)]
    side = _SEVERALS
    ends = [*accumulate(triton.cdiv(p, side) * triton.cdiv(q, side) for p, q in shapes)]
    places = [*accumulate((one.size for one in products), initial=0)]
    units = len(scales)
    splits = max(1, min(_PROGRAMS // ends[-1], triton.cdiv(units, side)))  # all at once, not more
    each = triton.cdiv(triton.cdiv(units, splits), side) * side
    out = torch.empty(splits, places[-1], dtype=torch.float32, device=scales.device)
    more = MOST_PRODUCTS - len(products)
    sides = [side for pair in zip(lefts, rights, strict=True) for side in pair]
    strides = [side.stride(0) for side in sides]
    with torch.cuda.device_of(scales):
        _several_kernel[(ends[-1], splits)](
            *sides, *sides[:1] * (2 * more), scales.float(), out, units, each, places[-1],
            *[*ends, *ends[-1:] * more][:3], *[n for one in shapes for n in one], *[1] * (2 * more),
            *strides, *[1] * (2 * more), *[*places[1:-1], *[0] * more][:3],
            *[int(one.biased) for one in products], *[0] * more,
            COUNT=len(products), PRECISION=_precision(), SIDE=side, num_warps=4, num_stages=1,
        )  # fmt: skip
    line = out[0] if splits == 1 else out.sum(0)
    parts = line.split([one.size for one in products])
    return [
        (part[: p * q].view(p, q), part[p * q :])
        for part, (p, q) in zip(parts, shapes, strict=True)
    ]


def _weighted_tiles(rows: int, half: bool) -> _Tiles:
    """What was fastest on an H200."""
    if not half:
        return _Tiles(32, 32, 32, 4, 2)
    high = min(64, max(16, triton.next_power_of_2(rows)))
    return _Tiles(high, 64, 128 if high <= 32 else 64, 4, 3)


def repair(product: Tensor, left: Tensor, right: Tensor, scales: Tensor, finite: Tensor) -> Tensor:
    """``product`` = Σ_{i,t} scale_i·l_it ⊗ r_it of a library, which 0·NaN or 0·∞ may have spoilt.

    Guarantee:
        Unless ``finite``, it is computed again, and a unit whose scale is not above zero is not
        read. ``finite`` is a number on the device: no host waits, and if it is not 0 this is one
        launch that does nothing.
    """
    left, right = _lines(left), _lines(right)
    units, terms, rows = left.shape
    cut = _weighted_tiles(_LIBRARYS, _is_half(left))
    tiles = triton.cdiv(rows, cut.rows) * triton.cdiv(right.shape[2], cut.columns)
    with torch.cuda.device_of(product):
        _repair_kernel[(min(tiles, _PROGRAMS),)](
            left, right, scales.contiguous(), finite, product, units * terms, terms, tiles,
            rows, right.shape[2], *left.stride()[:2], *right.stride()[:2],
            PRECISION=_precision(), FINE=_is_half(left), ROWS=cut.rows, COLUMNS=cut.columns,
            TERMS=cut.terms, num_warps=cut.warps, num_stages=cut.stages,
        )  # fmt: skip
    return product


# ---- what they share


def _is_half(values: Tensor) -> bool:
    return values.dtype in (torch.float16, torch.bfloat16)


def _precision() -> Literal["tf32", "ieee"]:
    """How factors of single precision are multiplied: as the user has PyTorch do it."""
    return "tf32" if tf32_matrices() else "ieee"


def _rows(values: Tensor) -> Tensor:
    """(units, numbers), each unit's side by side: a view of every other number is copied."""
    return _lines(values.reshape(len(values), values[:1].numel()))


def _lines(values: Tensor) -> Tensor:
    """The same with entries of the last dimension side by side."""
    return values if values.stride(-1) == 1 or values.shape[-1] == 1 else values.contiguous()


def _parts(pieces: int, units: int, like: Tensor) -> Tensor:
    """Room for the parts of squared norms: (pieces, units)."""
    return torch.empty(pieces, units, dtype=torch.float32, device=like.device)


def _splits(programs_each: int, most: int, *, programs: int = _PROGRAMS) -> int:
    """Into how many stretches a sum is cut, so that there are enough programs."""
    wanted: int = triton.cdiv(programs, max(1, programs_each))
    return max(1, min(wanted, most))
