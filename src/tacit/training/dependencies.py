"""What a user's Python code goes by: the values that decide what a loss and a model compute.

A walk begins at a function and at a model's modules. From a function it goes to what the function
closes over, its defaults, and the globals and attributes that its code names; from an object, a
container or a module to what it holds. Code of the program itself is read. That of libraries is
not: it may go by anything that its own objects hold, and by nothing else that a program changes.

What is found is sorted by how a change can be noticed later (``Dependencies``); ``circumstances``
looks again before every lot. The walk is bounded, nearest first, and says so where it ends early.
"""

from __future__ import annotations

import argparse
import array
import builtins
import ctypes
import dataclasses
import dis
import functools
import operator
import os
import random
import sys
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator as AbstractIterator
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import resolve_name
from itertools import chain, islice
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
    from collections.abc import Sequence, Sized

    from torch import Tensor

    Container: TypeAlias = "list[Any] | tuple[Any, ...] | deque[Any] | set[Any] | frozenset[Any]"
    Held: TypeAlias = "dict[Any, Any] | MappingProxyType[Any, Any]"

# A dictionary, list, cell or object; the key, index or attribute; and what is held there.
Place: TypeAlias = "tuple[Any, Any, Any]"

SIMPLE = (bool, int, float, complex, str, bytes, type(None), np.generic)  # compared by value
# Of a class whose objects only look on: what they keep decides nothing that is computed.
LOOKS_ON = "_only_looks_on"

# How far is looked: entries of a container, parts in all, and what is compared as a whole.
_WIDTH, _MOST_PARTS = 64, 1024
_MOST_SIMPLE, MOST_BYTES = 4096, 1 << 16

_CONTAINERS = (list, tuple, deque, set, frozenset)
_WITHOUT_ATTRIBUTES = frozenset({"builtins", "numpy"})  # simple values of these, but not of others
_RANDOM = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
# Of torch's own objects these keep books, of streams and compiled code for example.
_MACHINERY = (
    "torch._", "torch.autograd", "torch.cuda", "torch.distributed", "torch.fx", "torch.utils",
)  # fmt: skip
# Code of these goes by nothing that a user's program changes meanwhile, but for torch's switches.
_LIBRARIES = frozenset({
    "torch", "numpy", "functools", "transformers", "peft", "tacit", "triton", "torchvision",
}) | sys.stdlib_module_names - {"__main__"}  # fmt: skip
_PLAIN_BASES = frozenset({"object", "Generic", "Protocol", "ABC", "Module", "Dataset"})
_OF_ALL_MODULES = frozenset(vars(nn.Module())) - {"training"}  # attributes
# Of a module: what is compared in its place, and not looked into.
_COMPARED = (*SIMPLE, FunctionType, MethodType, BuiltinMethodType, type, tuple, torch.Tensor)

_CALLED = frozenset({"forward", "backward", "setup_context", "__wrapped__"})  # by others
_PLUMBING = frozenset({  # of a class: what is not called where its objects are used
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__repr__", "__str__", "__del__",
    "__delattr__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__",
    "__deepcopy__", "__set_name__",
})  # fmt: skip
_MAKING = frozenset({"__init__", "__new__", "__post_init__"})  # called where a class is called
_METHODS = (FunctionType, staticmethod, classmethod, property, functools.partialmethod)
# Numbers in memory that something else may share.
_MEMORY = (bytearray, array.array, memoryview, ctypes._SimpleCData, ctypes.Array, ctypes.Structure)


@final
@dataclass(slots=True)
class Dependencies:
    """What a walk has found, by how a change can be noticed."""

    # The values: numbers, texts and flags count by value, all else by identity. Two functions with
    # the same parts do the same.
    parts: list[Any] = field(default_factory=list)
    # Under which key each was met, or which it is of those that were met before: two that change
    # places are the same parts.
    route: list[Any] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)  # of parts: others may be put there
    fixed: list[Place] = field(default_factory=list)  # of what is no part: others may be, too
    contents: list[Any] = field(default_factory=list)  # what may change within itself
    collections: list[Container] = field(default_factory=list)  # the same, entries by identity
    keyed: list[Held] = field(default_factory=list)  # what may get other keys, or another order
    sized: list[Sized] = field(default_factory=list)  # what may become longer or shorter
    tensors: list[Tensor] = field(default_factory=list)  # beside the modules' own
    modules: list[nn.Module] = field(default_factory=list)
    taken_from: str = ""  # the class of a generator or iterator, which is another after each use
    is_partial: bool = False  # whether there is more than was looked at


def dependencies_of(*roots: Any) -> Dependencies:
    """What functions and modules go by.

    >>> options = SimpleNamespace(scale=2.0, name="mine")
    >>> found = dependencies_of(lambda batch, options=options: options.scale * batch)
    >>> [part for part in found.parts if isinstance(part, float)]
    [2.0]
    >>> (vars(options), "scale", 2.0) in found.places
    True
    """
    return _Walk().through(roots)


def content_of(cell: CellType) -> Any:
    """What a function closes over; None as long as nothing was assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def value_of(variable: ContextVar[Any]) -> Any:
    """What a variable of the context holds; None as long as nothing was set."""
    try:
        return variable.get()
    except LookupError:
        return None


# ---- the walk


@final
class _Found(NamedTuple):
    """A part, and where it is held so that another could take its place; nowhere if it could not.

    Of what ``counts`` not, only the place is of interest, or what is inside.
    """

    part: Any
    holder: Any = None
    key: Any = None
    counts: bool = True


@final
class _Owner(NamedTuple):
    """Who holds attributes. Those are followed that some code on the way names."""

    holder: Any
    attributes: Held
    takes_any: bool  # whether all are, once code asks for attributes by names that are not in it


@final
class _Walk:
    """Goes through what functions and modules are made of, the nearest first.

    An object's attributes are followed once some code on the way names them: a loss that is a
    trainer's method goes by little of the trainer.
    """

    def __init__(self) -> None:
        self._found = Dependencies()
        self._todo: deque[_Found] = deque()
        self._seen: dict[int, tuple[int, Any]] = {}  # kept, so that no other takes its number
        self._names: set[str] = set(_CALLED)
        self._asks_for_any = False
        self._owners: list[_Owner] = []
        self._followed: set[tuple[int, str]] = set()
        self._entered: set[int] = set()  # modules, and
        self._kinds: set[type] = set()  # their classes

    def through(self, roots: Sequence[Any]) -> Dependencies:
        """All that is found from the roots on, in an order that is the same each time."""
        found = self._found
        for root in roots:
            self._module(root) if isinstance(root, nn.Module) else self._todo.append(_Found(root))
        while self._todo and len(found.parts) < _MOST_PARTS:
            while self._todo and len(found.parts) < _MOST_PARTS:
                self._take(self._todo.popleft())
            self._follow()
        found.is_partial = found.is_partial or bool(self._todo)
        return found

    def _take(self, found: _Found) -> None:
        part, holder, key, counts = found
        if holder is not None:
            self._found.places.append((holder, key, part))
            self._found.route.append(key)
        simple = isinstance(part, SIMPLE)
        if simple:
            self._found.parts.append(part)
        if isinstance(part, type) and counts:
            self._maker(part)
        if simple and type(part).__module__ in _WITHOUT_ATTRIBUTES:
            return
        if id(part) in self._seen:
            self._found.route.append(self._seen[id(part)][0])
            return
        self._note(part)
        # A function counts by what it is made of: a loop may make a new one every time.
        if counts and not (
            simple or isinstance(part, (FunctionType, MethodType, functools.partial))
        ):
            self._found.parts.append(part)
        self._look_into(part)

    def _note(self, part: Any) -> None:
        self._seen[id(part)] = len(self._seen), part

    def _look_into(self, part: Any) -> None:
        match part:
            case torch.Tensor():
                self._found.tensors.append(part)
                self._own_attributes(part)
            case nn.Module():
                for module in part.modules():
                    self._module(module)
            case FunctionType():
                self._function(part)
            case functools.partial():
                self._add(part.func, *part.args)
                self._entries(part.keywords)
                self._own_attributes(part)
                self._asks_for_any = self._asks_for_any or part.func is getattr
            case operator.attrgetter() | operator.methodcaller():
                paths = (str(one) for one in part.__reduce__()[1])
                self._names.update(name for path in paths for name in path.split("."))
            case dict() | MappingProxyType():
                self._mapping(part)
                if _has_own_code(type(part)):
                    self._object(part)
            case ContextVar():
                self._found.contents.append(part)
                self._add(value_of(part))
            case os._Environ():
                self._found.contents.append(part)
            case np.ndarray():
                self._numbers(part)
                self._own_attributes(part)
            case _ if isinstance(part, _MEMORY):
                self._numbers(part)
            case type() | ModuleType():
                self._attributes(part)
            case CodeType():
                pass
            case _:
                behind = _behind(part)
                self._object(part) if behind is None else self._add(*behind)

    def _object(self, part: Any) -> None:
        """A container, something to take from, or an object with attributes."""
        kind = type(part)
        if isinstance(part, _RANDOM) or (
            isinstance(part, AbstractIterator) and kind.__module__ in ("builtins", "itertools")
        ):
            self._found.taken_from = self._found.taken_from or kind.__name__
            return
        if hasattr(kind, LOOKS_ON) or kind.__module__.startswith(_MACHINERY):
            return
        if isinstance(part, _CONTAINERS):
            self._container(part)
        held = getattr(part, "__dict__", None)
        slots = [one for c in kind.__mro__ for one in _slots(c)]
        self._kind(part, held)
        if _takes_all(part):
            self._entries(held if isinstance(held, dict) else {})
            self._todo.extend(_Found(getattr(part, one, None), part, one) for one in slots)
            return
        if isinstance(held, dict):
            self._owners.append(_Owner(held, held, takes_any=True))
        if slots:
            values = {one: getattr(part, one, None) for one in slots}
            self._owners.append(_Owner(part, values, takes_any=True))

    def _kind(self, part: Any, held: Any) -> None:
        """An object's class, and which attributes it has: both may be replaced."""
        if isinstance(held, dict):
            self._found.keyed.append(held)
        if not _has_own_code(type(part)):
            return
        self._add(type(part), counts=False)
        if not isinstance(part, (dict, list)):  # of which a place is an entry
            names = ("__class__", "__dict__")  # the latter may be made at every look
            lasting = (one for one in names if getattr(part, one, 0) is getattr(part, one, 1))
            self._found.fixed.extend((part, one, getattr(part, one)) for one in lasting)

    def _own_attributes(self, part: Any) -> None:
        """What a program has hung on a tensor or an array, or made of its class."""
        held = getattr(part, "__dict__", None)
        if _has_own_code(type(part)):
            self._add(type(part), counts=False)
        if held:
            self._owners.append(_Owner(held, held, takes_any=True))

    def _maker(self, kind: type) -> None:
        """What is called where code calls a class that it names."""
        if issubclass(kind, nn.Module):  # made before
            return
        for one in kind.__mro__:
            held = vars(one)
            for name in () if _is_librarys(one) else sorted(_MAKING & held.keys()):
                if (id(held), name) not in self._followed:
                    self._followed.add((id(held), name))
                    self._todo.append(_Found(held[name], held, name))

    def _module(self, module: nn.Module) -> None:
        """A module: its numbers, flags and tensors, and what its own code names beside them."""
        if id(module) in self._entered:
            return
        self._entered.add(id(module))
        self._note(module)
        self._found.modules.append(module)
        held, kind = module.__dict__, type(module)
        self._found.sized.append(held)
        self._found.fixed.append((module, "__class__", kind))
        for tensor in module.parameters(recurse=False):
            self._own_attributes(tensor)
        own = {key: value for key, value in held.items() if key not in _OF_ALL_MODULES}
        for key, value in own.items():
            if isinstance(value, _COMPARED):
                self._found.fixed.append((held, key, value))
            if isinstance(value, torch.Tensor):
                self._found.tensors.append(value)
        if kind not in self._kinds:
            self._kinds.add(kind)
            for name in ("forward", "__call__"):
                self._found.fixed.append((kind, name, getattr(kind, name, None)))
        if _has_own_code(kind):
            self._owners.append(_Owner(held, own, takes_any=True))
            if id(kind) not in self._seen:
                self._note(kind)
                self._attributes(kind)
        if _has_librarys_code(kind):
            self._settings(held, own)

    def _settings(self, held: dict[str, Any], own: dict[str, Any]) -> None:
        """What else a module of a library holds, whose code may ask for all of it."""
        for key, value in own.items():
            if isinstance(value, dict) and all(isinstance(one, SIMPLE) for one in value.values()):
                self._found.sized.append(value)
                self._found.fixed.extend((value, name, one) for name, one in value.items())
                self._found.fixed.append((held, key, value))
            elif not isinstance(value, (*_COMPARED, nn.Module)):
                self._todo.append(_Found(value, held, key))

    def _attributes(self, part: type | ModuleType) -> None:
        """What code names of a class, or of a module of Python."""
        if isinstance(part, ModuleType):
            if not _is_librarys(part):
                own = vars(part)
                self._found.sized.append(own)
                self._owners.append(_Owner(own, own, takes_any=False))
                if _has_own_code(type(part)):
                    self._add(type(part), counts=False)
                if "__getattr__" in own:
                    self._todo.append(_Found(own["__getattr__"], own, "__getattr__"))
            return
        made_by: type = type(part)
        for one in chain(part.__mro__, made_by.__mro__):
            if not _is_librarys(one):
                held = vars(one)
                self._found.sized.append(held)
                self._found.fixed.append((one, "__bases__", one.__bases__))
                self._owners.append(_Owner(held, held, takes_any=True))

    def _function(self, part: FunctionType) -> None:
        self._found.parts.append(part.__code__)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._found.places.append((part, name, getattr(part, name)))
        self._todo.extend(_Found(content_of(cell), cell) for cell in part.__closure__ or ())
        self._add(*(part.__defaults__ or ()))
        self._entries(part.__kwdefaults__ or {})
        if vars(part):
            self._owners.append(_Owner(vars(part), vars(part), takes_any=False))
        if not _is_librarys(part):
            self._found.sized.append(vars(part))
            self._read(_names_in(part.__code__), part.__globals__)

    def _read(self, code: _Names, known: dict[str, Any]) -> None:
        """What a function's code names, where ``known`` are its globals."""
        self._names |= code.attributes
        self._asks_for_any = self._asks_for_any or code.asks_for_any
        if not {"environ", "getenv"}.isdisjoint(code.attributes):
            self._add(os.environ)
        for name in code.globals:
            if name in known:
                value = known[name]
                whole = isinstance(value, ModuleType)
                self._todo.append(_Found(value, known, name, counts=not whole))
                if whole and _is_librarys(value):
                    self._of_library(vars(value), code.attributes)
            elif name not in _BUILTINS:
                self._found.fixed.append((known, name, None))  # it may be assigned later
                held = vars(builtins)
                self._found.fixed.append((held, name, held.get(name)))
        for name in code.imported:
            with suppress(ImportError):  # more dots than packages: the line itself fails, too
                self._imported(resolve_name(name, known.get("__package__")))

    def _of_library(self, held: dict[str, Any], names: frozenset[str]) -> None:
        """What code names of a library's module: somebody may put another function there."""
        for name in sorted(names & held.keys()):
            self._found.fixed.append((held, name, held[name]))
            self._add(*([held[name]] if isinstance(held[name], list) else []))

    def _imported(self, name: str) -> None:
        """A module that code imports, perhaps not before it is run."""
        module = sys.modules.get(name)
        if module is None:
            self._found.fixed.append((sys.modules, name, None))
        else:
            self._add(module, counts=False)

    def _follow(self) -> None:
        """Follows what has been named meanwhile, of all that was looked into so far."""
        for owner in self._owners:
            held = owner.attributes
            for name in list(held):
                mark = (id(owner.holder), name)
                if mark not in self._followed and self._wants(name, held[name], owner.takes_any):
                    self._followed.add(mark)
                    self._todo.append(_Found(held[name], owner.holder, name))

    def _wants(self, name: str, value: Any, takes_any: bool) -> bool:
        if name.startswith("__") and name not in _CALLED:  # what Python calls by itself
            return isinstance(value, _METHODS) and takes_any and name not in _PLUMBING
        any_ = self._asks_for_any and (takes_any or isinstance(value, SIMPLE))
        return any_ or name in self._names

    def _container(self, part: Container) -> None:
        if len(part) <= _MOST_SIMPLE and all(isinstance(one, SIMPLE) for one in part):
            if not isinstance(part, (tuple, frozenset)):
                self._found.contents.append(part)
                return
        elif isinstance(part, (deque, set)) or _WIDTH < len(part) <= _MOST_SIMPLE:
            self._found.collections.append(part)
        elif isinstance(part, list):
            self._found.sized.append(part)
        self._found.is_partial = self._found.is_partial or len(part) > _WIDTH
        holder = part if isinstance(part, list) else None
        self._todo.extend(_Found(one, holder, at) for at, one in enumerate(islice(part, _WIDTH)))

    def _mapping(self, part: Held) -> None:
        if isinstance(part, defaultdict):
            self._found.contents.append(part)
            self._add(part.default_factory)
        simple = (isinstance(one, SIMPLE) for one in chain(part, part.values()))
        if len(part) <= _MOST_SIMPLE and all(simple):
            self._found.contents.append(part)
            return
        (self._found.keyed if len(part) <= _MOST_SIMPLE else self._found.sized).append(part)
        self._entries(part)
        self._add(*(key for key in islice(part, _WIDTH) if not isinstance(key, (*SIMPLE, tuple))))

    def _entries(self, held: Held) -> None:
        others: list[_Found] = []
        for key, value in islice(held.items(), _MOST_SIMPLE):
            found = _Found(value, held, key)
            self._take(found) if isinstance(value, SIMPLE) else others.append(found)
        self._todo.extend(others[:_WIDTH])
        if len(held) > _MOST_SIMPLE or len(others) > _WIDTH:
            self._found.is_partial = True

    def _numbers(self, part: Any) -> None:
        if _size(part) <= MOST_BYTES:
            self._found.contents.append(part)
        else:
            self._found.is_partial = True
        if isinstance(part, np.ndarray) and part.dtype.hasobject:
            self._add(*part.ravel()[:_WIDTH].tolist())

    def _add(self, *parts: Any, counts: bool = True) -> None:
        self._todo.extend(_Found(one, counts=counts) for one in parts)


def _size(part: Any) -> int:
    return part.nbytes if isinstance(part, np.ndarray) else memoryview(part).nbytes


def _behind(part: Any) -> tuple[Any, ...] | None:
    """What a callable or a reference without code of its own passes calls on to; else None."""
    match part:
        case MethodType():
            return part.__self__, part.__func__
        case property():
            return (part.fget,)
        case staticmethod() | classmethod():
            return (part.__func__,)
        case functools.cached_property():
            return (part.func,)
        case functools.partialmethod():
            return part.func, *part.args, part.keywords
        case BuiltinMethodType() | MethodWrapperType():
            return () if isinstance(part.__self__, (ModuleType, type)) else (part.__self__,)
        case weakref.ReferenceType():
            return (part(),)
        case _:
            return None


# ---- whose code it is


def _slots(kind: type) -> tuple[str, ...]:
    given = kind.__dict__.get("__slots__", ())
    names = (given,) if isinstance(given, str) else tuple(given)
    return tuple(_mangled(one, kind) for one in names if one not in ("__dict__", "__weakref__"))


def _mangled(name: str, kind: type) -> str:
    """A private name as Python writes it."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


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
class _Names(NamedTuple):
    """The names in a function's code, and in that of functions inside it."""

    globals: tuple[str, ...]  # of the module's, those that are read
    attributes: frozenset[str]  # and texts, by which attributes may be asked for
    imported: frozenset[str]  # modules, with the dots before their names
    asks_for_any: bool  # by a name that is put together, or all at once


_BUILTINS = frozenset(dir(__builtins__) if isinstance(__builtins__, ModuleType) else __builtins__)
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_NOTHING = frozenset({"PUSH_NULL", "CACHE", "EXTENDED_ARG", "NOP", "RESUME"})
# Code that mentions one of these may ask for any attribute.
_TAKE_ALL = frozenset(
    {"vars", "__dict__", "asdict", "astuple", "__slots__", "attrgetter", "__getattr__"}
)


# Code that mentions one of these may name a module in a text.
_LOAD_MODULES = frozenset({"modules", "import_module", "__import__"})


@functools.lru_cache(4096)
def _names_in(code: CodeType) -> _Names:
    """See ``_Names``; the same functions may be looked at in every lot."""
    read: dict[str, None] = {}
    attributes: set[str] = set()
    imported: set[str] = set()
    steps = [one for one in dis.get_instructions(code) if one.opname not in _NOTHING]
    for at, step in enumerate(steps):
        if step.opname in _GLOBAL:
            read[step.argval] = None
        elif step.opname == "IMPORT_NAME":  # after the dots, and what is taken of it
            imported.add("." * steps[at - 2].argval + step.argval)
    attributes.update(code.co_names)
    texts = [one for one in code.co_consts if isinstance(one, str)]
    attributes.update(filter(str.isidentifier, texts))
    if "globals" in read:
        read |= dict.fromkeys(filter(str.isidentifier, texts))
    if not _LOAD_MODULES.isdisjoint(code.co_names):
        imported.update(texts)
    asks = not _TAKE_ALL.isdisjoint(code.co_names) or any(
        one.opname == "MATCH_CLASS"
        or (one.opname in _GLOBAL and one.argval == "getattr" and not _asks_by_name(steps[at:]))
        for at, one in enumerate(steps)
    )
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _names_in(constant)
            read |= dict.fromkeys(inner.globals)
            attributes |= inner.attributes
            imported |= inner.imported
            asks = asks or inner.asks_for_any
    return _Names(tuple(read), frozenset(attributes), frozenset(imported), asks)


def _asks_by_name(steps: Sequence[dis.Instruction]) -> bool:
    """Whether a call of ``getattr`` goes on with something plain, and a name as a constant."""
    steps = steps[1:]
    for at, step in enumerate(steps):
        if step.opname == "LOAD_CONST":
            called = next((n for n, s in enumerate(steps) if "CALL" in s.opname), len(steps))
            made = any(s.opname.startswith(("FORMAT", "BUILD", "BINARY")) for s in steps[at:called])
            return isinstance(step.argval, str) and step.argval.isidentifier() and not made
        if not step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_ATTR")):
            return False
    return False
