"""Puts bugs that strangers wrote, as patches of the source, to the default self-test.

    python benchmarks/strangers.py FOLDER [FOLDER ...] [--processes 2] [--out FILE]

A folder holds NN.patch files and a README.md with a line for each ("- 01: what is wrong"). Each
patch is applied to a copy of the source, and the jobs of ``tacit audit engine`` are run on it one
after the other, until the first finding: the command as a whole would report it. What several
rounds came to is kept in results/strangers.json, with the patches, which fit the source of their
day only.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import machine

ROOT = Path(__file__).resolve().parent.parent
ONE = """
import json, sys, time
from tacit.recipes.auditing.engine import _jobs, _work
found, started, count = [], time.perf_counter(), 0
jobs = _jobs(quick=False, seconds=120.0)
# Those with few checks first.
for job in sorted(jobs, key=lambda job: job.scope == "all" and job.name != "parts"):
    report, _ = _work(job)
    found = [[job.name, one.component, one.check, one.evidence]
             for one in report.findings if not one.passed]
    count += 1
    if found:
        break
print(json.dumps({"caught": bool(found), "jobs": count, "of": len(jobs),
                  "seconds": round(time.perf_counter() - started, 1), "found": found}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    patches = [one for folder in arguments.folders for one in sorted(folder.glob("*.patch"))]
    with ThreadPoolExecutor(arguments.processes) as pool:
        rows = list(pool.map(one_bug, patches))
    record = machine.stamp() | {"command": "python benchmarks/strangers.py", "rows": rows}
    print(json.dumps(record, indent=1, ensure_ascii=False))
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def one_bug(patch: Path) -> dict[str, Any]:
    """What the self-test makes of one patch."""
    with tempfile.TemporaryDirectory() as place:
        for folder in ("src", "benchmarks"):
            shutil.copytree(ROOT / folder, Path(place) / folder)
        subprocess.run(["git", "apply", "-p1", str(patch.resolve())], cwd=place, check=True)
        path = os.pathsep.join([f"{place}/src", os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", ONE], cwd=place, capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"caught": True}
    raised = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    return {
        "name": patch.stem, "says": said(patch), **found, "raised": raised,
        "patch": patch.read_text(),
    }  # fmt: skip


def said(patch: Path) -> str:
    """What its author says of it."""
    for line in (patch.parent / "README.md").read_text().splitlines():
        if match := re.match(rf"[-*\s|]*\**{patch.stem}\**[:.|,\s—-]+(.*)", line):
            return match.group(1).strip(" |")
    return ""


if __name__ == "__main__":
    main()
