"""Faults in the law of all noise, over several runs, and in what is said: found and named."""

from __future__ import annotations

import pytest

from tacit.auditing.replay import replay

from .test_running import setting
from .varied_engine import Varied

QUICK = {
    "one length": ("noise", "noise: length"),
    "free the second time": ("charging", "steps of several runs"),
    "ε since resumed": ("resuming", "resuming: claim"),
    "logs the loss": ("control flow", "printed.loss"),
    "tells the lot": ("control flow", "last lot"),
}
SLOW = {
    "a shared scale": ("noise", "noise"),
    "centred": ("noise", "the mean of all"),
    "linked steps": ("noise", "the step before"),
    "away from the last": ("noise", "along the step before"),
    "never against the sum": ("noise", "apart from the sum"),
    "lots grow": ("sampling", "sampling"),
    "two by two": ("sampling", "sampling: independence"),
    "never two in a row": ("sampling", "sampling"),
    "the hard ones": ("sampling", "without the data"),
    "prints the loss": ("control flow", "printed.loss"),
    "tells sizes": ("control flow", "sizes"),
    "counts NaN": ("control flow", "skipped"),
}


@pytest.mark.slow
def test_an_honest_engine_passes() -> None:
    report = replay(setting(), subject=Varied(), seconds=600)
    assert report.passed, report.describe()


def found(fault: str, component: str, words: str) -> None:
    report = replay(setting(), subject=Varied(fault), seconds=600, stop_at_first=True)
    assert report.at_fault == (component,), report.describe()
    assert words in next(line for line in report.describe().splitlines() if "FAULT" in line)


@pytest.mark.parametrize(("fault", "told"), QUICK.items())
def test_a_fault_is_found_and_named(fault: str, told: tuple[str, str]) -> None:
    found(fault, *told)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "told"), SLOW.items())
def test_more_faults_are_found_and_named(fault: str, told: tuple[str, str]) -> None:
    found(fault, *told)
