"""The self-test finds every injected bug, blames the right component, and accuses nobody else."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tacit.auditing.replay import Finding, replay, self_test

from .mutants import settings
from .mutants.catalogue import BY_NAME, MUTANTS
from .mutants.parallel_engine import DataParallel
from .mutants.unseen import UNSEEN
from .mutants.unseen_second import SECOND_UNSEEN
from .mutants.unseen_third import THIRD_UNSEEN

if TYPE_CHECKING:
    from .mutants.mutant import Mutant

# One or more of each component, those that show early in a self-test.
QUICK = (
    "batch norm",
    "clip ignored",
    "ghost norm of an embedding",
    "NaN example",
    "no noise on a buffer",
    "wrong delta",
    "whole steps beyond the clip",
    "statement that cannot be checked",
    "charge after release",
    "mean over the realised lot",
)


@pytest.mark.parametrize("name", QUICK)
def test_the_first_fault_found_is_the_bug(name: str) -> None:
    mutant = BY_NAME[name]
    report = mutant.report(stop_at_first=True)
    assert not report.passed
    assert report.at_fault[0] in mutant.components, report.describe()


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [*MUTANTS, *UNSEEN, *SECOND_UNSEEN, *THIRD_UNSEEN], ids=lambda mutant: mutant.name
)
def test_the_report_names_the_component(mutant: Mutant) -> None:
    report = mutant.report()
    assert not report.passed
    assert set(report.at_fault) & set(mutant.components), report.describe()


@pytest.mark.slow
def test_an_honest_data_parallel_engine_passes() -> None:
    report = replay(settings.linear(), subject=DataParallel())
    assert report.passed, report.describe()


# ---- on a device, by the benchmark


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    root = Path(__file__).parents[2]
    if not (root / "benchmarks").is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    return import_module("mutants_worker")


def test_a_fault_counts_if_the_engine_without_the_bug_has_none(worker: Any) -> None:
    row = worker.on_device(("clip ignored", "cpu"))
    assert row["caught"]
    assert row["control"] == []


def test_a_check_that_accuses_everybody_shows_nothing(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an H200 a check of correlated noise did, which "found" two bugs of it."""

    def accused(check: Any, _: Any) -> Finding:
        return Finding("clipping", check.name, False, "of whatever there is")

    monkeypatch.setattr(self_test, "_made", accused)
    row = worker.on_device(("clip ignored", "cpu"))
    assert row["at_fault"] == ("clipping",)
    assert row["control"] == ["FAULT  clipping: gradients.alone: of whatever there is"]
    assert not row["caught"]
