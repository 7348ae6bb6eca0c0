"""Where a loss may keep its weight so that a walk through its code could pass it by.

Each function makes what asks for the weight, and what changes it from 1 to 3.
"""

from __future__ import annotations

import builtins
import collections
import contextvars
import ctypes
import dataclasses
import enum
import functools
import importlib
import operator
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import replayed_settings as settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from .replays import Host

    Kept = tuple[Callable[[], Any], Callable[[], object]]
    Make = Callable[[Host], Kept]

VALUES: dict[str, Make] = {}
_LATE = "tacit_replayed_later"
GLOBAL: Any = 1.0


def kept(make: Make) -> Make:
    VALUES[make.__name__.replace("_", " ")] = make
    return make


class Thing:
    def __init__(self, w: float = 1.0) -> None:
        self.w = w

    def weight(self) -> float:
        return self.w


def one() -> float:
    return 1.0


def three() -> float:
    return 3.0


def strong() -> None:
    settings.WEIGHT = 3.0


def setting(holder: Any, **values: Any) -> Callable[[], object]:
    return lambda: [setattr(holder, name, value) for name, value in values.items()]


# ---- the same parts in other places


@kept
def one_of_two_objects(_: Host) -> Kept:
    weak, strong_ = Thing(), Thing(3.0)
    of = types.SimpleNamespace(weak=weak, strong=strong_, now=weak)
    return lambda: of.now.w * of.weak.w * of.strong.w / 3, setting(of, now=strong_)


@kept
def one_of_two_functions(_: Host) -> Kept:
    of = {"weak": one, "strong": three, "now": one}
    return lambda: of["now"]() * of["weak"]() * of["strong"]() / 3, lambda: of.update(now=three)


@kept
def one_of_two_methods(_: Host) -> Kept:
    weak, strong_, of = Thing(), Thing(3.0), types.SimpleNamespace()
    of.now = weak.weight
    return (
        lambda: of.now() * weak.weight() * strong_.weight() / 3,
        lambda: setattr(of, "now", strong_.weight),
    )


@kept
def one_of_two_that_are_closed_over(_: Host) -> Kept:
    weak, strong_ = Thing(), Thing(3.0)
    now = weak

    def change() -> None:
        nonlocal now
        now = strong_

    return lambda: now.w * weak.w * strong_.w / 3, change


@kept
def entry_twice(_: Host) -> Kept:
    weak, strong_ = Thing(), Thing(3.0)
    row = [weak, strong_, weak]
    return lambda: row[2].w * row[1].w / 3, lambda: row.__setitem__(2, strong_)


@kept
def attributes_exchanged(_: Host) -> Kept:
    thing: Any = types.SimpleNamespace(a=1.0, b=3.0)

    def change() -> None:
        vars(thing).clear()
        vars(thing).update(b=1.0, a=3.0)

    return lambda: thing.a + thing.b / 10, change


@kept
def order_of_entries(_: Host) -> Kept:
    of = {"a": Thing(), "b": Thing(3.0)}
    return lambda: next(iter(of.values())).w, lambda: of.__setitem__("a", of.pop("a"))


@kept
def renamed(_: Host) -> Kept:
    thing: Any = Thing()

    def change() -> None:
        del thing.w
        thing.late = 3.0

    return lambda: getattr(thing, "late", 1.0), change


@kept
def attributes_replaced(_: Host) -> Kept:
    thing = Thing()
    return lambda: thing.w, lambda: setattr(thing, "__dict__", {"w": 3.0})


@kept
def class_replaced(_: Host) -> Kept:
    class Other(Thing):
        def weight(self) -> float:
            return 3.0

    thing = Thing()
    return lambda: thing.weight() * 1.0, lambda: setattr(thing, "__class__", Other)


@kept
def base_replaced(_: Host) -> Kept:
    class Weak:
        v = 1.0

    class Strong:
        v = 3.0

    class Heir(Weak):
        pass

    heir = Heir()
    return lambda: heir.v, lambda: setattr(Heir, "__bases__", (Strong,))


# ---- inside something that looks simple


class Level(enum.Enum):
    FIRST = [1.0]  # noqa: RUF012 - as programs do
    weight: float


@kept
def value_of_an_enum(_: Host) -> Kept:
    Level.FIRST.value[0] = 1.0
    return lambda: Level.FIRST.value[0], lambda: Level.FIRST.value.__setitem__(0, 3.0)


@kept
def attribute_of_an_enum(_: Host) -> Kept:
    Level.FIRST.weight = 1.0
    return lambda: Level.FIRST.weight, setting(Level.FIRST, weight=3.0)


@kept
def attribute_of_a_tensor(_: Host) -> Kept:
    tensor: Any = torch.ones(1)
    tensor.gain = 1.0
    return lambda: tensor * tensor.gain, setting(tensor, gain=3.0)


@kept
def attribute_of_an_array(_: Host) -> Kept:
    class Own(np.ndarray[Any, Any]):
        gain = 1.0

    row = np.ones(1).view(Own)
    row.gain = 1.0
    return lambda: float(row[0]) * row.gain, setting(row, gain=3.0)


@kept
def class_of_a_tensor(_: Host) -> Kept:
    class Own(torch.Tensor):
        def weight(self) -> float:
            return settings.WEIGHT

    tensor = torch.ones(1).as_subclass(Own)
    return lambda: tensor.weight() * 1.0, strong


@kept
def class_of_a_module(_: Host) -> Kept:
    class Own(types.ModuleType):
        @property
        def weight(self) -> float:
            return settings.WEIGHT

    module = Own("module")
    return lambda: module.weight, strong


@kept
def strides_of_a_tensor(_: Host) -> Kept:
    tensor = torch.tensor([[1.0, 1.0], [3.0, 1.0]])
    return lambda: tensor[0, 1], tensor.t_


@kept
def shape_of_a_tensor(_: Host) -> Kept:
    tensor = torch.ones(3)
    return lambda: 3.0 / len(tensor), lambda: setattr(tensor, "data", tensor.data[:1])


@kept
def sign_of_a_number_of_numpy(_: Host) -> Kept:
    of = {"zero": np.float64(0.0)}
    return lambda: 2 + np.copysign(1, of["zero"]), lambda: of.update(zero=np.float64(-0.0))


@kept
def number_of_c(_: Host) -> Kept:
    number = ctypes.c_double(1.0)
    return lambda: number.value, setting(number, value=3.0)


@kept
def view_of_memory(_: Host) -> Kept:
    octets = bytearray(1)
    view = memoryview(octets)
    return lambda: 1.0 + view[0], lambda: octets.__setitem__(0, 2)


@kept
def object_in_the_context(_: Host) -> Kept:
    variable = contextvars.ContextVar("variable", default=Thing())  # noqa: B039
    return lambda: variable.get().w, lambda: setattr(variable.get(), "w", 3.0)


@kept
def attribute_of_a_partial(_: Host) -> Kept:
    made: Any = functools.partial(one)
    made.w = 1.0
    return lambda: made() * made.w, setting(made, w=3.0)


@kept
def private_slot(_: Host) -> Kept:
    class Own:
        __slots__ = ("__w",)

        def __init__(self) -> None:
            self.put(1.0)

        def put(self, w: float) -> None:
            self.__w = w

        def get(self) -> float:
            return self.__w

    own = Own()
    return own.get, lambda: own.put(3.0)


@kept
def entry_of_a_librarys_list(_: Host) -> Kept:
    sys.argv.append("1.0")
    return lambda: float(sys.argv[-1]), lambda: sys.argv.__setitem__(-1, "3.0")


# ---- code that Python calls by itself


@kept
def class_of_a_record(_: Host) -> Kept:
    @dataclasses.dataclass
    class Record:
        v: float = 1.0

        def weight(self) -> float:
            return self.v * settings.WEIGHT

    record = Record()
    return record.weight, strong


@kept
def missing_entry(_: Host) -> Kept:
    class Own(dict[str, float]):
        def __missing__(self, key: str) -> float:
            return settings.WEIGHT

    own = Own()
    return lambda: own["w"], strong


@kept
def factory_of_entries(_: Host) -> Kept:
    made = collections.defaultdict(one)
    return lambda: made.copy()["w"], setting(made, default_factory=three)


@kept
def static_call(_: Host) -> Kept:
    class Own:
        __call__ = staticmethod(lambda: settings.WEIGHT)

    own = Own()
    return own, strong


@kept
def partial_call(_: Host) -> Kept:
    class Own:
        def weight(self, factor: float) -> float:
            return factor * settings.WEIGHT

        __call__ = functools.partialmethod(weight, 1.0)

    own: Any = Own()
    return own, strong


@kept
def made_on_the_way(_: Host) -> Kept:
    class Own:
        def __init__(self) -> None:
            self.v = settings.WEIGHT

    return lambda: Own().v, strong


@kept
def assigned_on_the_way(_: Host) -> Kept:
    class Own:
        v: float

        def __setattr__(self, name: str, value: float) -> None:
            object.__setattr__(self, name, value * settings.WEIGHT)

    own = Own()

    def get() -> float:
        own.v = 1.0
        return own.v

    return get, strong


@kept
def entry_of_a_class(_: Host) -> Kept:
    class Own:
        def __class_getitem__(cls, _: int) -> float:
            return settings.WEIGHT

    return lambda: Own[0], strong


# ---- names


@kept
def attribute_of_a_module_later(_: Host) -> Kept:
    vars(settings).pop("LATER", None)
    return lambda: getattr(settings, "LATER", 1.0), setting(settings, LATER=3.0)


@kept
def attribute_of_a_function_later(_: Host) -> Kept:
    def own() -> float:
        return float(getattr(own, "w", 1.0))

    return own, setting(own, w=3.0)


@kept
def attribute_that_a_module_makes(_: Host) -> Kept:
    made: Any = types.ModuleType("made")
    of = {"w": 1.0}
    made.__getattr__ = lambda _: of["w"]
    return lambda: made.anything, lambda: of.update(w=3.0)


@kept
def name_that_is_put_together(_: Host) -> Kept:
    settings.WEIGHT_OF_A = 1.0  # type: ignore[attr-defined]
    kind = "A"
    return lambda: getattr(settings, "WEIGHT_OF_" + kind), setting(settings, WEIGHT_OF_A=3.0)


@kept
def globals_by_name(_: Host) -> Kept:
    globals()["GLOBAL"] = 1.0
    return lambda: globals()["GLOBAL"], lambda: globals().update(GLOBAL=3.0)


@kept
def name_among_the_builtins(_: Host) -> Kept:
    setattr(builtins, "TACIT_WEIGHT", 1.0)  # noqa: B010 - mypy knows of none
    return (
        lambda: TACIT_WEIGHT,  # type: ignore[name-defined]  # noqa: F821
        setting(builtins, TACIT_WEIGHT=3.0),
    )


@kept
def table_of_modules(_: Host) -> Kept:
    sys.modules["tacit_replayed"] = settings
    return lambda: sys.modules["tacit_replayed"].WEIGHT, strong


@kept
def module_by_name(_: Host) -> Kept:
    sys.modules["tacit_replayed"] = settings
    return lambda: importlib.import_module("tacit_replayed").WEIGHT, strong


@kept
def import_of_something_new(_: Host) -> Kept:
    """It is there only once the loss has run."""
    sys.modules.pop(_LATE, None)

    def get() -> float:
        if _LATE not in sys.modules:
            made: Any = types.ModuleType(_LATE)
            made.WEIGHT = 1.0
            sys.modules[_LATE] = made
        import tacit_replayed_later  # type: ignore[import-not-found]  # noqa: PLC0415

        return float(tacit_replayed_later.WEIGHT)

    return get, lambda: setattr(sys.modules[_LATE], "WEIGHT", 3.0)


@kept
def path_of_attributes(_: Host) -> Kept:
    outer = types.SimpleNamespace()
    outer.inner = Thing()
    get = operator.attrgetter("inner.w")
    of = {"outer": outer}
    return lambda: get(of["outer"]), setting(outer.inner, w=3.0)


@kept
def path_that_is_split(_: Host) -> Kept:
    class Outer:
        def __init__(self) -> None:
            self.inner = Thing()

    outer = Outer()
    get = lambda: functools.reduce(getattr, "inner.w".split("."), outer)  # noqa: E731, SIM905
    return get, setting(outer.inner, w=3.0)


@kept
def getattr_bound(_: Host) -> Kept:
    thing = Thing()
    get = functools.partial(getattr, thing, "w")
    return get, setting(thing, w=3.0)


@kept
def matched(_: Host) -> Kept:
    thing = Thing()

    def get() -> float:
        match thing:
            case Thing(w=w):
                return w

    return get, setting(thing, w=3.0)
