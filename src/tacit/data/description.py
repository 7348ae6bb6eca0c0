"""What tacit knows of a set: its files as published, how they are read, and its examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tacit.data.contents import Contents

    Reader = Callable[[Iterator[Contents]], "tuple[Examples, Examples]"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as published.

    Args:
        name: Its name.
        digest: Its checksum, as ``sha256:…`` or ``md5:…``; None where none is known.
        size: Its bytes; None where that may vary.
        inside: What the checksum is of, if not of the file itself: ``"gzip"`` for what is packed in
            it, or the name of a member of the archive. It is then also what is read.
        urls: Where it can be downloaded.
    """

    name: str
    digest: str | None
    size: int | None = None
    inside: str | None = None
    urls: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """Files that together are the set, in the order in which they are read."""

    files: tuple[File, ...]
    read: Reader


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A set: the layouts it may lie in, of which the first is the one to download.

    Args:
        name: What it is called here.
        summary: What it is, in a line.
        licence: Under what terms it is published.
        examples: How many to learn from and to test on.
        classes: What the labels stand for.
        folders: The folders it is looked for in, under each place; the first is downloaded to.
        layouts: Which files it may consist of.
        embedded: Tells where an installed package keeps the files, if one does.
        remedy: What else to try when it cannot be had.
    """

    name: str
    summary: str
    licence: str
    examples: tuple[int, int]
    classes: tuple[str, ...]
    folders: tuple[str, ...]
    layouts: tuple[FileLayout, ...]
    embedded: Callable[[], Path | None] = lambda: None
    remedy: str = ""


def files(table: str, *bases: str) -> tuple[File, ...]:
    """Files from lines of name, size and checksum, each to be had under the addresses ``bases``."""
    rows = [line.split() for line in table.strip().splitlines()]
    return tuple(file(name, int(size), checksum, *bases) for name, size, checksum in rows)


def file(name: str, size: int | None, checksum: str, *bases: str) -> File:
    """A file of which the checksum is known: a SHA-256, or an MD5, which is shorter.

    >>> file("a.txt", 3, "900150983cd24fb0d6963f7d28e17f72", "https://example.org/").urls
    ('https://example.org/a.txt',)
    """
    algorithm = "sha256" if len(checksum) == 64 else "md5"
    urls = tuple(base + name for base in bases)
    return File(name=name, size=size, digest=f"{algorithm}:{checksum}", urls=urls)


def packed(name: str, inside: str, checksum: str, *urls: str) -> File:
    """A packed file of which only the contents' SHA-256 is known: there are many ways to pack."""
    return File(name=name, digest=f"sha256:{checksum}", inside=inside, urls=urls)


# ---- what every set is given out as


@final
@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Inputs with their labels, row by row.

    Args:
        inputs: Images as uint8 of shape (N, channels, height, width), rows of numbers, or texts.
        labels: A whole number an example (for text to be continued: one a byte).

    >>> len(Examples(("good", "bad"), np.array([1, 0])))
    2
    """

    inputs: NDArray[Any] | tuple[str, ...]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise InvalidArgument(
                f"inputs and labels must be equally many, "
                f"got {len(self.inputs)} and {len(self.labels)}"
            )

    def __len__(self) -> int:
        return len(self.labels)


UNVERIFIED: Final = "unverified"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A set in two parts, which are fixed and public.

    Args:
        name: The set's name.
        train: What to learn from: the private data.
        test: What to test on.
        classes: What the labels 0, 1, … stand for.
        files: The files that were read, each with its checksum if that is the published one, as
            ``sha256:…`` or ``md5:…``; else ``UNVERIFIED``. Records of runs have it, which are
            published: by a checksum of private records, whoever knows all of them but one could
            try any guess at that one.
    """

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    files: Mapping[str, str]


def fixed_split(count: int, tested: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows to learn from and the rows to test on, where the publisher made no such choice.

    A fixed permutation decides, never the data. NumPy has promised that ``RandomState`` draws the
    same numbers for good, which it does not promise of its newer generators.

    >>> [len(part) for part in fixed_split(1797, 360)]
    [1437, 360]
    """
    order = np.random.RandomState(0).permutation(count).astype(np.int64)
    return np.sort(order[tested:]), np.sort(order[:tested])
