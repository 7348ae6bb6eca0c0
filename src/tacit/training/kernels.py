"""Kernels for CUDA devices, in Triton, which comes with PyTorch there; imported only with both."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def hashed(
    table,
    secret,
    noted,
    differs,
    wild,
    flags,
    NOTING: tl.constexpr,  # noqa: N803 - constants are written so in kernels
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
