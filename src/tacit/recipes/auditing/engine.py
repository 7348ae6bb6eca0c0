"""``audit_engine``: the self-test of the training engine, in one setting or in several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tacit.auditing.replay import replay
from tacit.recipes.auditing.audited import Audited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tacit.auditing.replay import Report, Setting

SECONDS: Final = 120.0
NO_PROOF: Final = "No finding is no proof: a bug that shows in no observed number is not found."


def audit_engine(
    settings: Mapping[str, Setting],
    *,
    seconds: float = SECONDS,
    private: bool = True,
    progress: Callable[[str, int, int, str], None] | None = None,
) -> Audited:
    """Runs the self-test (``tacit.auditing.replay``) in each setting, and names what is at fault.

    Args:
        settings: Models with their losses, data and plans, by name.
        seconds: For one setting; no further check of it is begun after so long.
        private: Whether the data are somebody's.
        progress: Told the setting, how many checks are done, of how many, and the next.

    Guarantee:
        A correct engine is accused with probability 1e-5 at most in each setting.
    """
    reports: dict[str, Report] = {}
    for name, setting in settings.items():
        reports[name] = replay(setting, seconds=seconds, progress=_told(progress, name))
    faults = dict.fromkeys(part for one in reports.values() for part in one.at_fault)
    checks = sum(len(one.findings) for one in reports.values())
    cut = [name for name, one in reports.items() if not one.whole]
    notes = [NO_PROOF]
    if cut:
        notes.insert(0, f"Not every check was run: time was up, or a fault ended it ({_all(cut)}).")
    return Audited(
        kind="engine",
        subject="engine",
        words=(
            f"the engine is at fault: {_all(faults)}"
            if faults
            else f"{checks} checks in {len(reports)} setting(s) found nothing"
        ),
        contradicted=bool(faults),
        details=tuple(row for name, one in reports.items() for row in _rows(name, one)),
        settings={"settings": list(reports), "seconds": seconds},
        notes=tuple(notes),
        private=private,
    )


def _told(
    progress: Callable[[str, int, int, str], None] | None, name: str
) -> Callable[[int, int, str], None] | None:
    if progress is None:
        return None
    return lambda done, of, check: progress(name, done, of, check)


def _rows(name: str, report: Report) -> list[dict[str, Any]]:
    return [
        {
            "setting": name,
            "component": one.component,
            "check": one.check,
            "passed": one.passed,
            "evidence": one.evidence,
        }
        for one in report.findings
    ]


def _all(names: Iterable[str]) -> str:
    return ", ".join(names)
