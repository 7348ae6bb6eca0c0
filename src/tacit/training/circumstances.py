"""What a recorded step takes for fixed: the values that a user's Python code goes by.

A replay runs no Python. Code that would have done something else the next time, since a number, a
flag or a tensor that it goes by has changed, must be noticed before: by looking at those values.
"""

from __future__ import annotations

import argparse
import array
import dataclasses
import dis
import functools
import math
import operator
import os
import random
import sys
import weakref
from collections import deque
from collections.abc import Iterator as AbstractIterator
from collections.abc import Mapping
from contextvars import ContextVar
from enum import Enum
from itertools import chain, islice
from operator import is_
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import Tensor

    Container: TypeAlias = "list[Any] | tuple[Any, ...] | deque[Any] | set[Any] | frozenset[Any]"

# How far into what a function goes by is looked: entries of a container, and parts in all.
_WIDTH, _MOST_PARTS = 64, 1024
_DEEPEST = 8  # functions in functions that are compared as they are; some close over themselves
_MOST_SIMPLE, _MOST_BYTES = 4096, 1 << 16  # of what is compared as a whole
SIMPLE = (bool, int, float, complex, str, bytes, type(None), np.generic)
_CONTAINERS = (list, tuple, deque, set, frozenset)
# Of torch's own objects these keep books, of streams and compiled code for example.
_MACHINERY = (
    "torch._", "torch.autograd", "torch.cuda", "torch.distributed", "torch.fx", "torch.utils",
)  # fmt: skip
_PLAIN = frozenset({"builtins", "numpy"})  # where numbers are that have no attributes
_BY_IDENTITY = (FunctionType, MethodType, BuiltinMethodType, type)  # of a library's modules
_RANDOM = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
# Code of these goes by nothing that a user's program changes meanwhile, but for torch's switches.
_LIBRARIES = frozenset({
    "torch", "numpy", "functools", "transformers", "peft", "tacit", "triton", "torchvision",
}) | sys.stdlib_module_names - {"__main__"}  # fmt: skip
_CALLED = frozenset({"forward", "backward", "setup_context", "__wrapped__"})  # by others
_PLUMBING = frozenset({  # of a class: what is not called where its objects are used
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__repr__", "__str__", "__del__",
    "__setattr__", "__delattr__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__",
    "__copy__", "__deepcopy__", "__class_getitem__", "__set_name__",
})  # fmt: skip
# Code that mentions one of these may ask for any attribute.
_TAKE_ALL = frozenset(
    {"vars", "__dict__", "asdict", "astuple", "__slots__", "attrgetter", "__getattr__"}
)
_PLAIN_BASES = frozenset({"object", "Generic", "Protocol", "ABC", "Module", "Dataset"})
_MODULES_OWN = frozenset(vars(nn.Module())) - {"training"}
_torch = nn.modules.module  # where hooks of all modules are
_GLOBAL_HOOKS: tuple[dict[int, Any], ...] = (
    _torch._global_forward_hooks, _torch._global_forward_pre_hooks, _torch._global_backward_hooks,
    _torch._global_backward_pre_hooks,
)  # fmt: skip
_requires_grad = operator.attrgetter("requires_grad")
# Of a class whose objects only look on: what they keep decides nothing that is computed.
LOOKS_ON = "_only_looks_on"


@final
class Circumstances:
    """The values that Python code goes by: those of modules, of a function, and torch's switches.

    A recording holds as long as they stay the same. Seen are the attributes, hooks and tensors of
    the model's modules and of others that the function names, and what ``parts_of`` finds in the
    function and in the code of the modules' classes. With ``replayed``, tensors of the host count
    by value: a recording keeps the numbers that it was handed.
    """

    def __init__(
        self, model: nn.Module, function: Callable[..., Any], *, replayed: bool = True
    ) -> None:
        self._function, self._model = function, model
        walk = _Walk(replayed=replayed)
        self._parts = walk.through([function, *model.modules()])
        self._modules = walk.modules
        held_by_others = _held_by_others(model, self._modules)
        self._fixed = _Entries([*walk.fixed, *held_by_others])
        self._entries = _Entries(walk.entries)
        self._places, self._contents = _Places(walk.places), walk.contents
        hooks = chain.from_iterable(map(_hooks, self._modules))
        beside = (one for one, _, _ in held_by_others)
        self._sized: list[Any] = [*walk.sized, *hooks, *beside, *_GLOBAL_HOOKS]
        self._sizes = list(map(len, self._sized))
        tensors = [*chain.from_iterable(map(_tensors, self._modules)), *walk.tensors]
        self._tensors = [one for one in tensors if _is_plain(one)]
        self._laid = self._where()
        self._switches = switches()
        self._iterators = walk.iterators
        self.is_partial = walk.is_partial  # whether the function goes by more than is looked at

    def hold(self, function: Callable[..., Any]) -> bool:
        """Whether ``function`` goes by the same values, which are as they were."""
        if self._sizes != list(map(len, self._sized)) or self._switches != switches():
            return False
        if not self._fixed.hold() or self._laid != self._where():
            return False
        if not all(_all_same(look(part), before) for part, look, before in self._contents):
            return False
        known = function is self._function or _made_alike(function, self._function)
        if known and self._entries.hold() and self._places.hold():
            return True
        own = _Walk(replayed=False).through([function, *self._model.modules()])
        return _all_same(self._parts, own)

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
        if self._iterators:
            return (
                f"the model or the loss takes from what a replay leaves alone ({self._iterators})"
            )
        return ""

    def _where(self) -> tuple[list[int], list[bool]]:
        """Where each tensor's numbers lie, which a recording reads there, and if it is trained."""
        with torch._C.DisableTorchFunction():
            places = list(map(torch.Tensor.data_ptr, self._tensors))
            return places, list(map(_requires_grad, self._tensors))


@final
class _Entries:
    """Entries of dictionaries, and what they were."""

    def __init__(self, entries: Sequence[tuple[dict[Any, Any], Any, Any]]) -> None:
        self._dicts = [held for held, _, _ in entries]
        self._keys = [key for _, key, _ in entries]
        self._values = [value for _, _, value in entries]

    def hold(self) -> bool:
        """There may be thousands of them: identity tells most at once."""
        if all(map(is_, map(dict.get, self._dicts, self._keys), self._values)):
            return True
        return all(map(_same, map(dict.get, self._dicts, self._keys), self._values))


@final
class _Places:
    """Places of other kinds: what functions close over, slots, attributes, entries of lists."""

    def __init__(self, places: Sequence[tuple[Any, Any, Any]]) -> None:
        self._all = places
        named = [(one, key or "cell_contents", value) for one, key, value in places if _names(one)]
        self._holders = [holder for holder, _, _ in named]
        self._keys = [key for _, key, _ in named]
        self._values = [value for _, _, value in named]
        self._others = [place for place in places if not _names(place[0])]

    def hold(self) -> bool:
        """Before every lot: identity tells most at once."""
        try:
            alike = all(map(is_, map(getattr, self._holders, self._keys), self._values))
        except (AttributeError, ValueError):  # a cell that is empty
            alike = False
        left = self._others if alike else self._all
        return all(_same(_held(holder, key), value) for holder, key, value in left)


def _names(holder: Any) -> bool:
    """Whether what it holds has a name, as attributes do, and the content of a cell."""
    return not isinstance(holder, (list, dict, MappingProxyType))


def switches() -> tuple[object, ...]:
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


def parts_of(function: Any) -> Iterator[Any]:
    """What a callable goes by: code, globals that it names, what it closes over, its object.

    Functions, classes, containers, modules of Python and plain objects among them are looked into;
    of objects those attributes that some code on the way names. A few hundred parts are looked at,
    the nearest first. Numbers, texts and flags count by value, all else by identity: two callables
    with the same parts do the same, though a loop may make a new one every time.

    >>> class Options:
    ...     power = 3
    >>> options = Options()
    >>> options.scale = 2.0
    >>> [part for part in parts_of(lambda x, o=options: o.scale * x) if isinstance(part, float)]
    [2.0]
    """
    return iter(_Walk(replayed=False).through([function]))


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
    closed = (_held(cell, None) for cell in function.__closure__ or ())
    named = chain.from_iterable((function.__kwdefaults__ or {}).items())
    return (function.__code__, *closed, *(function.__defaults__ or ()), *named)


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, SIMPLE):
        equal = bool(one == other)
        return equal and not (type(one) is float and _signs(one) != _signs(other))  # -0.0 is 0.0
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


# ---- where values are held


@final
class _Found(NamedTuple):
    """A part, and where it is held so that another could take its place; nowhere if it could not.

    Of what ``counts`` not, only the place is of interest, or what is inside.
    """

    part: Any
    holder: Any = None
    key: Any = None
    counts: bool = True


def _held(holder: Any, key: Any) -> Any:
    """What lies at a place now."""
    if isinstance(holder, CellType):
        try:
            return holder.cell_contents
        except ValueError:  # not yet assigned
            return None
    if isinstance(holder, list):
        return holder[key] if key < len(holder) else None
    if isinstance(holder, (dict, MappingProxyType)):
        return holder.get(key)
    return getattr(holder, key, None)  # a slot, or a function's own


@final
class _Walk:
    """Goes through what functions and modules are made of, the nearest first.

    An object's attributes are followed once some code on the way names them: a loss that is a
    trainer's method goes by little of the trainer.
    """

    def __init__(self, *, replayed: bool) -> None:
        self._replayed = replayed
        self._todo: deque[_Found] = deque()
        self._seen: dict[int, Any] = {}  # kept, so that no other takes its number
        self._names: set[str] = set(_CALLED)
        self._any = False  # whether some code asks for attributes by names that are not in it
        # Who holds attributes, by name, and whether all are taken where code may ask for any.
        self._named: list[tuple[Any, dict[Any, Any] | MappingProxyType[str, Any], bool]] = []
        self._followed: set[tuple[int, str]] = set()
        self._entered: set[int] = set()  # modules, and
        self._kinds: set[type] = set()  # their classes
        self._parts: list[Any] = []
        self.modules: list[nn.Module] = []
        self.entries: list[tuple[dict[Any, Any], Any, Any]] = []
        self.fixed: list[tuple[dict[Any, Any], Any, Any]] = []  # that are no parts of a function
        self.places: list[tuple[Any, Any, Any]] = []
        self.contents: list[tuple[Any, Callable[[Any], list[Any]], list[Any]]] = []
        self.sized: list[Any] = []
        self.tensors: list[Tensor] = []
        self.iterators = ""
        self.is_partial = False

    def through(self, roots: Iterable[Any]) -> list[Any]:
        """What the roots are made of: numbers and all else that counts, in a fixed order."""
        for root in roots:
            self._module(root) if isinstance(root, nn.Module) else self._todo.append(_Found(root))
        while self._todo and len(self._parts) < _MOST_PARTS:
            while self._todo and len(self._parts) < _MOST_PARTS:
                self._take(self._todo.popleft())
            self._follow()
        self.is_partial = self.is_partial or bool(self._todo)
        return self._parts

    def _take(self, found: _Found) -> None:
        part, holder, key, counts = found
        if isinstance(holder, dict):
            self.entries.append((holder, key, part))
        elif holder is not None:
            self.places.append((holder, key, part))
        met = id(part) in self._seen
        if isinstance(part, SIMPLE):
            self._parts.append(part)
        if not met and not (isinstance(part, SIMPLE) and type(part).__module__ in _PLAIN):
            self._seen[id(part)] = part
            made = isinstance(part, (*SIMPLE, FunctionType, MethodType, functools.partial))
            if counts and not made:
                self._parts.append(part)
            self._look_into(part)

    def _look_into(self, part: Any) -> None:
        match part:
            case torch.Tensor():
                self._tensor(part)
            case nn.Module():
                for module in part.modules():
                    self._module(module)
            case FunctionType():
                self._function(part)
            case MethodType():
                self._add(part.__self__, part.__func__)
            case functools.partial():
                self._add(part.func, *part.args)
                self._entries(part.keywords)
            case property():
                self._add(part.fget)
            case staticmethod() | classmethod():
                self._add(part.__func__)
            case functools.cached_property():
                self._add(part.func)
            case BuiltinMethodType() | MethodWrapperType():
                if not isinstance(part.__self__, (ModuleType, type)):
                    self._add(part.__self__)
            case weakref.ReferenceType():
                self._add(part())
            case ContextVar():
                self._content(part, _of_context)
            case operator.attrgetter() | operator.methodcaller():
                self._names.update(str(one) for one in part.__reduce__()[1])
            case dict() | MappingProxyType():
                self._mapping(part)
                if _has_own_code(type(part)):
                    self._object(part)
            case os._Environ():
                self._content(part, _keys_and_values)
            case np.ndarray() | bytearray() | array.array():
                if _size(part) <= _MOST_BYTES:
                    self._content(part, _bytes)
                else:
                    self.is_partial = True
                if isinstance(part, np.ndarray) and part.dtype.hasobject:
                    self._add(*part.ravel()[:_WIDTH].tolist())
            case type() | ModuleType():
                self._attributes(part)
            case Enum() | CodeType():
                pass
            case _:
                self._object(part)

    def _object(self, part: Any) -> None:
        """A container, something to take from, or an object with attributes."""
        kind = type(part)
        if isinstance(part, _RANDOM) or (
            isinstance(part, AbstractIterator) and kind.__module__ in ("builtins", "itertools")
        ):
            self.iterators = self.iterators or kind.__name__
            return
        if hasattr(kind, LOOKS_ON) or kind.__module__.startswith(_MACHINERY):
            return
        if isinstance(part, _CONTAINERS):
            self._container(part)
        held = getattr(part, "__dict__", None)
        slots = [one for c in kind.__mro__ for one in _slots(c)]
        if isinstance(held, dict):
            self.sized.append(held)
        if _takes_all(part):
            self._entries(held if isinstance(held, dict) else {})
            self._todo.extend(_Found(getattr(part, one, None), part, one) for one in slots)
            return
        if isinstance(held, dict):
            self._named.append((held, held, True))
        if slots:
            self._named.append((part, {one: getattr(part, one, None) for one in slots}, True))
        if _has_own_code(kind):
            self._add(kind, counts=False)

    def _module(self, module: nn.Module) -> None:
        """A module: its numbers, flags and tensors, and what its own code names beside them."""
        if id(module) in self._entered:
            return
        self._entered.add(id(module))
        self._seen[id(module)] = module
        self.modules.append(module)
        held = module.__dict__
        self.sized.append(held)
        own = {key: value for key, value in held.items() if key not in _MODULES_OWN}
        for key, value in own.items():
            if isinstance(value, (*SIMPLE, *_BY_IDENTITY, tuple, torch.Tensor)):
                self.fixed.append((held, key, value))
            if isinstance(value, torch.Tensor):
                self._tensor(value)
        kind = type(module)
        if kind not in self._kinds:
            self._kinds.add(kind)
            self._content(kind, _forward)
        if _has_own_code(kind):
            self._named.append((held, own, True))
            if id(kind) not in self._seen:
                self._seen[id(kind)] = kind
                self._attributes(kind)
        if not _has_librarys_code(kind):
            return
        for key, value in own.items():
            if isinstance(value, dict) and all(isinstance(one, SIMPLE) for one in value.values()):
                self.sized.append(value)
                self.fixed.extend((value, name, one) for name, one in value.items())
                self.fixed.append((held, key, value))
            elif not isinstance(value, (*SIMPLE, *_BY_IDENTITY, tuple, torch.Tensor, nn.Module)):
                self._todo.append(_Found(value, held, key))

    def _attributes(self, part: type | ModuleType) -> None:
        """What code names of a class, or of a module of Python."""
        if isinstance(part, ModuleType):
            if not _is_librarys(part):
                self._named.append((vars(part), vars(part), False))
            return
        made_by: type = type(part)
        for one in chain(part.__mro__, made_by.__mro__):
            if not _is_librarys(one):
                held: Any = vars(one)
                self.sized.append(held)
                self._named.append((held, held, True))

    def _function(self, part: FunctionType) -> None:
        self._parts.append(part.__code__)
        self.places.append((part, "__code__", part.__code__))
        self.places.append((part, "__defaults__", part.__defaults__))
        self.places.append((part, "__kwdefaults__", part.__kwdefaults__))
        cells = ((_held(cell, None), cell) for cell in part.__closure__ or ())
        self._todo.extend(_Found(value, cell) for value, cell in cells)
        self._add(*(part.__defaults__ or ()))
        self._entries(part.__kwdefaults__ or {})
        if vars(part):
            self._named.append((vars(part), vars(part), False))
        if _is_librarys(part):
            return
        code, known = _code(part.__code__), part.__globals__
        self._names |= code.attributes
        self._any = self._any or code.asks_for_any
        if not {"environ", "getenv"}.isdisjoint(code.attributes):
            self._add(os.environ)
        for name in code.read:
            if name in known:
                value = known[name]
                whole = isinstance(value, ModuleType)
                self._todo.append(_Found(value, known, name, counts=not whole))
                if whole and _is_librarys(value):  # somebody may put another function there
                    there = (one for one in code.attributes if one in vars(value))
                    self.fixed.extend((vars(value), one, vars(value)[one]) for one in there)
            elif name not in _BUILTINS:
                self.fixed.append((known, name, None))  # it may be assigned later
        for level, name in code.imported:
            absolute = _absolute(level, name, str(known.get("__package__") or ""))
            if absolute in sys.modules:
                self._add(sys.modules[absolute], counts=False)

    def _follow(self) -> None:
        """Follows what has been named meanwhile, of all that was looked into so far."""
        for holder, held, any_of_it in self._named:
            for name in list(held):
                mark = (id(holder), name)
                if mark in self._followed or not self._wants(name, held[name], any_of_it):
                    continue
                self._followed.add(mark)
                self._todo.append(_Found(held[name], holder, name))

    def _wants(self, name: str, value: Any, any_of_it: bool) -> bool:
        if name.startswith("__") and name not in _CALLED:  # what Python calls by itself
            return isinstance(value, FunctionType) and any_of_it and name not in _PLUMBING
        return (self._any and any_of_it) or name in self._names

    def _container(self, part: Container) -> None:
        if len(part) <= _MOST_SIMPLE and all(isinstance(one, SIMPLE) for one in part):
            if not isinstance(part, (tuple, frozenset)):
                self._content(part, list)
                return
        elif isinstance(part, (deque, set)) or _WIDTH < len(part) <= _MOST_SIMPLE:
            self._content(part, _identities)
        elif isinstance(part, list):
            self.sized.append(part)
        self.is_partial = self.is_partial or len(part) > _WIDTH
        holder = part if isinstance(part, list) else None
        self._todo.extend(_Found(one, holder, at) for at, one in enumerate(islice(part, _WIDTH)))

    def _mapping(self, part: dict[Any, Any] | MappingProxyType[Any, Any]) -> None:
        simple = (isinstance(one, SIMPLE) for one in chain(part, part.values()))
        if len(part) <= _MOST_SIMPLE and all(simple):
            self._content(part, _keys_and_values)
            return
        self.sized.append(part)
        self._entries(part)
        self._add(*(key for key in islice(part, _WIDTH) if not isinstance(key, (*SIMPLE, tuple))))

    def _entries(self, held: dict[Any, Any] | MappingProxyType[Any, Any]) -> None:
        others: list[_Found] = []
        for key, value in islice(held.items(), _MOST_SIMPLE):
            found = _Found(value, held, key)
            self._take(found) if isinstance(value, SIMPLE) else others.append(found)
        self._todo.extend(others[:_WIDTH])
        self.is_partial = self.is_partial or len(held) > _MOST_SIMPLE or len(others) > _WIDTH

    def _add(self, *parts: Any, counts: bool = True) -> None:
        self._todo.extend(_Found(one, counts=counts) for one in parts)

    def _content(self, part: Any, look: Callable[[Any], list[Any]]) -> None:
        self.contents.append((part, look, look(part)))

    def _tensor(self, part: Tensor) -> None:
        self.tensors.append(part)
        if self._replayed and is_of_host(part) and _is_plain(part):
            few = part.numel() * part.element_size() <= _MOST_BYTES
            self._content(part, _numbers if few else _count_of_changes)


def is_of_host(tensor: Tensor) -> bool:
    """Whether a tensor is on the host: of one that is, a recording keeps the numbers."""
    return tensor.device.type == "cpu"


def _forward(kind: type) -> list[Any]:
    return [getattr(kind, "forward", None), kind.__call__]


def _of_context(part: ContextVar[Any]) -> list[Any]:
    return [part.get(None)]


def _numbers(part: Tensor) -> list[Any]:
    return [part.detach().flatten().view(torch.uint8).numpy().tobytes()]


def _count_of_changes(part: Tensor) -> list[Any]:
    return [part._version]


def _size(part: Any) -> int:
    if isinstance(part, np.ndarray):
        return part.nbytes
    return len(part) * (part.itemsize if isinstance(part, array.array) else 1)


def _bytes(part: Any) -> list[Any]:
    return [bytes(part) if isinstance(part, bytearray) else part.tobytes()]


def _keys_and_values(part: Mapping[Any, Any]) -> list[Any]:
    return [*part, *part.values()]


def _identities(part: Container) -> list[Any]:
    return list(map(id, part))


def _slots(kind: type) -> tuple[str, ...]:
    given = kind.__dict__.get("__slots__", ())
    names = (given,) if isinstance(given, str) else tuple(given)
    return tuple(one for one in names if one not in ("__dict__", "__weakref__"))


def _takes_all(part: Any) -> bool:
    """Whether an object is a record, or has code of a library, which names what it goes by."""
    records = (Mapping, SimpleNamespace, argparse.Namespace)
    if isinstance(part, records) or dataclasses.is_dataclass(part):
        return True
    return _has_librarys_code(type(part))


def _has_own_code(kind: type) -> bool:
    return not all(map(_is_librarys, kind.__mro__))


def _has_librarys_code(kind: type) -> bool:
    """Whether code that is not looked at may ask for attributes."""
    return any(_is_librarys(one) and one.__name__ not in _PLAIN_BASES for one in kind.__mro__)


def _is_librarys(part: Any) -> bool:
    """Whether a function, a class or a module comes with a library, and not with the program."""
    name = part.__name__ if isinstance(part, ModuleType) else getattr(part, "__module__", None)
    return str(name or "builtins").partition(".")[0] in _LIBRARIES


# ---- what code names


@final
class _Code(NamedTuple):
    """The names in a function's code, and in that of functions inside it."""

    read: tuple[str, ...]  # of the module's globals
    attributes: frozenset[str]  # and texts, by which attributes may be asked for
    imported: frozenset[tuple[int, str]]  # with how many dots
    asks_for_any: bool


_BUILTINS = frozenset(dir(__builtins__) if isinstance(__builtins__, ModuleType) else __builtins__)
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_NOTHING = frozenset({"PUSH_NULL", "CACHE", "EXTENDED_ARG", "NOP", "RESUME"})


@functools.lru_cache(4096)
def _code(code: CodeType) -> _Code:
    """See ``_Code``; the same functions are looked at in every lot."""
    read: dict[str, None] = {}
    attributes: set[str] = set()
    imported: set[tuple[int, str]] = set()
    steps = [one for one in dis.get_instructions(code) if one.opname not in _NOTHING]
    for at, step in enumerate(steps):
        if step.opname in _GLOBAL:
            read[step.argval] = None
        elif step.opname == "IMPORT_NAME":  # after the dots, and what is taken of it
            imported.add((steps[at - 2].argval, step.argval))
    attributes.update(code.co_names)
    asks = not _TAKE_ALL.isdisjoint(code.co_names) or any(
        one.argval == "getattr" and one.opname in _GLOBAL and not _asks_by_name(steps[at + 1 :])
        for at, one in enumerate(steps)
    )
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _code(constant)
            read |= dict.fromkeys(inner.read)
            attributes |= inner.attributes
            imported |= inner.imported
            asks = asks or inner.asks_for_any
        elif isinstance(constant, str) and constant.isidentifier():
            attributes.add(constant)
    return _Code(tuple(read), frozenset(attributes), frozenset(imported), asks)


def _absolute(level: int, name: str, package: str) -> str:
    """The name of a module that a line in ``package`` imports."""
    if not level:
        return name
    parents = package.rsplit(".", level - 1)[0] if level > 1 else package
    return f"{parents}.{name}" if name else parents


def _asks_by_name(steps: Sequence[dis.Instruction]) -> bool:
    """Whether a call of ``getattr`` goes on with something plain, and a name as a constant."""
    for at, step in enumerate(steps):
        if step.opname == "LOAD_CONST":
            called = next((n for n, s in enumerate(steps) if "CALL" in s.opname), len(steps))
            made = any(s.opname.startswith(("FORMAT", "BUILD", "BINARY")) for s in steps[at:called])
            return isinstance(step.argval, str) and not made
        if not step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_ATTR")):
            return False
    return False


# ---- modules


def _held_by_others(
    model: nn.Module, found: Iterable[nn.Module]
) -> list[tuple[dict[str, Any], str, Any]]:
    """What modules hold that are not the model's own: a criterion, a teacher.

    A session takes care of the model's.
    """
    own = set(map(id, model.modules()))
    others = (one for one in found if id(one) not in own)
    kinds = ("_parameters", "_buffers", "_modules")  # of code in TorchScript there are none
    held = (vars(one).get(kind) for one in others for kind in kinds)
    plain = (one for one in held if isinstance(one, dict))
    return [(one, key, value) for one in plain for key, value in one.items()]


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is memory and no more, of which an address says where it is."""
    kinds = (torch.Tensor, nn.Parameter)
    return type(tensor) in kinds and tensor.layout == torch.strided


def _is_fsdps(hook: Any) -> bool:
    """Whether a hook is one by which FSDP2 gathers weights: a recording repeats what it did."""
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.fsdp._fully_shard")


def _hooks(module: nn.Module) -> Iterable[dict[int, Any]]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [vars(module)[kind] for kind in kinds if kind in vars(module)]
