"""How far a long job is, on standard error: how many of its parts are done, and nothing private."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def counting(
    wanted: bool | None, what: str, *, total: int, done: int
) -> Iterator[Callable[[int], None]]:
    """A function to be told how many are done: a bar on a terminal, lines if wanted elsewhere."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar(what, total, done) as shown:
            yield shown
    else:
        yield _lines(what, total, done)


def _lines(what: str, total: int, done: int) -> Callable[[int], None]:
    """About ten lines in all."""
    told = done

    def show(now: int) -> None:
        nonlocal told
        if now == total or now - told >= total / 10:
            told = now
            sys.stderr.write(f"{what}: {now} of {total}\n")
            sys.stderr.flush()

    return show


@contextmanager
def _bar(what: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console  # noqa: PLC0415 - only where there is a terminal to draw on
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(what), MofNCompleteColumn(), BarColumn(bar_width=20),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda now: bar.update(task, completed=now)
