"""Gives out a set: finds it or downloads it, compares its checksums, reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tacit.data.checking import pairs, read_checked
from tacit.data.download import download as download_file
from tacit.data.examples import Split
from tacit.data.places import Found, cache, find, places
from tacit.data.sets import known as known_set
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.data.catalogue import File, Known
    from tacit.data.contents import Contents
    from tacit.data.download import Progress


def load(
    name: str,
    folder: str | Path | None = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    unverified: bool = False,
) -> Split:
    """Gives out a set, from the first place that has it: ``folder``, ``$TACIT_DATA``, the cache.

    Args:
        name: One of `tacit.data.names()`.
        folder: Where to look first, and where to download to; the cache if there is none. The files
            lie in it, or in a folder of it that has the set's name.
        download: Whether to download what is in none of the places.
        progress: Called while downloading with the file's name, the bytes that are there and the
            bytes that there will be, if that is known.
        unverified: Take files whose checksum is not the published one, such as your own in the same
            format. Pickles are never taken so.

    Raises:
        DataError: The set is not there, cannot be downloaded, or is not the published one.

    >>> digits = load("digits")
    >>> digits.train.inputs.shape, len(digits.test)
    ((1437, 1, 8, 8), 360)
    """
    known = known_set(name)
    where = places(folder)
    found = find(known, where)
    if found is None and not download:
        raise DataError(_not_found(known, where))
    if found is None:
        found = get(name, folder, progress=progress)
    files: dict[str, str] = {}
    train, test = found.layout.read(_checked(name, found, files, unverified=unverified))
    return Split(known.name, train, test, known.classes, files)


def get(name: str, folder: str | Path | None = None, *, progress: Progress | None = None) -> Found:
    """Downloads a set to a folder, or to the cache, unless it is there (or in ``$TACIT_DATA``).

    What is there already is compared with the published checksums, and refused if it differs.

    Args:
        name: One of `tacit.data.names()`.
        folder: Where to; it is made if need be.
        progress: As for `load`.

    Returns:
        The folder of the files, and which files they are.
    """
    known = known_set(name)
    found = find(known, places(None) if folder is None else (Path(folder),))
    if found is None:
        place = cache() if folder is None else Path(folder)
        found = Found(known.layouts[0], place / known.folders[0])
    for path, file in pairs(found):
        if path.exists():
            read_checked(name, path, file)
        else:
            _download(known, file, path, progress)
    return found


def _download(known: Known, file: File, target: Path, progress: Progress | None) -> None:
    try:
        download_file(file, target, progress)
    except DataError as error:
        raise DataError(f"{known.name}: {error}{_also(known)}") from None


def _checked(
    name: str, found: Found, digests: dict[str, str], *, unverified: bool
) -> Iterator[Contents]:
    """The files one by one, so that no two large ones need be in memory at once."""
    for path, file in pairs(found):
        contents, digests[file.name] = read_checked(name, path, file, unverified=unverified)
        yield contents


def _not_found(known: Known, where: tuple[Path, ...]) -> str:
    looked = ", ".join(str(place) for place in where)
    return f"{known.name} is in none of {looked}; run: tacit data get {known.name}{_also(known)}"


def _also(known: Known) -> str:
    return f"; {known.remedy}" if known.remedy else ""
