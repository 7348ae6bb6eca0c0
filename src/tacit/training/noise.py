"""The release: noise onto the clipped sums, and the mean over the plan's lot size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tacit.randomness import GaussianSource


def noisy_means(
    parameters: Mapping[str, Tensor],
    sums: Mapping[str, Tensor],
    source: GaussianSource,
    *,
    scale: float,
    lot_size: float,
) -> dict[str, Tensor]:
    """(sum + N(0, scale²)) / lot_size for every parameter, in its own precision.

    Guarantee:
        Every entry of every parameter gets independent noise of standard deviation ``scale`` before
        anything is divided or rounded to half precision; a parameter without a sum gets it too.
    """
    released: dict[str, Tensor] = {}
    for dtype in (torch.float32, torch.float64):
        names = [n for n, p in parameters.items() if _kind(p) == dtype]
        if not names:
            continue
        device = parameters[names[0]].device
        sizes = [parameters[name].numel() for name in names]
        flat = torch.empty(sum(sizes), dtype=dtype, device=device)
        source.normal_(flat, scale / lot_size)
        parts = list(flat.split(sizes))
        noises = [part.view(parameters[n].shape) for part, n in zip(parts, names, strict=True)]
        present = [at for at, name in enumerate(names) if name in sums]
        if present:
            torch._foreach_add_(
                [noises[at] for at in present],
                [sums[names[at]].to(dtype) for at in present],
                alpha=1.0 / lot_size,
            )
        for name, noise in zip(names, noises, strict=True):
            released[name] = noise.to(parameters[name].dtype)
    return released


def _kind(parameter: Tensor) -> torch.dtype:
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32
