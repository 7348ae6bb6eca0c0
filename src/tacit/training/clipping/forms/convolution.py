"""The gradients of a convolution's kernel: an image correlated with the gradient of its result.

On a GPU nothing is unfolded. Where Triton is installed, fused kernels serve half precision, and
single precision where TF32 is allowed: see ``fused_convolution``. Otherwise, large images: one
batched product per kernel offset, reduced at once. Small images with many channels: the Gram matrix
of the pixels, whose shifted copies add up to the Gram matrix of the patches. On a CPU a kernel that
is smaller than its images is written out for every example from unfolded slices that fit the cache.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import torch
import torch.nn.functional as F

from tacit.training.clipping.forms.matrix import (
    CACHED,
    accumulator,
    coarse_share,
    cover,
    for_kernels,
    gram_total,
    in_parts,
    kept,
    matmul,
    product_error,
    rounding,
    squared_sum,
    tf32_convolutions,
    weighed,
    worth_keeping,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from torch import Tensor

    from tacit.training.clipping.fused_convolution import Sizes


@final
@dataclass(frozen=True, slots=True)
class Convolution:
    """Unit i's gradient is the sum over its rows of image ⋆ output gradient.

    ``image`` is (units, rows, channels, *space) and unpadded, ``grad`` (units, rows, channels out,
    *space out); ``shape`` is the kernel's, (channels out, channels / groups, *size).
    """

    image: Tensor
    grad: Tensor
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    _kept: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def units(self) -> int:
        """How many units there are."""
        return self.image.shape[0]

    @property
    def way(self) -> str:
        """How the norms are found."""
        if self._keeps:
            return "written out"
        if self._fused:
            by_gram = self._sizes.by_gram
            return "fused Gram matrices of patches" if by_gram else "fused products"
        return "Gram matrix of pixels" if self._by_gram else "a product per kernel offset"

    @property
    def temporary(self) -> int:
        """A padded image and its Gram matrix, one offset's gradients, or packed inputs."""
        padded = math.prod(self._padded_space)
        if self._fused:
            inputs = self.image.numel() + self.grad.numel()
            packed = inputs // 2 if self.grad.dtype == torch.float32 else 0
            return packed + self.units * math.prod(self.shape) * self._keeps
        if self._keeps:
            return self.units * math.prod(self.shape) + CACHED
        each = padded**2 if self._by_gram else math.prod(self.shape[:2])
        return self.units * (self.image[0].numel() + each)

    @property
    def _space_out(self) -> tuple[int, ...]:
        return tuple(self.grad.shape[3:])

    @property
    def _padded_space(self) -> tuple[int, ...]:
        return tuple(
            (size - 1) * dilation + stride * (out - 1) + 1
            for size, dilation, stride, out in zip(
                self.shape[2:], self.dilation, self.stride, self._space_out, strict=True
            )
        )

    @property
    def _settings(self) -> tuple[Any, ...]:
        sizes = (self.shape, self.stride, self.padding, self.dilation)
        return *(list(one) for one in sizes), self.groups

    @property
    def _fusion(self) -> ModuleType:
        from tacit.training.clipping import fused_convolution  # noqa: PLC0415 - needs Triton

        return fused_convolution

    @property
    def _sizes(self) -> Sizes:
        sizes: Sizes = self._fusion.sizes_of(self.image, self.grad, *self._settings)
        return sizes

    @property
    def _fused(self) -> bool:
        """Whether the fused kernels serve these tensors, and with the rounding that is allowed."""
        if not for_kernels(self.grad):
            return False
        rounds = self.grad.dtype != torch.float32 or tf32_convolutions()
        return self._sizes.fit and (rounds or self._sizes.by_entries)

    @property
    def _keeps(self) -> bool:
        return self.worth_writing(1)

    def worth_writing(self, most: int) -> bool:
        """Whether gradients are written out once for norms and sum, up to ``most`` times inputs."""
        inputs = most * (self.image[:1].numel() + self.grad[:1].numel())
        if self._fused:  # the sum then reads less than it would otherwise
            read = self.grad.element_size() * inputs
            return self._sizes.by_entries or 4 * math.prod(self.shape) <= read
        return worth_keeping(math.prod(self.shape), inputs, self.grad.device)

    def written(self) -> Tensor:
        """Every unit's gradient, (units, channels out, numbers of a filter), as ``laid``."""
        if self._fused:
            inputs = self.image.to(self.grad.dtype), self.grad
            written: Tensor = self._fusion.gradients(*inputs, *self._settings)[1]
            return written.view(self.units, self.shape[0], -1)
        return self._from_patches().flatten(2)

    def laid(self, kernel: Tensor) -> Tensor:
        """A kernel as gradients are written: (channels out, numbers of a filter)."""
        return kernel.flatten(2).mT.flatten(1) if self._fused else kernel.flatten(1)

    def sum_of(self, written: Tensor, scales: Tensor) -> Tensor:
        """Σ scale·gradient of what was ``written``, in the weight's shape."""
        if self._fused:
            rows = written.flatten(1)
            total: Tensor = self._fusion.weighted_gradients(rows, scales, list(self.shape))
            return total
        rows = kept(written, scales).flatten(1)
        return (scales.to(rows.dtype) @ rows).view(self.shape)

    @property
    def _by_gram(self) -> bool:
        """Pixels' Gram matrices cost pixels²·channels; a product per offset the kernel's volume."""
        if self.groups != 1 or self.image.shape[1] != 1 or any(s != 1 for s in self.stride):
            return False
        padded, out = math.prod(self._padded_space), math.prod(self._space_out)
        gram = padded**2 * self.shape[1] + out**2 * self.shape[0]
        return 2 * gram <= math.prod(self.shape) * out

    def squared_norms(self) -> Tensor:
        """See ``Form``."""
        if self._fused:
            return self._fused_norms()
        if self._keeps:
            self._kept[:] = [self._from_patches()]
            return squared_sum(self._kept[0])
        if self._by_gram:
            return self._gram_norms()
        grow, share = cover(1, self.grad, convolved=True)
        total = share * self.uncancelled()
        for gradients in self._by_offset():
            total = total + grow * squared_sum(gradients)
        return total

    def uncancelled(self) -> Tensor:
        """See ``Form``: a pixel of the image is in at most one patch for each kernel offset."""
        offsets = math.prod(self.shape[2:])
        return offsets * squared_sum(self.image) * squared_sum(self.grad)

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """See ``Form``: one ordinary kernel gradient of the weighted output gradients."""
        total: Tensor
        if self._fused and self._keeps and not self._kept:
            self._fused_norms()  # of a kernel that is used twice nobody has asked for them
        if self._kept:
            return self.sum_of(self._kept.pop(), scales)
        if self._fused:
            image = self.image.to(self.grad.dtype)
            total = self._fusion.weighted_sum(image, self.grad, scales, *self._settings)
            return total
        wide = accumulator(self.grad.dtype)
        grad = weighed(self.grad.to(wide), scales).flatten(0, 1)
        image = kept(self.image.to(wide), scales).flatten(0, 1)
        dimensions = len(self.stride)
        kernel = image.new_zeros(()).expand(self.shape)
        total = torch.ops.aten.convolution_backward(
            grad, image, kernel, None, self.stride, self.padding, self.dilation,
            False, (0,) * dimensions, self.groups, (False, True, False),
        )[1]  # fmt: skip
        return total

    def dense(self) -> Tensor:
        """See ``Form``. They are the very gradients that ``weighted_sum`` adds up, as packed."""
        if self._fused:
            turned: Tensor = self.written().unflatten(2, (-1, self.shape[1])).mT
            return turned.reshape(self.units, *self.shape)
        offsets = torch.stack(list(self._by_offset()), dim=-1)  # (units, groups, out, in, offsets)
        return offsets.flatten(1, 2).reshape(self.units, *self.shape)

    @property
    def coarse_share(self) -> float:
        """What ``rounding`` is for its sums: fused kernels scale what they have added up."""
        if self._fused:
            return rounding(torch.float32)
        return coarse_share(self.grad, convolved=True)

    @property
    def norm_error(self) -> float:
        """What a norm may be off by, as a share of √uncancelled: fused kernels add up finely."""
        if self._fused:
            return 4 * rounding(torch.float32)
        return product_error(self.grad, convolved=True)

    def part(self, start: int, stop: int) -> Convolution:
        """See ``Form``."""
        return replace(self, image=self.image[start:stop], grad=self.grad[start:stop])

    def _fused_norms(self) -> Tensor:
        inputs = self.image.to(self.grad.dtype), self.grad
        norms: Tensor
        if self._keeps:
            norms, written = self._fusion.gradients(*inputs, *self._settings)
            self._kept[:] = [written]
        else:
            norms = self._fusion.squared_norms(*inputs, *self._settings)
        return norms

    def _from_patches(self) -> Tensor:
        """Every unit's gradient, from patches that are unfolded a slice of units at a time."""
        out = math.prod(self._space_out)
        size = self.image.shape[1] * self.groups * math.prod(self.shape[1:]) * out
        parts = [self.part(a, b) for a, b in in_parts(self.units, size, CACHED)]
        written = [one._product(one._pixels(one.grad), one._patches()) for one in parts]
        return torch.cat(written).reshape(self.units, *self.shape)

    def _patches(self) -> Tensor:
        """(units, groups, rows·pixels out, channels / groups · kernel)."""
        image = self._padded_image().contiguous()
        first, along = image.stride()[:3], image.stride()[3:]
        offsets = [step * dilation for step, dilation in zip(along, self.dilation, strict=True)]
        moves = [step * stride for step, stride in zip(along, self.stride, strict=True)]
        size = (*image.shape[:3], *self.shape[2:], *self._space_out)
        windows = image.as_strided(size, (*first, *offsets, *moves))
        grouped = windows.unflatten(2, (self.groups, -1))
        flat = grouped.reshape(*grouped.shape[:3], math.prod(self.shape[1:]), -1)
        order: Tensor = flat.permute(0, 2, 1, 4, 3)
        if flat.shape[1] == 1:  # one row a unit: a transposed view will do
            return order[:, :, 0]
        return order.reshape(self.units, self.groups, -1, flat.shape[3])

    def _by_offset(self) -> Iterator[Tensor]:
        """For each kernel offset, that entry of every unit's gradient: (units, groups, out, in)."""
        grad = self._pixels(self.grad)
        image = self._padded_image()
        for offset in itertools.product(*(range(size) for size in self.shape[2:])):
            window = image
            for axis, (at, dilation, stride, out) in enumerate(
                zip(offset, self.dilation, self.stride, self._space_out, strict=True), start=3
            ):
                start = at * dilation
                index = slice(start, start + stride * (out - 1) + 1, stride)
                window = window[(slice(None),) * axis + (index,)]
            yield self._product(grad, self._pixels(window))

    def _product(self, grad: Tensor, window: Tensor) -> Tensor:
        flat = matmul(grad.flatten(0, 1).mT, window.flatten(0, 1))
        product: Tensor = flat.unflatten(0, (self.units, self.groups))
        return product

    def _pixels(self, image: Tensor) -> Tensor:
        """(units, rows, channels, *space) as (units, groups, rows·pixels, channels / groups)."""
        grouped = image.unflatten(2, (self.groups, -1)).flatten(4)
        order: Tensor = grouped.permute(0, 2, 1, 4, 3)
        return order.reshape(self.units, self.groups, -1, grouped.shape[3])

    def _padded_image(self) -> Tensor:
        space = self.image.shape[3:]
        pads: list[int] = []
        for size, padding, needed in reversed(
            list(zip(space, self.padding, self._padded_space, strict=True))
        ):
            # What the stride leaves over at the far end is left out: no kernel reaches it.
            pads += [padding, needed - size - padding]
        return F.pad(self.image.to(self.grad.dtype), pads)

    def _gram_norms(self) -> Tensor:
        size = math.prod(self._padded_space) ** 2 + math.prod(self._space_out) ** 2
        parts = [self.part(a, b)._gram_norms_of_all() for a, b in in_parts(self.units, size)]
        return parts[0] if len(parts) == 1 else torch.cat([*parts, self.grad.new_zeros(0)])

    def _gram_norms_of_all(self) -> Tensor:
        image, grad = self._padded_image()[:, 0].flatten(2), self.grad[:, 0].flatten(2)
        space, out = self._padded_space, self._space_out
        pixels = matmul(image.mT, image).view(self.units, *space, *space)
        grads = matmul(grad.mT, grad).view(self.units, *out, *out)
        patches = torch.zeros((), device=grads.device)
        for offset in itertools.product(*(range(size) for size in self.shape[2:])):
            index = tuple(
                slice(at * dilation, at * dilation + length)
                for at, dilation, length in zip(offset, self.dilation, out, strict=True)
            )
            patches = patches + pixels[(slice(None), *index, *index)]
        count = math.prod(out)
        raised = cover(count, self.grad, convolved=True)
        return gram_total((patches * grads).view(self.units, count, count), raised)
