"""The noise of votes: exact, on a grid of 2⁻²⁴ votes.

Counts are whole numbers, so whole multiples of the grid's step. The noise is real noise rounded to
the grid, with its exact law (``tacit.randomness``). Rounding commutes with adding a multiple of the
step: a count plus rounded noise *is* the real noisy count, rounded. Whatever is decided from it,
ties included (the first class wins them), is post-processing of the real release, so what is
charged needs no allowance for the grid: the distance is zero.

Ties matter to data-dependent analyses alone, which need a bound on the probability that the first
class loses. If the rounded noise of class j reaches the first one's, the real one comes within a
step of it: counting each lead as one ``STEP`` less covers ties, however they are broken.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import positive
from tacit.errors import InvalidArgument
from tacit.randomness import rounded_gaussian, rounded_laplace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.randomness import Stream

    Steps = NDArray[np.int64]

BITS = 24
STEP = 2.0**-BITS  # in votes
_LARGEST_SCALE = 2.0**20  # in votes
_WIDER = 1.0 + 2.0**-50  # makes up for the rounding of the scales that events hold
LARGEST_COUNT = 2**36  # of one class, or of all teachers: with noise, in steps, within int64


def gaussian(sigma: float, size: int, stream: Stream) -> Steps:
    """``size`` independent N(0, sigma²), in steps: each rounded to the nearest one."""
    return rounded_gaussian(noise_scale("sigma", sigma) * _WIDER * 2.0**BITS, size, stream)


def laplace(scale: float, size: int, stream: Stream) -> Steps:
    """``size`` independent Laplace numbers of this scale, in steps."""
    return rounded_laplace(noise_scale("scale", scale) * _WIDER * 2.0**BITS, size, stream)


def noise_scale(name: str, value: float) -> float:
    """``value`` if noise of this scale, in votes, can be drawn."""
    if positive(name, value) > _LARGEST_SCALE:
        raise InvalidArgument(f"{name} must be at most 2**20 votes, got {value!r}")
    return float(value)


def winner(counts: Steps, noise: Steps) -> int:
    """The class with the largest noisy count; the first one of those that tie.

    >>> winner(np.array([3, 5, 5]), np.array([2 << BITS, 0, 0]))
    0
    """
    return int(np.argmax((counts << BITS) + noise))


def second_wins(counts: Steps, noise: int) -> bool:
    """Whether (n_1 - n_0)/2 + noise is above 0: the second class's count against half of all.

    A vote that moves from one class to the other moves this one number by 1.
    """
    return int(counts[1] - counts[0]) * (1 << BITS) + 2 * noise > 0


def passes(counts: Steps, noise: int, threshold: float) -> bool:
    """Whether the largest count, with noise, reaches the threshold, compared exactly."""
    return Fraction(int(counts.max()) * (1 << BITS) + noise, 1 << BITS) >= Fraction(threshold)
