"""The bytes of a file with their checksum, and what is packed in them; none of it goes to disk."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING, NamedTuple

from tacit.errors import DataError

if TYPE_CHECKING:
    from io import BufferedReader, FileIO
    from pathlib import Path

GZIP = b"\x1f\x8b"
ZIP = b"PK"
# What a file may hold, packed or not: a small one must not fill the memory. SVHN's has 182 MB.
LARGEST = 1 << 29
_UNSOUND = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError)


class Contents(NamedTuple):
    """Some bytes, where they came from (for messages), and whether their checksum was compared."""

    where: str
    data: bytes
    verified: bool


def digest(data: bytes, like: str | None) -> str:
    """The checksum by the algorithm of ``like``, or SHA-256.

    >>> digest(b"abc", "md5:whatever")
    'md5:900150983cd24fb0d6963f7d28e17f72'
    """
    algorithm = _algorithm(like)
    return f"{algorithm}:{hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()}"


def digest_of_file(file: BufferedReader | FileIO, like: str | None) -> str:
    """The same of an open file, from its beginning, without holding it in memory."""
    algorithm = _algorithm(like)
    file.seek(0)
    found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{found.hexdigest()}"


def digest_at(path: Path, like: str | None) -> str:
    """The same of the file of this name."""
    with path.open("rb") as file:
        return digest_of_file(file, like)


def _algorithm(like: str | None) -> str:
    return "sha256" if like is None else like.partition(":")[0]


def unpacked(contents: Contents, limit: int = LARGEST) -> Contents:
    """What lies in a gzip file; contents that are not packed come back as they are."""
    if not contents.data.startswith(GZIP):
        return contents
    stream = zlib.decompressobj(wbits=31)
    try:
        data = stream.decompress(contents.data, limit + 1)
    except zlib.error as error:
        raise DataError(f"{contents.where} is no sound gzip file ({error}); get it again") from None
    if len(data) > limit:
        raise DataError(f"{contents.where} unpacks to more than {limit:,} bytes; get it again")
    if not stream.eof:
        raise DataError(f"{contents.where} ends too early; get it again")
    return contents._replace(data=data)


def members(contents: Contents, names: tuple[str, ...]) -> tuple[Contents, ...]:
    """Files of a zip or (gzipped) tar archive by their names; nothing else in it is looked at."""
    unpack = _from_zip if contents.data.startswith(ZIP) else _from_tar
    try:
        found = unpack(unpacked(contents).data, names)
    except (*_UNSOUND, ValueError, ArithmeticError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{contents.where} is no sound archive ({reason}); get it again") from None
    for name in names:
        if name not in found:
            raise DataError(f"{contents.where} holds no {name}; get it again")
    return tuple(
        Contents(f"{contents.where}:{name}", found[name], contents.verified) for name in names
    )


def inside(contents: Contents, what: str | None) -> Contents:
    """What a checksum is of: the file itself, what its gzip holds, or a member of its archive."""
    if what is None:
        return contents
    return unpacked(contents) if what == "gzip" else members(contents, (what,))[0]


def _from_tar(data: bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    """A tar that is not packed any more: a packed one would be unpacked without a limit."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for entry in archive:
            name = entry.name.removeprefix("./")
            if name in names and entry.isreg() and entry.size <= LARGEST:
                file = archive.extractfile(entry)
                assert file is not None
                found[name] = file.read()
    return found


def _from_zip(data: bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename in names]
        return {entry.filename: archive.read(entry) for entry in entries if _bearable(entry)}


def _bearable(entry: zipfile.ZipInfo) -> bool:
    return entry.file_size <= LARGEST
