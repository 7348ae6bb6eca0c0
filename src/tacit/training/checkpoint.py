"""Training checkpoints: one safetensors file with a JSON document in it, and never a pickle.

Reading one runs no code of the file's. A file that is truncated, damaged, of another format or made
for another model is refused with one line before anything is changed, and a write that fails
leaves the previous file as it was. A checkpoint holds no random state: a resumed run draws new
samples and new noise.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

import torch
from torch import nn

from tacit import __version__
from tacit._validation import whole
from tacit.errors import CheckpointError
from tacit.training import checkpoint_file
from tacit.training.checkpoint_file import Packer, one_line, unpack
from tacit.training.distributed.sharded import is_sharded, spread_model, spread_optimizer
from tacit.training.distributed.sharded import whole as whole_state

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence


class Stateful(Protocol):
    """What can join a checkpoint: a scheduler, an average of weights, an object of one's own."""

    def state_dict(self) -> Mapping[str, Any]:
        """What ``load_state_dict`` needs to bring the object back to where it is."""
        ...

    def load_state_dict(self, state_dict: Any, /) -> object:
        """Takes what ``state_dict`` returned."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Saved:
    """The state of one optimizer or extra object, with the name of its class.

    ``shapes`` are those of an optimizer's parameters, group by group; other objects have none.
    """

    kind: str
    values: Mapping[str, Any]
    shapes: tuple[tuple[tuple[int, ...], ...], ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a file held: a run after ``steps_taken`` steps of the plan in ``plan_json``."""

    model: Mapping[str, Any]
    optimizers: tuple[Saved, ...]
    state: Mapping[str, Saved]
    plan_json: str
    steps_taken: int
    tacit_version: str
    torch_version: str


def write(
    path: str | os.PathLike[str],
    *,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    state: Mapping[str, Stateful],
    plan_json: str,
    steps_taken: int,
) -> None:
    """Writes a checkpoint, so that ``path`` holds either all of it or what it held before.

    Guarantee: the file is written beside ``path`` under another name, flushed to the disk and then
    moved into place in one operation; when this returns, the checkpoint survives a crash of the
    machine.
    """
    checkpoint_file.write(Path(path), *packed(
        model=model, optimizers=optimizers, state=state, plan_json=plan_json,
        steps_taken=steps_taken,
    ))  # fmt: skip


def packed(
    *,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    state: Mapping[str, Stateful],
    plan_json: str,
    steps_taken: int,
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """What ``write`` writes: a document and its tensors.

    Where parameters are spread over ranks, all ranks call it: tensors are gathered whole, one after
    the other, so that the file is one that any number of ranks reads.
    """
    packer = Packer()
    gather = any(map(is_sharded, model.parameters()))
    document = {
        "tacit": __version__,
        "torch": str(torch.__version__),
        "steps_taken": whole("steps_taken", steps_taken, at_least=0),
        "plan": plan_json,
        "model": _pack(packer, _uncompiled(model), "model", gather),
        "optimizers": [
            {
                "kind": type(optimizer).__name__,
                "shapes": _shapes(optimizer),
                "values": _pack(packer, optimizer, f"optimizers.{index}", gather),
            }
            for index, optimizer in enumerate(optimizers)
        ],
        "state": {
            name: {
                "kind": type(item).__name__,
                "values": _pack(packer, item, f"state.{name}", gather),
            }
            for name, item in state.items()
        },
    }
    return document, packer.tensors


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint that ``write`` wrote.

    Guarantee: nothing in the file is run, and every byte that is returned was covered by the file's
    SHA-256. That finds damage, not malice: whoever can write the file can choose the weights.
    """
    document, tensors = checkpoint_file.read(Path(path))
    try:
        return _parse(document, tensors)
    except CheckpointError as error:
        raise CheckpointError(f"{path} is not a valid checkpoint: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not a valid checkpoint: its document fails with {one_line(error)}"
        ) from None


def restore(
    checkpoint: Checkpoint,
    *,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    state: Mapping[str, Stateful],
) -> None:
    """Loads ``checkpoint`` into the objects of a run that was built like the one that wrote it.

    Guarantee: everything is compared first (names, shapes and types of the model's tensors, the
    optimizers, their options and their parameters' shapes, the names and classes in ``state``),
    weights that are not finite are refused, and if loading fails all the same, whatever was loaded
    is put back.
    """
    model = _uncompiled(model)
    _check_tensors("the model", checkpoint.model, model.state_dict())
    for name, _ in model.named_parameters():
        _check_finite(f"the model's {name!r}", checkpoint.model.get(name))
    _check_optimizers(checkpoint.optimizers, optimizers)
    _check_state(checkpoint.state, state)
    weights = spread_model(checkpoint.model, model)
    targets: list[tuple[str, Stateful, Mapping[str, Any]]] = [("model", model, weights)]
    for index, optimizer in enumerate(optimizers):
        values = spread_optimizer(checkpoint.optimizers[index].values, optimizer)
        targets.append((f"optimizer {index}", optimizer, values))
    for name, item in state.items():
        targets.append((f"state {name!r}", item, checkpoint.state[name].values))
    _load_all(targets)


def _load_all(targets: Sequence[tuple[str, Stateful, Mapping[str, Any]]]) -> None:
    before: list[tuple[Stateful, Mapping[str, Any]]] = []
    for what, target, values in targets:
        before.append((target, copy.deepcopy(target.state_dict())))
        try:
            # A copy, for an optimizer goes on to work in the very tensors that it is given.
            target.load_state_dict(
                values if isinstance(target, nn.Module) else copy.deepcopy(values)
            )
        except Exception as error:
            for touched, earlier in reversed(before):
                with contextlib.suppress(Exception):  # the one that failed may fail again
                    touched.load_state_dict(earlier)
            raise CheckpointError(
                f"the checkpoint does not load into {what}: {one_line(error)}"
            ) from error


def _pack(packer: Packer, item: Stateful, path: str, gather: bool) -> Any:
    values = dict(item.state_dict())
    if gather:
        values = whole_state(values)
    # A plain dictionary, whatever mapping it came in: torch's is an OrderedDict with extras.
    return packer.pack(values, path)


def _uncompiled(model: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` wrapped, so that both have the same names."""
    return model._modules.get("_orig_mod") or model


def _shapes(optimizer: torch.optim.Optimizer) -> list[list[list[int]]]:
    return [[list(p.shape) for p in group["params"]] for group in optimizer.param_groups]


def _parse(document: Any, tensors: Mapping[str, torch.Tensor]) -> Checkpoint:
    return Checkpoint(
        model=_as_dict(unpack(document["model"], tensors)),
        optimizers=tuple(_parse_saved(item, tensors) for item in document["optimizers"]),
        state={name: _parse_saved(item, tensors) for name, item in document["state"].items()},
        plan_json=_as_text(document["plan"]),
        steps_taken=_as_count("steps_taken", document["steps_taken"]),
        tacit_version=_as_text(document["tacit"]),
        torch_version=_as_text(document["torch"]),
    )


def _parse_saved(item: Any, tensors: Mapping[str, torch.Tensor]) -> Saved:
    shapes = tuple(
        tuple(tuple(_as_count("size", size) for size in shape) for shape in group)
        for group in item.get("shapes", [])
    )
    return Saved(_as_text(item["kind"]), _as_dict(unpack(item["values"], tensors)), shapes)


def _as_dict(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CheckpointError(f"a state must be a dictionary, got {type(value).__name__}")
    return value


def _as_text(value: object) -> str:
    if not isinstance(value, str):
        raise CheckpointError(f"a text was expected, got {type(value).__name__}")
    return value


def _as_count(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise CheckpointError(f"{name} must be a whole number, 0 or more, got {str(value)[:40]}")
    return value


def _check_tensors(what: str, saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    _check_names(what, set(saved), set(here))
    for name, value in here.items():
        if isinstance(value, torch.Tensor) != isinstance(saved[name], torch.Tensor):
            raise CheckpointError(f"{what}'s {name!r} is a tensor on one side only")
        if not isinstance(value, torch.Tensor):
            continue
        for aspect, ours, theirs in (
            ("shape", tuple(value.shape), tuple(saved[name].shape)),
            ("type", value.dtype, saved[name].dtype),
        ):
            if ours != theirs:
                raise CheckpointError(
                    f"{what}'s {name!r} has the {aspect} {ours}, and {theirs} in the checkpoint"
                )


def _check_names(what: str, saved: set[Any], here: set[Any]) -> None:
    if missing := sorted(map(str, here - saved)):
        raise CheckpointError(
            f"the checkpoint lacks {_named(missing)} of {what}: it was written for another one"
        )
    if foreign := sorted(map(str, saved - here)):
        raise CheckpointError(
            f"the checkpoint holds {_named(foreign)}, which {what} has not: "
            "it was written for another one"
        )


def _check_optimizers(saved: Sequence[Saved], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    if len(saved) != len(optimizers):
        raise CheckpointError(
            f"the checkpoint is of {len(saved)} optimizers, got {len(optimizers)}"
        )
    for index, (one, optimizer) in enumerate(zip(saved, optimizers, strict=True)):
        _check_kind(f"optimizer {index}", one, optimizer)
        shapes = tuple(tuple(map(tuple, group)) for group in _shapes(optimizer))
        if shapes != one.shapes:
            raise CheckpointError(
                f"optimizer {index} holds parameters of other shapes, or in another order or "
                f"grouping, than in the checkpoint ({_difference(shapes, one.shapes)})"
            )
        _check_options(f"optimizer {index}", optimizer, one.values)
        _check_remembered(f"optimizer {index}", sum(map(len, shapes)), one.values)
        _check_finite(f"optimizer {index}", one.values)


def _difference(ours: Sequence[Sequence[object]], theirs: Sequence[Sequence[object]]) -> str:
    sizes = [len(group) for group in ours], [len(group) for group in theirs]
    if sizes[0] != sizes[1]:
        return f"parameters by group: {sizes[0]} here, {sizes[1]} there"
    pairs = [pair for group in zip(ours, theirs, strict=True) for pair in zip(*group, strict=True)]
    index, (here, there) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
    return f"parameter {index}: {here} here, {there} there"


def _check_state(saved: Mapping[str, Saved], state: Mapping[str, Stateful]) -> None:
    _check_names("state", set(saved), set(state))
    for name, item in state.items():
        _check_kind(f"state {name!r}", saved[name], item)
        if isinstance(item, nn.Module):
            _check_tensors(f"state {name!r}", saved[name].values, item.state_dict())
        else:
            _check_numbers(f"state {name!r}", item.state_dict(), saved[name].values)


def _check_options(what: str, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Refuses an option of another kind than the one it would replace: a step would fail."""
    ours, theirs = optimizer.state_dict()["param_groups"], saved.get("param_groups")
    if not isinstance(theirs, list) or len(theirs) != len(ours):
        raise CheckpointError(f"{what} has {len(ours)} groups, and not as many in the checkpoint")
    for mine, other in zip(ours, theirs, strict=True):
        if not isinstance(other, dict):
            raise CheckpointError(f"{what} has a group that is none in the checkpoint")
        _check_numbers(what, mine, other)
        if any(other.get(name) is None for name, value in mine.items() if _is_number(value)):
            raise CheckpointError(f"{what} lacks a number in the checkpoint")


def _check_remembered(what: str, parameters: int, saved: Mapping[str, Any]) -> None:
    """Refuses what an optimizer cannot remember of its parameters, which it knows by number."""
    state = saved.get("state")
    if not isinstance(state, dict) or not all(
        at in range(parameters) and isinstance(one, dict) for at, one in state.items()
    ):
        raise CheckpointError(f"{what} remembers nothing of its parameters in the checkpoint")


def _check_numbers(what: str, ours: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> None:
    for name in ours.keys() & theirs.keys():
        mine, other = ours[name], theirs[name]
        wrong = _is_number(mine) and not _is_number(other) and other is not None
        if wrong or (isinstance(mine, tuple) and type(other) is not tuple):
            raise CheckpointError(
                f"{what}'s {name!r} is a {type(mine).__name__}, and a {type(other).__name__} in "
                "the checkpoint"
            )


def _is_number(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_finite(what: str, value: object) -> None:
    """Refuses NaN and infinity, in tensors and in numbers."""
    inner: Iterable[object] = ()
    if isinstance(value, torch.Tensor):
        sound = not value.is_floating_point() or bool(value.isfinite().all())
    elif isinstance(value, float):
        sound = math.isfinite(value)
    else:
        sound = True
        inner = value.values() if isinstance(value, Mapping) else inner
        inner = value if isinstance(value, list | tuple) else inner
    if not sound:
        raise CheckpointError(
            f"{what} is not finite in the checkpoint: the run had failed before it was saved, or "
            "the file was changed; go on from an earlier one"
        )
    for one in inner:
        _check_finite(what, one)


def _check_kind(what: str, saved: Saved, item: object) -> None:
    if type(item).__name__ != saved.kind:
        raise CheckpointError(
            f"{what} is a {type(item).__name__}, and a {saved.kind} in the checkpoint"
        )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]!r}{more}"
