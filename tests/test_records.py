"""Records of benchmarks: no path of the machine on which one was made is part of it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
OF_A_MACHINE = re.compile(r"(?<![\w.])/(?:tmp|work|root|home|Users)/[A-Za-z]")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    if not (ROOT / "benchmarks").is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("machine")


@pytest.mark.parametrize("folder", ["benchmarks/results", "docs"])
def test_no_record_and_no_page_names_a_folder_of_a_machine(folder: str) -> None:
    if not (ROOT / folder).is_dir():
        pytest.skip(f"{folder} is in the repository only")
    texts = [one for one in (ROOT / folder).rglob("*") if one.suffix in {".json", ".md"}]
    assert texts
    named = {one.name for one in texts if OF_A_MACHINE.search(one.read_text(encoding="utf-8"))}
    assert named == set()


def test_the_stamp_keeps_names_and_drops_folders(
    machine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = ROOT / "benchmarks" / "recipes.py"
    typed = [str(script), "--data", str(tmp_path / "mnist"), f"--out={tmp_path}/a.json", "--seed=1"]
    monkeypatch.setattr("sys.argv", typed)
    assert machine.stamp()["command"] == (
        "python benchmarks/recipes.py --data mnist --out=a.json --seed=1"
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/mnt/disk/sets/", "sets"),
        ("ratio 3/4, 1e-5/n", "ratio 3/4, 1e-5/n"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("postgresql://me@host/budgets", "postgresql://me@host/budgets"),
        ("carried/data/mnist", "carried/data/mnist"),
        ("~/sets/mnist", "~/sets/mnist"),
    ],
)
def test_only_absolute_paths_are_shortened(machine: Any, text: str, kept: str) -> None:
    assert machine.portable(text) == kept


def test_tables_on_pages_are_what_the_records_say(machine: Any) -> None:
    del machine  # puts the benchmarks on the path
    made = importlib.import_module("results_page")
    written = {page.name: page.read_text(encoding="utf-8") for page in made.PAGES}
    for name, text in written.items():
        assert made.PLACE.search(text)
        assert made.filled(text) == text, f"{name}: python benchmarks/results_page.py"
    stale = written["results.md"].replace("| tacit | 83.07", "| tacit | 93.07")
    assert stale != written["results.md"]
    assert made.filled(stale) == written["results.md"]


def test_two_tables_of_the_same_rows_are_read_as_one(machine: Any) -> None:
    del machine
    page = importlib.import_module("results_page")
    one, other = (
        [page.cells(line)[0] for line in page.excerpt("recipes", f"table {n}: recipe").splitlines()]
        for n in (1, 3)
    )
    both = page.excerpt("recipes", "table 1+3: recipe · ε · σ").splitlines()
    assert [page.cells(line)[0] for line in both] == one
    assert all(line.startswith(name) for line, name in zip(one[2:], other[2:], strict=True))
    with pytest.raises(ValueError, match="zip"):
        page.excerpt("recipes", "table 1+2: recipe")


def test_a_column_that_no_record_has_is_refused(machine: Any) -> None:
    del machine
    page = importlib.import_module("results_page")
    with pytest.raises(LookupError, match="no column 'speed'"):
        page.excerpt("recipes", "table 1: recipe · speed")
