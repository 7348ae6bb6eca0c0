"""The forms of matrix weights, and the arithmetic that all forms share.

Gradients are written out (biases, norm layers' weights, whatever has no compact form), sums of
outer products Σ_t left_t ⊗ right_t (what every matrix product leaves), or rows looked up in a table
(outer products whose left side is a one-hot vector).

Every form has a plain PyTorch path. On a CUDA device with Triton the kernels of the module
``kernels`` take its place: ``for_kernels`` says where.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from torch import Tensor

# The most numbers that one temporary of per-example gradients may hold; beyond it, slices of units.
LARGEST_TEMPORARY = 2**24
_FEW_UNITS = 256
# What one pass of a processor over slices of units should hold, so that it stays in the cache.
CACHED = 2**20
_BLOCK = 512
# How kernels cut Gram matrices, and the least size of a side that they multiply.
_GRAM_BLOCK, _LEAST_SIDE = 64, 16
# Products of one weight, of all units, beyond which a library multiplies single precision faster.
_FEW_PRODUCTS = 2**28
# Numbers of a weight, and products of all units, up to which launches take longer than products.
_SMALL_WEIGHT, _SMALL_PRODUCT = 2**17, 2**26
_WORTH_ALIGNING = 1024
# How many times fewer numbers the gradients of a narrow weight must hold than its sides, which a
# GPU would read twice: a quarter of the memory, as sides are in half precision and they are not.
_SMALLER = 8
# From how many terms on writing gradients in half precision, and reading them twice, takes a GPU
# less time than multiplying twice; and what their sizes must be multiples of for that.
_LONG, _EVEN = 512, 8
_WRITTEN_HALF = frozenset({torch.bfloat16})  # whose range is that of single precision
_COARSE = 2.0**-8  # what half precision and TF32 may round a term of a sum by: see ``cover``
_FULL = frozenset({"ieee", "none"})  # full single precision, as torch calls it
_FOR_KERNELS = frozenset({torch.bfloat16, torch.float16, torch.float32})


class Form(Protocol):
    """The gradients of one weight, one per unit of privacy."""

    @property
    def units(self) -> int:
        """How many units there are."""

    @property
    def way(self) -> str:
        """In a word or two, how the norms are found: shown by ``explain``."""

    @property
    def temporary(self) -> int:
        """The most numbers that finding the norms keeps beside the inputs."""

    def squared_norms(self) -> Tensor:
        """The squared L2 norm of each unit's gradient, shape (units,).

        Or parts of it that are yet to be added up, shape (pieces, units): see ``added_up``.
        """

    def uncancelled(self) -> Tensor:
        """An upper bound of each squared norm that terms which cancel do not lower.

        What a sum rounds is relative to this, not to the norm: see ``rounding``.
        """

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """Σ scales_i·g_i in the weight's shape; a unit of scale 0 adds nothing, not even NaN."""

    def dense(self) -> Tensor:
        """Every unit's gradient, written out: shape (units, *weight's shape)."""

    def part(self, start: int, stop: int) -> Form:
        """The same for the units from ``start`` to ``stop``."""


def for_kernels(first: Tensor, *others: Tensor) -> bool:
    """Whether the kernels serve: plain tensors of a CUDA device, none traced, in their precision.

    Double precision, complex numbers and other devices keep the plain path, and so does a tensor
    whose numbers are to be negated when they are read.
    """
    if not first.is_cuda:
        return False
    plain = (
        type(one) is torch.Tensor and one.dtype in _FOR_KERNELS and not one.is_neg()
        for one in (first, *others)
    )
    return all(plain) and has_triton()


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Sums are kept in at least single precision."""
    return torch.promote_types(dtype, torch.float32)


def squared_sum(values: Tensor) -> Tensor:
    """Σ v² over all but the first dimension, in at least single precision."""
    if for_kernels(values):
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        return kernels.added(kernels.squares(values))
    return _squared_sum(values)


def squared_parts(values: Tensor) -> Tensor:
    """``squared_sum``, with kernels in parts that are yet to be added up."""
    if for_kernels(values):
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        return kernels.squares(values)
    return _squared_sum(values)


def _squared_sum(values: Tensor) -> Tensor:
    wide = values.to(accumulator(values.dtype))
    if wide.device.type == "cpu":
        return _squared_lengths(wide.flatten(1) if wide.ndim > 1 else wide.unsqueeze(1))
    return in_stages(wide.square())


def _squared_lengths(rows: Tensor) -> Tensor:
    """Σ v² of every row without writing the squares; in blocks, which keeps the rounding small."""
    length = rows.shape[1]
    if length <= _BLOCK:
        return _of_blocks(rows)
    least = -(-length // _BLOCK)
    even = next((count for count in range(least, 2 * least + 1) if length % count == 0), 0)
    if even:  # blocks of one size, which is at most that: one pass
        return _of_blocks(rows.unflatten(1, (even, -1))).sum(1)
    whole = length - length % _BLOCK
    blocks = rows[:, :whole].unflatten(1, (-1, _BLOCK))
    return _of_blocks(blocks).sum(1) + _of_blocks(rows[:, whole:])


def _of_blocks(blocks: Tensor) -> Tensor:
    squares: Tensor = torch.linalg.vector_norm(blocks, dim=-1).square()
    return squares


def in_stages(values: Tensor) -> Tensor:
    """Σ over all but the first dimension, first over the last one where there are few units.

    A compiler that adds up each unit in one go leaves most of a GPU idle if units are few.
    """
    if values.ndim > 2 and len(values) < _FEW_UNITS:
        values = values.sum(-1)
    return values.unsqueeze(-1).flatten(1).sum(1)


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """A (batched) product whose result is not rounded to half precision."""
    if left.dtype in (torch.float32, torch.float64):
        return left @ right
    if left.is_cuda:
        product = torch.mm if left.ndim == 2 else torch.bmm
        return product(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()


def rounding(dtype: torch.dtype) -> float:
    """What a squared norm N² gets for rounding, as a share of ``uncancelled``.

    A norm or a sum of terms is off by E ≤ c·u·√uncancelled, where u is half of ε and c a small
    number. (N + E)² ≤ (1 + a)·N² + (1 + 1/a)·E² for every a > 0; 1 + a is the square of the margin
    that norms get anyway (a = 4e-6 in single precision), and the rest is within ε/2·uncancelled for
    c ≤ 8 (in bfloat16, c ≤ 2).
    """
    return torch.finfo(dtype).eps / 2


def tf32_matrices() -> bool:
    """Whether a GPU multiplies matrices in TF32, by whichever of torch's switches.

    To read the older one (``allow_tf32``) fails where the newer was used.
    """
    return torch.backends.cuda.matmul.fp32_precision not in _FULL


def tf32_convolutions() -> bool:
    """The same of convolutions."""
    return torch.backends.cudnn.conv.fp32_precision not in _FULL  # type: ignore[attr-defined]


def rounds_coarsely(side: Tensor, *, convolved: bool) -> bool:
    """Whether a GPU rounds what it multiplies, scaled, to 8 bits (bfloat16), or to 11 (TF32)."""
    if not side.is_cuda or side.element_size() == 2:
        return side.is_cuda
    tf32 = tf32_matrices() or (convolved and tf32_convolutions())
    return side.dtype == torch.float32 and tf32


def cover(terms: int, side: Tensor, *, convolved: bool = False) -> tuple[float, float]:
    """What a squared norm N² is raised to, as two factors: of N², and of Σ_t‖l_t‖²‖r_t‖².

    A part of the sum is off by E ≤ u·Σ‖l_t‖‖r_t‖ ≤ u·√(terms·Σ‖l_t‖²‖r_t‖²). Sides are scaled and
    multiplied in their own precision on a GPU: then u = 2⁻⁸, which is the rounding of one side to
    bfloat16, or four of 2⁻¹⁰, of both sides to TF32 for the norm and for the sum. By
    (N + E)² ≤ (1 + a)·N² + (1 + 1/a)·E², least for a = u·√terms where N² is the sum of squares.
    Half of the margin that norms get anyway is part of a, and the rest is left for single
    precision. Elsewhere u is that of ``rounding``.
    """
    fine = terms * rounding(accumulator(side.dtype))
    if not rounds_coarsely(side, convolved=convolved):
        return 1.0, fine
    known = _half_margin(side.dtype)
    spread = max(known, _COARSE * math.sqrt(terms))
    return (1.0 + spread) / (1.0 + known), fine + _COARSE**2 * terms * (1.0 + 1.0 / spread)


def coarse_share(side: Tensor, *, convolved: bool = False) -> float:
    """What ``rounding`` is for sums of which ``side`` is scaled and multiplied on a GPU."""
    fine = rounding(accumulator(side.dtype))
    if not rounds_coarsely(side, convolved=convolved):
        return fine
    return fine + _COARSE**2 * (1.0 + 1.0 / _half_margin(side.dtype))


def product_error(side: Tensor, *, convolved: bool = False) -> float:
    """What a sum of products may be off by, as a share of √uncancelled: see ``rounding``.

    On a GPU four times that of one side in TF32, or twice that in bfloat16: see ``cover``.
    """
    if rounds_coarsely(side, convolved=convolved):
        return _COARSE
    return 4 * rounding(accumulator(side.dtype))


def _half_margin(dtype: torch.dtype) -> float:
    """Of squared norms: half of what ``sums.margin`` gives norms where products are coarse."""
    return (1.0 + (2.0**-8 if dtype == torch.bfloat16 else 2.0**-10)) ** 2 - 1.0


def gram_total(products: Tensor, raised: tuple[float, float]) -> Tensor:
    """Σ_{s,t} of (units, terms, terms) products of Gram entries, ``raised`` as ``cover`` says.

    Rounding is relative to Σ|⟨l_s,l_t⟩⟨r_s,r_t⟩| ≤ (Σ‖l_t‖‖r_t‖)² ≤ terms·(the diagonal's sum), not
    to the total, which may be smaller by cancellation.
    """
    grow, share = raised
    if products.device.type == "cpu":
        diagonal = products.diagonal(0, 1, 2).sum(1)
        return grow * whole_norms(products.sum((1, 2))) + share * whole_norms(diagonal)
    index = torch.arange(products.shape[1], device=products.device)
    weights = torch.where(index[:, None] == index, grow + share, grow)  # one pass when compiled
    return whole_norms(in_stages(products * weights))


def aligned(side: Tensor) -> Tensor:
    """A side of products for a GPU: with zeros at the end where its rows lie askew in memory.

    A vocabulary of 50,257 would be read number by number; to copy it takes less time.
    """
    if side.shape[-1] < _WORTH_ALIGNING or side.element_size() != 2:
        return side
    return F.pad(side, (0, -side.shape[-1] % 8)) if side.stride(-2) % 8 else side


def added_up(norms: Tensor) -> Tensor:
    """Squared norms of shape (units,), from all of their parts if they come in parts."""
    if norms.ndim == 1:
        return norms
    return norms[0] if len(norms) == 1 else whole_norms(norms.sum(0))


def whole_norms(sums: Tensor) -> Tensor:
    """Sums that rounding may have made negative; what overflowed, to -∞ even, is not finite."""
    return sums.clamp(min=0) + (sums - sums)


def all_count(scales: Tensor) -> bool:
    """Whether no unit is left out, if that is known without waiting for a device or a compiler."""
    if type(scales) is not torch.Tensor or scales.device.type != "cpu":
        return False
    return len(scales) == 0 or float(scales.min()) > 0


def weighed(values: Tensor, scales: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """``values`` times their unit's scale; exactly zero where the scale is, whatever the value.

    ``dtype`` is the result's where it is not that of ``values``, and wider.
    """
    if for_kernels(values):
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        return kernels.rows_scaled(values, scales, dtype or values.dtype)
    values = values if dtype is None else values.to(dtype)
    column = scales.view(-1, *[1] * (values.ndim - 1))
    if all_count(scales):
        return values * column.to(values.dtype)
    return torch.where(column > 0, values * column.to(values.dtype), 0)


def kept(values: Tensor, scales: Tensor) -> Tensor:
    """``values`` of the units whose scale is not zero, and zeros for the others."""
    if all_count(scales):
        return values
    if for_kernels(values):
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        return kernels.rows_kept(values, scales)
    return torch.where(scales.view(-1, *[1] * (values.ndim - 1)) > 0, values, 0)


def worth_keeping(size: int, inputs: int, device: torch.device) -> bool:
    """Whether gradients of ``size`` numbers a unit are written out once, for norms and sum alike.

    A processor's time goes into the products: one then serves both. The gradients are kept between
    the two, so they must not be larger than the ``inputs`` they are made of, which are kept anyway.
    """
    return device.type == "cpu" and size <= inputs


def in_parts(units: int, size: int, largest: int = LARGEST_TEMPORARY) -> list[tuple[int, int]]:
    """Slices of units such that ``size`` numbers a unit stay within the largest temporary."""
    step = max(1, largest // max(1, size))
    return [(start, min(start + step, units)) for start in range(0, units, step)]


@final
@dataclass(frozen=True, slots=True)
class Dense:
    """``values[i]`` is unit i's gradient. ``squares`` are its norms, where they are known."""

    values: Tensor
    squares: Tensor | None = None  # (pieces, units): as ``squared_norms`` returns them

    @property
    def units(self) -> int:
        """How many units there are."""
        return len(self.values)

    @property
    def way(self) -> str:
        """How the norms are found."""
        return "written out"

    @property
    def temporary(self) -> int:
        """The gradients themselves."""
        return self.values.numel()

    def squared_norms(self) -> Tensor:
        """See ``Form``."""
        return squared_parts(self.values) if self.squares is None else self.squares

    def uncancelled(self) -> Tensor:
        """See ``Form``."""
        return added_up(self.squared_norms())

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """See ``Form``."""
        if for_kernels(self.values):
            from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

            return kernels.rows_sum(self.values, scales)
        rows, wide = kept(self.values, scales), accumulator(self.values.dtype)
        if rows.ndim != 2:
            rows = rows.unsqueeze(-1).flatten(1)
        return (scales.to(wide) @ rows.to(wide)).view(self.values.shape[1:])

    def dense(self) -> Tensor:
        """See ``Form``."""
        return self.values

    def part(self, start: int, stop: int) -> Dense:
        """See ``Form``."""
        squares = None if self.squares is None else self.squares[:, start:stop]
        return Dense(self.values[start:stop], squares)


@final
@dataclass(frozen=True, slots=True)
class Nothing:
    """Gradients that are zero, whatever the inputs hold: no loss has reached the weight yet.

    ``marks`` has 0 for each unit, or NaN for one whose loss is not finite: such a one adds nothing.
    """

    marks: Tensor
    weight: Tensor

    @property
    def units(self) -> int:
        """How many there are."""
        return len(self.marks)

    @property
    def way(self) -> str:
        """There is nothing to find."""
        return "no gradient yet"

    @property
    def temporary(self) -> int:
        """None."""
        return 0

    def squared_norms(self) -> Tensor:
        """See ``Form``."""
        return self.marks.to(accumulator(self.weight.dtype))

    def uncancelled(self) -> Tensor:
        """See ``Form``."""
        return self.squared_norms()

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """See ``Form``."""
        del scales
        kind, device = accumulator(self.weight.dtype), self.weight.device
        return torch.zeros(self.weight.shape, dtype=kind, device=device)

    def dense(self) -> Tensor:
        """See ``Form``."""
        entries = self.squared_norms().reshape(-1, *[1] * self.weight.ndim)
        return entries.expand(-1, *self.weight.shape)

    def part(self, start: int, stop: int) -> Nothing:
        """See ``Form``."""
        return Nothing(self.marks[start:stop], self.weight)


def summed(grad: Tensor, factor: Tensor | None = None) -> Dense:
    """Σ_t grad_t·factor_t, or Σ_t grad_t: from (units, terms, size), in single precision at least.

    With kernels the norms come with the sum: one pass gives both.
    """
    given = (grad,) if factor is None else (grad, factor)
    if for_kernels(*given) and (grad.shape[1] > 1 or factor is not None):
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        return Dense(*kernels.term_sums(grad, factor))
    wide = accumulator(grad.dtype)
    if factor is not None:
        return Dense((grad.to(wide) * factor.to(wide)).sum(1))
    return Dense(grad[:, 0].to(wide) if grad.shape[1] == 1 else grad.sum(1, dtype=wide))


@final
@dataclass(frozen=True, slots=True)
class Outer:
    """Unit i's gradient is Σ_t ``left[i, t]`` ⊗ ``right[i, t]``, reshaped to ``shape``.

    ``order`` permutes the axes of ``shape`` into those of the weight, where they differ.
    ``left_squares`` are the squared lengths of the only term's left side, where they are known;
    ``squares`` are the squared norms, where those are.
    """

    left: Tensor  # (units, terms, p)
    right: Tensor  # (units, terms, q)
    shape: tuple[int, ...]
    order: tuple[int, ...] | None = None
    left_squares: Tensor | None = None  # (units,)
    squares: Tensor | None = None  # (1, units)
    _kept: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def units(self) -> int:
        """How many units there are."""
        return self.left.shape[0]

    @property
    def _terms(self) -> int:
        return self.left.shape[1]

    @property
    def _size(self) -> int:
        return self.left.shape[2] * self.right.shape[2]

    @property
    def way(self) -> str:
        """How the norms are found."""
        if self._terms == 1:
            return "product of norms"
        if self._keeps or self._is_long:
            return "written out"
        if self._fused:
            return "fused Gram matrices" if self._by_gram else "fused product"
        return "Gram matrices" if self._by_gram else "written out in slices"

    @property
    def temporary(self) -> int:
        """Two Gram matrices, or a slice of gradients; a number for each piece of a fused kernel."""
        if self._terms == 1:
            return self.units
        if self._keeps or self._is_long:
            return self.units * self._size
        if self._fused:
            return self.units * math.ceil(self._work / _GRAM_BLOCK**3)
        size = 2 * self._terms**2 if self._by_gram else self._size
        return min(self.units * size, max(size, LARGEST_TEMPORARY))

    @property
    def _keeps(self) -> bool:
        """Whether gradients are written out once: then they are what is added up, as they are."""
        inputs = self._terms * (self.left.shape[2] + self.right.shape[2])
        if self._narrow:
            return _SMALLER * self._size <= inputs
        return self._terms > 1 and worth_keeping(self._size, inputs, self.left.device)

    @property
    def _is_long(self) -> bool:
        """Whether a weight that is used once has its gradients written out, in bfloat16.

        They take no more memory than the sides, which are kept anyway.
        """
        if not for_kernels(self.left, self.right) or self._narrow:
            return False
        sizes = (self.left.shape[2], self.right.shape[2])
        kinds = {self.left.dtype, self.right.dtype}
        fits = self._size <= self._terms * sum(sizes) and not any(one % _EVEN for one in sizes)
        return self._terms >= _LONG and kinds == _WRITTEN_HALF and fits

    def norms_alone(self) -> Tensor:
        """``squared_norms`` of a weight that has no other use.

        What is written out may then be rounded: these very numbers are scaled and added up.
        """
        if not self._is_long:
            return self.squared_norms()
        self._kept[:] = [torch.bmm(self.left.mT, self.right)]
        return squared_parts(self._kept[0])

    @property
    def _fused(self) -> bool:
        """Whether kernels find the norms. Many products of single precision are a library's."""
        if not for_kernels(self.left, self.right) or self.left.dtype != self.right.dtype:
            return False
        if self._terms <= 1 or self.left.dtype != torch.float32:
            return self._terms > 0
        if tf32_matrices() and self._gram_pays:
            return True
        return self.units * self._work <= _FEW_PRODUCTS

    @property
    def _work(self) -> int:
        """The products that a kernel takes for one unit's norm."""
        return min(self._gram_work, self._product_work)

    @property
    def _gram_pays(self) -> bool:
        return 4 * self._gram_work <= 3 * self._product_work  # whose blocks are the larger

    @property
    def _gram_work(self) -> int:
        """Of Gram matrices in blocks, each pair of blocks once."""
        blocks = math.ceil(self._terms / _GRAM_BLOCK)
        block = _GRAM_BLOCK if blocks > 1 else max(_LEAST_SIDE, 1 << (self._terms - 1).bit_length())
        return blocks * (blocks + 1) // 2 * block**2 * (self.left.shape[2] + self.right.shape[2])

    @property
    def _product_work(self) -> int:
        """Of the gradient itself."""
        left, right = (max(_LEAST_SIDE, side.shape[2]) for side in (self.left, self.right))
        return self._terms * left * right

    @property
    def _by_gram(self) -> bool:
        if self._fused:
            return self._gram_pays
        if self.left.device.type == "cpu":
            return True  # what is not kept costs more products than the Gram form
        return self._terms**2 <= self._size  # what is written then is smaller, too

    def squared_norms(self) -> Tensor:
        """See ``Form``. ‖Σ l_t⊗r_t‖² = Σ_{s,t} ⟨l_s, l_t⟩⟨r_s, r_t⟩ (Li et al. 2022, eq. 3)."""
        if self.squares is not None:
            return self.squares
        if self._keeps:
            self._kept[:] = [matmul(self.left.mT, self.right)]
            return squared_parts(self._kept[0])
        if self._fused:
            return self._fused_norms()
        if self._terms == 1:
            own = self.left_squares
            return (squared_sum(self.left) if own is None else own) * squared_sum(self.right)
        one = _gram_norms if self._by_gram else _written_norms
        size, raised = 2 * self._terms**2 if self._by_gram else self._size, self._cover
        slices = in_parts(self.units, size)
        parts = [one(self.left[a:b], self.right[a:b], raised) for a, b in slices]
        return parts[0] if len(parts) == 1 else torch.cat([*parts, self.left.new_zeros(0)])

    @property
    def _narrow(self) -> bool:
        """Whether reading a side takes longer than multiplying it: one kernel then reads it once.

        A library's product would need scaled copies of both sides first.
        """
        if not for_kernels(self.left, self.right) or self.left.dtype != self.right.dtype:
            return False
        few = min(self.left.shape[2], self.right.shape[2]) <= _GRAM_BLOCK
        return few and self.left.dtype == torch.bfloat16

    def _fused_norms(self) -> Tensor:
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        if self._terms == 1:
            return kernels.product_of_squares(self.left, self.right)
        left, right = aligned(self.left), aligned(self.right)
        norms = kernels.gram_norms if self._by_gram else kernels.product_norms
        return norms(left, right, self._cover)

    @property
    def _cover(self) -> tuple[float, float]:
        """What the sum may be off by: a kernel that reads narrow sides scales them finely."""
        if self._narrow:
            return 1.0, self._terms * rounding(torch.float32)
        return cover(self._terms, self.left)

    @property
    def outstanding(self) -> tuple[float, float]:
        """What a sum with others is still to be raised by: as ``cover`` says, of N² and of Q.

        N² is that of the sum. ``squared_norms`` hold the share of Q unless there is but one term,
        of which they are Q: what is rounded is small beside a norm that nothing cancels.
        """
        grow, share = self._cover
        return grow, share if self._terms == 1 else 0.0

    def uncancelled(self) -> Tensor:
        """See ``Form``: (Σ‖l_t‖‖r_t‖)² ≤ terms·Σ‖l_t‖²‖r_t‖²."""
        squares = [_squared_lengths_of_terms(side) for side in (self.left, self.right)]
        return self._terms * (squares[0] * squares[1]).sum(1)

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """See ``Form``. Sides are scaled in single precision where no kernel serves."""
        if self._kept:
            return self._shaped(Dense(self._kept.pop()).weighted_sum(scales), ())
        if self._narrow:
            from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

            return self._shaped(kernels.weighted_product(self.left, self.right, scales), ())
        wide = self._wide
        left, right, every = self.left, self.right, all_count(scales)
        if left.shape[2] <= right.shape[2]:  # the smaller side is the one to copy
            left = weighed(left, scales, wide)
            right = (right if every else kept(right, scales)).to(wide)
        else:
            left = (left if every else kept(left, scales)).to(wide)
            right = weighed(right, scales, wide)
        return self._shaped(_added_products(left.flatten(0, 1), right.flatten(0, 1)), ())

    @property
    def _wide(self) -> torch.dtype:
        """What sides are scaled in."""
        kind = torch.promote_types(self.left.dtype, self.right.dtype)
        kernels = for_kernels(self.left, self.right) and not self._is_scarce
        return kind if kernels else accumulator(kind)

    @property
    def repairs(self) -> bool:
        """Whether ``repaired_sum`` serves: it reads and writes less than ``weighted_sum``."""
        plain = not (self._narrow or self._is_scarce or self._kept)
        return plain and for_kernels(self.left, self.right)

    @property
    def _is_scarce(self) -> bool:
        """Whether a side is float16, which has no small numbers for what a scale leaves of it."""
        return torch.float16 in (self.left.dtype, self.right.dtype)

    def repaired_sum(self, scales: Tensor, finite: Tensor) -> Tensor:
        """``weighted_sum`` on a device, given whether all norms are ``finite`` there.

        If they are, no side holds NaN or ∞, and only one of them, the smaller, must be copied to be
        scaled; the product is computed again where they are not.
        """
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        left, right = self.left, self.right
        if left.shape[2] <= right.shape[2]:
            left = weighed(left, scales)
        else:
            right = weighed(right, scales)
        wide = matmul(aligned(left).flatten(0, 1).mT, aligned(right).flatten(0, 1))
        product = wide[: left.shape[2], : right.shape[2]].contiguous()
        repaired = kernels.repair(product, self.left, self.right, scales, finite)
        return self._shaped(repaired, ())

    def dense(self) -> Tensor:
        """See ``Form``."""
        return self._shaped(matmul(self.left.mT, self.right), (self.units,))

    def part(self, start: int, stop: int) -> Outer:
        """See ``Form``."""
        known = None if self.left_squares is None else self.left_squares[start:stop]
        norms = None if self.squares is None else self.squares[:, start:stop]
        sides = self.left[start:stop], self.right[start:stop]
        return Outer(*sides, self.shape, self.order, known, norms)

    @property
    def is_small(self) -> bool:
        """Whether ``kernels.several_products`` serves: one product for several weights."""
        alone = self._terms == 1 and self.left.dtype == self.right.dtype == torch.float32
        return (
            alone
            and for_kernels(self.left, self.right)
            and self._size <= _SMALL_WEIGHT
            and self.units * self._size <= _SMALL_PRODUCT
        )

    def shaped(self, matrix: Tensor) -> Tensor:
        """A sum of outer products in the weight's shape."""
        return self._shaped(matrix, ())

    def _shaped(self, matrix: Tensor, leading: tuple[int, ...]) -> Tensor:
        shaped = matrix.reshape(*leading, *self.shape)
        if self.order is None:
            return shaped
        skip = len(leading)
        return shaped.permute(*range(skip), *(axis + skip for axis in self.order))


def _added_products(left: Tensor, right: Tensor) -> Tensor:
    """leftᵀ·right. On a processor the product with fewer rows takes less time, turned or not."""
    if left.device.type != "cpu" or left.shape[1] <= right.shape[1]:
        return matmul(left.mT, right)
    return matmul(right.mT, left).mT.contiguous()


def _gram_norms(left: Tensor, right: Tensor, raised: tuple[float, float]) -> Tensor:
    return gram_total(matmul(left, left.mT) * matmul(right, right.mT), raised)


def _written_norms(left: Tensor, right: Tensor, raised: tuple[float, float]) -> Tensor:
    squares = _squared_lengths_of_terms(left) * _squared_lengths_of_terms(right)
    return raised[0] * squared_sum(matmul(left.mT, right)) + raised[1] * squares.sum(1)


def _squared_lengths_of_terms(side: Tensor) -> Tensor:
    wide = side.to(accumulator(side.dtype))
    squares: Tensor = torch.linalg.vector_norm(wide, dim=2).square()
    return squares


@final
@dataclass(frozen=True, slots=True)
class OneHot:
    """Unit i's gradient has Σ_t ``right[i, t]`` over those t with ``ids[i, t] = v`` in row v."""

    ids: Tensor  # (units, terms)
    right: Tensor  # (units, terms, q)
    shape: tuple[int, ...]  # of the table: (rows, ...)

    @property
    def units(self) -> int:
        """How many units there are."""
        return self.ids.shape[0]

    @property
    def way(self) -> str:
        """How the norms are found."""
        return "norms of rows" if self.ids.shape[1] == 1 else "Gram matrix of equal ids"

    @property
    def temporary(self) -> int:
        """One Gram matrix a unit, or a number for each piece of a fused kernel."""
        if self._fused:
            return self.units * math.ceil(self.ids.shape[1] ** 2 / _GRAM_BLOCK**2)
        size = self.ids.shape[1] ** 2
        return min(self.units * size, max(size, LARGEST_TEMPORARY))

    @property
    def _fused(self) -> bool:
        if not for_kernels(self.right) or self.ids.shape[1] == 0:
            return False
        if self.right.dtype != torch.float32 or tf32_matrices():
            return True
        return self.units * self.ids.shape[1] ** 2 * self.right.shape[2] <= _FEW_PRODUCTS

    def squared_norms(self) -> Tensor:
        """See ``Form``: Σ_{s,t} [id_s = id_t]·⟨r_s, r_t⟩."""
        if self.ids.shape[1] == 1:
            return squared_sum(self.right)
        if self._fused:
            from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

            return kernels.equal_id_norms(self.ids, self.right, self._cover)
        parts = [
            _equal_ids_norms(self.ids[a:b], self.right[a:b], self._cover)
            for a, b in in_parts(self.units, self.ids.shape[1] ** 2)
        ]
        return parts[0] if len(parts) == 1 else torch.cat([*parts, self.right.new_zeros(0)])

    @property
    def _cover(self) -> tuple[float, float]:
        """Rows are scaled and added up in single precision: only TF32 rounds, in the norm."""
        terms = self.ids.shape[1]
        if self.right.element_size() == 2:
            return 1.0, terms * rounding(torch.float32)
        return cover(terms, self.right)

    def uncancelled(self) -> Tensor:
        """See ``Form``."""
        return self.ids.shape[1] * _squared_lengths_of_terms(self.right).sum(1)

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """See ``Form``."""
        wide = accumulator(self.right.dtype)
        rows = weighed(self.right, scales, wide).flatten(0, 1)
        table = torch.zeros(self.shape[0], rows.shape[1], dtype=wide, device=rows.device)
        return table.index_add_(0, self.ids.flatten(), rows).view(self.shape)

    def dense(self) -> Tensor:
        """See ``Form``."""
        wide = accumulator(self.right.dtype)
        size = (self.units, self.shape[0], self.right.shape[2])
        table = torch.zeros(size, dtype=wide, device=self.right.device)
        where = self.ids[:, :, None].expand_as(self.right)
        return table.scatter_add_(1, where, self.right.to(wide)).view(self.units, *self.shape)

    def part(self, start: int, stop: int) -> OneHot:
        """See ``Form``."""
        return OneHot(self.ids[start:stop], self.right[start:stop], self.shape)


def _equal_ids_norms(ids: Tensor, right: Tensor, raised: tuple[float, float]) -> Tensor:
    equal = ids[:, :, None] == ids[:, None, :]
    return gram_total(torch.where(equal, matmul(right, right.mT), 0), raised)
