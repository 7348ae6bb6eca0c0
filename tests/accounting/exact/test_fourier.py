"""A discrete Fourier transform with a proved rounding: against 40 digits, and its bound."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from tacit.accounting.exact.fourier import ROUNDINGS, fourier_sums, length_from, roots_of_unity

UNIT = 2.0**-53


def exact_sums(values: np.ndarray) -> list[mpmath.mpc]:
    size = len(values)
    roots = [mpmath.expjpi(mpmath.mpf(2 * k) / size) for k in range(size)]
    given = [mpmath.mpc(one) for one in values.tolist()]
    return [
        mpmath.fsum(one * roots[j * k % size] for k, one in enumerate(given)) for j in range(size)
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 9, 16, 27, 48, 54, 96])
def test_sums_are_within_their_rounding(size: int) -> None:
    random = np.random.default_rng(size)
    values = random.standard_normal(size) + 1j * random.standard_normal(size)
    values *= np.exp(-random.random(size) * 20.0)  # as characteristic functions: few are large
    with mpmath.workdps(40):
        exact = exact_sums(values)
        found = fourier_sums(values).tolist()
        off = mpmath.norm([a - b for a, b in zip(found, exact, strict=True)])
        whole = mpmath.norm(exact)
        assert off <= ROUNDINGS * UNIT * math.log2(size) * whole
        # Of numbers by chance, rounding is a good deal less than at its worst.
        assert off <= 0.6 * ROUNDINGS * UNIT * max(math.log2(size), 1.0) * whole


def test_each_stage_is_within_what_the_proof_gives_it() -> None:
    """What is wrong by chance is some way below it; what is wrong by design, here, beyond."""
    random = np.random.default_rng(0)
    for size, most in ((2, 1.0), (3, 5.2)):
        worst = 0.0
        for _ in range(300):
            values = random.standard_normal(size) + 1j * random.standard_normal(size)
            with mpmath.workdps(40):
                exact = exact_sums(values)
                found = fourier_sums(values).tolist()
                off = mpmath.norm([a - b for a, b in zip(found, exact, strict=True)])
                worst = max(worst, float(off / mpmath.norm(exact)) / UNIT)
        assert 0.1 * most < worst <= most


@pytest.mark.parametrize("size", [1, 2, 3, 8, 12, 81, 96, 1024])
def test_roots_of_unity(size: int) -> None:
    with mpmath.workdps(40):
        for k, root in enumerate(roots_of_unity(size).tolist()):
            assert abs(mpmath.expjpi(mpmath.mpf(2 * k) / size) - root) <= 3.4 * UNIT


def test_lengths_have_no_factors_but_2_and_3() -> None:
    assert [length_from(n) for n in (1, 5, 7, 10, 50, 65, 100, 1025)] == [
        1, 6, 8, 12, 54, 72, 108, 1152,
    ]  # fmt: skip


def test_other_sums_agree() -> None:
    random = np.random.default_rng(1)
    for size in (128, 486, 2048):
        values = random.standard_normal(size) + 1j * random.standard_normal(size)
        assert np.allclose(fourier_sums(values), size * np.fft.ifft(values), rtol=0, atol=1e-11)
