"""Puts the models that tacit is tested with to Opacus, and records which it fails or refuses.

    python benchmarks/opacus_table.py [--rows NAME ...] [--record]

The models, their data and the fp64 oracle are those of `tests/training/clipping`; Opacus runs in an
environment of its own, once with per-sample gradients ("hooks") and once with ghost clipping.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import environments
import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
MODES = ("hooks", "ghost")
MEANINGS = {
    "passed": "norms and clipped sums agree with the oracle, and no record releases more than C",
    "refused": "an error instead of an answer, whatever its kind: safe, but nothing is trained",
    "WRONG": "an answer without a word of warning, in which norms, sums or sensitivity are wrong",
}


def main() -> None:
    arguments = parse_arguments()
    python = environments.python_for("opacus")
    answers = {mode: run(mode, arguments.rows, python) for mode in MODES}
    record = header() | {
        "versions": answers["hooks"]["versions"],
        "results": {
            name: {mode: answers[mode]["results"][name] for mode in MODES}
            for name in answers["hooks"]["results"]
        },
    }
    report = markdown(record)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "opacus_table.json").write_text(text + "\n")
        (RESULTS / "opacus_table.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="names of rows (default: all)")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args()
    if arguments.record and arguments.rows:
        parser.error("--record replaces the whole record: it goes with all rows")
    return arguments


def run(mode: str, rows: list[str] | None, python: Path) -> dict[str, Any]:
    print(f"opacus, {mode} ...", file=sys.stderr, flush=True)
    worker = subprocess.run(
        [python, HERE / "peers" / "opacus_table_worker.py"],
        input=json.dumps({"mode": mode, "rows": rows}),
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(worker.stdout)
    return answer


def header() -> dict[str, Any]:
    return {
        "command": machine.command(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": machine.commit(),
        "machine": machine.description(),
    }


def markdown(record: dict[str, Any]) -> str:
    results = record["results"]
    packages = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [
        f"Run {record['date']} at commit {record['commit']} by `{record['command']}`: {packages}, "
        f"Python {record['machine']['python']}; `PrivacyEngine.make_private`, without noise.",
        "",
        *(f"- **{status}**: {meaning}." for status, meaning in MEANINGS.items()),
        "- *fixed*: what `ModuleValidator.fix` makes of a model that its validation refused;",
        "  *another function* when the model then computes other losses than before.",
        "- *empty lot*: of the models that passed, those whose lot without rows raises an error.",
        "",
        f"| {len(results)} models | {' | '.join(MEANINGS)} | passed once fixed | empty lot fails |",
        "|---|---|---|---|---|---|",
        *(summary(mode, [row[mode] for row in results.values()]) for mode in MODES),
        "",
        "| model | hooks | ghost |",
        "|---|---|---|",
        *(
            f"| {name} | {cell(row['hooks'])} | {cell(row['ghost'])} |"
            for name, row in results.items()
        ),
    ]
    return "\n".join(lines)


def summary(mode: str, cells: list[dict[str, Any]]) -> str:
    counts = Counter(one["status"] for one in cells)
    fixed = sum(one.get("fixed", {}).get("status") == "passed" for one in cells)
    empty = sum(one.get("empty", "passed") != "passed" for one in cells)
    shown = " | ".join(str(counts[status]) for status in MEANINGS)
    return f"| {mode} | {shown} | {fixed} | {empty} |"


def cell(one: dict[str, Any]) -> str:
    match one["status"]:
        case "passed":
            text = "passed"
        case "refused":
            text = f"refused: {short(one['message'])}"
        case "changed":
            text = f"another function (losses off by {one['losses']:.2g})"
        case _:
            text = f"**WRONG**: {errors(one['errors'])}"
    if one.get("setting"):
        text += f" ({one['setting']})"
    if "fixed" in one:
        text += f"; fixed: {cell(one['fixed'] | {'setting': ''})}"
    if one.get("empty", "passed") != "passed":
        text += f"; empty lot: {short(one['empty'])}"
    return text.replace("|", "\\|")


def errors(found: dict[str, float | None]) -> str:
    """The errors worth telling, as a reader would say them; None stands for not finite."""
    norms, total, released = found["norms"], found["sum"], found["released"]
    parts = []
    if norms is None or norms > 1e-4:
        parts.append("not one norm a row" if norms is None else f"norms off by {norms:.2g}")
    if total is None or total > 1e-4:
        parts.append("sum not finite" if total is None else f"sum off by {total:.2g}")
    if released is not None and released > 1 + 1e-4:
        parts.append(f"one record releases {released:.3g}·C")
    return ", ".join(parts)


def short(message: str, width: int = 110) -> str:
    """One line of it; a list of validation errors is told by its first."""
    message = message.removeprefix("UnsupportedModuleError: [").replace("`", "'")
    message = message.replace("*", "\\*").replace("<", "\\<")
    return message if len(message) <= width else message[: width - 1].rstrip() + "…"


if __name__ == "__main__":
    main()
