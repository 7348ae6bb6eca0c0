"""What the rules share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tacit.errors import UnsupportedModel
from tacit.training.clipping.forms import Dense, Form
from tacit.training.clipping.forms.form import accumulator

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.training.clipping.uses import Gradient


def detached(weight: Tensor | None) -> Tensor | None:
    """``weight`` outside the autograd graph, if there is one."""
    return None if weight is None else weight.detach()


def as_computed(value: Tensor) -> Tensor:
    """``value`` as a matrix product under autocast takes it, so that this copy serves both."""
    kind = value.device.type
    if torch.is_autocast_enabled(kind) and value.dtype == torch.float32:
        return value.to(torch.get_autocast_dtype(kind))
    return value


def wide(value: Tensor) -> Tensor:
    """``value`` in at least single precision."""
    return value if value.dtype in (torch.float32, torch.float64) else value.float()


def reduced(of: Gradient, values: Tensor) -> tuple[Form | None, ...]:
    """The gradient of a weight that was broadcast: ``values`` added up, by unit, to its shape."""
    (shape,) = of.shapes
    assert shape is not None
    kind = accumulator(values.dtype)
    aligned = (1,) * (values.ndim - len(shape)) + shape
    if of.rows.count == 1:
        return (Dense(values.to(kind).sum_to_size(aligned).reshape(1, *shape)),)
    dim = of.rows.layout.dim
    if aligned[dim] != 1:
        raise UnsupportedModel(
            f"a private weight of shape {shape} has an entry for every row of the batch; "
            "per-example gradients need weights that do not depend on the batch"
        )
    split = of.rows.split(values)  # (units, entries, *the dimensions but the rows')
    rest = aligned[:dim] + aligned[dim + 1 :]
    spread = [at + 2 for at, size in enumerate(rest) if size == 1 and split.shape[at + 2] != 1]
    return (Dense(split.sum((1, *spread), dtype=kind).reshape(len(split), *shape)),)
