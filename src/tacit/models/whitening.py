"""Whitening of features, and of what layers are given, by images that nobody has to protect.

Features of all images have much in common, and noise of the same size in every direction drowns
those in which they differ. Scaling the directions by what they hold in *synthetic* images helps
nearly as much as statistics of the private images would, and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit._validation import non_negative, positive, whole
from tacit.errors import InvalidArgument
from tacit.models.devices import full_precision

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Whitening", "with_whitened_inputs"]

ROWS = 4096  # at a time: what is computed on the way stays small
DOUBLE = 8192  # features up to which eigenvectors are found in double precision
IMAGES: Final = 256  # that a network is shown at a time


@dataclass(frozen=True, eq=False)
class Whitening:
    """(S+λ·tr(S)·I)^(−p/2) and norm 1, one row at a time.

    S is the mean of x·xᵀ over the public rows it was made of; it is not centred, so that what all
    images have in common is held down as well. The directions come in the order of their strength
    there, the strongest first: the result is the whitened row in the basis of S's eigenvectors,
    which for a linear model is as good as any other basis.

    Guarantee: row i of the result depends on row i alone, to the last bit if it is part of what
    ``batched`` does (else rounding may depend on how many rows there are), and has a norm of 1, or
    0 where the row says nothing; only what ``of`` was given shows in the directions.

    Args:
        directions: the scaled eigenvectors, shape (kept, features), float32.
        strengths: all eigenvalues of S that were found, the largest first, float64.

    >>> rows = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    >>> whitening = Whitening.of(rows, power=1.0, ridge=1e-3, keep=20)
    >>> whitening(rows[:3]).shape
    torch.Size([3, 20])
    """

    directions: Tensor
    strengths: Tensor

    @classmethod
    def of(cls, rows: Tensor, *, power: float, ridge: float, keep: int | None = None) -> Whitening:
        """The whitening that makes ``rows`` of about equal strength in all directions.

        Args:
            rows: features of public images, shape (images, features).
            power: p; 1 whitens, 0 leaves the features as they are, 0.5 goes half-way.
            ridge: λ, as a share of the features' whole strength.
            keep: how many of the strongest directions to keep; all by default.
        """
        power, ridge = non_negative("power", power), positive("ridge", ridge)
        moments = _moments(rows)
        size = len(moments)
        kept = whole("keep", keep) if keep is not None else size
        if kept > size:
            raise InvalidArgument(f"keep must be at most the {size} features, got {keep!r}")
        whole_strength = moments.diagonal().sum()
        values, vectors = _strongest(moments, kept)
        scales = (values + ridge * whole_strength).pow(-power / 2)
        return cls((vectors * scales).T.float().contiguous(), values.double())

    def to(self, device: torch.device | str) -> Whitening:
        """The same on another device."""
        return Whitening(self.directions.to(device), self.strengths.to(device))

    @torch.no_grad()
    def __call__(self, rows: Tensor) -> Tensor:
        """The whitened rows, shape (rows, kept), on the device of the directions."""
        place = self.directions.device
        found = torch.empty(len(rows), len(self.directions), device=place)
        with full_precision(place.type):
            for which, part in _parts(rows, place):
                found[which] = functional.normalize(part @ self.directions.T, dim=1)
        return found


@torch.no_grad()
def _moments(rows: Tensor) -> Tensor:
    """The mean of x·xᵀ: sums of a few thousand terms in single precision, added up in double."""
    if rows.ndim != 2 or len(rows) < 2:
        raise InvalidArgument(
            f"rows must have the shape (images, features) with 2 images or more, got "
            f"{tuple(rows.shape)}"
        )
    size = rows.shape[1]
    products = torch.zeros(size, size, dtype=torch.float64, device=rows.device)
    with full_precision(rows.device.type):
        for _, part in _parts(rows, rows.device):
            products += part.T @ part
    return products / len(rows)


def _strongest(moments: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues and their vectors, the largest first.

    In double precision where that takes no more than minutes. Single precision errs by about
    1e-7 of the largest eigenvalue, far below any ridge that is of use.
    """
    size = len(moments)
    work = moments if size <= DOUBLE else moments.float()
    if work.device.type == "cpu" and 2 * count <= size:
        from scipy.linalg import eigh  # noqa: PLC0415 - it can stop at the strongest; torch cannot

        found = eigh(work.numpy(), subset_by_index=(size - count, size - 1), driver="evr")
        values, vectors = (torch.from_numpy(one) for one in found)
    else:
        values, vectors = torch.linalg.eigh(work)
        values, vectors = values[size - count :], vectors[:, size - count :]
    return values.flip(0).clamp(min=0), vectors.flip(1)


def _parts(rows: Tensor, device: torch.device) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS].to(device, torch.float32)
        yield slice(start, start + len(part)), part


# ---- networks whose layers learn on whitened inputs


@final
class FixedMap(nn.Module):
    """A linear map of the channels that is not learned.

    >>> FixedMap(2 * torch.eye(3))(torch.ones(1, 3)).tolist()
    [[2.0, 2.0, 2.0]]
    """

    matrix: Tensor

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)

    def forward(self, given: Tensor) -> Tensor:
        """The channels of each row, or of each place of each image, mapped."""
        if given.ndim == 2:
            return functional.linear(given, self.matrix)
        return functional.conv2d(given, self.matrix[:, :, None, None])


@torch.no_grad()
def with_whitened_inputs(
    network: nn.Sequential, images: Tensor, *, ridge: float, layers: Literal["all", "last"] = "all"
) -> nn.Sequential:
    """The network with a fixed map before its layers, and their weights changed to make up for it.

    It computes what it did, but noise of the same size in every weight, and steps, now act where
    the ``images`` have whitened channels: (S + λ·tr(S)·I)^(−1/2), S being the mean of x·xᵀ over
    what reaches the layer, in all places, scaled so that the channels have the strength in all
    that they had. That is the input's side of K-FAC (Martens & Grosse 2015,
    https://arxiv.org/abs/1503.05671), with curvature of public images.

    Guarantee: the maps follow from the network and the ``images`` alone.

    Args:
        network: one that ends with a linear layer; its convolutions are ``nn.Conv2d``.
        images: that nobody has to protect, as the network takes them.
        ridge: λ, as a share of the channels' whole strength.
        layers: before which a map comes: ``all`` of them, or the ``last``.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    >>> images = torch.rand(50, 3, 4, 4)
    >>> before = network(images)
    >>> network = with_whitened_inputs(network, images, ridge=1e-3)
    >>> torch.allclose(network(images), before, atol=1e-4)
    True
    """
    positive("ridge", ridge)
    inner = {
        path: layer for path, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d) and layers == "all"
    }  # fmt: skip
    last = network[-1]
    if not isinstance(last, nn.Linear):
        raise InvalidArgument(f"network must end with nn.Linear, got {type(last).__name__}")
    found = _input_moments(network, [*inner.values(), last], images)
    for path, layer in inner.items():
        holder, _, name = path.rpartition(".")
        before = _learning_behind(layer, found[layer], ridge)
        setattr(network.get_submodule(holder), name, nn.Sequential(before, layer))
    network.insert(len(network) - 1, _learning_behind(last, found[last], ridge))
    return network


def _input_moments(
    network: nn.Module, layers: list[nn.Module], images: Tensor
) -> dict[nn.Module, Tensor]:
    """The mean of x·xᵀ over the channels of what reaches each of the layers."""
    found: dict[nn.Module, Any] = dict.fromkeys(layers, 0.0)
    places = dict.fromkeys(layers, 0)

    def look(layer: nn.Module, given: tuple[Tensor]) -> None:
        rows = given[0].movedim(1, -1).flatten(0, -2)
        found[layer] = found[layer] + (rows.T @ rows).double()
        places[layer] += len(rows)

    hooks = [layer.register_forward_pre_hook(look) for layer in layers]
    try:
        with full_precision(images.device.type):
            for start in range(0, len(images), IMAGES):
                network(images[start : start + IMAGES])
    finally:
        for hook in hooks:
            hook.remove()
    return {layer: found[layer] / places[layer] for layer in layers}


def _learning_behind(layer: nn.Conv2d | nn.Linear, moments: Tensor, ridge: float) -> FixedMap:
    """The map, after the layer's weights were multiplied by its inverse."""
    strength, vectors = _strongest(moments, len(moments))
    if not strength[0] > 0.0:
        raise InvalidArgument("images must reach every layer, got some of which one is given zeros")
    scales = (strength + ridge * strength.sum()).rsqrt()
    scales = scales * (strength.sum() / (strength * scales**2).sum()).sqrt()
    inverse = (vectors / scales) @ vectors.T
    changed = torch.einsum("oi...,ij->oj...", layer.weight.double(), inverse)
    layer.weight.copy_(changed)
    matrix = (vectors * scales) @ vectors.T
    return FixedMap(matrix.to(layer.weight.dtype))
