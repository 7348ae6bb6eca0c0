"""Compares the files of a set with what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tacit._files import read
from tacit.data.contents import LARGEST, Contents, digest, inside
from tacit.data.places import find, places
from tacit.data.sets import known as known_set
from tacit.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.data.catalogue import File
    from tacit.data.places import Found


class Verdict(NamedTuple):
    """A file's checksum, and what is wrong with it, if anything."""

    path: Path
    digest: str | None
    problem: str | None


def check(name: str, folder: str | Path | None = None) -> tuple[Verdict, ...]:
    """Compares every file of a set, where it is found first; none if it is not found."""
    found = find(known_set(name), places(folder))
    return () if found is None else tuple(_verdict(name, *pair) for pair in pairs(found))


def pairs(found: Found) -> tuple[tuple[Path, File], ...]:
    """Where each file lies, and what is known of it."""
    return tuple(zip(found.paths, found.layout.files, strict=True))


def read_checked(
    name: str, path: Path, file: File, *, unverified: bool = False
) -> tuple[Contents, str]:
    """A file's contents and their checksum, compared on the very bytes that are given out."""
    try:
        data = read(path, most=LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}") from None
    if file.size is not None and len(data) < file.size and not unverified:
        raise DataError(f"{path} has only {len(data):,} of {file.size:,} bytes; {_again(name)}")
    contents = inside(Contents(str(path), data, False), file.inside)
    found = digest(contents.data, file.digest)
    if found == file.digest:
        return contents._replace(verified=True), found
    if file.digest is not None and not unverified:
        raise DataError(
            f"{path} is not the published file: its {found.replace(':', ' is ')}, not "
            f"{file.digest.partition(':')[2]}; {_again(name)}, or, if it is your own, load it "
            "with unverified=True (tacit transfer: --unverified)"
        )
    return contents, f"unverified {digest(contents.data, None)}"


def _verdict(name: str, path: Path, file: File) -> Verdict:
    try:
        return Verdict(path, read_checked(name, path, file)[1], None)
    except DataError as error:
        return Verdict(path, None, str(error))


def _again(name: str) -> str:
    return f"delete it and run: tacit data get {name}"
