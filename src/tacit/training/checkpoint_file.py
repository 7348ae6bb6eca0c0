"""The file of a checkpoint: tensors, a JSON document, and a SHA-256 over both; moved into place."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from typing import TYPE_CHECKING, Any, Final

import torch

from tacit import __version__
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT: Final = "tacit-checkpoint"
VERSION: Final = 1


def write(path: Path, document: object, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes beside ``path``, flushes to the disk, and moves into place in one operation."""
    from safetensors import SafetensorError  # noqa: PLC0415  # needed for checkpoints only
    from safetensors.torch import save_file  # noqa: PLC0415

    text = json.dumps(document, allow_nan=False)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "document": text,
        "sha256": _digest(text, tensors),
    }
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        save_file(dict(tensors), temporary, metadata=metadata)
        _flush(temporary)
        os.replace(temporary, path)
        if os.name == "posix":  # elsewhere a folder cannot be opened, nor need be
            _flush(path.parent)
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"cannot write the checkpoint {path}: {one_line(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """The document and the tensors, once the SHA-256 has been found to match them."""
    metadata, tensors = _load(path)
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but not a checkpoint of tacit's")
    if metadata.get("version") != str(VERSION):
        raise CheckpointError(
            f"{path} is a checkpoint of format {metadata.get('version')!r:.20}, and this tacit "
            f"({__version__}) reads format {VERSION}: use the tacit that wrote it"
        )
    text = metadata.get("document", "")
    if metadata.get("sha256") != _digest(text, tensors):
        raise CheckpointError(f"{path} is damaged: its contents do not match its SHA-256")
    try:
        return json.loads(text), tensors
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} holds no JSON document: {one_line(error)}") from None


def one_line(error: BaseException) -> str:
    """What an error of torch's or the system's says, in one line of bearable length."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message[:200]}"


def _load(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                return metadata, {}  # refused by the caller, its tensors unread
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {one_line(error)}") from error
    except (SafetensorError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is truncated, damaged or no safetensors file: {one_line(error)}"
        ) from error


def _digest(document: str, tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(document.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
