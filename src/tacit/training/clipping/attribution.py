"""Which parameters a weight stands for: itself, a view of one, or an expression in several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@final
@dataclass(frozen=True, slots=True)
class View:
    """A strided view of a parameter's storage, relative to the parameter's first entry."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, buffer: Tensor) -> Tensor:
        """The same view of a tensor that is laid out like the parameter."""
        return buffer.as_strided(self.size, self.stride, buffer.storage_offset() + self.offset)


@final
@dataclass(frozen=True, slots=True)
class Origin:
    """Where a weight comes from: the names of its parameters, and the view if it is one.

    ``view`` is None for the parameter itself; ``expression`` marks anything that is neither.
    """

    names: tuple[str, ...]
    view: View | None = None
    expression: bool = False


def origin_of(weight: Tensor, parameters: Mapping[str, Tensor]) -> Origin:
    """How ``weight`` relates to the private parameters."""
    for name, parameter in parameters.items():
        if weight is parameter:
            return Origin((name,))
    names = _leaf_names(weight, parameters)
    if len(names) == 1:
        view = _view(weight, parameters[names[0]])
        if view is not None:
            return Origin(names, view)
    return Origin(names, expression=True)


def separate(origins: Iterable[Origin], parameter: Tensor) -> bool:
    """Whether a parameter's different views meet each of its entries at most once."""
    views = {origin.view for origin in origins}
    if any(origin.expression for origin in origins):
        return False
    if len(views) == 1:
        view = next(iter(views))
        return view is None or _entries(view, parameter).unique().numel() == _count(view)
    if None in views:
        return False
    entries = torch.cat([_entries(view, parameter) for view in views if view is not None])
    different: Tensor = entries.unique()
    return different.numel() == entries.numel()


def _count(view: View) -> int:
    count = 1
    for size in view.size:
        count *= size
    return count


def _entries(view: View, parameter: Tensor) -> Tensor:
    indices = torch.arange(parameter.numel())
    return view.of(indices.as_strided((parameter.numel(),), (1,))).flatten()


def _view(weight: Tensor, parameter: Tensor) -> View | None:
    same = weight.untyped_storage().data_ptr() == parameter.untyped_storage().data_ptr()
    if not same or weight.dtype != parameter.dtype or not is_packed(parameter):
        return None
    offset = int(weight.storage_offset()) - int(parameter.storage_offset())
    return View(tuple(weight.shape), tuple(weight.stride()), offset)


def is_packed(parameter: Tensor) -> bool:
    """Whether the entries fill their stretch of storage, in any order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(parameter.stride(), parameter.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _leaf_names(weight: Tensor, parameters: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The private parameters that ``weight`` was computed from."""
    found = reached_leaves(weight)
    return tuple(name for name, parameter in parameters.items() if id(parameter) in found)


def reached_leaves(tensor: Tensor) -> set[int]:
    """The ids of the leaves that a backward pass from ``tensor`` would reach."""
    found: set[int] = set()
    todo: list[object] = [tensor.grad_fn]
    seen: set[object] = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.add(id(variable))
        following: Sequence[tuple[object, int]] = getattr(node, "next_functions", ())
        todo.extend(one for one, _ in following)
    return found
