"""Changes of weights, buffers, gradients and places that no private step made, at every moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tacit.auditing.replay.forbidden.small_run import (
    CLASSES,
    Act,
    Model,
    Scene,
    Small,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_MOMENTS = ("before the first lot", "in a rehearsal", "in a batch", "before a step",
            "between lots", "after the last lot", "after the run")  # fmt: skip

_IN_A_LOT = ("in a rehearsal", "in a batch", "before a step")


def _data_of(scene: Scene) -> Tensor:
    found: Tensor = scene.model.second.weight.data
    return found


def in_place(scene: Scene) -> None:
    """A weight is changed."""
    with torch.no_grad():
        scene.model.first.weight.mul_(1.01)


def _stepped_elsewhere(scene: Scene, *, fused: bool) -> None:
    weight = scene.model.first.weight
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.1, fused=fused).step()


def _replaced(scene: Scene) -> None:
    scene.model.first.weight = nn.Parameter(scene.model.first.weight.detach().clone())


def _loaded(scene: Scene) -> None:
    scene.model.load_state_dict(Model().state_dict())


def gradient(scene: Scene, values: Callable[[Tensor], Tensor], name: str = "first") -> None:
    """A gradient is put where the engine's is to be."""
    weight = getattr(scene.model, name)
    weight = weight if isinstance(weight, Tensor) else weight.weight
    weight.grad = values(weight)


def _one_entry(weight: Tensor) -> Tensor:
    values = torch.zeros_like(weight)
    values.view(-1)[-1] = 1e-3
    return values


def _new_buffer(scene: Scene) -> None:
    scene.model.scale = scene.model.scale + 1.0


def _new_extra(scene: Scene) -> None:
    scene.model.kept = 7


# Everything that a claim is about, and every way to change it that leaves another trace.
_OF_WEIGHTS: dict[str, Act] = {
    "a weight changed in place": in_place,
    "a weight changed through .data": lambda s: _data_of(s).add_(0.5),
    "one entry changed through .data": lambda s: _data_of(s).view(-1)[-1:].add_(1e-3),
    "other .data": lambda s: setattr(s.model.first.bias, "data", torch.zeros(4)),
    "a weight changed through NumPy": lambda s: s.model.first.weight.detach().numpy().fill(0.1),
    "a frozen parameter changed": lambda s: s.model.frozen.add_(0.5),
    "weights that are loaded": _loaded,
    "a buffer changed in place": lambda s: s.model.scale.add_(0.5),
    "a buffer changed through .data": lambda s: s.model.scale.data.add_(0.5),
}
_OF_PLACES: dict[str, Act] = {
    "a weight replaced": _replaced,
    "a layer replaced": lambda s: setattr(s.model, "second", nn.Linear(4, CLASSES)),
    "a layer added": lambda s: s.model.add_module("third", nn.Linear(2, 2)),
    "a buffer replaced": _new_buffer,
    "extra state changed": _new_extra,
}
_OF_GRADIENTS: dict[str, Act] = {
    "a gradient by hand": lambda s: gradient(s, torch.ones_like),
    "one entry of a gradient by hand": lambda s: gradient(s, _one_entry),
    "a gradient of the last weight by hand": lambda s: gradient(s, _one_entry, "second"),
    "a gradient of a frozen parameter": lambda s: gradient(s, torch.ones_like, "frozen"),
    "an optimizer given other parameters": lambda s: s.optimizer.add_param_group(
        {"params": [nn.Parameter(torch.ones(2))]}
    ),
}
_OF_STEPS: dict[str, Act] = {
    "a step of the optimizer's own": lambda s: s.optimizer.step(),
    "a step of another optimizer": lambda s: _stepped_elsewhere(s, fused=False),
    "a step of a fused optimizer": lambda s: _stepped_elsewhere(s, fused=True),
}


def changes() -> dict[str, Callable[[], object]]:
    """Every change at every moment at which it matters."""
    found: dict[str, Callable[[], object]] = {}
    for moment in _MOMENTS:
        for name, act in _OF_WEIGHTS.items():
            found[f"{name}, {moment}"] = Small(moment=moment, act=act, claims=False)
        for name, act in _OF_PLACES.items():
            if moment == "after the run" and name == "a weight replaced":
                continue  # by equal values: what is claimed is still so
            late = int(moment in _IN_A_LOT)  # a place is looked at before the next lot
            found[f"{name}, {moment}"] = Small(moment=moment, act=act, claims=False, late=late)
        for name, act in {**_OF_GRADIENTS, **_OF_STEPS}.items():
            if moment != "after the run":
                found[f"{name}, {moment}"] = Small(moment=moment, act=act)
    return found
