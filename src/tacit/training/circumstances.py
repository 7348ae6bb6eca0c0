"""Whether what a recorded step takes for fixed is still as it was.

A replay runs no Python. Code that would have done something else the next time, since a number, a
flag or a tensor that it goes by has changed, must be noticed before. ``dependencies`` finds those
values; here they are remembered, and looked at again before every lot. Most are compared by
identity, in loops that run no line of Python: a look takes about a tenth of a millisecond for GPT-2
with adapters.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar
from itertools import chain, repeat
from operator import attrgetter, is_
from types import CellType, FunctionType, MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import nn

from tacit.training.dependencies import (
    MOST_BYTES,
    SIMPLE,
    content_of,
    dependencies_of,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from tacit.training.dependencies import Container, Place

_DEEPEST = 8  # functions in functions that are compared as they are; some close over themselves
_torch = nn.modules.module  # where hooks of all modules are
_GLOBAL_HOOKS: tuple[dict[int, Any], ...] = (
    _torch._global_forward_hooks, _torch._global_forward_pre_hooks, _torch._global_backward_hooks,
    _torch._global_backward_pre_hooks,
)  # fmt: skip
_REAL = (float, np.floating)
_requires_grad = attrgetter("requires_grad")


@final
class Circumstances:
    """The values that Python code goes by: those of modules, of a function, and torch's switches.

    A recording holds as long as they stay the same. Seen are the attributes, hooks and tensors of
    the model's modules and of others that the function names, and what ``dependencies_of`` finds in
    the function and in the code of the modules' classes. With ``replayed``, tensors of the host
    count by value: a recording keeps the numbers that it was handed.

    >>> model = nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.1))
    >>> before = Circumstances(model, model.forward)
    >>> before.hold(model.forward)
    True
    >>> model[1].p = 0.5
    >>> before.hold(model.forward)
    False
    """

    def __init__(
        self, model: nn.Module, function: Callable[..., Any], *, replayed: bool = True
    ) -> None:
        self._function, self._model = function, model
        found = dependencies_of(function, *model.modules())
        self._parts, self._route = found.parts, found.route
        self._modules, self._taken_from = found.modules, found.taken_from
        self.is_partial = found.is_partial  # whether the function goes by more than is looked at
        own = set(map(id, model.modules()))
        others = [one for one in found.modules if id(one) not in own]
        held_by_others = _held_by(others)
        self._fixed = _Places([*found.fixed, *held_by_others])
        self._places = _Places(found.places)
        beside = [*found.tensors, *chain.from_iterable(map(_tensors, others))]
        self._counted = [one for one in beside if not one.is_inference()]
        tensors = [*model.parameters(), *model.buffers(), *beside]
        self._tensors = [one for one in tensors if _is_memory(one)]
        fed = [one for one in beside if replayed and is_of_host(one) and _is_memory(one)]
        self._contents = [_seen(one, _look(one)) for one in (*found.contents, *fed)]
        self._contents += [_seen(one, _identities) for one in found.collections]
        self._contents += [_seen(one, list) for one in found.keyed]
        self._contents += [_seen(one, _strides) for one in beside if _is_memory(one)]
        hooks = chain.from_iterable(map(_hooks, found.modules))
        holders = (one for one, _, _ in held_by_others)
        self._sized: list[Any] = [*found.sized, *hooks, *holders, *_GLOBAL_HOOKS]
        self._sizes = list(map(len, self._sized))
        self._laid = self._where()
        self._switches = _switches()

    def hold(self, function: Callable[..., Any]) -> bool:
        """Whether ``function`` goes by the same values, which are as they were."""
        if self._sizes != list(map(len, self._sized)) or self._switches != _switches():
            return False
        if not self._fixed.hold() or self._laid != self._where():
            return False
        if not all(_all_same(look(part), before) for part, look, before in self._contents):
            return False
        known = function is self._function or _made_alike(function, self._function)
        if known and self._places.hold():
            return True
        found = dependencies_of(function, *self._model.modules())
        return _all_same(self._parts, found.parts) and _all_same(self._route, found.route)

    @property
    def changes(self) -> list[int]:
        """How often each tensor beside the model's own was written to."""
        return [one._version for one in self._counted]

    @property
    def hindrance(self) -> str:
        """Why what is computed cannot be replayed without its Python, or nothing."""
        paths = {id(module): path for path, module in self._model.named_modules()}
        for module in self._modules:
            hooks = chain.from_iterable(one.values() for one in _hooks(module))
            if not all(map(_is_fsdps, hooks)):
                where = paths.get(id(module), f"of a {type(module).__name__}") or "the model"
                return f"a hook would not be called ({where})"
        if any(_GLOBAL_HOOKS):
            return "a hook would not be called (of all modules)"
        if self._taken_from:
            return (
                f"the model or the loss takes from what a replay leaves alone ({self._taken_from})"
            )
        return ""

    def _where(self) -> tuple[list[int], list[bool]]:
        """Where each tensor's numbers lie, which a recording reads there, and if it is trained."""
        with torch._C.DisableTorchFunction():
            places = list(map(torch.Tensor.data_ptr, self._tensors))
            return places, list(map(_requires_grad, self._tensors))


@final
class _Places:
    """Where values are held, and what lay there; there may be thousands of places."""

    def __init__(self, places: Iterable[Place]) -> None:
        by_look: dict[Callable[[Any, Any, None], Any], list[Place]] = {}
        for place in places:
            by_look.setdefault(_look_at(place[0]), []).append(place)
        self._columns = [(look, *_columns(some)) for look, some in by_look.items()]

    def hold(self) -> bool:
        """Whether the same lies there now: identity tells most at once."""
        for look, holders, keys, values in self._columns:
            if all(map(is_, map(look, holders, keys, repeat(None)), values)):
                continue
            if not all(map(_same, map(look, holders, keys, repeat(None)), values)):
                return False
        return True


def _columns(places: list[Place]) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    holders, keys, values = zip(*places, strict=True)
    return holders, keys, values


def _look_at(holder: Any) -> Callable[[Any, Any, None], Any]:
    """How to ask a holder for what lies at a key, None if nothing does."""
    if isinstance(holder, dict):
        return dict.get
    if isinstance(holder, MappingProxyType):
        return MappingProxyType.get
    if isinstance(holder, list):
        return _entry
    return _content if isinstance(holder, CellType) else getattr


def _entry(holder: list[Any], at: int, default: None) -> Any:
    return holder[at] if at < len(holder) else default


def _content(holder: CellType, _: None, __: None) -> Any:
    return content_of(holder)


def _switches() -> tuple[object, ...]:
    """What of torch's own state decides how something is computed."""
    own = torch._C  # torch.backends reads it through layers of Python
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        own._get_fp32_precision_getter("cuda", "all"),
        own._get_fp32_precision_getter("cuda", "matmul"),
        own._get_fp32_precision_getter("cuda", "conv"),
        own._get_fp32_precision_getter("cuda", "rnn"),
        own._get_cublas_allow_fp16_reduced_precision_reduction(),
        own._get_cublas_allow_bf16_reduced_precision_reduction(),
        own._get_cudnn_enabled(),
        own._get_deterministic_algorithms(),
        own._len_torch_function_stack(),
        own._len_torch_dispatch_stack(),
    )


# ---- what is the same


def _made_alike(one: Any, other: Any, depth: int = 0) -> bool:
    """Whether two functions share code, globals, defaults, and what they close over.

    Then whatever is looked at in one of them is in the other. Functions that they close over may
    be new as well, as long as the same holds of them.
    """
    if _same(one, other):  # a method, which is made at every look
        return True
    if type(one) is not type(other) or depth > _DEEPEST:
        return False
    if type(one) is functools.partial:
        mine, yours = ((p.func, *p.args, *chain(*p.keywords.items())) for p in (one, other))
    elif type(one) is FunctionType:
        if one.__globals__ is not other.__globals__ or vars(one) or vars(other):
            return False
        mine, yours = map(_made_of, (one, other))
    else:
        return False
    pairs = zip(mine, yours, strict=False)
    return len(mine) == len(yours) and all(_made_alike(*pair, depth + 1) for pair in pairs)


def _made_of(function: FunctionType) -> tuple[Any, ...]:
    closed = (content_of(cell) for cell in function.__closure__ or ())
    named = chain.from_iterable((function.__kwdefaults__ or {}).items())
    return (function.__code__, *closed, *(function.__defaults__ or ()), *named)


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, SIMPLE):
        equal = bool(one == other)  # as 0.0 and -0.0 are
        return equal and not (isinstance(one, _REAL) and _signs(one) != _signs(other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, MethodType) and isinstance(other, MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return False


def _all_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    if len(some) != len(others):
        return False
    return all(map(is_, some, others)) or all(map(_same, some, others))


def _signs(number: Any) -> float:
    return math.copysign(1.0, number)


# ---- what changes within itself


def _seen(part: Any, look: Callable[[Any], list[Any]]) -> tuple[Any, Callable[[Any], Any], Any]:
    return part, look, look(part)


def _look(part: Any) -> Callable[[Any], list[Any]]:
    """How to see whether something has changed."""
    match part:
        case torch.Tensor():
            few = part.numel() * part.element_size() <= MOST_BYTES
            return _numbers if few else _count_of_changes
        case ContextVar():
            return _of_context
        case Mapping():
            return _keys_and_values
        case list() | deque() | set():
            return list
        case _:
            return _bytes


def _of_context(part: ContextVar[Any]) -> list[Any]:
    return [value_of(part)]


def _numbers(part: Tensor) -> list[Any]:
    return [part.detach().flatten().view(torch.uint8).numpy().tobytes()]


def _count_of_changes(part: Tensor) -> list[Any]:
    return [part._version]


def _bytes(part: Any) -> list[Any]:
    return [part.tobytes() if isinstance(part, np.ndarray) else bytes(part)]


def _strides(part: Tensor) -> list[Any]:
    return [tuple(part.shape), part.stride()]


def _keys_and_values(part: Mapping[Any, Any]) -> list[Any]:
    return [*part, *part.values(), getattr(part, "default_factory", None)]


def _identities(part: Container) -> list[Any]:
    return list(map(id, part))


# ---- modules and tensors


def is_of_host(tensor: Tensor) -> bool:
    """Whether a tensor is on the host: of one that is, a recording keeps the numbers."""
    return tensor.device.type == "cpu"


def _held_by(others: Iterable[nn.Module]) -> list[tuple[dict[str, Any], str, Any]]:
    """What modules hold that are not the model's own: a criterion, a teacher.

    A session takes care of the model's.
    """
    kinds = ("_parameters", "_buffers", "_modules")  # of code in TorchScript there are none
    held = (vars(one).get(kind) for one in others for kind in kinds)
    plain = (one for one in held if isinstance(one, dict))
    return [(one, key, value) for one in plain for key, value in one.items()]


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]


def _is_memory(tensor: Tensor) -> bool:
    """Whether a tensor is memory and no more, of which an address says where it is."""
    kinds = (torch.Tensor, nn.Parameter)
    return type(tensor) in kinds and tensor.layout == torch.strided


def _is_fsdps(hook: Any) -> bool:
    """Whether a hook is one by which FSDP2 gathers weights: a recording repeats what it did."""
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.fsdp._fully_shard")


def _hooks(module: nn.Module) -> Iterable[dict[int, Any]]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [vars(module)[kind] for kind in kinds if kind in vars(module)]
