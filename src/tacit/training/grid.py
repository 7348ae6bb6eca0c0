"""Clipped sums on a grid of powers of two, where a bit of noise covers every bit of data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tacit.training.clipping.clipped import ClippedBatch

_FINE = 2.0**-11  # of the clip: what rounding every entry to the grid moves a sum by, at most
_SMALLEST_STEP = 2.0**-1000
_MOST_STEPS = 2.0**62  # of a sum: noise on top of it still fits 64 bits
_LARGEST_NOISE = 2.0**45  # in steps: what RoundedGaussian takes
_UP = 1.0 + 2.0**-49  # makes up for the roundings of a few float64 operations
# Relative, of a norm added up in double precision. It is 0 as long as the sum of whole squares
# stays below 2^53, and half of 2^-53 for each of up to 2^33 entries beyond, in whatever order.
_NORM_ERROR = 2.0**-20


def grid_step(clip: float, entries: int) -> float:
    """The largest power of two at which cutting ``entries`` numbers moves them by ≤ 2⁻¹¹·clip.

    >>> grid_step(1.0, 4) == 2.0**-12
    True
    """
    fine = clip * _FINE / math.sqrt(max(entries, 1))
    if not _SMALLEST_STEP <= fine < math.inf:
        raise InvalidArgument(
            f"clip must be between 1e-290 and 1e307 for noise on a grid, got {clip!r}; "
            "change the unit of the losses"
        )
    return math.ldexp(1.0, math.frexp(fine)[1] - 1)


def noise_in_steps(scale: float, clip: float, entries: int, *, rounded: bool) -> float:
    """The standard deviation, in steps, of noise ``scale`` on sums of sensitivity ``clip``.

    Guarantee:
        Its ratio to the sensitivity in steps is at least scale/clip, as real numbers. Sums of whole
        steps have the sensitivity clip/step. Of ``rounded`` ones each entry was moved by half a
        step at most, so that neighbours come to lie up to clip/step + √entries apart: the noise
        grows by the same factor, 1.0005 at most.

    >>> 1.0 < noise_in_steps(3.0, 1.0, 4, rounded=True) / (3.0 * 2**12) <= 1.0005
    True
    """
    wide = scale / grid_step(clip, entries)
    if rounded:
        wide += math.sqrt(entries) * (scale / clip)
    if not wide < _LARGEST_NOISE / _UP:
        raise InvalidArgument(
            f"noise_multiplier must be below {_LARGEST_NOISE * scale / clip / wide:.3g} for noise "
            f"on a grid of {entries} entries, got {scale / clip:.6g}; or use noise='fast'"
        )
    return wide * _UP


def to_steps(values: Tensor, step: float) -> Tensor:
    """``values`` in whole steps, to the nearest; what is no number counts as 0."""
    steps = (values.double() / step).round_().nan_to_num_(0.0)
    return steps.clamp_(-_MOST_STEPS, _MOST_STEPS).to(torch.int64)


def rounded_towards_zero(batch: ClippedBatch, clip: float, entries: int) -> ClippedBatch:
    """The batch of one unit, its clipped gradient in whole steps: the sums are integers from here.

    Guarantee:
        The gradient's norm, in steps, is at most clip/step: not up to rounding, but exactly, for up
        to 2³³ entries. Rounding towards zero makes no entry larger, and what floating point left
        above the clip is brought down before. A gradient that is not finite counts as 0. For up to
        2²⁹ entries the result depends on the gradient's values alone, not on the order in which
        threads add up its norm.
    """
    step = grid_step(clip, entries)
    values = {name: value.double() / step for name, value in batch.sums.items()}
    whole = {name: value.trunc() for name, value in values.items()}
    most, norm = clip / step, _norm(whole) * (1.0 + _NORM_ERROR)
    if not math.isfinite(norm):
        whole = {name: torch.zeros_like(value) for name, value in values.items()}
    elif norm > most:
        # Each entry has lost less than a step, so that before it was below norm + √entries. That
        # is used, as a sum of squares that are not whole would depend on the order.
        factor = most / (norm + math.sqrt(entries)) * (1.0 - _NORM_ERROR)
        whole = {name: (value * factor).trunc_() for name, value in values.items()}
    steps = {name: value.to(torch.int64) for name, value in whole.items()}
    return replace(batch, sums=steps, borrowed=False)


def _norm(values: Mapping[str, Tensor]) -> float:
    squares = [value.square().sum() for value in values.values()]
    return math.sqrt(float(torch.stack(squares).sum())) if squares else 0.0
