"""Findings and reports."""

from __future__ import annotations

from tacit.auditing.replay import COMPONENTS, Finding, Report

GOOD = Finding("noise", "scale", True, "as claimed")
BAD = Finding("clipping", "removal", False, "1.2 clips", (("moved", 1.2),))
WORSE = Finding("noise", "shape", False, "no bell curve")


def test_the_components_are_those_of_an_engine() -> None:
    assert len(COMPONENTS) == len(set(COMPONENTS)) == 9


def test_a_report_passes_if_every_finding_does() -> None:
    report = Report("tacit", (GOOD,), 1.0)
    assert report.passed
    assert report.at_fault == ()
    assert report.describe().splitlines()[-1] == (
        "1 checks of tacit found nothing; that is no proof (1.0 s)"
    )


def test_the_components_at_fault_are_named_once_in_the_order_of_findings() -> None:
    report = Report("opacus", (GOOD, BAD, WORSE, BAD), 1.0, whole=False)
    assert not report.passed
    assert report.at_fault == ("clipping", "noise")
    assert report.describe().splitlines()[1] == "FAULT  clipping: removal: 1.2 clips"
    assert "opacus is at fault: clipping, noise; not every check was run" in report.describe()
