"""Any other operation on (data, weights): its vector-Jacobian product, taken example by example.

Exact and slower, for just that operation. It takes it that the rows lie in the first dimension of
the result and of those inputs that are as long there; that assumption is tested, not trusted: the
examples' gradients must add up to the ordinary gradient of the whole call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from tacit.errors import UnsupportedModel
from tacit.training.clipping.forms import Dense, Form
from tacit.training.clipping.recorder import Gradient, Rule
from tacit.training.clipping.structure import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from tacit.training.clipping.recorder import Recorder


@final
@dataclass(frozen=True, slots=True)
class Call:
    """A call, with places for its weights (by slot) and its saved tensors."""

    func: Callable[..., Any]
    spec: TreeSpec
    leaves: tuple[Any, ...]
    weights: tuple[int, ...]  # where in the leaves
    data: tuple[int, ...]
    values: tuple[Tensor, ...]  # the weights, detached

    def __call__(self, weights: Sequence[Tensor], data: Sequence[Tensor]) -> Any:
        """The call's result for these tensors."""
        leaves = list(self.leaves)
        for places, tensors in ((self.weights, weights), (self.data, data)):
            for place, tensor in zip(places, tensors, strict=True):
                leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, self.spec)
        return self.func(*args, **kwargs)


def fallback(
    recorder: Recorder, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Records a call that has no rule of its own."""
    name = getattr(func, "__name__", repr(func))
    in_place = (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE
    if in_place or kwargs.get("out") is not None:
        raise UnsupportedModel(
            f"{name} writes a private weight into a tensor in place; "
            "use the operation that returns a new tensor (x = x + w, torch.cat, torch.where)"
        )
    leaves, spec = tree_flatten((args, kwargs))
    weights = tuple(at for at, leaf in enumerate(leaves) if recorder.is_weight(leaf))
    data = tuple(
        at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and at not in weights
    )
    values = tuple(leaves[at].detach() for at in weights)
    blank = tuple(None if at in (*weights, *data) else leaf for at, leaf in enumerate(leaves))
    call = Call(func, spec, blank, weights, data, values)
    tensors = tuple(leaves[at] for at in data)
    result = call(values, tensors)
    if not isinstance(result, torch.Tensor):
        if not _holds_tensors(result):
            return result
        raise UnsupportedModel(
            f"{name} makes several tensors from data and private weights, for which there is no "
            "exact rule; write it with operations that return one tensor"
        )
    if not (result.is_floating_point() or result.is_complex()):
        return result  # a comparison, say: no gradient passes
    # A copy: the operation's own backward pass may need its result as it is.
    own = result.clone()
    return recorder.use(FALLBACK, tuple(leaves[at] for at in weights), tensors, call, own)


def _holds_tensors(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(value)[0])


def _gradients(of: Gradient) -> tuple[Form | None, ...]:
    call: Call = of.settings
    rows = of.rows.count
    name = getattr(call.func, "__name__", repr(call.func))
    if of.rows.layout != Layout() or of.grad.shape[0] != rows:
        raise UnsupportedModel(
            f"{name} has no rule, and its result does not keep one row per example in its first "
            "dimension, which the exact fallback needs: write it with rows first, or freeze the "
            "weights that enter it, and train other layers"
        )
    along = [tensor.ndim > 0 and tensor.shape[0] == rows for tensor in of.saved]

    def one(grad: Tensor, *data: Tensor) -> tuple[Tensor, ...]:
        inputs = [d.unsqueeze(0) if a else d for d, a in zip(data, along, strict=True)]
        vjp = torch.func.vjp(lambda *weights: call(weights, inputs), *call.values)[1]
        return tuple(vjp(grad.unsqueeze(0)))

    dims = (0, *(0 if a else None for a in along))
    each = torch.func.vmap(one, in_dims=dims, chunk_size=32)(of.grad, *of.saved)
    _check(call, of, each, name)
    units = (of.rows.units, of.rows.per_unit)
    return tuple(Dense(gradient.unflatten(0, units).sum(1)) for gradient in each)


def _check(call: Call, of: Gradient, each: Sequence[Tensor], name: str) -> None:
    """The examples' gradients must add up to the call's own."""
    if not all(bool(one.isfinite().all()) for one in each):
        return  # an example that is not finite will be left out, and the sum says nothing
    vjp = torch.func.vjp(lambda *weights: call(weights, of.saved), *call.values)[1]
    for gradient, whole in zip(each, vjp(of.grad), strict=True):
        size = gradient.reshape(len(gradient), gradient[:1].numel()).norm(dim=1).sum()
        if (gradient.sum(0) - whole).norm() > 1e-3 * size + 1e-30:
            raise UnsupportedModel(
                f"{name} has no rule, and its per-example gradients do not add up to its gradient: "
                "it mixes examples, or keeps them elsewhere than in the first dimension"
            )


_IN_PLACE = frozenset({"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"})
FALLBACK = Rule("fallback", _gradients)
