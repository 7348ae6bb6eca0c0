"""Kernels for CUDA devices, in Triton, which comes with PyTorch there; imported only with both."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _row_copied(source, target, at, row, place, words):
    inside = at < words
    value = tl.load(source + row * words + at, mask=inside, other=0)
    tl.store(target + place * words + at, value, mask=inside)


@triton.jit(do_not_specialize=["rows", "per_unit"])
def gathered(
    numbers,
    s0,
    s1,
    s2,
    s3,
    t0,
    t1,
    t2,
    t3,
    n0,
    n1,
    n2,
    n3,
    weights,
    real,
    rows,
    per_unit,
    COUNT: tl.constexpr,  # noqa: N803 - constants are written so in kernels
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Some rows of a few tensors, a block of words a program; and what each row counts.

    ``numbers`` are those of the rows, and then how many units are real. A row has the words ``n``.
    """
    place = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    row = tl.load(numbers + place)
    at = block * BLOCK + tl.arange(0, BLOCK)
    _row_copied(s0, t0, at, row, place, n0)
    if COUNT > 1:
        _row_copied(s1, t1, at, row, place, n1)
    if COUNT > 2:
        _row_copied(s2, t2, at, row, place, n2)
    if COUNT > 3:
        _row_copied(s3, t3, at, row, place, n3)
    if block == 0:
        unit = place // per_unit
        counts = unit < tl.load(numbers + rows)
        tl.store(weights + place, tl.where(counts, 1.0 / per_unit.to(tl.float32), 0.0))
        tl.store(real + unit, counts.to(tl.int8))


@triton.jit
def hashed(
    table,
    secret,
    noted,
    differs,
    wild,
    flags,
    NOTING: tl.constexpr,  # noqa: N803
    BITS: tl.constexpr,  # noqa: N803
    LANES: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
):
    """Hashes one piece of memory a program, and notes the hash or compares it with the noted one.

    A row of ``table`` is a piece: its address, how many words it has, and the bits of a word that
    are all set where a number is not finite (0: do not look). ``flags`` are set, never cleared.
    """
    piece = tl.program_id(0)
    address = tl.load(table + 3 * piece)
    count = tl.load(table + 3 * piece + 1)
    exponent = tl.load(table + 3 * piece + 2)
    if BITS == 8:
        words = address.to(tl.pointer_type(tl.int8))
    elif BITS == 16:
        words = address.to(tl.pointer_type(tl.int16))
    elif BITS == 32:
        words = address.to(tl.pointer_type(tl.int32))
    else:
        words = address.to(tl.pointer_type(tl.int64))
    lanes = tl.arange(0, LANES)
    key = tl.load(secret + lanes)
    factor = tl.load(secret + LANES)
    addend = tl.load(secret + LANES + 1)
    total = tl.zeros([LANES], dtype=tl.int64)
    beyond = tl.zeros([LANES], dtype=tl.int32)
    for row in range(ROWS):
        at = row * LANES + lanes
        word = tl.load(words + at, mask=at < count, other=0).to(tl.int64)
        total += word * key
        key = key * factor + addend
        beyond |= ((word & exponent) == exponent).to(tl.int32)
    found = tl.sum(total, 0)
    if NOTING:
        tl.store(noted + piece, found)
        if (exponent != 0) & (tl.max(beyond, 0) != 0):
            tl.store(wild + piece, 1)
            tl.store(flags + 1, 1)
    elif found != tl.load(noted + piece):
        tl.store(differs + piece, 1)
        tl.store(flags, 1)
