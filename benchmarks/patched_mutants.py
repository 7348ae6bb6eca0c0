"""Bugs that somebody wrote as patches of the source, put to the default command as a whole.

A folder holds NN.patch files and a bugs.json: a list of objects with "patch", "name", "says" and
"components". A commit is exported for each, the patch applied to it, and `tacit audit engine` run
there. Outputs that are there already, as NN.txt, are taken as they are; what is not whole is run,
and kept there. Status and seconds are then in a summary.txt beside the patches, a line each ("01
status 1 393 s"). Only the faults that the command prints count, and the components that they name.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import machine
from tacit.auditing.replay import COMPONENTS

ROUNDS = ("third", "fourth")
# What authors say for components of which a report has other names.
_WORDS = {
    "norms": ("clipping", "gradients"),
    "adaptive": ("clipping", "noise"),
    "statement": ("charging",),
    "accounting": ("charging",),
    "correlation": ("noise", "sampling"),
}
_HEADER = re.compile(r"^\s*setting\s+component\s+check\s+passed\s+evidence\s*$")
_VERDICT = re.compile(r"^engine: (?:the engine is at fault: .+|(\d+) checks in .+ found nothing)$")
_CUT = re.compile(r"Not every check was run: [^(]*\(([^)]*)\)")
_SUMMARY = re.compile(r"^(\w+) status (\d+) (\d+) s\b")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--patches", type=Path, metavar="FOLDER", help="of NN.patch and bugs.json")
    parser.add_argument("--round", choices=ROUNDS, help="which round they are")
    parser.add_argument("--commit", default="HEAD", help="what the patches are of (default: HEAD)")
    parser.add_argument("--outputs", type=Path, metavar="FOLDER", help="of NN.txt: what was run")
    parser.add_argument("--about", default="", help="a sentence on the round, for its record")


def patched(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the command says of each bug of a folder, as rows."""
    bugs = json.loads((arguments.patches / "bugs.json").read_text())
    patches = {bug["name"]: arguments.patches / bug["patch"] for bug in bugs}
    for bug in bugs:  # all that can be refused, before hours of work
        may_be_named(bug["components"])
        with _laid_out(patches[bug["name"]], arguments.commit):
            pass
    rows, dates = [], []
    for bug in bugs:
        text, ran, date = output(patches[bug["name"]], arguments.commit, arguments.outputs)
        row = judged(bug, text) | ran
        named = ", ".join(row["at_fault"]) or row["error"] or "nothing"
        print(f"{row['name']}: {named}", file=sys.stderr, flush=True)
        rows.append(row)
        dates.append(date)
    ended = datetime.datetime.fromtimestamp(max(dates), datetime.UTC)
    return {
        "date": ended.strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _git("rev-parse", "--short=12", arguments.commit).decode().strip(),
        "processes": 2,  # of the default command
        "about": arguments.about,
        "rows": rows,
    }


def output(patch: Path, commit: str, kept: Path | None) -> tuple[str, dict[str, int | None], float]:
    """What the command printed, its exit status and seconds, and when it ended."""
    if kept is None:
        return *run(patch, commit), time.time()
    path, summary = kept / f"{patch.stem}.txt", patch.parent / "summary.txt"
    if not path.exists() or not is_whole(path.read_text()):
        text, ran = run(patch, commit)
        path.write_text(text)
        with summary.open("a") as lines:
            lines.write(f"{patch.stem} status {ran['status']} {ran['seconds']} s\n")
    ran = _timed(summary).get(patch.stem, {"status": None, "seconds": None})
    return path.read_text(), ran, path.stat().st_mtime


def run(patch: Path, commit: str) -> tuple[str, dict[str, int | None]]:
    """What the command prints on a commit with a patch, its exit status and its seconds."""
    with _laid_out(patch, commit) as folder:
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "tacit", "audit", "engine"],
            cwd=folder, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": f"{folder}/src", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        seconds = round(time.perf_counter() - started)
    return done.stdout, {"status": done.returncode, "seconds": seconds}


@contextmanager
def _laid_out(patch: Path, commit: str) -> Iterator[str]:
    """A folder with a commit's files, patched."""
    with tempfile.TemporaryDirectory(prefix="tacit-patched-") as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=_git("archive", commit), check=True)
        # A repository of its own: within another one git would leave out what it does not hold.
        subprocess.run(["git", "init", "-q", folder], check=True)
        done = subprocess.run(["git", "apply", str(patch.resolve())], cwd=folder, check=False)
        if done.returncode:
            raise SystemExit(f"{patch.name} does not apply to {commit}; name another with --commit")
        yield folder


def judged(bug: dict[str, Any], text: str) -> dict[str, Any]:
    """A bug's row: caught if a component is named that is to blame.

    An engine that the command cannot be run on is not taken for caught.
    """
    found, may = faults(text), may_be_named(bug["components"])
    named = list(dict.fromkeys(component for component, _ in found))
    last = text.strip().splitlines()[-1:]
    return {
        "name": bug["name"],
        "says": bug["says"],
        "may": list(may),
        "caught": bool(set(named) & set(may)),
        "at_fault": named,
        "faults": [said for _, said in found],
        "checks": checks(text),
        "cut": cut(text),
        "error": None if is_whole(text) else machine.portable("".join(last)) or "no output",
    }


# ---- reading what the command printed


def is_whole(text: str) -> bool:
    """Whether the command came to a verdict.

    >>> is_whole("engine: 940 checks in 35 setting(s) found nothing"), is_whole("tacit: stopped")
    (True, False)
    """
    return any(_VERDICT.match(line) for line in text.splitlines())


def checks(text: str) -> int | None:
    """How many found nothing, where the verdict says so."""
    found = [match[1] for line in text.splitlines() if (match := _VERDICT.match(line))]
    return int(found[0]) if found and found[0] else None


def cut(text: str) -> str | None:
    """In which settings not every check was run, if there are some.

    >>> cut("Note: Not every check was run: time was up, or a fault ended it (adaptive, users).")
    'adaptive, users'
    """
    found = _CUT.search(" ".join(text.split()))
    return found[1] if found else None


def faults(text: str) -> list[tuple[str, str]]:
    """Each fault of the command's last table: its component, and all of it in one line.

    Long cells go on in further lines, of which the other cells are empty.

    >>> print(_EXAMPLE)
      setting          component   check        passed   evidence
     ─────────────────────────────────────────────────────────────
      long texts       clipping    removal      FAULT    1.025
                                                         clips
      adaptive,        noise       scale        FAULT    1.7627
      secure
    <BLANKLINE>
    Note: No finding is no proof
    >>> for fault in faults(_EXAMPLE):
    ...     print(fault)
    ('clipping', 'FAULT  clipping: removal: 1.025 clips (long texts)')
    ('noise', 'FAULT  noise: scale: 1.7627 (adaptive, secure)')
    """
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    rows: list[list[str]] = []
    for line in lines[start + 2 :]:  # below the header there is a rule
        if not line.strip():
            break
        cells = _cells(lines[start], line)
        if cells[3]:
            rows.append(cells)
        else:
            rows[-1] = [f"{old} {new}".strip() for old, new in zip(rows[-1], cells, strict=True)]
    return [
        (component, f"FAULT  {component}: {check}: {evidence} ({setting})")
        for setting, component, check, mark, evidence in rows
        if mark == "FAULT"
    ]


def _cells(header: str, line: str) -> list[str]:
    """What of a line is below each word of the header."""
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    ends = [*starts[1:], max(len(line), starts[-1])]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


_EXAMPLE = "\n".join(
    [
        "  setting          component   check        passed   evidence",
        " ─────────────────────────────────────────────────────────────",
        "  long texts       clipping    removal      FAULT    1.025",
        "                                                     clips",
        "  adaptive,        noise       scale        FAULT    1.7627",
        "  secure",
        "",
        "Note: No finding is no proof",
    ]
)


def may_be_named(words: list[str]) -> tuple[str, ...]:
    """The components, as a report names them, that an author's words stand for.

    >>> may_be_named(["norms", "clipping", "statement"])
    ('clipping', 'gradients', 'charging')
    """
    unknown = [word for word in words if word not in COMPONENTS and word not in _WORDS]
    if unknown:
        raise SystemExit(f"no component is called {unknown[0]!r}; known: {[*COMPONENTS, *_WORDS]}")
    return tuple(dict.fromkeys(part for word in words for part in _WORDS.get(word, (word,))))


def _timed(path: Path) -> dict[str, dict[str, int | None]]:
    lines = path.read_text().splitlines() if path.exists() else []
    found = [match for line in lines if (match := _SUMMARY.match(line))]
    return {match[1]: {"status": int(match[2]), "seconds": int(match[3])} for match in found}


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=machine.ROOT, check=True, capture_output=True)
    return done.stdout


# ---- in words


def in_words(part: dict[str, Any]) -> str:
    rows = part["rows"]
    caught = sum(row["caught"] for row in rows)
    accused = sum(bool(row["at_fault"]) for row in rows)
    place = part["machine"]
    lines = [
        f"### {caught} of {len(rows)} unseen bugs caught by the default command, with the "
        "component named",
        "",
        f"Run until {part['date']} on commit {part['commit']}, each patch by `tacit audit engine` "
        f"on {place['cpu']}, {place['cores']} cores, and put together by "
        f"`{part['command']}`. *Named* are the components at fault by the report, the first found "
        "first; *may be named* are those that a right report may blame.",
        "",
        "| bug | what is wrong | caught | named | may be named | status | seconds |",
        "|---|---|---|---|---|---:|---:|",
        *(_line(row) for row in rows),
        "",
        f"In {accused} runs something was found at all, with a right component or another. "
        f"{part['about']}".strip()
        + " All that the command said:",
        "",
    ]
    for row in rows:
        said = row["faults"] or [row["error"] or f"nothing: {row['checks']} checks passed"]
        ended = [f"not every check was run in {row['cut']}"] if row["cut"] else []
        lines += [f"- {row['name']}", *(f"  - {line}" for line in [*said, *ended])]
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    named = ", ".join(row["at_fault"]) or (f"error: {row['error']}" if row["error"] else "nothing")
    caught = "yes" if row["caught"] else "**NO**"
    cells = [row["name"], row["says"], caught, named, ", ".join(row["may"])]
    line = " | ".join(cell.replace("|", "∣") for cell in cells)
    status, seconds = (
        "–" if row[key] is None else f"{row[key]:.0f}" for key in ("status", "seconds")
    )
    return f"| {line} | {status} | {seconds} |"
