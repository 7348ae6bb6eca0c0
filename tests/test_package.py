"""The package as it is shipped: light to import, typed, with one version."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import tacit
import tacit.accounting

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PROBE = """
import sys, time
start = time.process_time()
import tacit.accounting
print(time.process_time() - start)
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def probe() -> tuple[float, set[str]]:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    seconds, modules = done.stdout.splitlines()
    return float(seconds), set(modules.split())


def test_accounting_is_quick_to_import_and_brings_no_heavy_library():
    probes = [probe() for _ in range(3)]
    assert min(seconds for seconds, _ in probes) <= 0.5
    heavy = {"scipy", "numpy", "torch", "matplotlib", "click", "rich"}
    assert not heavy & set.union(*(modules for _, modules in probes))


def test_every_public_name_is_there():
    assert tacit.accounting.__all__
    for name in tacit.accounting.__all__:
        assert getattr(tacit.accounting, name) is not None


def test_types_are_shipped():
    assert files("tacit").joinpath("py.typed").is_file()


def test_version_is_the_installed_one():
    assert version("tacit") == tacit.__version__


def test_every_file_says_the_same_version_and_date() -> None:
    citation, changes = ((ROOT / name).read_text() for name in ("CITATION.cff", "CHANGELOG.md"))
    cited = re.search(r"^version: (.+)\ndate-released: (.+)$", citation, re.MULTILINE)
    changed = re.search(r"^## \[(\d.+?)\]: (.+)$", changes, re.MULTILINE)
    assert cited is not None
    assert changed is not None
    assert cited.groups() == changed.groups()
    assert cited[1] == tacit.__version__


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_what_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    named = re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", text) if page == "CONTRIBUTING.md" else []
    assert linked
    missing = [path for path in {*linked, *named} if not (ROOT / path).exists()]
    assert not missing


def test_constraints_pin_every_direct_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        need.split(">=")[0].split("[")[0]
        for needs in [project["dependencies"], *extras.values()]
        for need in needs
    }
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    assert wanted - {"tacit"} <= pinned


def test_every_pin_has_its_checksums() -> None:
    """``constraints.lock`` is of the very versions that ``constraints.txt`` pins."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    text = (ROOT / "constraints.lock").read_text(encoding="utf-8").replace(" \\\n", "")
    locked = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert [pin for pin, *_ in locked] == pins
    for _, *hashes in locked:
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)


PUBLIC = [
    "tacit", "tacit.accounting", "tacit.auditing", "tacit.auditing.attacks",
    "tacit.auditing.canaries", "tacit.auditing.replay", "tacit.auditing.secrets", "tacit.convex",
    "tacit.data", "tacit.hf", "tacit.ledger", "tacit.losses", "tacit.mechanisms", "tacit.models",
    "tacit.randomness", "tacit.recipes", "tacit.runs", "tacit.selection", "tacit.statement",
    "tacit.training", "tacit.transfer",
]  # fmt: skip


def referenced() -> Iterator[object]:
    """What the pages of the reference describe."""
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        room = ""
        for kind, name, bare in re.findall(
            r"\.\. (\w+):: (\S+)(\n   :no-members:)?", page.read_text()
        ):
            if kind == "currentmodule":
                room = name
            elif kind == "automodule":
                yield from [] if bare else vars(import_module(name)).values()
            else:
                whole = name if name.startswith("tacit") else f"{room}.{name}"
                place, _, own = whole.rpartition(".")
                yield getattr(import_module(place), own)


def test_the_reference_has_every_name_that_users_import() -> None:
    described = {id(one) for one in referenced()}
    missing = [
        f"{room}.{name}"
        for room, known in ((room, import_module(room)) for room in PUBLIC)
        for name in known.__all__
        if not isinstance(found := getattr(known, name), str | ModuleType)
        and id(found) not in described
    ]
    assert not missing
