"""Files: written whole or not at all, read within bounds, and locked between processes.

Whoever sends a folder chooses every byte in it. What is read here is data, of bounded size and
depth; nothing in it is run, and nothing but ``OSError`` and ``ValueError`` comes of it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

OWNER_ONLY: Final = 0o600  # only its owner reads it
LOCK: Final = ".lock"
LARGEST: Final = 16 << 20  # bytes of a JSON document; a real one has thousands
DEEPEST: Final = 100  # lists and objects in each other: whoever walks one may recurse
_DIGITS: Final = 64  # of a whole number; a seed has 20
LARGEST_PART: Final = 2 << 30  # bytes of arrays or tensors that are read at once
_LONGEST_HEADER: Final = 10_000  # bytes of an array's; a real one has 118
_PAIR: Final = re.compile(
    r"""['"](descr|fortran_order|shape)['"]:\s*"""
    r"""(?:['"]([<>|=]?[biufcmMOSUV]\d{0,2})['"]|(True|False)|\(([\d ,L]*)\)),?"""
)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_DRAFTS: Final = ".*.tmp"


# ---- writing


def put(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Writes beside the place, flushes to the disk, and moves there in one operation.

    Errors are the system's own.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     put(Path(folder) / "votes", b"whole")
    ...     [found.name for found in Path(folder).iterdir()], (Path(folder) / "votes").read_bytes()
    (['votes'], b'whole')
    """
    with drafted(path, mode=mode) as draft:
        handle = os.open(draft, os.O_WRONLY | _flag("O_NOFOLLOW"))
        with os.fdopen(handle, "wb") as file:
            file.write(content)


@contextmanager
def drafted(path: Path, *, mode: int = 0o666) -> Iterator[Path]:
    """A new, empty file beside ``path`` that takes its place at the end, if nothing fails.

    Guarantee: its name is random and it did not exist, so that no link which was laid beside is
    written through; file and folder are flushed to the disk before and after the move.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flag("O_NOFOLLOW")
    os.close(os.open(draft, flags, mode))
    try:
        yield draft
        move(draft, path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def move(draft: Path, path: Path) -> None:
    """Puts a file in the place of another, and survives a crash of the machine with one of both."""
    _flush(draft)
    os.replace(draft, path)
    sync_folder(path.parent)


def append_to(path: Path, *, mode: int = OWNER_ONLY) -> int:
    """A file open for reading and appending, made if need be; a link, pipe or device: OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK")
    handle = os.open(path, flags, mode)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no plain file")
    return handle


def sync_folder(folder: Path) -> None:
    """Makes a rename in ``folder`` survive a crash of the machine, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        _flush(folder, os.O_DIRECTORY)


def sweep(folder: Path) -> None:
    """Removes what a killed process was writing; whoever calls holds the folder's lock."""
    for draft in folder.glob(_DRAFTS):
        with contextlib.suppress(OSError):
            draft.unlink()


def is_draft(name: str) -> bool:
    """Whether a file of this name is what a killed process was writing."""
    return name.startswith(".") and name.endswith(".tmp")


def _flush(path: Path, flags: int = 0) -> None:
    handle = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flag(name: str) -> int:
    """A flag of ``os.open`` that not every system has."""
    found: int = getattr(os, name, 0)
    return found


# ---- reading


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """A plain file, open for reading.

    Raises:
        OSError: the system's own.
        ValueError: if it is a pipe or a device: nobody waits for one.
    """
    handle = os.open(path, os.O_RDONLY | _flag("O_NONBLOCK") | _flag("O_BINARY"))
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(kind):
            raise ValueError("it is no plain file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def read(path: Path, *, most: int = LARGEST) -> bytes:
    """The content of a plain file of at most ``most`` bytes; refused is what ``opened`` refuses."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if max(size, len(content)) > most:
        raise ValueError(f"it is too large: {max(size, len(content)):,} bytes, more than {most:,}")
    return content


def sha256(path: Path) -> str:
    """The checksum of a plain file, however large; refused is what ``opened`` refuses."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, *, most: int = LARGEST) -> Any:
    """The JSON document in a file; what is refused is as of ``read`` and ``parse_json``."""
    return parse_json(read(path, most=most), most=most)


def parse_json(text: str | bytes, *, most: int = LARGEST) -> Any:
    """A JSON document in UTF-8.

    Guarantee: it has ``most`` bytes at most and lists and objects at most 100 deep; no key is
    there twice, every number is finite and has at most 64 digits, and every text can be encoded.

    Raises:
        ValueError: in one short line.

    >>> parse_json('{"steps": 3}')
    {'steps': 3}
    >>> parse_json('{"steps": 3, "steps": 4}')
    Traceback (most recent call last):
    ValueError: the key 'steps' is there twice
    """
    if len(text) > most:
        raise ValueError(f"it is too large: it has more than {most:,} bytes")
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None
    try:
        found = json.loads(
            decoded, object_pairs_hook=_object, parse_int=_whole, parse_float=_finite,
            parse_constant=_no_number,
        )  # fmt: skip
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg} at {error.pos}") from None
    except RecursionError:
        raise ValueError(_too_deep()) from None
    _check_depth(found)
    if _SURROGATE.search(decoded):
        _check_texts(found)
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:60]!r} is there twice")
    return found


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"it holds a number of {len(text):,} digits, more than {_DIGITS}")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it holds {text[:40]}, which is too large for a number")
    return number


def _no_number(text: str) -> float:
    raise ValueError(f"it holds {text}, which is no number in JSON")


def _check_depth(found: object) -> None:
    level = [found] if isinstance(found, dict | list) else []
    for _ in range(DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for some in inner for one in some if isinstance(one, dict | list)]
        if not level:
            return
    raise ValueError(_too_deep())


def _too_deep() -> str:
    return f"its lists and objects are more than {DEEPEST} deep"


def _check_texts(found: object) -> None:
    """Half a character, which JSON can name, fails wherever it is shown or written."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half a character") from None


# ---- arrays


def array_bytes(array: NDArray[Any]) -> bytes:
    """An array of numbers as NumPy's ``.npy`` format has it."""
    import numpy as np  # noqa: PLC0415 - not everybody who writes files has arrays

    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


def parse_array(content: bytes) -> NDArray[Any]:
    """The array of numbers that ``array_bytes`` wrote, read-only; anything else: ValueError.

    >>> parse_array(array_bytes([[1, 2], [3, 4]])).tolist()
    [[1, 2], [3, 4]]
    """
    import numpy as np  # noqa: PLC0415 - as above

    try:
        kind, by_column, shape, start = _array_header(content)
        dtype = np.dtype(kind)
        _check_array(shape, dtype, len(content) - start)
        flat = np.frombuffer(content, dtype=dtype, offset=start)
        return flat.reshape(shape, order="F" if by_column else "C")
    except (ValueError, TypeError, ArithmeticError) as error:
        line = " ".join(str(error).split())[:200]
        raise ValueError(f"it is no array of numbers in an .npy file: {line}") from None


def _array_header(content: bytes) -> tuple[str, bool, tuple[int, ...], int]:
    """Kind, order and shape of an array, and where it begins; read here and never evaluated.

    The format is in NumPy's documentation, ``numpy.lib.format``; what its versions 1 and 2 write.
    """
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}.get(content[:8])
    if width is None:
        raise ValueError("it begins otherwise")
    length = int.from_bytes(content[8 : 8 + width], "little")
    start = 8 + width + length
    if length > _LONGEST_HEADER or start > len(content):
        raise ValueError("its header is too long")
    text = content[8 + width : start].decode("latin-1").strip()
    pairs = _PAIR.findall(text)
    found = {name: kind or order or sides for name, kind, order, sides in pairs}
    if _PAIR.sub("", text).replace(" ", "") != "{}" or len(pairs) != 3 or len(found) != 3:
        raise ValueError("its header is none")
    sides = [one.strip().removesuffix("L") for one in found["shape"].split(",") if one.strip()]
    if any(not one.isdecimal() or len(one) > _DIGITS for one in sides):
        raise ValueError("its shape is none")
    return found["descr"], found["fortran_order"] == "True", tuple(map(int, sides)), start


def read_array(path: Path) -> NDArray[Any]:
    """The array in a file of up to 2 GiB; what is refused is as of ``read`` and ``parse_array``."""
    return parse_array(read(path, most=LARGEST_PART))


def _check_array(shape: tuple[int, ...], dtype: Any, size: int) -> None:
    if dtype.kind not in "biuf":
        raise ValueError(f"it holds {str(dtype)[:60]}")
    if any(side < 0 for side in shape) or math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"it says that its shape is {str(shape)[:60]}, and has {size:,} bytes")


# ---- locks


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes a folder that only its owner reads if need be, and keeps other processes out meanwhile.

    Raises ``BlockingIOError`` if another process has it; other errors are the system's own.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = lock(folder)
    try:
        sweep(folder)
        yield
    finally:
        os.close(handle)


def lock(folder: Path) -> int:
    """Locks a folder until the handle that is returned is closed.

    Guarantee: of all processes that call this, one at a time has the folder, also where one that
    had it removed the lock's file or the folder: what is locked is the file that is there now.

    Raises:
        BlockingIOError: if another process has it.
        OSError: the system's own.
    """
    path = folder / LOCK
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _flag("O_NOFOLLOW"), OWNER_ONLY)
        try:
            if not locked(handle):
                raise BlockingIOError("it is in use by another process")
            if _is_at(path, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(handle))


def locked(handle: int) -> bool:
    """Takes the lock of an open file until it is closed; False if another process has it.

    Where there are no such locks (Windows), it is always taken.
    """
    try:
        import fcntl  # noqa: PLC0415 - POSIX only
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
