"""Nested state, as ``state_dict()`` returns it, as plain JSON and named tensors; and back.

Tensors go by name into a flat dictionary; everything else becomes JSON. What JSON has no form for
is an object with one key that says what it is: ``{"tuple": […]}``, ``{"dict": [[key, value], …]}``
(so that keys keep their type), ``{"float": "inf"}``, ``{"tensor": name}``, and ``{"array": name}``
for NumPy's. Reading runs no code of the file's: an unknown tag is an error, and no tag names a
class to call.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
import torch

from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

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


@final
class Packer:
    """Collects the tensors of several packed values, each once, under names that say where from."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        # The tensors as they were given, by what they show of which memory. Holding them keeps
        # their addresses from being used again before the packer is done.
        self._seen: dict[object, tuple[str, torch.Tensor]] = {}
        self._storages: set[int] = set()

    def pack(self, value: object, path: str) -> Json:
        """``value`` as JSON; its tensors join ``tensors``. ``path`` says where it is, in errors."""
        if type(value) in _PLAIN:
            return value  # type: ignore[return-value]
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value, path)}
        if isinstance(value, np.ndarray):
            return {"array": self._tensor(_as_tensor(value, path), path)}
        if isinstance(value, np.generic):
            return self.pack(value.item(), path)
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            return self._items(value, path)
        if type(value) in {tuple, torch.Size}:
            return {"tuple": self._items(value, path)}  # type: ignore[arg-type]
        if isinstance(value, dict) and type(value) in _MAPPING_TAGS:
            pairs = [[self.pack(key, path), self.pack(item, f"{path}.{key}")]
                     for key, item in value.items()]  # fmt: skip
            return {_MAPPING_TAGS[type(value)]: pairs}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        raise CheckpointError(
            f"{path} is a {type(value).__name__}, which a checkpoint cannot hold: state_dict() may "
            "return tensors, arrays, numbers, strings, None, and lists, tuples and dicts of them"
        )

    def _items(self, values: list[object] | tuple[object, ...], path: str) -> list[Json]:
        return [self.pack(item, f"{path}.{index}") for index, item in enumerate(values)]

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
        return torch.from_numpy(np.array(array, order="C"))
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
