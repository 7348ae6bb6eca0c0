"""The one file format of saved state: tensors, a JSON document, and a SHA-256 over both.

Checkpoints, released values, a search's models and teachers are kept in it; it is safetensors, in
which nothing can be run.

Nested state, as ``state_dict()`` returns it, is packed into it and unpacked again: tensors go by
name into a flat dictionary; everything else becomes JSON. What JSON has no form for is an object
with one key that says what it is: ``{"tuple": […]}``, ``{"dict": [[key, value], …]}`` (so that keys
keep their type), ``{"float": "inf"}``, ``{"tensor": name}``, and ``{"array": name}`` for NumPy's.
Reading runs no code of the file's: an unknown tag is an error, and no tag names a class to call.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
import torch

from tacit import __version__, _files
from tacit._validation import printable
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT: Final = "tacit-checkpoint"
VERSION: Final = 1
DEEPEST: Final = 100  # levels of nested state: what reads it again calls itself for each
_WORD: Final = 8  # bytes at the beginning that say how long the header is
_UNREADABLE: Final = (ValueError, RuntimeError, TypeError, AttributeError, KeyError, OverflowError,
                      MemoryError)  # fmt: skip  # of torch's and safetensors' on hostile files

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | dict[str, Json] | None"

_PLAIN: Final = (type(None), bool, int, str)
_MAPPINGS: Final[dict[str, type[dict[Any, Any]]]] = {
    "dict": dict,
    "ordered-dict": OrderedDict,
    "counter": Counter,  # MultiStepLR keeps its milestones in one
}
_MAPPING_TAGS: Final = {kind: tag for tag, kind in _MAPPINGS.items()}
_DTYPES: Final = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}


def write(path: Path, document: object, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes beside ``path``, flushes to the disk, and moves into place in one operation.

    Only its owner can read the file.
    """
    from safetensors import SafetensorError  # noqa: PLC0415  # needed for checkpoints only
    from safetensors.torch import save_file  # noqa: PLC0415

    metadata = _metadata(document, tensors)
    try:
        with _files.drafted(path, mode=_files.OWNER_ONLY) as draft:
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
        reason = error.strerror or one_line(error)
        raise CheckpointError(f"{path} cannot be read: {reason}; check its name") from None
    except (SafetensorError, *_UNREADABLE) as error:
        raise _damaged(str(path), error) from None


def one_line(error: BaseException) -> str:
    """What an error of torch's or the system's says, in one line of bearable length."""
    message = printable(" ".join(str(error).split()))
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


# ---- nested state


@final
class Packer:
    """Collects the tensors of several packed values, each once, under names that say where from."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        # The tensors as they were given, by what they show of which memory. Holding them keeps
        # their addresses from being used again before the packer is done.
        self._seen: dict[object, tuple[str, torch.Tensor]] = {}
        self._storages: set[int] = set()

    def pack(self, value: object, path: str, depth: int = 0) -> Json:
        """``value`` as JSON; its tensors join ``tensors``. ``path`` says where it is, in errors."""
        if type(value) in _PLAIN:
            return value  # type: ignore[return-value]
        if depth > DEEPEST:
            raise CheckpointError(
                f"{path[:60]}… is nested more than {DEEPEST} deep, or holds itself, which a "
                "checkpoint cannot keep; state_dict() must return something flatter"
            )
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value, path)}
        if isinstance(value, np.ndarray):
            return {"array": self._tensor(_as_tensor(value, path), path)}
        if isinstance(value, np.generic):
            return self.pack(value.item(), path)
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            return self._items(value, path, depth)
        if type(value) in {tuple, torch.Size}:
            return {"tuple": self._items(value, path, depth)}  # type: ignore[arg-type]
        if isinstance(value, dict) and type(value) in _MAPPING_TAGS:
            pairs = [[self.pack(key, path, depth + 1), self.pack(item, f"{path}.{key}", depth + 1)]
                     for key, item in value.items()]  # fmt: skip
            return {_MAPPING_TAGS[type(value)]: pairs}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        raise CheckpointError(
            f"{path} is a {type(value).__name__}, which a checkpoint cannot hold: state_dict() may "
            "return tensors, arrays, numbers, strings, None, and lists, tuples and dicts of them"
        )

    def _items(
        self, values: list[object] | tuple[object, ...], path: str, depth: int
    ) -> list[Json]:
        return [self.pack(item, f"{path}.{index}", depth + 1) for index, item in enumerate(values)]

    def _tensor(self, tensor: torch.Tensor, path: str) -> str:
        _check_storable(tensor, path)
        storage = tensor.untyped_storage().data_ptr()
        shown = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if shown in self._seen:  # tied: stored once, named twice
            return self._seen[shown][0]
        name = path
        while name in self.tensors:
            name += "'"  # "a.b" may be one key or two
        stored = tensor.detach().to("cpu").contiguous()
        if storage in self._storages and stored.untyped_storage().data_ptr() == storage:
            stored = stored.clone()  # another view of memory that is stored already
        self._storages.add(storage)
        self._seen[shown] = (name, tensor)
        self.tensors[name] = stored
        return name


def unpack(packed: object, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The value that ``Packer.pack`` took apart.

    >>> packer = Packer()
    >>> packer.pack({0: (0.9, None)}, "state")
    {'dict': [[0, {'tuple': [0.9, None]}]]}
    >>> unpack({"dict": [[0, {"tuple": [0.9, None]}]]}, {})
    {0: (0.9, None)}
    """
    if type(packed) in _PLAIN or type(packed) is float:
        return packed
    if isinstance(packed, list):
        return [unpack(item, tensors) for item in packed]
    if not isinstance(packed, dict) or len(packed) != 1:
        raise CheckpointError(
            f"the checkpoint's document holds {_short(packed)}, which no value is"
        )
    ((tag, content),) = packed.items()
    if tag in _MAPPINGS:
        return _unpack_pairs(_MAPPINGS[tag], content, tensors)
    reader = _READERS.get(tag)
    if reader is None:
        raise CheckpointError(f"the checkpoint's document holds the unknown tag {_short(tag)}")
    return reader(content, tensors)


def _unpack_pairs(
    kind: type[dict[Any, Any]], content: object, tensors: Mapping[str, torch.Tensor]
) -> dict[Any, Any]:
    found = kind()
    for pair in _as_list(content):
        match pair:
            case [key, value]:
                found[_hashable(unpack(key, tensors))] = unpack(value, tensors)
            case _:
                raise CheckpointError(f"the checkpoint's document holds {_short(pair)} for a pair")
    return found


def _hashable(key: object) -> object:
    try:
        hash(key)
    except TypeError:
        raise CheckpointError(
            f"the checkpoint's document holds {_short(key)}, which cannot be a key"
        ) from None
    return key


def _read_tensor(name: object, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if not isinstance(name, str) or name not in tensors:
        raise CheckpointError(
            f"the checkpoint names the tensor {_short(name)}, but does not hold it"
        )
    return tensors[name]


def _read_array(name: object, tensors: Mapping[str, torch.Tensor]) -> NDArray[Any]:
    try:
        found: NDArray[Any] = _read_tensor(name, tensors).numpy()
    except (TypeError, RuntimeError) as error:  # a kind of number that NumPy does not have
        raise CheckpointError(f"the checkpoint holds no array in {_short(name)}: {error}") from None
    return found


def _read_float(text: object, tensors: Mapping[str, torch.Tensor]) -> float:
    del tensors
    if not isinstance(text, str) or text not in {"inf", "-inf", "nan"}:
        raise CheckpointError(f"the checkpoint's document holds {_short(text)} for a float")
    return float(text)


def _read_dtype(name: object, tensors: Mapping[str, torch.Tensor]) -> torch.dtype:
    del tensors
    if not isinstance(name, str) or name not in _DTYPES:
        raise CheckpointError(f"the checkpoint's document holds {_short(name)} for a dtype")
    return _DTYPES[name]


def _read_tuple(items: object, tensors: Mapping[str, torch.Tensor]) -> tuple[Any, ...]:
    return tuple(unpack(item, tensors) for item in _as_list(items))


_READERS: Final[dict[str, Callable[[object, Mapping[str, torch.Tensor]], object]]] = {
    "tensor": _read_tensor,
    "array": _read_array,
    "float": _read_float,
    "dtype": _read_dtype,
    "tuple": _read_tuple,
}


def _as_list(content: object) -> list[object]:
    if not isinstance(content, list):
        raise CheckpointError(f"the checkpoint's document holds {_short(content)} for a list")
    return content


def _as_tensor(array: NDArray[Any], path: str) -> torch.Tensor:
    try:
        made = torch.from_numpy(np.array(array, order="C"))
        # NumPy's empty array comes with a stride that no view in bytes can have.
        return made if made.numel() else torch.empty(made.shape, dtype=made.dtype)
    except TypeError:
        raise CheckpointError(
            f"{path} is an array of {str(array.dtype)[:60]}, which a checkpoint cannot hold: only "
            "arrays of numbers can"
        ) from None


def _check_storable(tensor: torch.Tensor, path: str) -> None:
    plain = type(tensor) in {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}
    if not plain or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        kind = f"{type(tensor).__name__} ({tensor.layout}, {tensor.dtype}, on {tensor.device})"
        raise CheckpointError(
            f"{path} is a {kind}, which a checkpoint cannot hold: only dense tensors with data can"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
