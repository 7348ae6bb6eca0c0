"""Released values in a file: what a resumed run takes instead of releasing a second time.

No pickle: arrays and tensors go into a safetensors file, the rest into its JSON document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit.accounting.serialization import from_plain, to_plain
from tacit.errors import CheckpointError, TacitError
from tacit.mechanisms import Components
from tacit.training import checkpoint_file
from tacit.training.checkpoint_file import Packer, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.accounting.events import Event
    from tacit.mechanisms import Released

_KIND = "tacit kind"


def write(path: Path, released: Released[Any], what: str) -> None:
    """Writes the value, its event and its words; whole or not at all."""
    packer = Packer()
    document = {
        "what": what,
        "event": to_plain(released.event),
        "value": packer.pack(_taken_apart(released.value), "value"),
    }
    checkpoint_file.write(path, document, packer.tensors)


def read(path: Path) -> tuple[Any, Event]:
    """What ``write`` wrote.

    Guarantee: nothing in the file is run. Whoever can write it can choose the value.
    """
    document, tensors = checkpoint_file.read(path)
    try:
        value = _put_together(unpack(document["value"], tensors))
        return value, from_plain(document["event"])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, ArithmeticError,
            TacitError) as error:  # fmt: skip
        line = checkpoint_file.one_line(error)
        raise CheckpointError(f"{path} is no released value of tacit's: {line}") from None


def _taken_apart(value: Any) -> Any:
    """``value`` in what a packer takes; arrays as tensors, with a note that they were arrays."""
    if isinstance(value, np.ndarray):
        return {_KIND: "array", "of": torch.from_numpy(np.array(value, order="C"))}
    if isinstance(value, Components):
        parts = (np.asarray(value.directions), value.strengths, value.centre)
        return {_KIND: "components", "of": [_taken_apart(part) for part in parts]}
    if isinstance(value, list | tuple):
        return type(value)(_taken_apart(one) for one in value)
    if isinstance(value, dict):
        return {key: _taken_apart(one) for key, one in value.items()}
    return value


def _put_together(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_put_together(one) for one in value)
    if not isinstance(value, dict):
        return value
    match value.get(_KIND):
        case None:
            return {key: _put_together(one) for key, one in value.items()}
        case "array":
            return value["of"].numpy()
        case "components":
            return Components(*(_put_together(part) for part in value["of"]))
        case other:
            raise CheckpointError(f"it holds a value of the kind {other!r}")
