"""What a recording takes for fixed: every change of it is seen, and nothing else is one.

How training goes on after a change is in ``test_replays``.
"""

from __future__ import annotations

import functools
import operator
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch.nn.modules.module import register_module_forward_hook

from tacit.training.circumstances import Circumstances
from tacit.training.dependencies import dependencies_of

from .sessions import network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest


def test_a_tensor_that_is_put_in_anothers_place_is_seen() -> None:
    model = network()
    kept = {"w": torch.ones(3)}
    model.extra = kept["w"]

    def loss(batch: Any) -> Any:
        return batch * tensor

    tensor = torch.ones(2)
    at = Circumstances(model, loss)
    assert at.hold(loss)
    tensor = torch.zeros(2)
    assert not at.hold(loss)
    at = Circumstances(model, loss)
    model.extra = torch.ones(3)
    assert not at.hold(loss)


class Temperature:
    """A loss that is a method, and goes by its object's numbers."""

    def __init__(self) -> None:
        self.value = 1.0
        self.others = {"deep": [torch.ones(2), 0.5]}

    def loss(self, batch: Any) -> Any:
        return batch / self.value * self.others["deep"][1]


SETTINGS: dict[str, Any] = {"power": 2.0}


def powered(batch: Any) -> Any:
    return batch ** SETTINGS["power"]


def test_numbers_of_objects_dictionaries_and_functions_that_are_called_are_seen() -> None:
    model, own = network(), Temperature()
    at = Circumstances(model, own.loss)
    assert at.hold(own.loss)
    own.value = 2.0
    assert not at.hold(own.loss)
    at = Circumstances(model, own.loss)
    own.others["deep"][0] = torch.ones(2)
    assert not at.hold(own.loss)

    def calling(batch: Any) -> Any:
        return powered(batch)

    at = Circumstances(model, calling)
    assert at.hold(calling)
    SETTINGS["power"] = 3.0
    try:
        assert not at.hold(calling)
    finally:
        SETTINGS["power"] = 2.0


LATER: Any = None


def places_of_change() -> Iterator[tuple[str, Callable[[Any], Any], Callable[[], object]]]:
    """Functions, each with something that changes what the very same object does."""
    own, listed, named = Temperature(), [1.0], {"a": 1.0}

    def with_default(batch: Any, power: float = 2.0) -> Any:
        return batch**power

    def later(batch: Any) -> Any:
        return batch if LATER is None else LATER

    def other(batch: Any, power: float = 2.0) -> Any:
        return batch + power

    def with_name(batch: Any, *, power: float = 2.0) -> Any:
        return batch**power

    held = SimpleNamespace(
        function=with_default, partial=functools.partial(with_default, power=2.0), method=own.loss
    )
    twice = SimpleNamespace(one=own, other=own)

    yield (
        "function in an object",
        lambda b: held.function(b) + 1,
        lambda: vars(held).update(function=other),
    )
    yield (
        "partial",
        lambda b: held.partial(b) + 1,
        lambda: vars(held).update(partial=functools.partial(with_default, power=3.0)),
    )
    yield (
        "method",
        lambda b: held.method(b) + 1,
        lambda: vars(held).update(method=Temperature().loss),
    )
    yield "global function", lambda b: powered(b) + 1, lambda: globals().update(powered=other)
    yield (
        "met before",
        lambda b: twice.one.value + twice.other.value + b,
        lambda: vars(twice).update(other=Temperature()),
    )
    yield "keyword", with_name, lambda: setattr(with_name, "__kwdefaults__", {"power": 3.0})
    yield "object", lambda b: b * own.value, lambda: setattr(own, "value", 3.0)
    yield "attribute", lambda b: b * len(vars(own)), lambda: setattr(own, "new", 3.0)
    yield "list", lambda b: b * listed[0], lambda: listed.__setitem__(0, 2.0)
    yield "longer list", lambda b: b * len(listed), lambda: listed.append(2.0)
    yield "dictionary", lambda b: b * len(named), lambda: named.update(b=1.0)
    yield "default", with_default, lambda: setattr(with_default, "__defaults__", (3.0,))
    yield "code", with_default, lambda: setattr(with_default, "__code__", other.__code__)
    yield "global", later, lambda: globals().update(LATER=1.0)


def test_what_changes_under_one_function_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "powered", powered)
    model = network()
    for name, function, change in places_of_change():
        at = Circumstances(model, function)
        assert at.hold(function), name
        change()
        assert not at.hold(function), name
    made = [lambda b: b**2 for _ in range(2)]
    held = [made[0]]
    calling: Callable[[Any], Any] = lambda b: held[0](b) + 1  # noqa: E731
    at = Circumstances(model, calling)
    held[0] = made[1]
    assert at.hold(calling)  # another function, of the same parts
    function = Temperature().loss
    at = Circumstances(model, function)
    globals()["UNRELATED"] = 1
    assert at.hold(function)
    model[0].register_forward_hook(lambda *_: None)
    assert not at.hold(function)


class Wrapped:
    """Its functions and numbers are a static method's, a kept property's, a slot's."""

    __slots__ = ("__dict__", "scale")
    factors: ClassVar[list[float]] = [1.0]
    base = 2.0

    @staticmethod
    def static(batch: Any) -> Any:
        return batch * Wrapped.factors[0]

    @functools.cached_property
    def kept(self) -> float:
        return self.base

    def loss(self, batch: Any) -> Any:
        return self.static(batch) * self.kept * getattr(self, "scale", 1.0)


class Settings(dict[str, Any]):
    """A dictionary with code and attributes of its own."""

    base = 2.0

    def power(self) -> float:
        return self.base


def rarer_places() -> Iterator[tuple[str, Callable[[Any], Any], Callable[[], object]]]:
    """The same, in wrappings and containers that few programs have."""
    own, settings, named = Wrapped(), Settings(a=[1.0]), Temperature()
    one, array = SimpleNamespace(value=1.0), np.array([Temperature()])
    turns, kinds, large = deque([one]), {Temperature, Wrapped}, torch.zeros(50_000)
    value_of = operator.attrgetter("value")
    factor = 1.0
    del factor

    def closing(batch: Any) -> Any:
        return batch * factor  # noqa: F821 - it is assigned later

    def assign() -> None:
        nonlocal factor
        factor = 2.0

    yield "empty slot", own.loss, lambda: setattr(own, "scale", 2.0)
    yield "static method", own.loss, lambda: Wrapped.factors.__setitem__(0, 2.0)
    yield "kept property", own.loss, lambda: setattr(Wrapped, "base", 3.0)
    yield "own dictionary", lambda b: b ** settings.power(), lambda: setattr(settings, "base", 3.0)
    yield "array", lambda b: b * array[0].value, lambda: setattr(array[0], "value", 2.0)
    yield "deque", lambda b: b * turns[-1].value, lambda: turns.append(one)
    yield "set", lambda b: b * len(kinds), lambda: kinds.discard(Wrapped)
    yield "large tensor", lambda b: b + large, lambda: large.add_(1.0)
    yield "getter", lambda b: b * value_of(named), lambda: setattr(named, "value", 2.0)
    yield "empty cell", closing, assign


def test_what_changes_in_rarer_places_is_seen() -> None:
    model = network()
    for name, function, change in rarer_places():
        at = Circumstances(model, function)
        assert at.hold(function), name
        change()
        assert not at.hold(function), name


def test_a_partial_that_is_made_again_is_known_by_what_it_binds() -> None:
    at = Circumstances(network(), functools.partial(powered, batch=[1.0, 2.0]))
    assert not at.hold(functools.partial(powered, batch=[1.0, 2.0]))  # another list
    bound = [1.0, 2.0]
    at = Circumstances(network(), functools.partial(powered, batch=bound))
    assert at.hold(functools.partial(powered, batch=bound))
    bound[0] = 3.0
    assert not at.hold(functools.partial(powered, batch=bound))


def test_a_hook_of_all_modules_is_named_and_seen() -> None:
    model = network()
    before = Circumstances(model, model.forward)
    assert before.hindrance == ""
    hook = register_module_forward_hook(lambda *_: None)
    try:
        assert not before.hold(model.forward)
        hindrance = Circumstances(model, model.forward).hindrance
    finally:
        hook.remove()
    assert hindrance == "a hook would not be called (of all modules)"


def test_another_forward_of_a_librarys_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    before = Circumstances(model, model.forward)
    monkeypatch.setattr(type(model[0]), "forward", lambda _, x: x)
    assert not before.hold(model.forward)


def test_a_function_of_very_many_parts_is_looked_at_in_no_time() -> None:
    """A corpus in a closure, an object that holds itself: the search is bounded."""
    corpus = [{"text": str(at), "ids": list(range(50))} for at in range(10_000)]
    round_trip: dict[str, Any] = {"corpus": corpus}
    round_trip["self"] = round_trip
    parts = dependencies_of(lambda batch: (corpus, round_trip, batch)).parts
    assert 100 < len(parts) <= 512
