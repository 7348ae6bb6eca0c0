"""Where sets lie: the caller's folder, ``$TACIT_DATA``, the user's cache, an installed package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tacit.data.contents import digest_at
from tacit.data.sets import SETS
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tacit.data.catalogue import File, Known, Layout

VARIABLE: Final = "TACIT_DATA"


class Found(NamedTuple):
    """A set whose files are all there; what is in them was not looked at."""

    layout: Layout
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


def find(known: Known, where: Iterable[Path]) -> Found | None:
    """The first of these places that has the set, whole, in any of its layouts."""
    for folder, shared in _folders(known, where):
        whole = [
            found
            for found in (Found(layout, folder) for layout in known.layouts)
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


def _sound_one(whole: list[Found]) -> Found:
    """Layouts may share names of files (GLUE's SST-2 does): then the checksums tell."""
    if len(whole) == 1:
        return whole[0]
    return next((found for found in whole if all(map(_sound, *_pairs(found)))), whole[0])


def _pairs(found: Found) -> tuple[tuple[Path, ...], tuple[File, ...]]:
    return found.paths, found.layout.files


def _sound(path: Path, file: File) -> bool:
    return file.inside is not None or digest_at(path, file.digest) == file.digest


def _belongs_to_another(known: Known, found: Found) -> bool:
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
