"""Puts Opacus's ghost clipping to tacit's self-test, and shows its defect with (B, 1) losses.

    python benchmarks/opacus_replay.py [--record]

Opacus runs in an environment of its own, behind a thin adapter (`peers/opacus_replay_worker.py`).
The model and the losses are the same in both columns; in the second each loss stands in a row of
its own, as `BCEWithLogitsLoss(reduction="none")` leaves them. There the clipping coefficients, of
shape (B,), are broadcast to (B, B), and each example is scaled by the sum of everybody's.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import environments
import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
NAME = "opacus_replay"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args()
    record = machine.stamp() | answer(environments.python_for("opacus"))
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / f"{NAME}.json").write_text(text + "\n")
        (RESULTS / f"{NAME}.md").write_text(report + "\n")


def answer(python: Path) -> dict[str, Any]:
    worker = subprocess.run(
        [python, HERE / "peers" / "opacus_replay_worker.py"],
        env=os.environ | {"PYTHONPATH": str(HERE.parent / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(worker.stdout)
    return found


def markdown(record: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    lines = [
        f"Run {record['date']} at commit {record['commit']} by `{record['command']}`: {packages}, "
        f"Python {record['machine']['python']}, one thread.",
        "",
        *(verdict(shape, one) for shape, one in record["reports"].items()),
        *told_apart(record["reports"]),
        "",
        f"| check | {' | '.join(f'losses {shape}' for shape in record['reports'])} |",
        "|---|---|---|",
        *rows(record["reports"]),
    ]
    return "\n".join(lines)


def verdict(shape: str, report: dict[str, Any]) -> str:
    faults = ", ".join(report["at_fault"]) or "nothing"
    return f"- Losses of shape {shape}: at fault: **{faults}** ({report['seconds']:.0f} s)."


def told_apart(reports: dict[str, Any]) -> list[str]:
    """Which faults are of the shape of the losses, and which Opacus has with either."""
    plain, column = (
        [f"{one['component']}: {one['check']}" for one in report["findings"] if not one["passed"]]
        for report in reports.values()
    )
    only, both = (
        [check for check in column if (check in plain) is known] for known in (False, True)
    )
    return [
        f"- With (B, 1) alone: {'; '.join(only) or 'nothing'}.",
        f"- With either: {'; '.join(both) or 'nothing'}.",
    ]


def rows(reports: dict[str, Any]) -> list[str]:
    """One row a check, in the order of the report; a check may be left out after a fault."""
    found = [
        {(one["component"], one["check"]): one for one in report["findings"]}
        for report in reports.values()
    ]
    checks = dict.fromkeys(key for findings in found for key in findings)
    return [
        f"| {component}: {check} | "
        + " | ".join(cell(findings.get((component, check))) for findings in found)
        + " |"
        for component, check in checks
    ]


def cell(finding: dict[str, Any] | None) -> str:
    if finding is None:
        return "not run"
    mark = "" if finding["passed"] else "**FAULT**: "
    return mark + finding["evidence"].replace("|", "∣")


if __name__ == "__main__":
    main()
