"""Noise for released numbers: on a power-of-two grid, so that no low bit tells anything.

A floating-point number plus floating-point noise shows in its last bits what was added to what
(Mironov 2012). Here the number is first rounded to a grid, the noise is a whole number of grid
steps with an exact law, and their sum is a whole number whose every value either input can reach.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import positive
from tacit.errors import InvalidArgument
from tacit.randomness.discrete import rounded_laplace
from tacit.randomness.gaussian import rounded_gaussian

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tacit.randomness.streams import Stream

_FINE = 20  # the grid is at least 2²⁰ times finer than the noise
_FINEST = 36  # and at most 2³⁶ times, which keeps the noise fast and int64 wide enough
_WIDENING = 2.0**-10  # what rounding may widen the noise by, where a finer grid can avoid more
_WIDEST = 2.0**40
_MOST_STEPS = 2.0**62
_UP = 1.0 + 2.0**-50  # makes up for the roundings of a few float64 operations


def granularity(scale: float) -> float:
    """The grid's step for noise of this scale: the largest power of two at most scale·2⁻²⁰.

    >>> granularity(1.0) == 2.0**-20, granularity(1.9) == 2.0**-20
    (True, True)
    """
    step = power_below(positive("scale", scale), _FINE)
    if step == 0.0:
        raise InvalidArgument(f"scale must be at least 2**-1054, got {scale!r}; change the unit")
    return step


def on_grid(values: ArrayLike, step: float) -> NDArray[np.int64]:
    """The values in steps, each rounded to the nearest whole number.

    ``step`` is a power of two, so that the only error is that of the rounding: half a step at most.
    A value that is not finite or beyond 2⁶² steps is refused; whether that happens tells about the
    data, so bound private values first.

    >>> on_grid([0.3, -1.0, 0.5], 0.25).tolist()
    [1, -4, 2]
    """
    if math.frexp(positive("step", step))[0] != 0.5:
        raise InvalidArgument(f"step must be a power of two, got {step!r}; take granularity(scale)")
    numbers = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        steps = np.rint(numbers / step)
    if not np.all(np.abs(steps) <= _MOST_STEPS):
        raise InvalidArgument(
            f"values must be finite and at most 2**62 steps of {step!r} from 0; bound them first"
        )
    return steps.astype(np.int64)


def grid_laplace(
    values: ArrayLike, scale: float, sensitivity: float, stream: Stream
) -> NDArray[np.float64]:
    """``values`` plus Laplace noise of this scale, on a grid.

    Guarantee:
        If neighbouring data move the d values, as float64 numbers, by at most ``sensitivity`` in
        L1, the release has the guarantee of ``Laplace(scale / sensitivity)``, whole curve and not ε
        alone. Proof: rounding moves a number by half a step at most, so that neighbours lie at most
        D = sensitivity/step + d steps apart. The noise is a real Laplace of scale
        D·scale/sensitivity steps, rounded to a whole number; added to a whole number this is the
        real Laplace mechanism's output, rounded, and the result is that times the step. Both are
        post-processing of a Laplace mechanism with the ratio scale/sensitivity.
        The step is such that this widens the noise by a part in 10⁶ for one value with a
        sensitivity near the scale, and by 0.1 % at most for up to 2²⁵ of them. A number beyond 2⁶²
        steps counts as that many, which moves neighbours no further apart: a refusal would tell
        them from each other. One that is missing (NaN) is refused.

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> released = grid_laplace([12.0, 3.0], 2.0, 1.0, UnsafeSeededStream(0, "release"))
    >>> released.round(3).tolist(), (released % 2.0**-19).tolist()
    ([7.836, 6.255], [0.0, 0.0])
    """
    numbers = np.asarray(values, dtype=np.float64)
    step, wide = _step_and_scale(scale, sensitivity, float(numbers.size))
    steps = on_grid(_within(numbers, step), step)
    noise = rounded_laplace(wide, steps.size, stream).reshape(steps.shape)
    return np.asarray((steps + noise) * step, dtype=np.float64)


def grid_gaussian(
    values: ArrayLike, sigma: float, sensitivity: float, stream: Stream
) -> NDArray[np.float64]:
    """``values`` plus Gaussian noise of standard deviation ``sigma``, on a grid.

    Guarantee:
        If neighbouring data move the d values, as float64 numbers, by at most ``sensitivity`` in
        L2, the release has the guarantee of ``Gaussian(sigma / sensitivity)``. The proof is that of
        `grid_laplace`: rounding adds √d steps at most, by which the noise is widened, and a rounded
        real Gaussian added to a whole number is the real Gaussian mechanism's output, rounded.
        (A discrete Gaussian would not do: it has the zCDP of the real one, not its curve.)

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> released = grid_gaussian([12.0, 3.0], 2.0, 1.0, UnsafeSeededStream(0, "release"))
    >>> released.round(3).tolist(), (released % 2.0**-19).tolist()
    ([15.085, 3.376], [0.0, 0.0])
    """
    numbers = np.asarray(values, dtype=np.float64)
    step, wide = _step_and_scale(sigma, sensitivity, math.sqrt(numbers.size), name="sigma")
    steps = on_grid(_within(numbers, step), step)
    noise = rounded_gaussian(wide, steps.size, stream).reshape(steps.shape)
    return np.asarray((steps + noise) * step, dtype=np.float64)


def _within(numbers: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    return np.clip(numbers, -_MOST_STEPS * step, _MOST_STEPS * step)


def _step_and_scale(
    scale: float, sensitivity: float, spread: float, name: str = "scale"
) -> tuple[float, float]:
    """The step, and the noise's scale in steps once widened for ``spread`` steps of rounding."""
    wanted, moved = positive(name, scale), positive("sensitivity", sensitivity)
    step = min(granularity(wanted), power_below(moved * _WIDENING / max(spread, 1.0), 0))
    step = max(step, power_below(wanted, _FINEST))
    wide = (wanted / step + spread * wanted / moved) * _UP
    if wide > _WIDEST:
        raise InvalidArgument(
            f"sensitivity must not be that far below {name} {scale!r}, got {sensitivity!r}: "
            "rounding to the grid would drown it"
        )
    return step, wide


def power_below(number: float, bits: int) -> float:
    """The largest power of two at most number·2^-bits.

    >>> power_below(12.0, 1)
    4.0
    """
    return math.ldexp(1.0, math.frexp(number)[1] - 1 - bits)
