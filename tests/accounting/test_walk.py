"""A reader who follows one question meets few files, and the room's imports go one way."""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import tacit
from tacit.accounting import Gaussian, PoissonSampled, Repeated, epsilon

if TYPE_CHECKING:
    from types import FrameType

PACKAGE = Path(tacit.__file__).parent
RUN = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)


def test_a_question_passes_few_files() -> None:
    epsilon(RUN, delta=1e-5)  # imports are no part of the walk
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        epsilon(RUN, delta=1e-5)
    finally:
        sys.setprofile(before)
    files = {Path(file).relative_to(PACKAGE).as_posix() for file, _ in calls}
    assert "accounting/exact/contour.py" in files
    assert len(files) <= 14, sorted(files)
    assert sum(name == "parts" for _, name in calls) == 1


def test_no_module_imports_itself_by_a_detour() -> None:
    imports = {_name(path): _imported(path) for path in (PACKAGE / "accounting").rglob("*.py")}
    assert "tacit.accounting.exact.pairs" in imports["tacit.accounting.exact.grid"]
    order = TopologicalSorter({name: found & set(imports) for name, found in imports.items()})
    assert len([*order.static_order()]) == len(imports)  # else it raises CycleError


def _name(path: Path) -> str:
    parts = ("tacit", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


def _imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere, for types and in functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names):
                found |= {one.name for one in names}
            case ast.ImportFrom(module=str(module), names=names):
                # A submodule imported by name is meant, not the package around it.
                found |= {f"{module}.{one.name}" for one in names} | {module}
    return found - {"tacit.accounting"}  # which names its submodules, for types only
