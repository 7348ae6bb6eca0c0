"""What a recorded use is about: which parameters its weights are, and where its result keeps rows.

A weight is a parameter, a view of one, or an expression in several.

Rows may lie in any dimension of a result, or in part of one: time-major sequences keep them in
dimension 1; ``x.view(batch * time, d)`` keeps several entries of dimension 0 for each row. Which of
them holds is not guessed from sizes: it is read off the gradient of single losses, which must
vanish at every other row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import _engine_run_backward

from tacit.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_FEWEST = 3  # probes, however early every result has been reached


# ---- the parameters of a weight


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
    _check_linear(weight)
    return Origin(names, expression=True)


def _check_linear(weight: Tensor) -> None:
    """Refuses an expression whose backward pass is Python code, which need not be linear.

    Norms are those of what it makes of each unit's gradient, and the sum is what it makes of the
    sum of scaled ones. Those of torch's own operations are linear.
    """
    for node in _nodes(weight):
        if isinstance(node, BackwardCFunction):
            raise UnsupportedModel(
                f"a private weight is computed by an operation with a backward pass of its own "
                f"({type(node).__name__}), which may change gradients after they are clipped; "
                "compute it by torch's own operations, such as w + (w.sign() - w).detach()"
            )


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
    # The storage itself, not its address: weights that FSDP has let go of have none.
    same = weight.untyped_storage()._cdata == parameter.untyped_storage()._cdata
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
    variables = (getattr(node, "variable", None) for node in _nodes(tensor))
    return {id(one) for one in variables if one is not None}


def _nodes(tensor: Tensor) -> set[object]:
    """The operations that a backward pass from ``tensor`` would go through."""
    todo: list[object] = [tensor.grad_fn]
    seen: set[object] = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        following: Sequence[tuple[object, int]] = getattr(node, "next_functions", ())
        todo.extend(one for one, _ in following)
    return seen


# ---- the rows of a result


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """Rows lie along dimension ``dim``; ``inner`` says how, if several entries belong to a row.

    With ``inner`` the entries of a row follow one another (batch-major); otherwise entry j of every
    row precedes entry j+1 of any (batch-minor). One entry a row is both.
    """

    dim: int = 0
    inner: bool = True


@final
@dataclass(frozen=True, slots=True)
class Rows:
    """How the rows of a batch make up units of privacy, and how one result lays them out."""

    count: int
    per_unit: int = 1
    layout: Layout = Layout()

    @property
    def units(self) -> int:
        """How many units the rows make up."""
        return self.count // self.per_unit

    def split(self, tensor: Tensor) -> Tensor:
        """``tensor`` as (units, entries a unit, …the other dimensions in order)."""
        first = tensor.movedim(self.layout.dim, 0) if self.layout.dim else tensor
        if self.count == 0:
            return first.reshape(0, self.per_unit, *first.shape[1:])
        each = first.shape[0] // self.count
        if each > 1 and not self.layout.inner:
            first = first.unflatten(0, (each, self.count)).transpose(0, 1).flatten(0, 1)
        split: Tensor = first.unflatten(0, (self.units, self.per_unit * each))
        return split

    def terms(self, tensor: Tensor) -> Tensor:
        """``tensor`` as (units, terms, last dimension): what a matrix product works on."""
        rows = tensor.ndim == 2 and self.layout.dim == 0 and tensor.shape[0] == self.count > 0
        if rows and self.per_unit == 1:  # as most are: rows of one entry, each a unit
            return tensor.unsqueeze(1)
        split = self.split(tensor)
        size = 1
        for length in split.shape[1:-1]:
            size *= length
        return split.reshape(split.shape[0], size, split.shape[-1])


def candidates(shape: Sequence[int], rows: int) -> Iterator[Layout]:
    """The layouts that a result of this shape can have, the usual ones first."""
    fitting = [dim for dim, size in enumerate(shape) if size and size % rows == 0]
    for dim in sorted(fitting, key=lambda dim: (shape[dim] != rows, dim)):
        yield Layout(dim, inner=True)
        if shape[dim] != rows:
            yield Layout(dim, inner=False)


def left_open(known: Sequence[Layout], shape: Sequence[int], rows: int) -> list[Layout]:
    """The layouts of ``known``, which other batches have left open, that a result can have here."""
    return [
        one
        for one in candidates(shape, rows)
        if one in known or (shape[one.dim] == rows and Layout(one.dim, inner=False) in known)
    ]


def told_apart(fitting: Sequence[Layout], shape: Sequence[int], rows: int) -> tuple[Layout, ...]:
    """Those and what looks like them here: of rows of one entry, both orders are one.

    In another batch, of longer rows, they are not.
    """
    alike = (Layout(one.dim, inner=False) for one in fitting if shape[one.dim] == rows)
    return tuple(dict.fromkeys([*fitting, *alike]))


def support(gradient: Tensor, dim: int) -> Tensor:
    """Which entries along ``dim`` the gradient touches.

    A row that is not finite has NaN = 0·∞ where another row's loss touches nothing: not counted.
    """
    others = [axis for axis in range(gradient.ndim) if axis != dim]
    nonzero = (gradient != 0) & gradient.isfinite()
    return nonzero.sum(others) > 0 if others else nonzero


def breaks(layout: Layout, gradient: Tensor, row: int, rows: int) -> Tensor:
    """Whether the gradient of one row's loss touches another row's entries; on its device."""
    touched = support(gradient, layout.dim)
    each = touched.shape[0] // rows
    entries = torch.arange(touched.shape[0], device=touched.device)
    owner = entries // each if layout.inner else entries % rows
    return (touched & (owner != row)).any()


def strays(layout: Layout, gradient: Tensor, chosen: Tensor) -> bool:
    """Whether the gradient of the losses of ``chosen`` rows touches another row's entries."""
    touched = support(gradient, layout.dim)
    rows = len(chosen)
    each = touched.shape[0] // rows
    entries = torch.arange(touched.shape[0], device=touched.device)
    owner = entries // each if layout.inner else entries % rows
    return bool((touched & (chosen[owner] == 0)).any())


def gradients_at(
    losses: Tensor, weights: Tensor, taps: Sequence[Tensor], *, keep: bool = False
) -> list[Tensor | None]:
    """∂(Σ weights·losses)/∂taps; None where no loss reaches.

    ``torch.autograd.grad`` would suspend the recorder, which recomputed activations need.
    """
    found = _engine_run_backward(
        (losses,), (weights,), keep, False, tuple(taps), True, accumulate_grad=False
    )
    return list(found)


def layouts(
    losses: Tensor,
    taps: Sequence[Tensor],
    open_: Sequence[Sequence[Layout]],
    real: Sequence[int],
    describe: Sequence[str],
    backward: Callable[[Tensor, Sequence[Tensor]], list[Tensor | None]],
) -> list[list[Layout]]:
    """Of the layouts that are open for each tap, those left; none where no ``real`` row reaches it.

    The loss of row i may depend on row i of a result alone. A result for which no layout makes that
    so belongs to an operation that mixes examples, and is refused by name. Several are left only if
    every row's gradient fits all of them.

    ``backward`` takes losses to their gradients. Those are looked at without a recorder: it takes
    thousands of small operations, which it would look at one by one.
    """
    rows, left = len(losses), [list(one) for one in open_]
    sought = touched(backward(losses, taps))
    reached: set[int] = set()
    for position, row in enumerate(_probes(real)):
        if position >= _FEWEST and all(at in reached and len(left[at]) == 1 for at in sought):
            break
        gradients = backward(losses[row], taps)
        here = sorted(touched(gradients))
        reached.update(here)
        for at, fitting in zip(here, _fitting(gradients, here, left, row, rows), strict=True):
            left[at] = fitting
            if not fitting:
                raise mixed(describe[at], row, could_keep_rows=bool(open_[at]))
    return [fitting if at in reached else [] for at, fitting in enumerate(left)]


def mixed(name: str, row: int, *, could_keep_rows: bool) -> UnsupportedModel:
    """The refusal of a result that keeps no rows apart; not its shape, which lengths decide."""
    if could_keep_rows:
        return UnsupportedModel(
            f"{name} mixes or moves examples: the loss of row {row} depends on other rows there. "
            "Rows must be independent and stay in order in one batch (batch norm, pairwise losses "
            "and in-batch negatives mix them); if they are, freeze it, and train other layers"
        )
    return UnsupportedModel(
        f"{name} mixes or moves examples, or meets numbers that cannot be distinguished from data: "
        "its result has no entry for each row. Experts to which tokens are sent mix them; numbers "
        "that forward makes by torch.tensor(...) belong in a buffer; or freeze it, and train other "
        "layers (PEFT: LoRA on attention)"
    )


def touched(gradients: Sequence[Tensor | None]) -> set[int]:
    """Which of the gradients have an entry that is finite and not zero."""
    there = [(at, one) for at, one in enumerate(gradients) if one is not None]
    answers = _read([((one != 0) & one.isfinite()).any() for _, one in there])
    return {at for (at, _), answer in zip(there, answers, strict=True) if answer}


def _fitting(
    gradients: Sequence[Tensor | None],
    places: Sequence[int],
    open_: Sequence[Sequence[Layout]],
    row: int,
    rows: int,
) -> list[list[Layout]]:
    """The layouts, of those that are open at each place, that one row's gradient there leaves."""
    asked = [(at, layout) for at in places for layout in open_[at]]
    found: dict[int, list[Layout]] = {at: [] for at in places}
    broken = []
    for at, layout in asked:
        gradient = gradients[at]
        assert gradient is not None
        broken.append(breaks(layout, gradient, row, rows))
    for (at, layout), is_broken in zip(asked, _read(broken), strict=True):
        if not is_broken:
            found[at].append(layout)
    return list(found.values())


def _read(answers: Sequence[Tensor]) -> list[bool]:
    """Single entries, in one reading: a GPU is waited for once, and not thousands of times."""
    if not answers:
        return []
    device = answers[0].device
    found: list[bool] = torch.stack([one.to(device) for one in answers]).tolist()
    return found


def _probes(real: Sequence[int]) -> list[int]:
    """The ends and the middle first: a layout that fits them by accident is unlikely."""
    if not real:
        return []
    first = [real[0], real[-1], real[len(real) // 2]]
    return list(dict.fromkeys([*first, *real]))
