"""What ``dp.explain()`` says: which rule serves each operation, and what it costs in memory.

It is about the rehearsal, whose size is public: the memory of a lot would tell that of the lot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from tacit.training.clipping.engine import UseReport
    from tacit.training.plan import Plan


@final
@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a rehearsal showed of the rules: of a few units, as many as the plan alone decides."""

    units: int
    reports: tuple[UseReport, ...]
    entangled: frozenset[str]


def explanation(plan: Plan, seen: Rehearsed | None) -> str:
    """The plan in words, and a table of the uses of private parameters in the rehearsal."""
    lines = [plan.describe(), ""]
    if seen is None:
        return "\n".join([*lines, "No batch has been computed yet, so no rule has been chosen."])
    rows = [("parameters", "rule", "norms by", f"temporary for {seen.units} {plan.unit}s")]
    rows += [_row(report) for report in seen.reports]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines += ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    slow = sorted({name for one in seen.reports if one.rule == "fallback" for name in one.names})
    if slow:
        lines += ["", f"By the exact but slower fallback: {', '.join(slow)}."]
    if seen.entangled:
        names = ", ".join(sorted(seen.entangled))
        lines += ["", f"Written out in slices, since their uses overlap: {names}."]
    return "\n".join(line.rstrip() for line in lines)


def _row(report: UseReport) -> tuple[str, str, str, str]:
    return (
        ", ".join(report.names),
        report.rule,
        report.way,
        f"{report.temporary * 4 / 2**20:.2f} MiB",
    )
