"""The release: noise onto the clipped sums, and the mean over the plan's lot size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import torch

from tacit.randomness import GaussianSource, RoundedGaussian
from tacit.training.grid import grid_step, noise_in_steps, to_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tacit.randomness import Stream
    from tacit.training.plan import Plan

# What a statement says of each kind of noise, and what it then assumes.
IN_WORDS = {
    "fast": "fast: floating-point Gaussian noise from a statistical generator, keyed once by the "
    "operating system",
    "secure": "secure: the sum rounded to a grid, plus a Gaussian rounded to the grid, exactly, "
    "from cryptographic bits; widened by at most 0.05 % for the rounding, and at no distance from "
    "the ideal that would have to be charged to δ",
    "exact": "exact: each gradient rounded towards zero onto a grid and added up in integers, plus "
    "a Gaussian rounded to the grid, exactly, from cryptographic bits; at no distance from the "
    "ideal that would have to be charged to δ",
}
_DRAWN = (
    "the bits of the cryptographic generator cannot be told from random ones, and float64 "
    "logarithm, square root, sine and cosine are good to 40 units in the last place, beyond which "
    "interval arithmetic decides"
)
ASSUMED = {
    "fast": "floating-point sums and Gaussian noise are taken for real ones, and the numbers of a "
    "statistical generator for random ones",
    "secure": "floating-point sums of clipped gradients are taken for real ones: adding up n of "
    "them in float32 may be off by about n²·2⁻²⁴ clips (in TF32 by n²·2⁻¹¹, in bfloat16 by "
    f"n²·2⁻⁸), which is not covered (noise='exact' covers it); {_DRAWN}",
    "exact": f"a unit's gradient is computed from its own rows and the parameters alone; {_DRAWN}",
}


class Noise(Protocol):
    """Releases sums and counts, each with fresh noise."""

    def means(
        self,
        parameters: Mapping[str, Tensor],
        sums: Mapping[str, Tensor],
        *,
        clip: float,
        scale: float,
        lot_size: float,
    ) -> dict[str, Tensor]:
        """(sum + N(0, scale²)) / lot_size for every parameter, in its own precision."""

    def count(self, exact: float, scale: float) -> float:
        """A whole number of halves plus N(0, scale²)."""


def noise_for(kind: str, stream: Stream, device: torch.device) -> Noise:
    """The noise that a plan names."""
    if kind == "fast":
        return FastNoise(GaussianSource(device, stream), device)
    return GridNoise(RoundedGaussian(stream, device), device, rounds=kind == "secure")


@final
class FastNoise:
    """Floating-point noise on floating-point sums.

    Guarantee:
        Every entry of every parameter gets independent noise of standard deviation ``scale`` before
        anything is rounded to half precision; a parameter without a sum gets it too.
    """

    def __init__(self, source: GaussianSource, device: torch.device) -> None:
        self._source = source
        self._device = device

    def means(
        self,
        parameters: Mapping[str, Tensor],
        sums: Mapping[str, Tensor],
        *,
        clip: float,
        scale: float,
        lot_size: float,
    ) -> dict[str, Tensor]:
        """See ``Noise``."""
        del clip
        released: dict[str, Tensor] = {}
        for dtype in (torch.float32, torch.float64):
            names = [n for n, p in parameters.items() if _kind(p) == dtype]
            if not names:
                continue
            sizes = [parameters[name].numel() for name in names]
            flat = torch.empty(sum(sizes), dtype=dtype, device=self._device)
            self._source.normal_(flat, scale / lot_size)
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

    def count(self, exact: float, scale: float) -> float:
        """See ``Noise``."""
        noise = torch.empty(1, device=self._device)
        self._source.normal_(noise)
        return exact + scale * float(noise)


@final
class GridNoise:
    """Integer noise on sums in whole steps of a grid; it ``rounds`` sums that are not yet.

    Guarantee:
        If one unit moves the real sums by at most ``clip``, what is released is post-processing of
        the real Gaussian mechanism with noise ``scale``. A rounded real Gaussian added to a whole
        number is that mechanism's output, rounded; and where sums are rounded first, the noise is
        widened by what that may add to the sensitivity (``tacit.training.grid``), whatever the sums
        are: also where a lot was empty. Of sum and noise nothing but their total, a whole number,
        decides any bit of the result. Every entry of every parameter gets noise of its own.
    """

    def __init__(self, source: RoundedGaussian, device: torch.device, *, rounds: bool) -> None:
        self._source = source
        self._device = device
        self._rounds = rounds

    def means(
        self,
        parameters: Mapping[str, Tensor],
        sums: Mapping[str, Tensor],
        *,
        clip: float,
        scale: float,
        lot_size: float,
    ) -> dict[str, Tensor]:
        """See ``Noise``. Sums that are not rounded here are whole numbers of steps, in int64."""
        assert self._rounds or all(value.dtype == torch.int64 for value in sums.values())
        entries = entries_of(parameters)
        step = grid_step(clip, entries)
        flat = torch.empty(entries, dtype=torch.int64, device=self._device)
        self._source.integers_(flat, noise_in_steps(scale, clip, entries, rounded=self._rounds))
        parts = flat.split([parameter.numel() for parameter in parameters.values()])
        released: dict[str, Tensor] = {}
        for (name, parameter), noise in zip(parameters.items(), parts, strict=True):
            total = noise.view(parameter.shape)
            if name in sums:
                total.add_(to_steps(sums[name], step) if self._rounds else sums[name])
            released[name] = total.double().mul_(step / lot_size).to(parameter.dtype)
        return released

    def count(self, exact: float, scale: float) -> float:
        """See ``Noise``. Halves are whole numbers of a grid of their own, and exactly on it."""
        noise = torch.empty(1, dtype=torch.int64, device=self._device)
        self._source.integers_(noise, 2.0 * scale)
        return (round(2.0 * exact) + int(noise)) / 2.0


def check_noise(plan: Plan, entries: int) -> None:
    """Refuses, before anything is charged, noise that is too wide for its grid."""
    if plan.noise != "fast":
        noise_in_steps(plan.noise_scale, plan.clip, entries, rounded=plan.noise == "secure")


def entries_of(parameters: Mapping[str, Tensor]) -> int:
    """How many numbers a step releases."""
    return sum(parameter.numel() for parameter in parameters.values())


def _kind(parameter: Tensor) -> torch.dtype:
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32
