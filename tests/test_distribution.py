"""What ``pip install tacit`` gets: the whole package, nothing else, and it works when installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def distribution() -> Any:
    spec = importlib.util.spec_from_file_location("distribution", ROOT / "tools/distribution.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def test_both_files_hold_the_package_and_nothing_else(
    distribution: Any, built: tuple[Path, Path]
) -> None:
    assert distribution.problems(*built) == []
    with zipfile.ZipFile(built[0]) as file:
        inside = set(file.namelist())
    assert {
        "tacit/py.typed",
        "tacit/ledger/migrations/versions/revision_0001.py",
        "tacit/serve/static/console.js",
        "tacit/serve/static/htmx.min.js",
        "tacit/serve/templates/base.html",
        "tacit/reports/templates/run.html",
    } <= inside
    assert not any("test" in name.split("/")[0] for name in inside)


def spoilt(name: str, text: bytes) -> tuple[str, bytes] | None:
    """A file of the wheel as it should not be."""
    match name.partition("/")[2]:
        case "serve/templates/base.html":
            return None
        case "__main__.py":
            return "tests/__main__.py", text
        case "runs/fit.py":
            return name, text + b"# /home/ada/tacit"
        case "METADATA":
            for gone in (b"Provides-Extra: ui\n", b"Requires-Dist: scipy>=1.11\n"):
                assert gone in text
                text = text.replace(gone, b"")
            return name, text.replace(b"\nVersion: ", b"\nVersion: 9")
        case _:
            return name, text


def test_a_wrong_wheel_is_found(
    distribution: Any, built: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as old, zipfile.ZipFile(wheel, "w") as new:
        for name in old.namelist():
            if (kept := spoilt(name, old.read(name))) is not None:
                new.writestr(*kept)
    found = "\n".join(distribution.problems(wheel, built[1]))
    for problem in (
        "lacks tacit/serve/templates/base.html",
        "lacks tacit/__main__.py",
        "holds tests/__main__.py, which is not the package",
        "has another tacit/runs/fit.py than the source tree",
        "tacit/runs/fit.py names /home/ada",
        "the wheel's extras are",
        "the wheel needs",
        "the wheel's Version is 9",
    ):
        assert problem in found


@pytest.mark.slow
def test_the_source_distribution_builds_the_same_wheel(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    with tarfile.open(built[1]) as file:
        file.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=tree, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (again,) = (tree / "dist").glob("*.whl")
    assert again.read_bytes() == built[0].read_bytes()


@pytest.mark.slow
def test_it_works_in_an_empty_environment(distribution: Any, built: tuple[Path, Path]) -> None:
    assert "without PyTorch" in distribution.tried_alone(built[0], sys.executable)
    assert "trained with epsilon" in distribution.tried_whole(built[0])
