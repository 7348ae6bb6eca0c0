"""Lines of a file that only grows, each with a checksum by which a torn or changed one is found."""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

from tacit._files import parse_json


def line(values: list[Any]) -> bytes:
    r"""A line that holds these values, of JSON's types.

    >>> line(["tell", 3, 7])
    b'["tell",3,7] d2897f99\n'
    """
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":")).encode()
    return b"%b %08x\n" % (text, zlib.crc32(text))


def values(line: bytes) -> list[Any]:
    """What a line holds, which is without its end; ``ValueError`` if it is not as written."""
    text, _, check = line.rpartition(b" ")
    if check != b"%08x" % zlib.crc32(text):
        raise ValueError("it is not what was written")
    found = parse_json(text)
    if not isinstance(found, list) or not found:
        raise ValueError("it holds no values")
    return found


def append(file: int, data: bytes) -> None:
    """Writes all of ``data`` at the end of a file opened for appending."""
    while data:
        data = data[os.write(file, data) :]
