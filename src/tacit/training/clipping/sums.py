"""From recorded uses and their gradients to norms, scales and clipped sums."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast, final

import torch

from tacit.training.clipping.forms import (
    Convolution,
    Dense,
    Form,
    Nothing,
    OneHot,
    Outer,
    Projected,
)
from tacit.training.clipping.forms.matrix import (
    LARGEST_TEMPORARY,
    added_up,
    coarse_share,
    for_kernels,
    has_triton,
    in_parts,
    matmul,
    rounding,
    squared_sum,
    tf32_convolutions,
    tf32_matrices,
    whole_norms,
)
from tacit.training.clipping.structure import is_packed

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from tacit.training.clipping.structure import Origin


_LARGEST_ON_GPU = 2**27  # numbers: half a gigabyte, for few launches
_SMALL = 2**14  # numbers of one gradient that is put beside others, to be added up with them


@final
@dataclass(frozen=True, slots=True)
class Contribution:
    """The per-unit gradients of one weight in one use, and where that weight comes from."""

    origin: Origin
    form: Form
    weight: Tensor | None  # only for an expression, whose graph leads to the parameters


@final
@dataclass(frozen=True, slots=True)
class Scaling:
    """How gradients are clipped: the group of each parameter, and the style's numbers."""

    group: Mapping[str, int]
    groups: int
    stability: float | None  # γ of automatic clipping; None: clip only what exceeds the bound
    slack: float  # the margin of the norms' rounding
    loss_scale: float  # what the losses were multiplied by before the backward pass


@final
@dataclass(frozen=True, slots=True)
class BatchSums:
    """What one batch comes to: private until noise is added."""

    squared_norms: Tensor  # (groups, units)
    scales: Tensor  # (groups, units)
    sums: dict[str, Tensor]  # Σ scale·gradient, by parameter name
    borrowed: bool = False  # whether the next batch may write over all this


class Sink(Protocol):
    """Takes the sums of some parameters as they are complete, so that nobody keeps them."""

    names: frozenset[str]

    def take(self, name: str, total: Tensor) -> None:
        """Takes the sum of a parameter."""


def clipped_sums(
    parameters: Mapping[str, Tensor],
    contributions: Sequence[Contribution],
    entangled: frozenset[str],
    scaling: Scaling,
    bounds: Tensor,
    mask: Tensor,
    sink: Sink | None = None,
) -> BatchSums:
    """Norms, scales and sums of one batch. ``entangled`` parameters are written out in slices.

    With ``sink``, the sums that it names go there as soon as they are complete, and are not kept.

    Guarantee:
        Each unit's part of ``sums`` has an L2 norm of at most √Σ bounds², over all parameters.
    """
    contributions = _added_where_written(contributions)
    norms = _squared_norms(parameters, contributions, entangled, scaling, mask)
    if scaling.loss_scale != 1:
        norms = norms / scaling.loss_scale**2
    factors = scales_of(norms, bounds, stability=scaling.stability, slack=scaling.slack, mask=mask)
    weights = factors if scaling.loss_scale == 1 else factors / scaling.loss_scale
    sums = _sums(parameters, contributions, scaling, weights, norms, sink)
    return BatchSums(norms, factors, sums)


def _added_where_written(contributions: Sequence[Contribution]) -> list[Contribution]:
    """Gradients that several uses of one weight wrote out become one: what is clipped is their sum.

    Scaled one by one, large ones that cancel would be rounded by more than their sum's clip.
    """
    found: dict[object, Contribution] = {}
    for at, one in enumerate(contributions):
        written = isinstance(one.form, Dense) and one.weight is None
        key = one.origin if written else at
        if key in found:
            values = cast("Dense", found[key].form).values + cast("Dense", one.form).values
            found[key] = replace(one, form=Dense(values))
        else:
            found[key] = one
    return list(found.values())


def _squared_norms(
    parameters: Mapping[str, Tensor],
    contributions: Sequence[Contribution],
    entangled: frozenset[str],
    scaling: Scaling,
    mask: Tensor,
) -> Tensor:
    """(groups, units). Added up in double precision: there are only as many numbers as units."""
    forms: dict[str, dict[object, list[Form]]] = {}
    for one in contributions:
        for name in one.origin.names:
            forms.setdefault(name, {}).setdefault(one.origin.view, []).append(one.form)
    found: list[list[Tensor]] = [[] for _ in range(scaling.groups)]
    for name in parameters:
        if name not in entangled and name in forms:
            found[scaling.group[name]] += map(merged_squared_norms, forms[name].values())
    if entangled:
        for name, squared in _entangled_norms(parameters, contributions, entangled).items():
            found[scaling.group[name]].append(squared)
    totals = [_added_up(norms, mask) for norms in found]
    return torch.stack(totals) if len(totals) > 1 else totals[0].unsqueeze(0)


def _added_up(norms: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Σ of squared norms, whole or in parts, in double precision; on a device in few launches."""
    if not norms:
        return torch.zeros(mask.shape[0], dtype=torch.float64, device=mask.device)
    if not _is_device(mask):
        each = [added_up(one) for one in norms]
        if len({one.dtype for one in each}) == 1:
            return torch.stack(each).sum(0, dtype=torch.float64)
        return sum(each[1:], start=each[0].double())
    alike: dict[Hashable, list[Tensor]] = {}
    for one in norms:
        whole = one[0] if one.ndim == 2 and len(one) == 1 else one
        alike.setdefault((whole.dtype, whole.shape), []).append(whole)
    few = _few_totals(list(alike.values()))
    if few is not None:
        return few
    sums: list[Tensor] = []
    for same in alike.values():
        stacked = torch.stack(same)
        wholes = stacked if stacked.ndim == 2 else whole_norms(stacked.sum(1))
        sums.append(wholes.sum(0, dtype=torch.float64))
    return sum(sums[1:], start=sums[0])


def _few_totals(alike: Sequence[Sequence[Tensor]]) -> Tensor | None:
    """The sum of a few weights' whole norms, in one launch; None where they are others."""
    if len(alike) != 1 or alike[0][0].ndim != 1 or not for_kernels(*alike[0]):
        return None
    from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

    return kernels.totals(alike[0]) if len(alike[0]) <= kernels.MOST_ROWS else None


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
            for name, pulled in _pulled_back(parameters, involved, names, start, stop).items():
                parts[name].append(_norms_of_sum(pulled))
        norms |= {name: torch.cat(one) for name, one in parts.items() if one}
    return norms


def hidden_squares(
    forms: Sequence[Form], dtype: torch.dtype | None = None, coarse: float = 0.0
) -> Tensor:
    """What to add to the squared norm of a sum of forms that are scaled and summed one by one.

    ``dtype`` is that of the sums, where it is narrower than single precision; ``coarse`` the
    largest ``coarse_share`` of the forms, where their norms do not hold it.
    """
    bounds = [form.uncancelled() for form in forms]
    total = sum(bounds[1:], start=bounds[0])
    return len(forms) * max(coarse, rounding(dtype or total.dtype)) * total


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
) -> dict[str, list[Tensor]]:
    """What every use adds to the gradients of the parameters."""
    found: dict[str, list[Tensor]] = {}
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
                found.setdefault(name, []).append(gradient)
    return found


def _norms_of_sum(parts: Sequence[Tensor]) -> Tensor:
    squared = squared_sum(sum(parts[1:], start=parts[0]))
    if len(parts) == 1:
        return squared
    return squared + hidden_squares([Dense(one) for one in parts], parts[0].dtype)


def _sums(
    parameters: Mapping[str, Tensor],
    contributions: Sequence[Contribution],
    scaling: Scaling,
    factors: Tensor,
    norms: Tensor,
    sink: Sink | None,
) -> dict[str, Tensor]:
    """Σ factor·gradient by parameter."""
    sums: dict[str, Tensor] = {}
    last = {name: at for at, one in enumerate(contributions) for name in one.origin.names}
    device = _is_device(factors)  # where launches and copies take longest
    together = _small_products(contributions, scaling, factors) if device else {}
    together |= _small_sums(contributions, scaling, factors, together) if device else {}
    finite: Tensor | None = None
    for at, one in enumerate(contributions):
        for group in sorted({scaling.group[name] for name in one.origin.names}):
            if (at, group) in together:
                total = together[at, group]
            elif device and _repairs(one):
                if finite is None:
                    # Squares: what is not finite makes their sum ∞ or NaN, which is not below ∞.
                    finite = norms.sum() < math.inf
                total = cast("Outer", one.form).repaired_sum(factors[group], finite)
            else:
                total = one.form.weighted_sum(factors[group])
            for name, value in _to_parameters(parameters, one, total):
                if scaling.group[name] == group:
                    sums[name] = sums[name] + value if name in sums else value
        if sink is not None:
            for name in (n for n in one.origin.names if last[n] == at and n in sink.names):
                if name in sums:
                    sink.take(name, sums.pop(name))
    return sums


def _is_device(tensor: Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.is_cuda  # and no compiler's stand-in for one


def _repairs(one: Contribution) -> bool:
    """Whether a product may be computed from what may not be finite, and again if it is not.

    Norms show it: they hold every entry of the gradients of a weight that is no expression.
    """
    return isinstance(one.form, Outer) and one.weight is None and one.form.repairs


def _small_products(
    contributions: Sequence[Contribution], scaling: Scaling, factors: Tensor
) -> dict[tuple[int, int], Tensor]:
    """The weighted sums of small matrices of one term, and of their biases, by contribution.

    On a device four of them take two launches, where a library's product takes three for each.
    """
    alike: dict[int, list[tuple[int, int | None]]] = {}  # by group: a matrix, and its bias
    for at, one in enumerate(contributions):
        if one.weight is not None or not isinstance(one.form, Outer) or not one.form.is_small:
            continue
        bias = at + 1 if _is_bias(one, contributions[at + 1 : at + 2], scaling) else None
        alike.setdefault(scaling.group[one.origin.names[0]], []).append((at, bias))
    if not alike:
        return {}
    from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

    sums: dict[tuple[int, int], Tensor] = {}
    for group, found in alike.items():
        for start in range(0, len(found), kernels.MOST_PRODUCTS):
            some = found[start : start + kernels.MOST_PRODUCTS]
            forms = [cast("Outer", contributions[at].form) for at, _ in some]
            products = [
                kernels.Product(form.left, form.right, biased=bias is not None)
                for form, (_, bias) in zip(forms, some, strict=True)
            ]
            totals = kernels.several_products(products, factors[group])
            for (at, bias), form, (total, own) in zip(some, forms, totals, strict=True):
                sums[at, group] = form.shaped(total)
                if bias is not None:
                    sums[bias, group] = own
    return sums


def _is_bias(one: Contribution, following: Sequence[Contribution], scaling: Scaling) -> bool:
    """Whether what follows a product is its bias: its gradients are the product's left sides."""
    if not following or not isinstance(one.form, Outer):
        return False
    (other,) = following
    form, left = other.form, one.form.left
    if not isinstance(form, Dense) or other.weight is not None or form.values.dtype != left.dtype:
        return False
    same = (form.values.data_ptr(), form.values.shape, form.values.stride()) == (
        left.data_ptr(), left[:, 0].shape, left[:, 0].stride(),
    )  # fmt: skip
    groups = {scaling.group[name] for name in (*one.origin.names, *other.origin.names)}
    return same and len(groups) == 1


def _small_sums(
    contributions: Sequence[Contribution],
    scaling: Scaling,
    factors: Tensor,
    known: Mapping[tuple[int, int], Tensor],
) -> dict[tuple[int, int], Tensor]:
    """The weighted sums of what is written out and small, and not ``known``, by contribution.

    On a device there is one sum for all biases and norm layers: launches would take longer.
    """
    alike: dict[int, list[tuple[int, Dense]]] = {}
    for at, one in enumerate(contributions):
        form = one.form
        if isinstance(form, Dense) and for_kernels(form.values) and _is_small(form):
            for group in {scaling.group[name] for name in one.origin.names}:
                if (at, group) not in known:
                    alike.setdefault(group, []).append((at, form))
    sums: dict[tuple[int, int], Tensor] = {}
    for group, found in alike.items():
        rows = [form.values.unsqueeze(-1).flatten(1) for _, form in found]
        total = Dense(torch.cat(rows, 1)).weighted_sum(factors[group])
        pieces = total.split([one.shape[1] for one in rows])
        for (at, form), piece in zip(found, pieces, strict=True):
            sums[at, group] = piece.view(form.values.shape[1:])
    return sums


def _is_small(form: Dense) -> bool:
    return form.values.dtype == torch.float32 and form.values[:1].numel() <= _SMALL


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
        return _apart([(name, value) for name, value in pairs if value is not None])
    (name,) = one.origin.names
    if one.origin.view is None:
        return [(name, total)]
    like = parameters[name]
    buffer = torch.empty_strided(
        like.shape, like.stride(), dtype=total.dtype, device=total.device
    ).zero_()
    one.origin.view.of(buffer).copy_(total)
    return [(name, buffer)]


def _apart(pairs: Sequence[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """Gradients in memory of their own: the next batch is added to them where they lie.

    Of a sum of two parameters autograd returns one tensor twice, to which it would be added twice.
    """
    seen: set[int] = set()
    found: list[tuple[str, Tensor]] = []
    for name, value in pairs:
        memory = value.untyped_storage()._cdata
        own = memory not in seen and is_packed(value)
        seen.add(memory)
        found.append((name, value if own else value.clone(memory_format=torch.contiguous_format)))
    return found


# ---- norms of weights that are used several times


def merged_squared_norms(forms: Sequence[Form]) -> Tensor:
    """‖Σ_u g_u‖² for the uses u of one weight (tied, reused, siamese, recurrent).

    Whole or in parts, as forms return it.
    """
    forms = [form for form in forms if not isinstance(form, Nothing)] or forms[:1]
    if len(forms) == 1:
        form = forms[0]
        return form.norms_alone() if isinstance(form, Outer) else form.squared_norms()
    merged = _joined(forms)
    if len(merged) == 1:
        return added_up(merged[0].squared_norms()) + hidden_squares(merged)
    if len(merged) == 2:
        table, product = sorted(merged, key=lambda form: not isinstance(form, OneHot))
        if isinstance(table, OneHot) and isinstance(product, Outer) and product.order is None:
            return _tied_squared_norms(table, product)
    coarse = max(map(_coarse_share, merged))
    return _written_squared_norms(merged) + hidden_squares(merged, coarse=coarse)


def _coarse_share(form: Form) -> float:
    if isinstance(form, Outer):
        return coarse_share(form.left)
    return form.coarse_share if isinstance(form, (Convolution, Projected)) else 0.0


def _joined(forms: Sequence[Form]) -> list[Form]:
    """Forms of one kind are one longer form.

    Products of different precisions are not: each rounds its sum in its own.
    """
    joined: list[Form] = []
    outer: dict[Hashable, list[Outer]] = {}
    for form in forms:
        if isinstance(form, Outer):
            kind = (form.shape, form.order, form.left.dtype, form.right.dtype)
            outer.setdefault(kind, []).append(form)
    for group in outer.values():
        if len(group) == 1:  # the very form, which may keep what its sum needs
            joined.append(group[0])
            continue
        left, right = (_cat([getattr(form, side) for form in group]) for side in ("left", "right"))
        joined.append(Outer(left, right, group[0].shape, group[0].order))
    hot = [form for form in forms if isinstance(form, OneHot)]
    if hot:
        ids, right = _cat([form.ids for form in hot]), _cat([form.right for form in hot])
        joined.append(OneHot(ids, right, hot[0].shape))
    dense = [form for form in forms if isinstance(form, Dense)]
    if len(dense) == 1:
        joined.append(dense[0])
    elif dense:
        joined.append(Dense(sum((one.values for one in dense[1:]), start=dense[0].values)))
    return joined + [form for form in forms if not isinstance(form, (Outer, OneHot, Dense))]


def _cat(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    kind = parts[0].dtype
    for part in parts[1:]:
        kind = torch.promote_types(kind, part.dtype)
    return torch.cat([part.to(kind) for part in parts], 1)


def _tied_squared_norms(table: OneHot, product: Outer) -> Tensor:
    """A table that also serves as the output layer: ⟨e_id ⊗ r, l ⊗ r'⟩ = l[id]·⟨r, r'⟩."""
    own, other = added_up(table.squared_norms()), added_up(product.squared_norms())
    total = own + other + 2 * _tied_products(table, product)
    slack = torch.finfo(total.dtype).eps
    grow, share = product.outstanding
    return grow * whole_norms(total) + slack * (own + other) + share * other


def _tied_products(table: OneHot, product: Outer) -> Tensor:
    sides = (table.right, product.left, product.right)
    if for_kernels(*sides) and len({one.dtype for one in sides}) == 1:
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        return kernels.cross_products(table.ids, *sides)
    terms = table.ids.shape[1] * product.left.shape[1]
    crosses = []
    for a, b in in_parts(table.units, 2 * terms):
        hot, full = table.part(a, b), product.part(a, b)
        where = hot.ids[:, None, :].expand(-1, full.left.shape[1], -1)
        kind = torch.promote_types(hot.right.dtype, full.right.dtype)
        inner = matmul(full.right.to(kind), hot.right.to(kind).mT)
        crosses.append((full.left.gather(2, where) * inner).sum((1, 2)))
    return torch.cat([*crosses, crosses[0].new_zeros(0)]) if crosses else table.right.new_zeros(0)


def _written_squared_norms(forms: Sequence[Form]) -> Tensor:
    size = forms[0].part(0, 1).dense().numel()
    parts = []
    for a, b in in_parts(forms[0].units, size):
        dense = [form.part(a, b).dense() for form in forms]
        parts.append(squared_sum(sum(dense[1:], start=dense[0])))
    return torch.cat([*parts, torch.zeros(0, device=parts[0].device)]) if parts else torch.zeros(0)


# ---- scales

# What rounding may hide from a computed norm, and what the weighted products may round up. Products
# in bfloat16 see 8 bits of each factor, TF32 sees 11; entries' errors are independent, so these
# margins are several times what is seen.
_MARGIN = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2**-7}
_TF32_MARGIN = 2**-9
_FULL = ("none", "ieee")  # settings of oneDNN with which products are those of their precision


def margin(dtypes: Iterable[torch.dtype], device: torch.device) -> float:
    """The relative margin that norms get before they are compared with the bound."""
    single = _MARGIN[torch.float32]
    largest = max((_MARGIN.get(dtype, single) for dtype in dtypes), default=single)
    if device.type == "cuda" and largest < _TF32_MARGIN and _uses_tf32():
        return _TF32_MARGIN
    return largest


@contextmanager
def fine_products(device: torch.device) -> Iterator[None]:
    """On a CPU, products of single precision in single precision, whatever else was allowed.

    ``torch.set_float32_matmul_precision("medium")`` allows oneDNN bfloat16, which processors with
    AMX then take; the margin of single precision does not hold that.
    """
    library: Any = torch.backends.mkldnn  # torch has no annotations for it
    coarse = []
    if device.type == "cpu":
        kinds = (library.matmul, library.conv)
        coarse = [(one, one.fp32_precision) for one in kinds if one.fp32_precision not in _FULL]
    try:
        for one, _ in coarse:
            one.fp32_precision = "ieee"
        yield
    finally:
        for one, before in coarse:
            one.fp32_precision = before


def _uses_tf32() -> bool:
    return tf32_matrices() or tf32_convolutions()


def scales_of(
    squared_norms: Tensor, bounds: Tensor, *, stability: float | None, slack: float, mask: Tensor
) -> Tensor:
    """The factor of every unit in every group, shape (groups, units), from norms of that shape.

    Without ``stability`` min(1, C/‖g‖) (Abadi et al. 2016); with it C/(‖g‖ + γ) (Bu et al. 2023,
    AUTO-S). A unit whose norm is not finite in some group, or that ``mask`` leaves out, gets 0.

    Guarantee:
        ‖scale·g‖ ≤ C for every unit, as long as the computed norm is within ``slack`` of the true.
    """
    if _is_device(squared_norms) and has_triton():
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        return kernels.scales(squared_norms, bounds, mask, stability, slack)
    norms = squared_norms.sqrt() * (1.0 + slack)
    limit = bounds.unsqueeze(1)
    factors = limit / norms.clamp(min=1e-30)
    factors = factors.clamp(max=1.0) if stability is None else limit / (norms + stability)
    usable = mask if _all_finite(squared_norms) else squared_norms.isfinite().all(0) & mask
    return torch.where(usable, factors, 0.0)


def _all_finite(norms: Tensor) -> bool:
    """Whether all norms are known to be finite, without a device or a compiler that waits."""
    plain = type(norms) is torch.Tensor and norms.device.type == "cpu"
    return plain and math.isfinite(float(norms.sum()))  # what is not finite makes the sum so
