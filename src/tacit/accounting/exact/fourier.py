"""A discrete Fourier transform whose rounding is bounded by proof.

Libraries differ in which butterflies they use and how they find their roots of unity, and promise
nothing of their errors; certified ends need a promise. This one takes radices 2 and 3 only.

With N = n·m a transform is one of length n at every m-th value, a multiplication by roots of unity,
and m of them: X_{k + nl} = Σ_j ω_m^{jl}·(ω_N^{jk}·Σ_i ω_n^{ik}·x_{im + j}). The outer sums, the
butterflies, are √n times a unitary map of all values, and so are the inner ones; what a stage errs
by, relative to the square mean of what it should give, therefore adds up over the stages, but for
products of errors. With u = 2^-53:

- Radix 2. a + b and a - b are each rounded once, real and imaginary part: u.
- Radix 3, t = b + c, d = (√3/2)·(b - c), e = a - t/2, results y₀ = a + t and y₁, y₂ = e ± i·d;
  ‖y‖² = |y₀|² + 2|e|² + 2|d|². The last additions err by u·‖y‖. The rounding of t moves them by u·t
  and, twice, u·t/2: by u·√1.5·|t| in the square mean; for t = (y₀ - e)/1.5 that is u·‖y‖ at most,
  by Cauchy's inequality. That of e adds u·√2·|e|; those of b - c, of the constant and of their
  product add 3u·√2·|d|; both together √10·u·‖y‖ at most. In all 5.2u.
- A root of unity times a value: √5·u (Brent, Percival & Zimmermann 2007; 2u with fused
  multiply-adds), and the root's own error, 3.4u: its angle, at most π/4, is off by 2.4u of itself
  (the quotient, π/2 and their product), its sine and cosine by a unit in the last place each.

A radix-2 stage errs by 6.7u, which is 6.7u for each halving of N; a radix-3 stage by 10.9u, which
is 6.9u. ``ROUNDINGS`` is larger than both.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tacit.accounting.exact.transforms import Complexes

ROUNDINGS = 7.0
"""Units of rounding, 2^-53, by which a transform errs for each halving of its length."""
_HALF_ROOT = math.sqrt(0.75)
_QUARTERS = (1.0, 1j, -1.0, -1j)


def length_from(least: int) -> int:
    """The smallest number from ``least`` on without prime factors but 2 and 3."""
    for size in itertools.count(max(least, 1)):
        left = size
        for prime in (2, 3):
            while left % prime == 0:
                left //= prime
        if left == 1:
            return size
    raise AssertionError  # there are powers of 2


def fourier_sums(values: Complexes) -> Complexes:
    """Σ_k values_k·exp(2πijk/N) for j = 0, …, N - 1.

    Guarantee:
        Off, in the square mean, by no more than ``ROUNDINGS``·u·log₂N of the square mean of the
        sums.

    Args:
        values: N numbers; N has no prime factors but 2 and 3, see ``length_from``.
    """
    (found,) = _stages(values[None, :], roots_of_unity(len(values)))
    return np.asarray(found)


@lru_cache(maxsize=32)
def roots_of_unity(size: int) -> Complexes:
    """exp(2πik/N): the nearest quarter turn, which is exact, and no more than π/4."""
    found = []
    for k in range(size):
        quarter = (8 * k + size) // (2 * size)  # of 4k/N the nearest whole number
        angle = 0.5 * math.pi * ((4 * k - quarter * size) / size)
        found.append(_QUARTERS[quarter % 4] * complex(math.cos(angle), math.sin(angle)))
    return np.array(found)


def _stages(values: Complexes, roots: Complexes) -> Complexes:
    """The sums of each row, ``roots`` those of unity of a row's length."""
    rows, size = values.shape
    if size == 1:
        return values
    radix = 3 if size % 3 == 0 else 2
    rest = size // radix
    first, *others = values.reshape(rows, radix, rest).swapaxes(0, 1)
    if radix == 2:
        mixed = [first + others[0], first - others[0]]
    else:
        both, between = others[0] + others[1], _HALF_ROOT * (others[0] - others[1])
        middle, turned = first - 0.5 * both, 1j * between
        mixed = [first + both, middle + turned, middle - turned]
    for k in range(1, radix):
        mixed[k] = mixed[k] * roots[: k * rest : k]
    inner = _stages(np.stack(mixed, axis=1).reshape(rows * radix, rest), roots[::radix])
    return inner.reshape(rows, radix, rest).swapaxes(1, 2).reshape(rows, size)
