"""``tacit data``: which sets there are, where they lie, and whether they are the published ones."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tacit import __version__
from tacit.cli.options import Refusal
from tacit.cli.streams import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import RenderableType

    from tacit.data.download import Progress

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
            help="The folder of the sets; else $TACIT_DATA, then the cache.",
        ),
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True, epilog=EPILOG)
@click.pass_context
def data(context: click.Context) -> None:
    """Public sets to learn from: which there are, and whether they are the published ones."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@data.command("list")
@_common
def list_(folder: str | None, as_json: bool) -> None:
    """All sets: what they are, where they were found, their size and licence."""
    from tacit.cli import data_page
    from tacit.data.sets import SETS, find, places

    _refuse_files(folder, missing=False)
    where = places(folder)
    found = [(known, find(known, where)) for known in SETS.values()]
    plain = {
        "tacit": __version__,
        "places": [str(place) for place in where],
        "sets": [data_page.plain_set(known, one) for known, one in found],
    }
    _tell(plain, data_page.sets_page(where, found), as_json=as_json)


@data.command()
@click.argument("names", metavar="NAME...", nargs=-1)
@_common
def get(names: tuple[str, ...], folder: str | None, as_json: bool) -> None:
    """Downloads the sets called NAME and checks them; goes on where an earlier download ended."""
    from tacit.cli import data_page
    from tacit.data import get as get_set
    from tacit.data.sets import set_named

    if not names:
        raise Refusal("NAME is missing; say which set to get, as: tacit data get mnist")
    sets = [set_named(name) for name in names]
    _refuse_files(folder, missing=True)
    with download_progress() as progress:
        found = [(one, get_set(one.name, folder, progress=progress)) for one in sets]
    plain = {"tacit": __version__, "sets": [data_page.plain_set(*pair) for pair in found]}
    _tell(plain, data_page.got_page(found), as_json=as_json)


@data.command()
@click.argument("name", required=False)
@_common
@click.pass_context
def check(context: click.Context, name: str | None, folder: str | None, as_json: bool) -> None:
    """Compares the files of NAME, or of all sets, with the published checksums. Status 1 if not."""
    from tacit.cli import data_page
    from tacit.data.sets import SETS, places, set_named
    from tacit.data.sets import check as check_set

    _refuse_files(folder, missing=False)
    chosen = SETS if name is None else {name: set_named(name)}
    verdicts = {one: check_set(one, folder) for one in chosen}
    if name is not None and not verdicts[name]:
        looked = ", ".join(str(place) for place in places(folder))
        raise Refusal(f"{name} is in none of {looked}; run: tacit data get {name}")
    sound = not any(file.problem for files in verdicts.values() for file in files)
    sets = {one: [data_page.plain_verdict(file) for file in verdicts[one]] for one in verdicts}
    plain = {"tacit": __version__, "sound": sound, "sets": sets}
    _tell(plain, data_page.verdicts_page(verdicts), as_json=as_json)
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
    from tacit.cli.rendering import say_page

    say_page(page)


@contextmanager
def download_progress() -> Iterator[Progress | None]:
    """A bar for each file, on standard error where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tacit.cli.data_page import download_bars

    with download_bars() as progress:
        yield progress
