"""The self-test finds every injected bug, blames the right component, and accuses nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tacit.auditing.replay import replay

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
