"""Standardised filters: weights of mean 0 and of a given length, whatever the parameters are.

Weight standardisation is by Qiao et al. 2019 (https://arxiv.org/abs/1903.10520); with a gain for
each filter, and by the length rather than the standard deviation, it is that of Brock et al. 2021
(https://arxiv.org/abs/2101.08692) and of De et al. 2022 (https://arxiv.org/abs/2204.13650).

It is one operation, ``tacit::standardised``, which torch breaks up into those that it is made of:
gradients, compilers and transforms need nothing of their own for it. Whoever watches torch's
functions sees it whole.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tacit.errors import InvalidArgument

SMALLEST = 1e-4  # what the variance of a filter's weights, times their number, is held above


class Standardised(NamedTuple):
    """Filters, and what they were made of: ``filters`` = gain·``normal``.

    ``normal`` is (w − mean w)·r with r = 1/√max(‖w − mean w‖², floor); ``rate`` is gain·r, by
    filter, and ``divided`` 1 where the length decided and 0 where the floor did.
    """

    filters: Tensor
    normal: Tensor
    rate: Tensor  # (filters,)
    divided: Tensor  # (filters,)


def standardised(weight: Tensor, gain: Tensor | None = None, *, floor: float = SMALLEST) -> Tensor:
    """Filters of mean 0 and length ``gain``: gain·(w − mean w)/√max(N·var w, floor).

    Mean and variance are over the N weights of each filter, ``weight[c]``. A convolution by such
    filters has a rule of its own in private training: no gradient needs to be written out for it.

    Args:
        weight: the parameters, one filter after the other.
        gain: one number for each filter, of any shape; None stands for 1.
        floor: what the squared length is held above, so that equal weights do no harm.

    >>> filters = standardised(torch.randn(16, 3, 5, 5), torch.full((16,), 2.0))
    >>> filters.flatten(1).norm(dim=1)[:2].round(decimals=4)
    tensor([2., 2.])
    >>> bool((filters.mean((1, 2, 3)).abs() < 1e-6).all())
    True
    """
    if not 0.0 < floor < math.inf:
        raise InvalidArgument(f"floor must be a positive finite number, got {floor!r}")
    shape = tuple(weight.shape)
    if len(shape) < 2:
        raise InvalidArgument(f"weight must have a filter in each entry, got shape {shape}")
    if gain is not None and math.prod(gain.shape) != shape[0]:
        raise InvalidArgument(
            f"gain must have one number for each of the {shape[0]} filters, "
            f"got shape {tuple(gain.shape)}"
        )
    filters: Tensor = OPERATION(weight, gain, floor)
    return filters


def standardisation(weight: Tensor, gain: Tensor | None, floor: float) -> Standardised:
    """The operation itself, with what it was made of. It keeps the weight's memory format."""
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    each = tuple(range(1, weight.ndim))
    centred = wide - wide.mean(each, keepdim=True)
    squares = centred.square().sum(each, keepdim=True)
    inverse = squares.clamp(min=floor).rsqrt()
    normal = centred * inverse
    rate, filters = inverse, normal
    if gain is not None:
        column = gain.reshape(inverse.shape)
        rate, filters = inverse * column, normal * column
    divided = (squares >= floor).to(wide.dtype)
    return Standardised(filters.to(weight.dtype), normal, rate.flatten(), divided.flatten())


def _filters(weight: Tensor, gain: Tensor | None, floor: float) -> Tensor:
    return standardisation(weight, gain, floor).filters


_LIBRARY = torch.library.Library("tacit", "FRAGMENT")
if not hasattr(torch.ops.tacit, "standardised"):  # torch keeps it if this file is imported again
    _LIBRARY.define("standardised(Tensor weight, Tensor? gain, float floor) -> Tensor")
    _LIBRARY.impl("standardised", _filters, "CompositeImplicitAutograd")
OPERATION = torch.ops.tacit.standardised.default
