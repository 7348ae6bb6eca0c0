"""The one file format of saved state: tensors, a JSON document, and a SHA-256 over both.

Checkpoints, released values, a search's models and teachers are kept in it; it is safetensors, in
which nothing can be run.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

import torch

from tacit import __version__, _files
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT: Final = "tacit-checkpoint"
VERSION: Final = 1
_WORD: Final = 8  # bytes at the beginning that say how long the header is
_UNREADABLE: Final = (ValueError, RuntimeError, TypeError, AttributeError, KeyError, OverflowError,
                      MemoryError)  # fmt: skip  # of torch's and safetensors' on hostile files


def write(path: Path, document: object, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes beside ``path``, flushes to the disk, and moves into place in one operation.

    Only its owner can read the file.
    """
    from safetensors import SafetensorError  # noqa: PLC0415  # needed for checkpoints only
    from safetensors.torch import save_file  # noqa: PLC0415

    metadata = _metadata(document, tensors)
    try:
        with _files.drafted(path, mode=_files.PRIVATE) as draft:
            save_file(dict(tensors), draft, metadata=metadata)
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"cannot write the checkpoint {path}: {one_line(error)}") from error


def read(path: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """The document and the tensors, once the SHA-256 has been found to match them."""
    metadata, tensors = _load(path)
    return _checked(str(path), metadata, tensors), tensors


def to_bytes(document: object, tensors: Mapping[str, torch.Tensor]) -> bytes:
    """The content of such a file, for those who keep it in a folder of their own."""
    from safetensors.torch import save  # noqa: PLC0415

    return save(dict(tensors), metadata=_metadata(document, tensors))


def from_bytes(content: bytes, where: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """What ``to_bytes`` was given; ``where`` names the content in errors."""
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load  # noqa: PLC0415

    try:
        length = _header_length(content[:_WORD], len(content))
        metadata = _texts(_files.parse_json(content[_WORD : _WORD + length]))
        tensors = {} if metadata.get("format") != FORMAT else load(content)
    except (SafetensorError, *_UNREADABLE) as error:
        raise _damaged(where, error) from None
    return _checked(where, metadata, tensors), tensors


def load_tensors(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """The metadata and the tensors of any safetensors file, its header within bounds."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415

    try:
        metadata = _texts(_header(path))
        with safe_open(path, framework="pt", device="cpu") as file:
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {one_line(error)}") from None
    except (SafetensorError, *_UNREADABLE) as error:
        raise _damaged(str(path), error) from None


def one_line(error: BaseException) -> str:
    """What an error of torch's or the system's says, in one line of bearable length."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message[:200]}"


def _metadata(document: object, tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    try:
        text = json.dumps(document, allow_nan=False)
        _files.parse_json(text, most=_files.LARGEST // 2)  # half: it is quoted in the header
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"this state cannot be kept in a file: {one_line(error)}; keep large lists as tensors"
        ) from None
    return {
        "format": FORMAT,
        "version": str(VERSION),
        "document": text,
        "sha256": _digest(text, tensors),
    }


def _checked(where: str, metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> Any:
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{where} is a safetensors file, but not a checkpoint of tacit's")
    if metadata.get("version") != str(VERSION):
        raise CheckpointError(
            f"{where} is a checkpoint of format {metadata.get('version')!r:.20}, and this tacit "
            f"({__version__}) reads format {VERSION}: use the tacit that wrote it"
        )
    text = metadata.get("document", "")
    if metadata.get("sha256") != _digest(text, tensors):
        raise CheckpointError(f"{where} is damaged: its contents do not match its SHA-256")
    try:
        return _files.parse_json(text)
    except ValueError as error:
        raise CheckpointError(f"{where} holds no JSON document: {one_line(error)}") from None


def _load(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    try:
        metadata = _texts(_header(path))
    except OSError as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {one_line(error)}") from None
    except ValueError as error:
        raise _damaged(str(path), error) from None
    if metadata.get("format") != FORMAT:
        return metadata, {}  # refused by the caller, its tensors unread
    return load_tensors(path)


def _header(path: Path) -> Any:
    """A safetensors file's header: its length in eight bytes, and JSON.

    Read here first, for whoever parses it elsewhere may be given 100 MB of it.
    """
    with _files.opened(path) as file:
        length = _header_length(file.read(_WORD), file.seek(0, 2))
        file.seek(_WORD)
        return _files.parse_json(file.read(length))


def _header_length(word: bytes, size: int) -> int:
    length = int.from_bytes(word, "little")
    if len(word) < _WORD or length > size - _WORD:
        raise ValueError("it ends before its header does")
    if length > _files.LARGEST:
        raise ValueError(f"its header has {length:,} bytes, more than {_files.LARGEST:,}")
    return length


def _texts(header: object) -> dict[str, str]:
    """The texts that a header has beside its tensors."""
    found = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise ValueError("its header is none of safetensors'")
    return found


def _damaged(where: str, error: BaseException) -> CheckpointError:
    return CheckpointError(
        f"{where} is truncated, damaged or no safetensors file: {one_line(error)}"
    )


def _digest(document: str, tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(document.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
