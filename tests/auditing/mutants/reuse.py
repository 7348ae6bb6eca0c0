"""Bugs in where noise comes from: the same numbers twice, or numbers that others have too."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from tacit.randomness import GaussianSource, UnsafeSeededStream
from tacit.training.distributed.world import World
from tacit.training.noise import FastNoise
from tacit.training.sampling import LotSampler

from . import settings
from .mutant import Mutant
from .noise import drawn, in_every_draw, noise_and_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


def _drawn_once() -> Any:
    """The noise of the first step serves all of them."""

    def normal_(self: GaussianSource, tensor: Tensor, scale: float = 1.0) -> None:
        first = kept.setdefault(self, {})
        if tensor.numel() not in first:
            first[tensor.numel()] = torch.empty_like(tensor)
            drawn(self, first[tensor.numel()])
        tensor.copy_(first[tensor.numel()] * scale)

    kept: dict[GaussianSource, dict[int, Tensor]] = {}
    return in_every_draw(normal_)


def _one_draw_for_all() -> Any:
    """Every parameter gets the first numbers of the same draw."""

    def means(self: FastNoise, parameters: Any, sums: Any, **given: Any) -> dict[str, Tensor]:
        noise, mean = noise_and_mean(self, parameters, sums, **given)
        longest = max(noise.values(), key=torch.Tensor.numel).flatten()
        return {
            name: mean[name] + longest[: mean[name].numel()].view(mean[name].shape)
            for name in parameters
        }

    return patch.object(FastNoise, "means", means)


def _fixed_seed() -> Any:
    """As after torch.manual_seed(0): every run draws the same."""
    return patch.object(World, "streams", lambda *_: lambda purpose: UnsafeSeededStream(0, purpose))


@contextmanager
def _one_key() -> Iterator[None]:
    """A step has one random key, from which both sampler and noise draw uniform numbers."""
    key = torch.Generator()

    def uniform(count: int) -> Tensor:
        again = torch.Generator().manual_seed(key.initial_seed())
        return torch.rand(count, generator=again, dtype=torch.float64)

    def draw(self: LotSampler) -> Any:
        key.seed()
        inside = uniform(self._plan.examples) < self._plan.sample_rate
        return inside.nonzero().flatten().numpy()

    def normal_(self: GaussianSource, tensor: Tensor, scale: float = 1.0) -> None:
        del self
        values = torch.special.ndtri(uniform(tensor.numel()).clamp(min=1e-12))
        tensor.copy_(scale * values.view(tensor.shape))

    with (
        patch.object(LotSampler, "draw", draw),
        in_every_draw(normal_),
    ):
        yield


MUTANTS = (
    Mutant(
        name="noise reused across steps",
        says="every step adds the noise of the first",
        components=("noise",),
        setting=settings.linear,
        patch=_drawn_once,
    ),
    Mutant(
        name="noise reused across parameters",
        says="all parameters get the same numbers",
        components=("noise",),
        setting=settings.mlp,
        patch=_one_draw_for_all,
    ),
    Mutant(
        name="fixed seed",
        says="every run draws the same lots and the same noise",
        components=("noise", "sampling"),
        setting=settings.linear,
        patch=_fixed_seed,
    ),
    Mutant(
        name="shared stream",
        says="lots and noise are made of the same random numbers",
        components=("noise", "sampling"),
        setting=settings.linear,
        patch=_one_key,
    ),
)
