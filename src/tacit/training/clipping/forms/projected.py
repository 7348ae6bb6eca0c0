r"""The gradients of weights that a convolution sees standardised: see ``tacit.models.filters``.

One filter at a time, let w be its N weights, c = A·w with A = I − 11ᵀ/N (the mean taken off),
q = ‖c‖², r = 1/√max(q, floor), n = r·c, and gain·n the filter that the convolution uses, with the
gradient G of an example. Then dr = −κ·r³⟨c, dc⟩ with κ = 1 where q ≥ floor and κ = 0 below, where
the floor decides, so that

    dn = r·dc + c·dr = r·(dc − κ·n⟨n, dc⟩) = r·(I − κ·n nᵀ)·A·dw = r·P·dw,   P = A − κ·n nᵀ,

since A·n = n. P is symmetric. Where κ = 1, ‖n‖ = 1; so 1/√N and κ·n are orthogonal, of length 1 or
0, and P projects onto what is orthogonal to both, in either case. Hence

    ∂/∂w = gain·r·P·G,   ∂/∂gain = ⟨G, n⟩,   ‖P·G‖² = ‖G‖² − ⟨G, 1⟩²/N − κ·⟨G, n⟩².

All is linear in G: several rows of one example add up before anything is squared, and the gradient
of a weighted sum of examples is P of the weighted sum. Neither inner product needs G: ⟨G, n⟩ is the
output gradient times the convolution by n, added up, and ⟨G, 1⟩ the same with a filter of ones.

The norm as a difference is for gradients that are larger than what they are made of. Others are
written out and projected one by one, which serves the sum, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

import torch

from tacit.training.clipping.forms.matrix import (
    Dense,
    accumulator,
    added_up,
    for_kernels,
    product_error,
    rounding,
    squared_sum,
    whole_norms,
)

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.training.clipping.forms.convolution import Convolution

# Gradients are written out up to this multiple of what they are made of: a difference reads those
# several times.
_WRITTEN = 2


@final
@dataclass(frozen=True, slots=True)
class Projected:
    """Unit i's gradient is ``rate``·P·G_i, where ``filters`` holds the G_i.

    ``normal`` are the n, in the weight's shape, without any mean left and no longer than 1;
    ``rate`` = gain·r and ``divided`` = κ have a number for each filter. See the module for P.

    Guarantee:
        Norms as a difference hold what rounding may hide, however much of G the projection takes
        off: an inner product is off by at most E = e·√U, where U = uncancelled is that of its
        filter and e is ``product_error``, and only (|product| − E)² is subtracted; the norm of G is
        off by E as well, which moves its square by 2·E·‖G‖; and the sum rounds relatively to G, not
        to P·G, for which a share of U is added as ``rounding`` says.
    """

    filters: Convolution
    normal: Tensor
    rate: Tensor  # (filters,)
    divided: Tensor  # (filters,)
    _kept: list[Dense] = field(default_factory=list, init=False, repr=False, compare=False)
    _along: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)
    _rated: list[Convolution] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def units(self) -> int:
        """How many units there are."""
        return self.filters.units

    @property
    def way(self) -> str:
        """How the norms are found."""
        if self._writes:
            return "written out, projected"
        return f"{self._scaled.way}, less the projections"

    @property
    def temporary(self) -> int:
        """The gradients, or a scaled output gradient, a convolution's result and their product."""
        if self._writes:
            return max(self.filters.temporary, 2 * self.units * self.normal.numel())
        return self._scaled.temporary + 3 * self.filters.grad.numel()

    @property
    def _writes(self) -> bool:
        return self.filters.worth_writing(_WRITTEN)

    @property
    def _scaled(self) -> Convolution:
        """The filters' gradients times their rates.

        In half precision only where that has single precision's range.
        """
        if not self._rated:
            grad = self.filters.grad
            narrow = for_kernels(grad) and grad.dtype == torch.bfloat16
            kind = grad.dtype if narrow else accumulator(grad.dtype)
            rated = (grad.to(accumulator(kind)) * self._by_channel(self.rate)).to(kind)
            self._rated[:] = [replace(self.filters, grad=rated)]
        return self._rated[0]

    def _by_channel(self, numbers: Tensor) -> Tensor:
        """One number for each filter, as the gradients of results are laid out."""
        return numbers.view(-1, *[1] * len(self.filters.stride))

    def along_filters(self) -> Tensor:
        """⟨G, n⟩ of every unit and filter: the gradients of gains, shape (units, filters)."""
        if not self._along:
            if self._writes:
                self._write()
            else:
                self._along[:] = [self._inner_products(self.normal)]
        return self._along[0]

    def squared_norms(self) -> Tensor:
        """See ``Form``."""
        if self._writes:
            if not self._kept:
                self._write()
            return self._kept[0].squared_norms()
        total = added_up(self._scaled.squared_norms())
        ones = torch.ones_like(self.normal[:: self.normal.shape[0] // self.filters.groups])
        across = self._inner_products(ones) / math.sqrt(math.prod(self.normal.shape[1:]))
        each = self._uncancelled_by_filter()
        lost = product_error(self._scaled.grad, convolved=True) * each.sqrt()
        removed = _certain(across * self.rate, lost)
        removed = removed + self.divided * _certain(self.along_filters() * self.rate, lost)
        every = each.sum(1)
        hidden = 2 * self._scaled.norm_error * (every * total).sqrt()
        hidden = hidden + rounding(accumulator(total.dtype)) * every
        return whole_norms(total - removed.sum(1)) + hidden

    def uncancelled(self) -> Tensor:
        """See ``Form``: that of the filters' gradients, times their rates."""
        return self._uncancelled_by_filter().sum(1)

    def _uncancelled_by_filter(self) -> Tensor:
        """(units, filters): see ``Convolution.uncancelled``."""
        grad = self.filters.grad.to(accumulator(self.filters.grad.dtype))
        others = tuple(axis for axis in range(grad.ndim) if axis not in (0, 2))
        lengths = grad.square().sum(others) * self.rate.square()
        offsets = math.prod(self.normal.shape[2:])
        return offsets * squared_sum(self.filters.image).unsqueeze(1) * lengths

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """See ``Form``: P of the sum, or the sum of what was written out."""
        if self._writes:
            if not self._kept:  # of a weight that is used twice nobody has asked for norms
                self._write()
            return self.filters.sum_of(self._kept.pop().values, scales)
        total = self._scaled.weighted_sum(scales)
        return self._projected(total.flatten(1), self.normal.flatten(1))[0].view(total.shape)

    def dense(self) -> Tensor:
        """See ``Form``."""
        whole = self.filters.dense()
        projected, _ = self._projected(whole.flatten(2), self.normal.flatten(1))
        return (projected * self.rate.unsqueeze(1)).view(whole.shape)

    @property
    def coarse_share(self) -> float:
        """What ``rounding`` is for its sums: what is written out is scaled in single precision."""
        return rounding(accumulator(self.rate.dtype)) if self._writes else self._scaled.coarse_share

    def part(self, start: int, stop: int) -> Projected:
        """See ``Form``."""
        return replace(self, filters=self.filters.part(start, stop))

    def _write(self) -> None:
        written, normal = self.filters.written(), self.filters.laid(self.normal)
        if for_kernels(written, normal):
            from tacit.training.clipping import fused_convolution as fused  # noqa: PLC0415 - Triton

            projected, along, squares = fused.projected(written, normal, self.rate, self.divided)
            self._kept[:] = [Dense(projected, squares.unsqueeze(0))]
        else:
            projected, along = self._projected(written, normal)
            self._kept[:] = [Dense(projected * self.rate.unsqueeze(1))]
        self._along[:] = [along]

    def _projected(self, gradients: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
        """P·G and ⟨G, n⟩ of gradients that have filters and their numbers in the last dimensions.

        With the mean taken off first: n is orthogonal to it.
        """
        centred = gradients - gradients.mean(-1, keepdim=True)
        along = (centred * normal).sum(-1)
        return centred - (along * self.divided).unsqueeze(-1) * normal, along

    def _inner_products(self, kernel: Tensor) -> Tensor:
        """⟨G, kernel⟩ of every unit and filter; fewer kernels serve filters in equal groups."""
        of = self.filters
        wide = accumulator(of.grad.dtype)
        image = of.image.flatten(0, 1).to(wide)
        sizes = (of.stride, of.padding, of.dilation)
        none = (0,) * len(of.stride)
        result = torch.convolution(image, kernel.to(wide), None, *sizes, False, none, of.groups)
        seen = result.unflatten(0, of.image.shape[:2]).unsqueeze(3)
        grad = of.grad.to(wide).unflatten(2, (len(kernel), -1))
        others = tuple(axis for axis in range(grad.ndim) if axis not in (0, 2, 3))
        products: Tensor = (grad * seen).sum(others).flatten(1)
        return products


def _certain(product: Tensor, error: Tensor) -> Tensor:
    """The least square that a product can have which is off by at most ``error``."""
    return (product.abs() - error).clamp(min=0).square()
