"""Kernels of the rounded Gaussian for CUDA devices, in Triton; imported only where that is there.

`tacit.randomness.device_noise` launches them and says what their arguments hold.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl


@triton.jit
def _flipped(word):
    """All bits of a word the other way round; ``~`` fails in Triton's interpreter of 2026."""
    return word ^ 0xFFFFFFFFFFFFFFFF


@triton.jit
def _quarter(a, b, c, d):
    """RFC 8439, section 2.1."""
    a += b
    d ^= a
    d = (d << 16) | (d >> 16)
    c += d
    b ^= c
    b = (b << 12) | (b >> 20)
    a += b
    d ^= a
    d = (d << 8) | (d >> 24)
    c += d
    b ^= c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@triton.jit
def _word(low, high):
    return low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@triton.jit
def _chacha20(key, counter, nonce0, nonce1, nonce2):
    """One block of RFC 8439 (section 2.3) a lane, as eight words of 64 bits."""
    none = counter ^ counter
    k0, k1, k2, k3 = tl.load(key), tl.load(key + 1), tl.load(key + 2), tl.load(key + 3)
    k4, k5, k6, k7 = tl.load(key + 4), tl.load(key + 5), tl.load(key + 6), tl.load(key + 7)
    x0, x1, x2, x3 = none + 0x61707865, none + 0x3320646E, none + 0x79622D32, none + 0x6B206574
    x4, x5, x6, x7 = none + k0, none + k1, none + k2, none + k3
    x8, x9, x10, x11 = none + k4, none + k5, none + k6, none + k7
    x12, x13, x14, x15 = counter, nonce0, nonce1, nonce2
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    w0 = _word(x0 + 0x61707865, x1 + 0x3320646E)
    w1 = _word(x2 + 0x79622D32, x3 + 0x6B206574)
    w2, w3 = _word(x4 + k0, x5 + k1), _word(x6 + k2, x7 + k3)
    w4, w5 = _word(x8 + k4, x9 + k5), _word(x10 + k6, x11 + k7)
    w6, w7 = _word(x12 + counter, x13 + nonce0), _word(x14 + nonce1, x15 + nonce2)
    return w0, w1, w2, w3, w4, w5, w6, w7


@triton.jit
def key_stream(key, nonce, words, first, LANES: tl.constexpr):
    """The blocks of ChaCha20 from ``first`` on, eight words each: for tests."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    counter = (first + lane).to(tl.uint32)
    none = counter ^ counter
    at = words + 8 * lane
    w0, w1, w2, w3, w4, w5, w6, w7 = _chacha20(
        key.to(tl.pointer_type(tl.uint32)),
        counter,
        none + tl.load(nonce).to(tl.uint32),
        none + tl.load(nonce + 1).to(tl.uint32),
        none + tl.load(nonce + 2).to(tl.uint32),
    )
    tl.store(at, w0.to(tl.int64, bitcast=True))
    tl.store(at + 1, w1.to(tl.int64, bitcast=True))
    tl.store(at + 2, w2.to(tl.int64, bitcast=True))
    tl.store(at + 3, w3.to(tl.int64, bitcast=True))
    tl.store(at + 4, w4.to(tl.int64, bitcast=True))
    tl.store(at + 5, w5.to(tl.int64, bitcast=True))
    tl.store(at + 6, w6.to(tl.int64, bitcast=True))
    tl.store(at + 7, w7.to(tl.int64, bitcast=True))


# ---- in float64: all but the doubtful


# In float64, whatever a version of Triton makes of a literal: always by ``tl.full``.
_TURN = tl.constexpr(2.0 * math.pi * 2.0**-64)
_NAN = tl.constexpr(0x7FF8_0000_0000_0000)  # its bits
# Taylor's coefficients of (cos x - 1)/x² and (sin x - x)/x³ in x², up to x¹⁶ and x¹⁷.
_C1 = tl.constexpr(-1.0 / 2)
_C2 = tl.constexpr(1.0 / 24)
_C3 = tl.constexpr(-1.0 / 720)
_C4 = tl.constexpr(1.0 / 40320)
_C5 = tl.constexpr(-1.0 / 3628800)
_C6 = tl.constexpr(1.0 / 479001600)
_C7 = tl.constexpr(-1.0 / 87178291200)
_C8 = tl.constexpr(1.0 / 20922789888000)
_S1 = tl.constexpr(-1.0 / 6)
_S2 = tl.constexpr(1.0 / 120)
_S3 = tl.constexpr(-1.0 / 5040)
_S4 = tl.constexpr(1.0 / 362880)
_S5 = tl.constexpr(-1.0 / 39916800)
_S6 = tl.constexpr(1.0 / 6227020800)
_S7 = tl.constexpr(-1.0 / 1307674368000)
_S8 = tl.constexpr(1.0 / 355687428096000)


@triton.jit
def _nearest(value):
    """The nearest whole number, of two the even one, for abs(value) < 2^51."""
    return (value + 6755399441055744.0) - 6755399441055744.0


@triton.jit
def _horner(total, y, coefficient: tl.constexpr):
    return y * total + tl.full(y.shape, coefficient, tl.float64)


@triton.jit
def _turned(v):
    """Cosine and sine of 2π·v·2^-64, to 2 units in the last place.

    What is left to the nearest quarter of a turn is at most π/4, and Taylor's series end below
    2^-58 of the result.
    """
    quarter = (v + (1 << 61)) >> 62
    rest = (v - (quarter << 62)).to(tl.int64, bitcast=True)
    angle = rest.to(tl.float64) * tl.full(v.shape, _TURN, tl.float64)
    y = angle * angle
    c = _horner(tl.full(v.shape, _C8, tl.float64), y, _C7)
    c = _horner(_horner(_horner(c, y, _C6), y, _C5), y, _C4)
    c = _horner(_horner(_horner(c, y, _C3), y, _C2), y, _C1)
    cosine = y * c + 1.0
    s = _horner(tl.full(v.shape, _S8, tl.float64), y, _S7)
    s = _horner(_horner(_horner(s, y, _S6), y, _S5), y, _S4)
    s = _horner(_horner(_horner(s, y, _S3), y, _S2), y, _S1)
    sine = angle * (y * s) + angle
    odd = (quarter & 1) == 1
    first = tl.where(odd, sine, cosine)
    second = tl.where(odd, cosine, sine)
    turned = (quarter == 1) | (quarter == 2)
    return tl.where(turned, -first, first), tl.where(quarter >= 2, -second, second)


@triton.jit
def _steps(value):
    """The nearest whole number, at most 2^62 from 0; what is no number counts as 0."""
    size = tl.abs(value)
    rounded = (size + 4503599627370496.0) - 4503599627370496.0  # below 2^52; above, all are whole
    size = tl.where(size < 4503599627370496.0, rounded, size)
    size = tl.where(size < 4611686018427387904.0, size, 4611686018427387904.0)
    steps = tl.where(value < 0.0, -size, size)
    return tl.where(value == value, steps, 0.0)  # noqa: PLR0124 - NaN is not itself


@triton.jit
def _mean(number, sums, at, mask, summed, per_step, factor, WHOLE: tl.constexpr):
    """(sum + number)·(step/lot size), the sum in whole steps; exactly the CPU's float64."""
    if WHOLE:
        added = tl.load(sums + at, mask=mask & (at < summed), other=0)
        total = (added + number.to(tl.int64)).to(tl.float64)
    else:
        value = tl.load(sums + at, mask=mask & (at < summed), other=0.0).to(tl.float64) * per_step
        # A sum of two whole numbers is rounded as one of int64 is when it becomes float64.
        total = _steps(value) + number
    return total * factor


@triton.jit
def _put(
    number, open_, out, sums, at, mask, summed, per_step, factor,
    OUT: tl.constexpr, MEANS: tl.constexpr, WHOLE: tl.constexpr, SINGLE: tl.constexpr,
):  # fmt: skip
    """Stores numbers or means; what is open, as a value that nobody takes for one."""
    if MEANS:
        mean = _mean(number, sums, at, mask, summed, per_step, factor, WHOLE)
        no_number = tl.full(mean.shape, _NAN, tl.int64).to(tl.float64, bitcast=True)
        mean = tl.where(open_, no_number, mean)
        if SINGLE:  # as PyTorch does it: half precision comes from single
            mean = mean.to(tl.float32)
        tl.store(out + at, mean.to(OUT), mask=mask)
    else:
        whole = tl.where(open_, tl.full(number.shape, -(2**63), tl.int64), number.to(tl.int64))
        tl.store(out + at, whole, mask=mask)


@triton.jit
def _reals(u, v, scale):
    """Both real numbers of a pair, to within half the guard, and where U is too near its ends."""
    uniform = (u & 0x7FFFFFFFFFFFFFFF).to(tl.int64, bitcast=True).to(tl.float64)
    uniform = tl.maximum(uniform, 1.0) * 1.0842021724855044e-19  # 2^-63
    edge = tl.abs(uniform - 0.5) > 0.49999618530273438  # 1/2 - 2^-18
    size = scale * tl.sqrt(-2.0 * tl.log(uniform))
    cosine, sine = _turned(v)
    return size * cosine, size * sine, edge


@triton.jit
def _pair(
    u, v, cosines, sines, code, scale, threshold, start, end, status, listed, capacity,
    out, sums, summed, per_step, factor,
    OUT: tl.constexpr, MEANS: tl.constexpr, WHOLE: tl.constexpr, SINGLE: tl.constexpr,
):  # fmt: skip
    first, second, edge = _reals(u, v, scale)
    number, other = _nearest(first), _nearest(second)
    inside, inside_other = (cosines >= start) & (cosines < end), (sines >= start) & (sines < end)
    open_ = edge | (tl.abs(first - number) > threshold) | (tl.abs(second - other) > threshold)
    noted = open_ & (inside | inside_other)
    slot = tl.atomic_add(status + (code ^ code), 1, mask=noted, sem="relaxed")
    tl.store(listed + slot, code, mask=noted & (slot < capacity))
    _put(number, open_, out, sums, cosines - start, inside, summed, per_step, factor,
         OUT, MEANS, WHOLE, SINGLE)  # fmt: skip
    _put(other, open_, out, sums, sines - start, inside_other, summed, per_step, factor,
         OUT, MEANS, WHOLE, SINGLE)  # fmt: skip


@triton.jit
def _places(sheet, rows, row, SUM: tl.constexpr, OUT: tl.constexpr):
    """A row of the table: where the tensor's sums and results lie, its entries, its first block."""
    tensor = tl.load(rows + 4 * row)
    first = tl.load(rows + 4 * row + 1)
    start = tl.load(rows + 4 * row + 2)
    end = tl.load(rows + 4 * row + 3)
    sums = tl.load(sheet + 8 + 2 * tensor)
    out = tl.load(sheet + 9 + 2 * tensor)
    summed = tl.where(sums != 0, end - start, 0)  # a tensor without a sum has 0 everywhere
    return sums.to(tl.pointer_type(SUM)), summed, out.to(tl.pointer_type(OUT)), first, start, end


@triton.jit
def _factor(key, sheet):
    """What a total is multiplied by; no number where there is no key, which would be no noise."""
    there = tl.load(key) | tl.load(key + 1) | tl.load(key + 2) | tl.load(key + 3)
    bits = tl.where(there == 0, tl.full([], _NAN, tl.int64), tl.load(sheet + 3))
    return bits.to(tl.float64, bitcast=True)


@triton.jit(do_not_specialize=["capacity"])
def draw(
    key, sheet, rows, status, listed, capacity,
    SUM: tl.constexpr, OUT: tl.constexpr,
    MEANS: tl.constexpr, WHOLE: tl.constexpr, SINGLE: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """Draws, a block of ChaCha20 a lane, and stores what float64 decides; lists the rest."""
    program = tl.program_id(0).to(tl.int64)
    sums, summed, out, first, start, end = _places(sheet, rows, program, SUM, OUT)
    lane = tl.arange(0, LANES)
    block = first + lane
    counter = block.to(tl.uint32)
    none = counter ^ counter
    u0, u1, u2, u3, v0, v1, v2, v3 = _chacha20(
        key.to(tl.pointer_type(tl.uint32)), counter, none, none, none
    )
    scale = tl.load(sheet).to(tl.float64, bitcast=True)
    threshold = tl.load(sheet + 1).to(tl.float64, bitcast=True)
    per_step = tl.load(sheet + 2).to(tl.float64, bitcast=True)
    factor = _factor(key, sheet)
    at = (block // 32) * 256 + block % 32
    code = (program * LANES + lane) * 4
    _pair(u0, v0, at, at + 128, code, scale, threshold, start, end, status, listed, capacity,
          out, sums, summed, per_step, factor, OUT, MEANS, WHOLE, SINGLE)  # fmt: skip
    _pair(u1, v1, at + 32, at + 160, code + 1, scale, threshold, start, end, status, listed,
          capacity, out, sums, summed, per_step, factor, OUT, MEANS, WHOLE, SINGLE)  # fmt: skip
    _pair(u2, v2, at + 64, at + 192, code + 2, scale, threshold, start, end, status, listed,
          capacity, out, sums, summed, per_step, factor, OUT, MEANS, WHOLE, SINGLE)  # fmt: skip
    _pair(u3, v3, at + 96, at + 224, code + 3, scale, threshold, start, end, status, listed,
          capacity, out, sums, summed, per_step, factor, OUT, MEANS, WHOLE, SINGLE)  # fmt: skip


# ---- in single precision, from a statistical generator


@triton.jit
def _normals(one, other):
    """Two independent normal numbers from two words of 32 bits (Box & Muller 1958).

    Neither is 0, which would show what it covers: in single precision the largest words round to
    2^32, whose logarithm would be 0, and a turn of 0 has no sine.
    """
    uniform = (one.to(tl.float32) + 0.5) * 2.3283064365386963e-10  # 2^-32; above 0, at most 1
    size = tl.sqrt(-2.0 * tl.log(tl.minimum(uniform, 0.999999940395)))  # 1 - 2^-24
    angle = (other.to(tl.float32) + 0.5) * 1.4629180792671596e-09  # 2π·2^-32
    return size * tl.cos(angle), size * tl.sin(angle)


@triton.jit
def _add_normal(normal, out, sums, at, start, end, summed, scale, factor, OUT: tl.constexpr):
    mask = (at >= start) & (at < end)
    here = at - start
    value = tl.load(sums + here, mask=mask & (here < summed), other=0.0).to(tl.float32)
    tl.store(out + here, (value * factor + normal * scale).to(OUT), mask=mask)


@triton.jit
def add_normal(seed, sheet, rows, SUM: tl.constexpr, OUT: tl.constexpr, LANES: tl.constexpr):
    """sum·factor + scale·N(0, 1), each lane eight numbers from two counts of Philox-4x32."""
    sums, summed, out, first, start, end = _places(sheet, rows, tl.program_id(0), SUM, OUT)
    lane = tl.arange(0, LANES)
    key = tl.load(seed)
    scale = tl.load(sheet).to(tl.float64, bitcast=True).to(tl.float32)
    factor = tl.load(sheet + 3).to(tl.float64, bitcast=True).to(tl.float32)
    at = 8 * first + lane
    for half in tl.static_range(2):
        a, b, c, d = tl.randint4x(key, 2 * (first + lane) + half)
        for pair in tl.static_range(2):
            one, other = _normals(a, b) if pair == 0 else _normals(c, d)
            place = at + (4 * half + 2 * pair) * LANES
            _add_normal(one, out, sums, place, start, end, summed, scale, factor, OUT)
            _add_normal(other, out, sums, place + LANES, start, end, summed, scale, factor, OUT)


# ---- in fixed point of 192 binary places, three words of 64: the doubtful
#
# A number in [0, 1) is the words a, b, c with the value a·2^-64 + b·2^-128 + c·2^-192. Whatever is
# cut off below makes a result too small by a few units of the last place, never by 2^16 of them.


@triton.jit
def _product(a2, a1, a0, b2, b1, b0):
    """a·b, too small by less than 6 units."""
    low = tl.umulhi(a0, b2)
    next_ = low + tl.umulhi(a1, b1)
    carry = (next_ < low).to(tl.uint64)
    low = next_ + tl.umulhi(a2, b0)
    carry += (low < next_).to(tl.uint64)
    next_ = low + a1 * b2
    carry += (next_ < low).to(tl.uint64)
    low = next_ + a2 * b1
    carry += (low < next_).to(tl.uint64)
    middle = carry + tl.umulhi(a1, b2)
    over = (middle < carry).to(tl.uint64)
    next_ = middle + tl.umulhi(a2, b1)
    over += (next_ < middle).to(tl.uint64)
    middle = next_ + a2 * b2
    over += (middle < next_).to(tl.uint64)
    return tl.umulhi(a2, b2) + over, middle, low


@triton.jit
def _sum(a2, a1, a0, b2, b1, b0):
    low = a0 + b0
    carry = (low < a0).to(tl.uint64)
    part = a1 + carry
    over = (part < carry).to(tl.uint64)
    middle = part + b1
    over += (middle < b1).to(tl.uint64)
    return a2 + b2 + over, middle, low


@triton.jit
def _twice(a2, a1, a0):
    return (a2 << 1) | (a1 >> 63), (a1 << 1) | (a0 >> 63), a0 << 1


@triton.jit
def _float(a2, a1):
    small = 5.421010862427522e-20  # 2^-64
    return (a1.to(tl.float64) * small + a2.to(tl.float64)) * small


@triton.jit
def _constant(table, at):
    a2 = tl.load(table + 3 * at).to(tl.uint64, bitcast=True)
    a1 = tl.load(table + 3 * at + 1).to(tl.uint64, bitcast=True)
    a0 = tl.load(table + 3 * at + 2).to(tl.uint64, bitcast=True)
    return a2, a1, a0


@triton.jit
def _normalised(u, d1, d2, d3, d4):
    """U = m·2^-z with 1/2 ≤ m < 1: m, z, and whether z < 128, else there are too few digits.

    U has the digits of ``u`` without its first, then those of ``d1`` and so on.
    """
    a, b = (u << 1) | (d1 >> 63), (d1 << 1) | (d2 >> 63)
    c, d, e = (d2 << 1) | (d3 >> 63), (d3 << 1) | (d4 >> 63), d4 << 1
    low = a == 0
    a, b, c, d = tl.where(low, b, a), tl.where(low, c, b), tl.where(low, d, c), tl.where(low, e, d)
    zeros = tl.where(low, 64, 0).to(tl.uint64)
    enough = a != 0
    a |= (~enough).to(tl.uint64) << 63  # any number will do
    for turn in tl.static_range(6):
        low = (a >> (64 - (32 >> turn))) == 0
        zeros += tl.where(low, 32 >> turn, 0).to(tl.uint64)
        a = tl.where(low, (a << (32 >> turn)) | (b >> (64 - (32 >> turn))), a)
        b = tl.where(low, (b << (32 >> turn)) | (c >> (64 - (32 >> turn))), b)
        c = tl.where(low, (c << (32 >> turn)) | (d >> (64 - (32 >> turn))), c)
        d = tl.where(low, d << (32 >> turn), d)
    return a, b, c, zeros, enough


@triton.jit
def _ratio(a, b, c):
    """(1-m)/(1+m), by Newton's method from float64's half of 1/h, where h = (1+m)/2."""
    h2, h1, h0 = (a >> 1) | (1 << 63), (b >> 1) | (a << 63), (c >> 1) | (b << 63)
    start = (0.5 / _float(h2, h1)) * 9223372036854775808.0
    r2 = start.to(tl.int64).to(tl.uint64, bitcast=True) << 1
    r1, r0 = r2 ^ r2, r2 ^ r2
    for _ in tl.static_range(2):
        t2, t1, t0 = _product(h2, h1, h0, r2, r1, r0)
        t2, t1, t0 = _product(r2, r1, r0, _flipped(t2), _flipped(t1), _flipped(t0))
        r2, r1, r0 = _twice(t2, t1, t0)
    a, b, c = _flipped(a), _flipped(b), _flipped(c)
    z2, z1, z0 = _product(a >> 1, (b >> 1) | (a << 63), (c >> 1) | (b << 63), r2, r1, r0)
    return _twice(z2, z1, z0)


@triton.jit
def _functions(u, d1, d2, d3, d4, x2, x1, x0, table, TERMS: tl.constexpr):
    """-ln(U)/128, cosine and sine of x·π/4, and whether U has few enough leading zeros.

    -ln(U) = z·ln 2 + 2·artanh((1-m)/(1+m)), and the series has (1-m)/(1+m) ≤ 1/3. The three series
    are added up side by side, from their last terms on, so that none waits for the others.
    """
    a, b, c, zeros, enough = _normalised(u, d1, d2, d3, d4)
    z2, z1, z0 = _ratio(a, b, c)
    l2, l1, l0 = _product(z2, z1, z0, z2, z1, z0)
    c2, c1, c0 = _constant(table, 1)
    x2, x1, x0 = _product(x2, x1, x0, c2, c1, c0)
    y2, y1, y0 = _product(x2, x1, x0, x2, x1, x0)
    f2, f1, f0 = z2 ^ z2, z2 ^ z2, z2 ^ z2  # (artanh z - z)/z³ = 1/3 + z²(1/5 + ...
    g2, g1, g0 = _flipped(f2), _flipped(f1), _flipped(f0)  # cos x = 1 - x²/2·(1 - x²/12·(1 - ...
    s2, s1, s0 = _flipped(f2), _flipped(f1), _flipped(f0)  # sin x/x = 1 - x²/6·(1 - x²/20·(1 - ...
    for k in range(TERMS):
        for part in tl.static_range(3):
            f2, f1, f0 = _product(l2, l1, l0, f2, f1, f0)
            c2, c1, c0 = _constant(table, 2 + 3 * k + part)
            f2, f1, f0 = _sum(f2, f1, f0, c2, c1, c0)
        g2, g1, g0 = _product(y2, y1, y0, g2, g1, g0)
        c2, c1, c0 = _constant(table, 2 + 3 * TERMS + k)
        g2, g1, g0 = _product(g2, g1, g0, c2, c1, c0)
        g2, g1, g0 = _flipped(g2), _flipped(g1), _flipped(g0)
        s2, s1, s0 = _product(y2, y1, y0, s2, s1, s0)
        c2, c1, c0 = _constant(table, 2 + 4 * TERMS + k)
        s2, s1, s0 = _product(s2, s1, s0, c2, c1, c0)
        s2, s1, s0 = _flipped(s2), _flipped(s1), _flipped(s0)
    f2, f1, f0 = _product(l2, l1, l0, f2, f1, f0)
    f2, f1, f0 = _product(z2, z1, z0, f2, f1, f0)
    f2, f1, f0 = _sum(f2, f1, f0, z2, z1, z0)
    f2, f1, f0 = f2 >> 6, (f1 >> 6) | (f2 << 58), (f0 >> 6) | (f1 << 58)
    c2, c1, c0 = _constant(table, 0)
    c2, c1, c0 = _product(zeros << 57, zeros ^ zeros, zeros ^ zeros, c2, c1, c0)
    f2, f1, f0 = _sum(f2, f1, f0, c2, c1, c0)
    s2, s1, s0 = _product(x2, x1, x0, s2, s1, s0)
    return f2, f1, f0, g2, g1, g0, s2, s1, s0, enough


@triton.jit
def _decided(f2, f1, f0, g2, g1, g0, scale, sheet):
    """round(abs(X)) from abs(X)²/s² = 256·f·g², and whether 192 places leave no doubt.

    float64 tells between which whole numbers k and k+1 X lies, or X is next to one of them; which
    is nearer is decided by comparing X² with (k+1/2)², in units of 2^8 times a power of two.
    """
    p2, p1, p0 = _product(g2, g1, g0, g2, g1, g0)
    p2, p1, p0 = _product(p2, p1, p0, f2, f1, f0)
    s2, s1, s0 = _constant(sheet + 4, 0)
    p2, p1, p0 = _product(p2, p1, p0, s2, s1, s0)
    below = (scale * 16.0 * tl.sqrt(_float(f2, f1)) * _float(g2, g1)).to(tl.int64)
    odd = (2 * below + 1).to(tl.uint64, bitcast=True)
    low, high = odd * odd, tl.umulhi(odd, odd)
    left = tl.load(sheet + 7).to(tl.uint64, bitcast=True)
    far = left >= 64
    by = tl.where(far, left - 64, left)  # below 64, and above 0 where it is not far
    b2 = tl.where(far, low << by, (high << by) | (low >> ((64 - by) & 63)))
    b1 = tl.where(far, low ^ low, low << by)
    less = (p2 < b2) | ((p2 == b2) & (p1 < b1))
    d1 = p1 - b1
    d2 = p2 - b2 - (p1 < b1).to(tl.uint64)
    close = ((d2 | d1) == 0) & (p0 < 65536)
    close = close | (((_flipped(d2) | _flipped(d1)) == 0) & (_flipped(p0) < 65536))
    return below + tl.where(less, 0, 1), ~close


@triton.jit
def _numbers(
    u, v, d1, d2, d3, d4, e1, e2, e3, scale, sheet, table, TERMS: tl.constexpr
):  # fmt: skip
    """Both whole numbers of a pair of words and their further digits, and whether they are sure."""
    # An eighth of a turn, and how far into it, or from its end.
    eighth = v >> 61
    x2, x1, x0 = (v << 3) | (e1 >> 61), (e1 << 3) | (e2 >> 61), (e2 << 3) | (e3 >> 61)
    back = (eighth & 1) == 1
    x2, x1, x0 = (
        tl.where(back, _flipped(x2), x2),
        tl.where(back, _flipped(x1), x1),
        tl.where(back, _flipped(x0), x0),
    )
    f2, f1, f0, c2, c1, c0, s2, s1, s0, sure = _functions(
        u, d1, d2, d3, d4, x2, x1, x0, table, TERMS
    )
    cosine, sure_c = _decided(f2, f1, f0, c2, c1, c0, scale, sheet)
    sine, sure_s = _decided(f2, f1, f0, s2, s1, s0, scale, sheet)
    swapped = ((eighth + 1) & 2) == 2
    number = tl.where(swapped, sine, cosine)
    other = tl.where(swapped, cosine, sine)
    number = tl.where(((eighth + 2) & 4) == 4, -number, number)
    other = tl.where(eighth >= 4, -other, other)
    return number, other, sure & sure_c & sure_s


@triton.jit(do_not_specialize=["capacity"])
def decide(
    key, sheet, rows, status, listed, capacity, table,
    SUM: tl.constexpr, OUT: tl.constexpr,
    MEANS: tl.constexpr, WHOLE: tl.constexpr, SINGLE: tl.constexpr,
    LANES: tl.constexpr, PAIRS: tl.constexpr,
    TERMS: tl.constexpr,
):  # fmt: skip
    """Decides the pairs that ``draw`` listed, with 256 more digits; counts those left open."""
    found = tl.load(status)
    count = tl.minimum(found, capacity)
    place = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    if (tl.program_id(0) == 0) & (found > capacity):
        tl.atomic_add(status + 1, found - capacity, sem="relaxed")
    if tl.program_id(0) * PAIRS < count:
        there = place < count
        code = tl.load(listed + place, mask=there, other=0)
        which = code % 4
        sums, summed, out, first, start, end = _places(sheet, rows, code // (4 * LANES), SUM, OUT)
        block = first + (code // 4) % LANES
        parts = key.to(tl.pointer_type(tl.uint32))
        none = block.to(tl.uint32) ^ block.to(tl.uint32)
        u0, u1, u2, u3, v0, v1, v2, v3 = _chacha20(parts, block.to(tl.uint32), none, none, none)
        u = tl.where(which == 0, u0, tl.where(which == 1, u1, tl.where(which == 2, u2, u3)))
        v = tl.where(which == 0, v0, tl.where(which == 1, v1, tl.where(which == 2, v2, v3)))
        pair = 4 * block + which
        d1, e1, d2, e2, d3, e3, d4, _ = _chacha20(
            parts, none, pair.to(tl.uint32), (pair >> 32).to(tl.uint32), none + 1
        )
        scale = tl.load(sheet).to(tl.float64, bitcast=True)
        per_step = tl.load(sheet + 2).to(tl.float64, bitcast=True)
        factor = _factor(key, sheet)
        number, other, sure = _numbers(u, v, d1, d2, d3, d4, e1, e2, e3, scale, sheet, table, TERMS)
        tl.atomic_add(status + 1 + (place ^ place), 1, mask=there & ~sure, sem="relaxed")
        at = (block // 32) * 256 + which * 32 + block % 32
        inside = there & (at >= start) & (at < end)
        _put(number.to(tl.float64), ~sure, out, sums, at - start, inside, summed, per_step, factor,
             OUT, MEANS, WHOLE, SINGLE)  # fmt: skip
        at += 128
        inside = there & (at >= start) & (at < end)
        _put(other.to(tl.float64), ~sure, out, sums, at - start, inside, summed, per_step, factor,
             OUT, MEANS, WHOLE, SINGLE)  # fmt: skip
