"""What ``dp.explain()`` says: which rule serves each operation, and what it costs in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.training.clipping.engine import Engine, UseReport
    from tacit.training.plan import Plan


def explanation(plan: Plan, engine: Engine) -> str:
    """The plan in words, and a table of the uses of private parameters in the latest batch."""
    lines = [plan.describe(), ""]
    if not engine.reports:
        return "\n".join([*lines, "No batch has been computed yet, so no rule has been chosen."])
    rows = [("parameters", "rule", "norms by", "temporary")]
    rows += [_row(report) for report in engine.reports]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines += ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    slow = sorted({name for one in engine.reports if one.rule == "fallback" for name in one.names})
    if slow:
        lines += ["", f"By the exact but slower fallback: {', '.join(slow)}."]
    if engine.structure is not None and engine.structure.entangled:
        names = ", ".join(sorted(engine.structure.entangled))
        lines += ["", f"Written out in slices, since their uses overlap: {names}."]
    return "\n".join(line.rstrip() for line in lines)


def _row(report: UseReport) -> tuple[str, str, str, str]:
    return (
        ", ".join(report.names),
        report.rule,
        report.way,
        f"{report.temporary * 4 / 2**20:.2f} MiB",
    )
