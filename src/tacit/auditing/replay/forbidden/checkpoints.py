"""Checkpoints that are damaged, forged, or of another run, which must be refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import nn

from tacit.auditing.replay.forbidden.small_run import (
    Attempts,
    Small,
)
from tacit.training import checkpoint_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

RUN = Small().plan


def resumed(**options: Any) -> Small:
    """A small run with these options: with a checkpoint to go on from, say."""
    return Small(options=options)


def saved(path: Path, **options: Any) -> Any:
    """A checkpoint after two steps of a run, which goes on to its end."""
    return Small(options=options, moment="between lots", act=lambda scene: scene.dp.save(path))()


_STATE = {"numbers": [1, 2.5, None], "half": torch.ones(3, dtype=torch.bfloat16)}


class _Kept:
    """State of somebody's own, to be kept in a checkpoint."""

    def __init__(self, held: Any = None) -> None:
        self.held = _STATE if held is None else held

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = self.held
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        self.held = dict(state_dict)


class _Stubborn(_Kept):
    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        del state_dict
        raise ValueError("no")


_Stubborn.__name__ = "_Kept"


def forged(path: Path, there: Path, change: Callable[[Any], object]) -> Path:
    """Another checkpoint, whole by its digest, with something changed in its document."""
    document, tensors = checkpoint_file.read(path)
    change(document)
    checkpoint_file.write(there, document, tensors)
    return there


def charge_of(document: Any) -> Any:
    """Where a checkpoint says that its run is charged."""
    (name,) = [one for one in document["state"] if "ledger" in json.dumps(document["state"][one])]
    return document["state"][name]["values"]


_Change: TypeAlias = "Callable[[Any], object]"  # of a checkpoint's document


def _put(name: str, value: object) -> _Change:
    return lambda document: document.update({name: value})


def _run(name: str, value: object) -> _Change:
    """In what is kept of the run."""

    def change(document: Any) -> None:
        pairs = dict(document["state"]["tacit run"]["values"]["dict"])
        document["state"]["tacit run"]["values"]["dict"] = [
            list(pair) for pair in (pairs | {name: value}).items()
        ]

    return change


def _weight(at: int, value: object) -> _Change:
    """In the place of a weight's name or values."""
    return lambda document: document["model"]["dict"][0].__setitem__(at, value)


def _mine(value: object) -> _Change:
    """In the place of somebody's own state."""
    return lambda document: document["state"]["mine"].update(values={"dict": [["a", value]]})


def _groups(value: object) -> _Change:
    """In the place of the optimizer's only group of options."""

    def change(document: Any) -> None:
        pairs = document["optimizers"][0]["values"]["dict"]
        place = next(pair for pair in pairs if pair[0] == "param_groups")
        place[1] = value

    return change


def _option(name: str, value: object) -> _Change:
    def change(document: Any) -> None:
        pairs = dict(document["optimizers"][0]["values"]["dict"])
        options = dict(pairs["param_groups"][0]["dict"]) | {name: value}
        _groups([{"dict": [list(one) for one in options.items()]}])(document)

    return change


def _optimizer(**changed: object) -> _Change:
    return lambda document: document["optimizers"][0].update(changed)


def _table(name: str, change: Callable[[Any], _Change], *values: Any) -> dict[str, _Change]:
    return {f"{name} of {value!r}": change(value) for value in values}


def _document_changes() -> dict[str, _Change]:
    number: tuple[Any, ...] = (
        {"tensor": "nobody"}, {"tensor": 3}, {"unknown": 1}, {"a": 1, "b": 2}, {},
    )  # fmt: skip
    return {
        **_table("steps", partial(_put, "steps_taken"),
                 4, 99, -1, 1.5, "2", None, 2**70, True, [2]),
        **_table("a plan", partial(_put, "plan"), 3, None, "{}", []),
        **_table("a model", partial(_put, "model"), 3, [], {}, {"dict": 3}, {"dict": []}),
        **_table("optimizers", partial(_put, "optimizers"), [], 3, [{}], None),
        **_table("a state", partial(_put, "state"), {}, [], 3),
        **_table("a last step", partial(_run, "last_step"),
                 0, 1, -1, 4, 2**70, 1.5, "3", None, True),
        **_table("a seed", partial(_run, "unsafe"), 0, 1, "no", None),
        **_table("a weight", partial(_weight, 1),
                 3, None, {"float": "nan"}, {"array": "model.frozen"}, *number),
        **_table("a state's value", _mine, {"float": "1e5"}, {"float": 1}, {"dtype": "object"},
                 {"dtype": 1}, {"tuple": 3}, {"dict": [[1]]}, {"dict": [[[1], 2]]}, {"dict": 3},
                 {"array": "state.mine.half"}, *number),
        **_table("groups", _groups, 3, [], [3], [{"dict": []}, {"dict": []}]),
        **_table("a rate", partial(_option, "lr"),
                 "0.1", None, {"float": "nan"}, {"float": "inf"}, [0.1]),
        "another name of a weight": _weight(0, "nobody"),
        "other shapes": _optimizer(shapes=[[[1]]]),
        "shapes that are none": _optimizer(shapes=[[["x"]]]),
        "another optimizer": _optimizer(kind="Adam"),
        "another kind of state": lambda document: document["state"]["mine"].update(kind="x"),
    }  # fmt: skip


def _damages(whole: bytes) -> dict[str, bytes]:
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    texts = header["__metadata__"]

    def with_header(other: object) -> bytes:
        text = json.dumps(other).encode()
        return len(text).to_bytes(8, "little") + text + whole[8 + length :]

    flipped = {
        f"one bit of byte {at}": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for at in (0, 7, 9, 8 + length // 2, len(whole) - 3)
    }
    return flipped | {
        "nothing": b"", "a few bytes": whole[:5], "half of it": whole[: len(whole) // 2],
        "no tensors": whole[: 8 + length], "a header beyond the end": b"\xff" * 8 + whole[8:],
        "a header that is a list": with_header([1]),
        "a header without texts": with_header({**header, "__metadata__": {"a": {}}}),
        "no header's texts": with_header({k: v for k, v in header.items() if k[0] != "_"}),
        "another format": with_header({**header, "__metadata__": texts | {"format": "other"}}),
        "another version": with_header({**header, "__metadata__": texts | {"version": "99"}}),
        "no document": with_header({**header, "__metadata__": {**texts, "document": "{"}}),
        "another document": with_header(
            {**header, "__metadata__": {**texts, "document": texts["document"] + " "}}),
        "a long header": (17 << 20).to_bytes(8, "little") + b" " * (18 << 20),
    }  # fmt: skip


class _Wider(nn.Module):
    """Another model for the same data."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 6, **options), nn.Linear(6, 3, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(x.to(self.first.weight.dtype)))
        return result


def files(folder: Path) -> Attempts:
    """Every damage and forgery, in a folder in which files may be written."""
    path, lone = folder / "run", folder / "lone"
    saved(path, state={"mine": _Kept()})
    Small(_Wider, moment="between lots", act=lambda scene: scene.dp.save(lone))()
    return _spoilt(path, folder) | _misused(path, lone, folder)


def _spoilt(path: Path, folder: Path) -> dict[str, Callable[[], object]]:
    """Files that are not what was saved."""
    found: dict[str, Callable[[], object]] = {}
    for at, (name, change) in enumerate(_document_changes().items()):
        there = forged(path, folder / f"forged {at}", change)
        found[f"a checkpoint with {name}"] = resumed(resume=there, state={"mine": _Kept()})
    for at, (name, content) in enumerate(_damages(path.read_bytes()).items()):
        there = folder / f"damaged {at}"
        there.write_bytes(content)
        found[f"a checkpoint of {name}"] = resumed(resume=there, state={"mine": _Kept()})
    for at, (name, value) in enumerate({
        "a weight that is not finite": math.nan, "an infinite weight": math.inf,
    }.items()):  # fmt: skip
        document, tensors = checkpoint_file.read(path)
        tensors["model.first.weight"][0, 0] = value
        there = folder / f"broken {at}"
        checkpoint_file.write(there, document, tensors)
        found[f"a checkpoint with {name}"] = resumed(resume=there, state={"mine": _Kept()})
    return found


def _misused(path: Path, lone: Path, folder: Path) -> dict[str, Callable[[], object]]:
    """Sound files for other runs, in places where none can be, and state that no file holds."""
    return {
        "bytes that are no checkpoint": lambda: checkpoint_file.from_bytes(b"x", "bytes"),
        "no checkpoint": resumed(resume=folder / "nothing"),
        "a folder for a checkpoint": resumed(resume=folder),
        "a checkpoint of another plan": Small(
            plan=replace(RUN, noise_multiplier=0.5), options={"resume": lone}, build=_Wider
        ),
        "a checkpoint with another end": Small(
            options={"resume": lone, "stop_after": 3 - 1}, build=_Wider
        ),
        "a checkpoint of another model": resumed(resume=lone),
        "a checkpoint of another type": Small(
            lambda: _Wider(dtype=torch.float64), options={"resume": lone}
        ),
        "a checkpoint of a smaller model": Small(
            lambda: _Wider(bias=False), options={"resume": lone}
        ),
        "a checkpoint of two optimizers": Small(
            _Wider, options={"resume": lone},
            optimizer=lambda m: [torch.optim.SGD(m.first.parameters(), 0.1),
                                 torch.optim.SGD(m.second.parameters(), 0.1)],
        ),
        "a checkpoint of another optimizer": Small(
            _Wider, options={"resume": lone}, optimizer=lambda m: torch.optim.Adam(m.parameters())
        ),
        "a checkpoint without its state": resumed(resume=path),
        "a checkpoint without that state": Small(
            _Wider, options={"resume": lone, "state": {"mine": _Kept()}}
        ),
        "a state that does not load": resumed(resume=path, state={"mine": _Stubborn()}),
        "a state that cannot be kept": lambda: _kept({"a": object()}, folder),
        "a tensor that cannot be kept": lambda: _kept({"a": torch.ones(2).to_sparse()}, folder),
        "a tensor that is nowhere": lambda: _kept({"a": torch.ones(2, device="meta")}, folder),
        "an array that cannot be kept": lambda: _kept({"a": np.array([object()])}, folder),
        "a checkpoint in no folder": lambda: saved(folder / "nobody" / "here"),
        "a checkpoint in a file": lambda: saved(path / "here"),
    }  # fmt: skip


def _kept(held: Any, folder: Path) -> object:
    return saved(folder / "kept", state={"mine": _Kept(held)})
