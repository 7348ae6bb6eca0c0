"""What ``tacit data`` tells, for people and as plain values."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType
    from rich.progress import TaskID

    from tacit.data.description import Known
    from tacit.data.download import Progress
    from tacit.data.sets import Found, Verdict

    Sets = Sequence[tuple[Known, Found | None]]


def sets_page(places: Sequence[Path], sets: Sets) -> Iterator[RenderableType]:
    """All sets, a line each, and where they were looked for."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("set", no_wrap=True)
    table.add_column("what, and where", overflow="fold")
    table.add_column("train / test", justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("licence", overflow="fold")
    for known, found in sets:
        table.add_row(*_cells(known, found))
    yield table
    yield Text(f"Looked in {', '.join(map(str, places))}.", style="dim")


def _cells(known: Known, found: Found | None) -> tuple[RenderableType, ...]:
    train, test = known.examples
    where = "not here" if found is None else str(found.folder)
    return (
        Text(known.name, style="bold"),
        Text.assemble(f"{known.summary}\n", (where, "dim")),
        f"{train:,} / {test:,}",
        _bytes(_size(known, found)),
        known.licence,
    )


def got_page(sets: Sequence[tuple[Known, Found]]) -> Iterator[RenderableType]:
    """Where each set now lies."""
    for known, found in sets:
        yield Text(
            f"{known.name}: as published, {_files(len(found.paths))} ({_bytes(found.size)}) "
            f"in {found.folder}"
        )


def verdicts_page(sets: Mapping[str, Sequence[Verdict]]) -> Iterator[RenderableType]:
    """A line for each set, and one for each file that is wrong."""
    for name, verdicts in sets.items():
        sound = [one for one in verdicts if one.problem is None]
        if not verdicts:
            yield Text(f"{name}: not here", style="dim")
        elif sound:
            yield Text.assemble(
                f"{name}: ",
                ("as published", "green"),
                f", {_files(len(sound))} in {sound[0].path.parent}",
            )
        for one in verdicts:
            if one.problem is not None:
                yield Text.assemble(f"{name}: ", ("wrong", "bold red"), f", {one.problem}")


def plain_set(known: Known, found: Found | None) -> dict[str, object]:
    """A set as JSON has it."""
    return {
        "name": known.name,
        "summary": known.summary,
        "licence": known.licence,
        "train": known.examples[0],
        "test": known.examples[1],
        "bytes": _size(known, found),
        "folder": None if found is None else str(found.folder),
        "files": [] if found is None else [path.name for path in found.paths],
    }


def plain_verdict(one: Verdict) -> dict[str, object]:
    """A file's verdict as JSON has it."""
    return {"file": str(one.path), "checksum": one.digest, "problem": one.problem}


def _size(known: Known, found: Found | None) -> int | None:
    """The bytes on the disk, or else those to download, if they are known."""
    if found is not None:
        return found.size
    sizes = [file.size for file in known.layouts[0].files]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _bytes(size: int | None) -> str:
    """A size as people write it.

    >>> _bytes(11_594_722)
    '11.6 MB'
    """
    if size is None:
        return "–"
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


@contextmanager
def download_bars() -> Iterator[Progress]:
    """Draws a bar for each file on standard error while it is downloaded."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as bars:

        def progress(name: str, there: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=there, total=total)

        yield progress
