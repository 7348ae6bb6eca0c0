"""What every worker does: answer one row with one accountant, time it, report one JSON line.

A worker is a process that serves a single row, so that a crash, a time-out or an exhausted memory
costs that row only, and the peak memory it reports is that row's own. Only the standard library is
imported, because each peer's environment imports this file.
"""

import contextlib
import json
import math
import os
import platform
import resource
import signal
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NoReturn

from accounting_rows import ROWS, Row

MIN_REPEATS, MAX_REPEATS = 3, 100
MEASURED_SECONDS = 1.0  # repeat until this much is measured: 100 times below 10 ms, 3 above 0.3 s


class Unsupported(Exception):
    """The accountant has no way to answer this row."""


class CallTimeout(BaseException):
    """A call ran past its limit; no `except Exception` inside a peer may swallow it."""


def _nothing() -> None:
    pass


def _silence(_: Row) -> None:
    return None


@dataclass(frozen=True)
class Accountant:
    """How to answer a row, and what surrounds the timed calls.

    `prepare` runs before each call. `bracket` and `note` are asked once, after the last: for lower
    and upper ends that the accountant certifies, and for what a reader of the answer should know.
    """

    answer: Callable[[Row], float]
    prepare: Callable[[], None] = _nothing
    bracket: Callable[[Row], tuple[float, float] | None] = _silence
    note: Callable[[Row], str | None] = _silence


def serve(accountants: Mapping[str, Accountant], packages: Sequence[str]) -> None:
    """Reads `{"accountant", "row", "timeout"}` from stdin and writes the result to stdout."""
    request = json.load(sys.stdin)
    with _private_stdout() as out:
        accountant, row = accountants[request["accountant"]], ROWS[request["row"]]
        result = _result(accountant, row, request["timeout"])
        result["versions"] = {"python": platform.python_version()} | {
            name: version(name) for name in packages
        }
        print(json.dumps(result), file=out, flush=True)


@contextlib.contextmanager
def _private_stdout() -> Iterator[Any]:
    """Some peers print: their prints go to stderr, and the result alone to stdout."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        yield out


def _result(accountant: Accountant, row: Row, timeout: float) -> dict[str, Any]:
    try:
        measured = _measure(accountant, row, timeout)
        with _limit(timeout):
            return measured | {"bracket": accountant.bracket(row), "note": accountant.note(row)}
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except CallTimeout:
        return {"timeout": timeout}
    except Exception as error:
        return {"error": textwrap.shorten(f"{type(error).__name__}: {error}", width=300)}


def _measure(accountant: Accountant, row: Row, timeout: float) -> dict[str, Any]:
    """The median time of a call after one warm-up, which pays for lazy imports."""

    def call() -> tuple[float, float, float]:
        accountant.prepare()
        with _limit(timeout):
            start, cpu_start = time.perf_counter(), time.process_time()
            value = accountant.answer(row)
            return float(value), time.perf_counter() - start, time.process_time() - cpu_start

    _, warm_up, _ = call()
    times: list[float] = []
    cpu_times: list[float] = []
    while len(times) < MIN_REPEATS or (sum(times) < MEASURED_SECONDS and len(times) < MAX_REPEATS):
        value, seconds, cpu_seconds = call()
        times.append(seconds)
        cpu_times.append(cpu_seconds)
    if not math.isfinite(value):
        raise ArithmeticError(f"the answer is {value}")
    return {
        "value": value,
        "seconds": statistics.median(times),
        "fastest": min(times),
        "cpu_seconds": statistics.median(cpu_times),  # lower by what others took of a busy machine
        "warm_up": warm_up,
        "repeats": len(times),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> NoReturn:
        raise CallTimeout

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
