"""``tacit data``: which sets there are, where they lie, and whether they are the published ones."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tacit import __version__
from tacit.cli.options import Refusal
from tacit.cli.streams import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.progress import TaskID

    from tacit.data.description import Known
    from tacit.data.download import Progress
    from tacit.data.sets import FileCheck, FoundSet

    Sets = Sequence[tuple[Known, FoundSet | None]]


NOT_AS_PUBLISHED = 1

EPILOG = """\b
Examples:
  tacit data list
  tacit data get mnist fashion
  tacit data get cifar10 --data /mnt/sets
  tacit data check --data /mnt/sets
"""

Command = Any  # click's own type for what its decorators take and give


def _common(command: Command) -> Command:
    """The options that every command has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else."),
        click.option(
            "--data",
            "folder",
            metavar="DIR",
            help="Folder of the sets. [default: $TACIT_DATA, then the cache]",
        ),
    ):
        command = option(command)
    return command


@click.group(
    invoke_without_command=True,
    epilog=EPILOG,
    short_help="Lists, downloads and checks public data sets.",
)
@click.pass_context
def data(context: click.Context) -> None:
    """Lists public data sets, downloads them, and checks that they are the published ones."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@data.command("list", short_help="Lists all sets with their place, size and licence.")
@_common
def list_(folder: str | None, as_json: bool) -> None:
    """Lists all sets: what they are, where they were found, their size and licence."""
    from tacit.data.sets import SETS, find, places

    _refuse_files(folder, missing=False)
    where = places(folder)
    found = [(known, find(known, where)) for known in SETS.values()]
    plain = {
        "tacit": __version__,
        "places": [str(place) for place in where],
        "sets": [plain_set(known, one) for known, one in found],
    }
    _tell(plain, sets_page(where, found), as_json=as_json)


@data.command(short_help="Downloads sets and checks them.")
@click.argument("names", metavar="NAME...", nargs=-1)
@_common
def get(names: tuple[str, ...], folder: str | None, as_json: bool) -> None:
    """Downloads the sets called NAME and checks them; goes on where an earlier download ended."""
    from tacit.data import get as get_set
    from tacit.data.sets import set_named

    if not names:
        raise Refusal("NAME is missing; say which set to get, as: tacit data get mnist")
    sets = [set_named(name) for name in names]
    _refuse_files(folder, missing=True)
    with download_progress() as progress:
        found = [(one, get_set(one.name, folder, progress=progress)) for one in sets]
    plain = {"tacit": __version__, "sets": [plain_set(*pair) for pair in found]}
    _tell(plain, got_page(found), as_json=as_json)


@data.command(short_help="Compares files with the published checksums.")
@click.argument("name", required=False)
@_common
@click.pass_context
def check(context: click.Context, name: str | None, folder: str | None, as_json: bool) -> None:
    """Compares the files of NAME, or of all sets, with the published checksums.

    The status is 1 if one differs.
    """
    from tacit.data.sets import SETS, places, set_named
    from tacit.data.sets import check as check_set

    _refuse_files(folder, missing=False)
    chosen = SETS if name is None else {name: set_named(name)}
    verdicts = {one: check_set(one, folder) for one in chosen}
    if name is not None and not verdicts[name]:
        looked = ", ".join(str(place) for place in places(folder))
        raise Refusal(f"{name} is in none of {looked}; run: tacit data get {name}")
    sound = not any(file.problem for files in verdicts.values() for file in files)
    sets = {one: [plain_verdict(file) for file in verdicts[one]] for one in verdicts}
    plain = {"tacit": __version__, "sound": sound, "sets": sets}
    _tell(plain, verdicts_page(verdicts), as_json=as_json)
    if not sound:
        context.exit(NOT_AS_PUBLISHED)


def _refuse_files(folder: str | None, *, missing: bool) -> None:
    """Refuses a --data that is no folder, and one that is not there unless it can be made."""
    if folder is None or Path(folder).is_dir() or (missing and not os.path.lexists(folder)):
        return
    raise Refusal(f"--data must be a folder, got {folder}; name the one with the sets")


def _tell(plain: Mapping[str, object], page: Iterable[RenderableType], *, as_json: bool) -> None:
    if as_json:
        say(json.dumps(plain, indent=2, allow_nan=False))
        return
    from tacit.cli.page import say_page

    say_page(page)


@contextmanager
def download_progress() -> Iterator[Progress | None]:
    """A bar for each file, on standard error where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with download_bars() as progress:
        yield progress


# ---- the page for people, and the same as plain values


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


def _cells(known: Known, found: FoundSet | None) -> tuple[RenderableType, ...]:
    train, test = known.examples
    where = "not here" if found is None else str(found.folder)
    return (
        Text(known.name, style="bold"),
        Text.assemble(f"{known.summary}\n", (where, "dim")),
        f"{train:,} / {test:,}",
        _bytes(_size(known, found)),
        known.licence,
    )


def got_page(sets: Sequence[tuple[Known, FoundSet]]) -> Iterator[RenderableType]:
    """Where each set now lies."""
    for known, found in sets:
        yield Text(
            f"{known.name}: as published, {_files(len(found.paths))} ({_bytes(found.size)}) "
            f"in {found.folder}"
        )


def verdicts_page(sets: Mapping[str, Sequence[FileCheck]]) -> Iterator[RenderableType]:
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


def plain_set(known: Known, found: FoundSet | None) -> dict[str, object]:
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


def plain_verdict(one: FileCheck) -> dict[str, object]:
    """A file's verdict as JSON has it."""
    return {"file": str(one.path), "checksum": one.digest, "problem": one.problem}


def _size(known: Known, found: FoundSet | None) -> int | None:
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
