"""How far training is, on standard error: how many teachers are trained, and nothing private."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def display(wanted: bool | None, *, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """A function to be told how many teachers are trained: a bar on a terminal, lines if wanted."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar(total, done) as shown:
            yield shown
    else:
        yield _lines(total)


def _lines(total: int) -> Callable[[int], None]:
    """About ten lines in all."""
    told = 0

    def show(done: int) -> None:
        nonlocal told
        if done == total or done - told >= total / 10:
            told = done
            sys.stderr.write(f"teachers trained: {done} of {total}\n")
            sys.stderr.flush()

    return show


@contextmanager
def _bar(total: int, done: int) -> Iterator[Callable[[int], None]]:
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
        TextColumn("teachers"), MofNCompleteColumn(), BarColumn(bar_width=20),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda trained: bar.update(task, completed=trained)
