"""The sets: which there are, where they lie, whether they are whole, and how they are given out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tacit._files import read
from tacit.data import adult, cifar, images, texts
from tacit.data.contents import LARGEST, Contents, digest, digest_at, inside
from tacit.data.description import UNVERIFIED, Split
from tacit.data.download import download as download_file
from tacit.errors import DataError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tacit.data.description import File, FileLayout, Known
    from tacit.data.download import Progress


SETS: Final = {
    known.name: known
    for known in (
        images.DIGITS,
        images.MNIST,
        images.FASHION,
        cifar.CIFAR10,
        images.SVHN,
        adult.ADULT,
        texts.SST2,
        texts.SMS,
        texts.SHAKESPEARE,
        texts.SPEECHES,
    )
}


def names() -> tuple[str, ...]:
    """The names of all sets.

    >>> names()[:4]
    ('digits', 'mnist', 'fashion', 'cifar10')
    """
    return tuple(SETS)


def set_named(name: str) -> Known:
    """What is known of a set."""
    if name not in SETS:
        raise InvalidArgument(f"name must be one of {', '.join(SETS)}, got {name!r}")
    return SETS[name]


# ---- where sets lie: the caller's folder, ``$TACIT_DATA``, the user's cache, a package


VARIABLE: Final = "TACIT_DATA"


class FoundSet(NamedTuple):
    """A set whose files are all there; what is in them was not looked at."""

    layout: FileLayout
    folder: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files, in the order in which they are read."""
        return tuple(self.folder / file.name for file in self.layout.files)

    @property
    def size(self) -> int:
        """Its bytes on the disk."""
        return sum(path.stat().st_size for path in self.paths)


def places(folder: str | Path | None) -> tuple[Path, ...]:
    """The folders to look in, in this order; one that was named must be there."""
    named = {"folder": folder, f"${VARIABLE}": os.environ.get(VARIABLE) or None}
    for origin, name in named.items():
        if name is not None and not (os.path.isdir(name) and os.access(name, os.R_OK | os.X_OK)):
            raise DataError(
                f"{origin} names {name}, which is no folder that can be read; name the one with "
                "the sets"
            )
    return (*(Path(name) for name in named.values() if name is not None), cache())


def cache() -> Path:
    """The user's cache, where each system keeps such things; downloads go there."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tacit" / "data"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
        return base / "tacit" / "Cache" / "data"
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache"
    return base / "tacit" / "data"


def find(known: Known, where: Iterable[Path]) -> FoundSet | None:
    """The first of these places that has the set, whole, in any of its layouts."""
    for folder, shared in _folders(known, where):
        whole = [
            found
            for found in (FoundSet(layout, folder) for layout in known.layouts)
            if all(map(os.path.isfile, found.paths))
        ]
        if whole and not (shared and _belongs_to_another(known, whole[0])):
            return _sound_one(whole)
    return None


def _folders(known: Known, where: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Folders to look in, and whether files of any set may lie there."""
    for place in where:
        for name in known.folders:
            yield place / name, False
        yield place, True
    embedded = known.embedded()
    if embedded is not None:
        yield embedded, False


def _sound_one(whole: list[FoundSet]) -> FoundSet:
    """Layouts may share names of files (GLUE's SST-2 does): then the checksums tell."""
    if len(whole) == 1:
        return whole[0]
    return next((found for found in whole if all(map(_sound, *_pairs(found)))), whole[0])


def _pairs(found: FoundSet) -> tuple[tuple[Path, ...], tuple[File, ...]]:
    return found.paths, found.layout.files


def _sound(path: Path, file: File) -> bool:
    return file.inside is not None or digest_at(path, file.digest) == file.digest


def _belongs_to_another(known: Known, found: FoundSet) -> bool:
    """Whether a file is another set's of the same name: MNIST and Fashion-MNIST share all names."""
    path, file = found.paths[0], found.layout.files[0]
    others = {
        other.digest
        for one in SETS.values()
        if one.name != known.name
        for layout in one.layouts
        for other in layout.files
        if other.name == file.name
    }
    return bool(others) and digest_at(path, file.digest) in others


# ---- the files of a set, compared with what was published


class FileCheck(NamedTuple):
    """A file's checksum, and what is wrong with it, if anything."""

    path: Path
    digest: str | None
    problem: str | None


def check(name: str, folder: str | Path | None = None) -> tuple[FileCheck, ...]:
    """Compares every file of a set, where it is found first; none if it is not found."""
    found = find(set_named(name), places(folder))
    return () if found is None else tuple(_verdict(name, *pair) for pair in pairs(found))


def pairs(found: FoundSet) -> tuple[tuple[Path, File], ...]:
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


def _verdict(name: str, path: Path, file: File) -> FileCheck:
    try:
        return FileCheck(path, read_checked(name, path, file)[1], None)
    except DataError as error:
        return FileCheck(path, None, str(error))


def _again(name: str) -> str:
    return f"delete it and run: tacit data get {name}"


# ---- a set, found or downloaded, compared, and read


def load(
    name: str,
    folder: str | Path | None = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    unverified: bool = False,
) -> Split:
    """Loads a set from the first place that has it: ``folder``, ``$TACIT_DATA``, the cache.

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
    known = set_named(name)
    where = places(folder)
    found = find(known, where)
    if found is None and not download:
        raise DataError(_not_found(known, where))
    if found is None:
        found = get(name, folder, progress=progress)
    files: dict[str, str] = {}
    train, test = found.layout.read(_checked(name, found, files, unverified=unverified))
    return Split(known.name, train, test, known.classes, files)


def get(
    name: str, folder: str | Path | None = None, *, progress: Progress | None = None
) -> FoundSet:
    """Downloads a set to a folder, or to the cache, unless it is there (or in ``$TACIT_DATA``).

    What is there already is compared with the published checksums, and refused if it differs.

    Args:
        name: One of `tacit.data.names()`.
        folder: Where to; it is made if need be.
        progress: As for `load`.

    Returns:
        The folder of the files, and which files they are.
    """
    known = set_named(name)
    found = find(known, places(None) if folder is None else (Path(folder),))
    if found is None:
        place = cache() if folder is None else Path(folder)
        found = FoundSet(known.layouts[0], place / known.folders[0])
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
    name: str, found: FoundSet, digests: dict[str, str], *, unverified: bool
) -> Iterator[Contents]:
    """The files one by one, so that no two large ones need be in memory at once."""
    for path, file in pairs(found):
        contents, checksum = read_checked(name, path, file, unverified=unverified)
        digests[file.name] = checksum if contents.verified else UNVERIFIED
        yield contents


def _not_found(known: Known, where: tuple[Path, ...]) -> str:
    looked = ", ".join(str(place) for place in where)
    return f"{known.name} is in none of {looked}; run: tacit data get {known.name}{_also(known)}"


def _also(known: Known) -> str:
    return f"; {known.remedy}" if known.remedy else ""
