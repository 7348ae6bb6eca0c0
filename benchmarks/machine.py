"""The machine and the source a benchmark ran on, as data for its record."""

import datetime
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_ABSOLUTE = re.compile(r"(?<![\w.~/-])/(?:[\w.+@-]+/)*([\w.+@-]+)/?")


def stamp() -> dict[str, Any]:
    """What every record begins with: which command ran, when, on which source and machine."""
    return {
        "command": command(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": description(),
    }


def command() -> str:
    """The command that runs, without the folders of this machine."""
    return shlex.join(["python", *map(portable, sys.argv)])


def portable(text: str) -> str:
    """``text`` without absolute paths, which are no part of a record.

    A file of this repository keeps its path there, any other file or folder its own name.

    >>> portable("--data=/mnt/disk/sets/mnist"), portable("sqlite:///budget.db")
    ('--data=mnist', 'sqlite:///budget.db')
    """
    return _ABSOLUTE.sub(r"\1", text.replace(f"{ROOT}/", ""))


def seconds(call: Callable[[], object], rounds: int) -> list[float]:
    """The times of ``rounds`` calls, after one that does not count."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def description() -> dict[str, str | int]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    """The name in /proc/cpuinfo with family and model, for a virtual machine's name says little."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    return f"{fields['model name']} (family {fields['cpu family']}, model {fields['model']})"


def commit() -> str:
    """The checked-out commit, marked when the working tree differs from it."""
    if shutil.which("git") is None:
        return "unknown"
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"
