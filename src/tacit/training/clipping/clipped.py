"""From recorded uses and their gradients to norms, scales and clipped sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

from tacit.training.clipping.forms.form import LARGEST_TEMPORARY, in_parts, squared_sum
from tacit.training.clipping.merging import merged_squared_norms
from tacit.training.clipping.scaling import scales as scales_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from tacit.training.clipping.attribution import Origin
    from tacit.training.clipping.forms import Form

_LARGEST_ON_GPU = 2**27  # numbers: half a gigabyte, for few launches


@final
@dataclass(frozen=True, slots=True)
class Contribution:
    """The per-unit gradients of one weight in one use, and where that weight comes from."""

    origin: Origin
    form: Form
    weight: Tensor | None  # only for an expression, whose graph leads to the parameters


@final
@dataclass(frozen=True, slots=True)
class Clipping:
    """How gradients are clipped: the group of each parameter, and the style's numbers."""

    group: Mapping[str, int]
    groups: int
    stability: float | None  # γ of automatic clipping; None: clip only what exceeds the bound
    slack: float  # the margin of the norms' rounding
    loss_scale: float  # what the losses were multiplied by before the backward pass


@final
@dataclass(frozen=True, slots=True)
class ClippedBatch:
    """What one batch comes to: private until noise is added."""

    squared_norms: Tensor  # (groups, units)
    scales: Tensor  # (groups, units)
    sums: dict[str, Tensor]  # Σ scale·gradient, by parameter name
    borrowed: bool = False  # whether the next batch may write over all this


def clip(
    parameters: Mapping[str, Tensor],
    contributions: Sequence[Contribution],
    entangled: frozenset[str],
    clipping: Clipping,
    bounds: Tensor,
    mask: Tensor,
) -> ClippedBatch:
    """Norms, scales and sums of one batch. ``entangled`` parameters are written out in slices.

    Guarantee:
        Each unit's part of ``sums`` has an L2 norm of at most √Σ bounds², over all parameters.
    """
    norms = _squared_norms(parameters, contributions, entangled, clipping, mask)
    norms = norms / clipping.loss_scale**2
    factors = scales_of(
        norms, bounds, stability=clipping.stability, slack=clipping.slack, mask=mask
    )
    weights = factors / clipping.loss_scale
    return ClippedBatch(norms, factors, _sums(parameters, contributions, clipping, weights))


def _squared_norms(
    parameters: Mapping[str, Tensor],
    contributions: Sequence[Contribution],
    entangled: frozenset[str],
    clipping: Clipping,
    mask: Tensor,
) -> Tensor:
    """(groups, units). Added up in double precision: there are only as many numbers as units."""
    zero = torch.zeros(mask.shape[0], dtype=torch.float64, device=mask.device)
    totals = [zero] * clipping.groups
    for name in parameters:
        if name in entangled:
            continue
        by_view: dict[object, list[Form]] = {}
        for one in contributions:
            if name in one.origin.names:
                by_view.setdefault(one.origin.view, []).append(one.form)
        for forms in by_view.values():
            group = clipping.group[name]
            totals[group] = totals[group] + merged_squared_norms(forms)
    if entangled:
        for name, squared in _entangled_norms(parameters, contributions, entangled).items():
            totals[clipping.group[name]] = totals[clipping.group[name]] + squared
    return torch.stack(totals)


def _entangled_norms(
    parameters: Mapping[str, Tensor],
    contributions: Sequence[Contribution],
    entangled: frozenset[str],
) -> dict[str, Tensor]:
    """Writes gradients out, a slice of units at a time, and pulls them back to the parameters."""
    norms: dict[str, Tensor] = {}
    for cluster in _clusters(contributions, entangled):
        involved = [one for one in contributions if cluster & set(one.origin.names)]
        names = [name for name in parameters if name in cluster]
        size = sum(parameters[name].numel() for name in names)
        largest = _LARGEST_ON_GPU if parameters[names[0]].is_cuda else LARGEST_TEMPORARY
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        for start, stop in in_parts(involved[0].form.units, size, largest):
            for name, gradient in _pulled_back(parameters, involved, names, start, stop).items():
                parts[name].append(squared_sum(gradient))
        norms |= {name: torch.cat(one) for name, one in parts.items() if one}
    return norms


def _clusters(
    contributions: Sequence[Contribution], entangled: frozenset[str]
) -> list[frozenset[str]]:
    """Entangled parameters that some use holds together, directly or by others.

    One cluster is written out after the other, so that slices are as large as its own parameters
    allow: each slice takes a backward pass of its own, which costs the same for any size.
    """
    clusters: list[frozenset[str]] = []
    for one in contributions:
        touched = entangled & set(one.origin.names)
        if touched:
            apart = [known for known in clusters if not known & touched]
            clusters = [*apart, touched.union(*(known for known in clusters if known & touched))]
    return clusters


def _pulled_back(
    parameters: Mapping[str, Tensor],
    involved: Sequence[Contribution],
    names: Sequence[str],
    start: int,
    stop: int,
) -> dict[str, Tensor]:
    totals: dict[str, Tensor] = {}
    for one in involved:
        dense = one.form.part(start, stop).dense()
        if one.weight is None:
            pulled: Sequence[Tensor | None] = [dense]
        else:
            pulled = torch.autograd.grad(
                one.weight,
                [parameters[name] for name in one.origin.names],
                dense.to(one.weight.dtype),
                retain_graph=True,
                allow_unused=True,
                is_grads_batched=True,
            )
        for name, gradient in zip(one.origin.names, pulled, strict=True):
            if gradient is not None and name in names:
                totals[name] = totals[name] + gradient if name in totals else gradient
    return totals


def _sums(
    parameters: Mapping[str, Tensor],
    contributions: Sequence[Contribution],
    clipping: Clipping,
    factors: Tensor,
) -> dict[str, Tensor]:
    sums: dict[str, Tensor] = {}
    for one in contributions:
        for group in sorted({clipping.group[name] for name in one.origin.names}):
            total = one.form.weighted_sum(factors[group])
            for name, value in _to_parameters(parameters, one, total):
                if clipping.group[name] == group:
                    sums[name] = sums[name] + value if name in sums else value
    return sums


def _to_parameters(
    parameters: Mapping[str, Tensor], one: Contribution, total: Tensor
) -> list[tuple[str, Tensor]]:
    if one.weight is not None:
        pulled = torch.autograd.grad(
            one.weight,
            [parameters[name] for name in one.origin.names],
            total.to(one.weight.dtype),
            retain_graph=True,
            allow_unused=True,
        )
        pairs = zip(one.origin.names, pulled, strict=True)
        return [(name, value) for name, value in pairs if value is not None]
    (name,) = one.origin.names
    if one.origin.view is None:
        return [(name, total)]
    like = parameters[name]
    buffer = torch.empty_strided(
        like.shape, like.stride(), dtype=total.dtype, device=total.device
    ).zero_()
    one.origin.view.of(buffer).copy_(total)
    return [(name, buffer)]
