"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as typing has it, which takes longer to import than the rest together
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Attributes = tuple[Callable[[str], object], Callable[[], list[str]]]


def lazy(package: str) -> Attributes:
    """What a package assigns to ``__getattr__`` and ``__dir__``.

    The names are those that it imports ``if TYPE_CHECKING``, where a type checker looks for them
    too: there is no second list of where they are. Both a name's module and that list are read
    with the first use, so that importing the package costs nothing.

    >>> import tacit.convex
    >>> find, names = lazy("tacit.convex")
    >>> find("ConvexTask").__module__
    'tacit.convex.problem'
    >>> "ConvexTask" in names()
    True
    >>> find("Tusk")
    Traceback (most recent call last):
    AttributeError: module 'tacit.convex' has no attribute 'Tusk'
    """
    known: dict[str, str] = {}

    def homes() -> dict[str, str]:
        known.update(known or _homes(package))
        return known

    def find(name: str) -> object:
        return lazily(package, homes())(name)

    return find, lambda: sorted({*homes(), *vars(sys.modules[package])})


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """What a package assigns to ``__getattr__``; ``homes`` has the module of each name, in full.

    >>> find = lazily("tacit", {"Plan": "tacit.training.plan"})
    >>> find("Plan").__name__
    'Plan'
    >>> find("Plam")
    Traceback (most recent call last):
    AttributeError: module 'tacit' has no attribute 'Plam'
    """

    def found(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object
        if homes[name] == package:  # a room of the package
            value = import_module(f"{package}.{name}")
        else:
            value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return found


def _homes(package: str) -> dict[str, str]:
    """The module of each name that the package's source imports ``if TYPE_CHECKING``."""
    import ast  # noqa: PLC0415 - only where a name is looked for

    spec = sys.modules[package].__spec__
    assert spec is not None  # a package that was imported
    # Of files and of archives; importlib.abc, which would say so, takes longer than the rest.
    source = spec.loader.get_source(package)  # type: ignore[union-attr]
    module = ast.parse(source)
    checked = [
        one
        for node in module.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for one in node.body
        if isinstance(one, ast.ImportFrom)
    ]
    own = package.partition(".")[0]
    return {
        one.name: node.module
        for node in checked
        if node.module is not None and node.module.partition(".")[0] == own
        for one in node.names
    }
