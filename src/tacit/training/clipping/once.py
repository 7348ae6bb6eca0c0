"""Clipping one batch by itself: what tests, benchmarks and researchers ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument
from tacit.training.clipping.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class UseRecord:
    """One operation that private parameters entered, and the rule that served it."""

    rule: str
    parameters: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Clipped:
    """The norms, scales and clipped sum of one batch. All of it is private: no noise was added."""

    norms: Tensor  # (units,)
    scales: Tensor  # (units,)
    sums: dict[str, Tensor]
    uses: tuple[UseRecord, ...]


def clipped_gradients(
    parameters: Mapping[str, torch.nn.Parameter],
    losses: Callable[[], Tensor],
    *,
    rows: int,
    clip: float,
    views: int = 1,
    constants: Sequence[Tensor] = (),
) -> Clipped:
    """Per-example gradient norms of one batch, and the sum of its gradients clipped to ``clip``.

    ``losses`` runs the forward pass and returns one loss for each of ``rows`` rows; ``views``
    consecutive rows are views of one example, whose gradients are averaged before clipping.
    ``constants`` are tensors that hold no example's data, such as the model's buffers.

    Guarantee:
        Each example's part of ``sums`` has an L2 norm of at most ``clip``. Nothing here is private:
        noise is added by ``tacit.private``, not by this function.
    """
    positive("clip", clip)
    per_unit = whole("views", views)
    engine = Engine(parameters, dict.fromkeys(parameters, 0), constants=constants)
    engine.begin(rows, per_unit)
    with engine.recorder:
        values = losses()
    if values.shape != (rows,) or rows % per_unit:
        raise InvalidArgument(
            f"losses must return shape (rows,) = ({rows},) with rows a multiple of views={views}, "
            f"got shape {tuple(values.shape)}"
        )
    weights = torch.full_like(values, 1.0 / per_unit).detach()
    mask = torch.ones(rows // per_unit, dtype=torch.bool, device=values.device)
    bounds = torch.tensor([float(clip)], device=values.device)
    batch = engine.finish(values, weights, bounds, mask)
    assert engine.structure is not None
    uses = tuple(
        UseRecord(use.rule.name, tuple(n for o in each if o is not None for n in o.names))
        for use, each in zip(engine.structure.uses, engine.structure.origins, strict=True)
    )
    sums = {name: batch.sums.get(name, torch.zeros_like(p)) for name, p in parameters.items()}
    return Clipped(batch.squared_norms[0].sqrt(), batch.scales[0], sums, uses)
