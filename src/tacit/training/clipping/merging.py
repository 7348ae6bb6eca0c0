"""The norm of a gradient that is a sum over several uses of one weight: cross terms included."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from tacit.training.clipping.forms import Dense, Form, OneHot, Outer
from tacit.training.clipping.forms.form import in_parts, matmul, squared_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def merged_squared_norms(forms: Sequence[Form]) -> Tensor:
    """‖Σ_u g_u‖² for the uses u of one weight (tied, reused, siamese, recurrent)."""
    merged = _joined(forms)
    if len(merged) == 1:
        return merged[0].squared_norms()
    if len(merged) == 2:
        table, product = sorted(merged, key=lambda form: not isinstance(form, OneHot))
        if isinstance(table, OneHot) and isinstance(product, Outer) and product.order is None:
            return _tied_squared_norms(table, product)
    return _written_squared_norms(merged)


def _joined(forms: Sequence[Form]) -> list[Form]:
    """Forms of one kind are one longer form."""
    joined: list[Form] = []
    outer = [form for form in forms if isinstance(form, Outer)]
    for _, same in itertools.groupby(outer, key=lambda form: (form.shape, form.order)):
        group = list(same)
        if len(group) == 1:  # the very form, which may keep what its sum needs
            joined.append(group[0])
            continue
        left, right = (_cat([getattr(form, side) for form in group]) for side in ("left", "right"))
        joined.append(Outer(left, right, group[0].shape, group[0].order))
    hot = [form for form in forms if isinstance(form, OneHot)]
    if hot:
        ids, right = _cat([form.ids for form in hot]), _cat([form.right for form in hot])
        joined.append(OneHot(ids, right, hot[0].shape))
    dense = [form.values for form in forms if isinstance(form, Dense)]
    if dense:
        joined.append(Dense(sum(dense[1:], start=dense[0])))
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
    terms = table.ids.shape[1] * product.left.shape[1]
    crosses = []
    for a, b in in_parts(table.units, 2 * terms):
        hot, full = table.part(a, b), product.part(a, b)
        where = hot.ids[:, None, :].expand(-1, full.left.shape[1], -1)
        kind = torch.promote_types(hot.right.dtype, full.right.dtype)
        inner = matmul(full.right.to(kind), hot.right.to(kind).mT)
        crosses.append((full.left.gather(2, where) * inner).sum((1, 2)))
    own, other = table.squared_norms(), product.squared_norms()
    total = own + other + 2 * torch.cat([*crosses, own.new_zeros(0)])
    slack = torch.finfo(total.dtype).eps
    return total.clamp(min=0) + slack * (own + other)


def _written_squared_norms(forms: Sequence[Form]) -> Tensor:
    size = forms[0].part(0, 1).dense().numel()
    parts = []
    for a, b in in_parts(forms[0].units, size):
        dense = [form.part(a, b).dense() for form in forms]
        parts.append(squared_sum(sum(dense[1:], start=dense[0])))
    return torch.cat([*parts, torch.zeros(0, device=parts[0].device)]) if parts else torch.zeros(0)
