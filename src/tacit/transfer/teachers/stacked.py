"""Many networks of one shape at once: weights with one more axis, and every step for all of them.

Shapes are public: a step takes ``batch_size`` records of every teacher, and one that has taken all
of its own steps stays as it is while the others go on. So not even rounding carries from one
teacher to another, as it could if batches were as wide as the largest teacher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from tacit.transfer.teachers.schedule import MOMENTUM, made, pixels
from tacit.transfer.teachers.structure import linear_layers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tacit.transfer.teachers.records import Part
    from tacit.transfer.teachers.schedule import Schedule
    from tacit.transfer.teachers.structure import How, Layers

    State = dict[str, Tensor]
    Gradients = Callable[[State, Tensor, Tensor], State]


def train_stacked(
    make_model: Callable[[], nn.Module], part: Part, schedule: Schedule, device: str, how: How
) -> State:
    """The trained weights of all teachers of ``part``, stacked in its order, on the CPU."""
    first = [made(make_model, schedule, teacher).to(device) for teacher in part.teachers]
    gradients = gemm_gradients(first[0]) if how == "gemm" else vmap_gradients(first[0])
    weights = {name: value.detach() for name, value in stack_module_state(first)[0].items()}
    moved = part.to(device)
    steps = torch.tensor([schedule.steps(int(size)) for size in part.sizes], device=device)
    speeds = {name: torch.zeros_like(value) for name, value in weights.items()}
    for step, rows in enumerate(_rows(part, schedule)):
        taken = torch.from_numpy(rows).to(device)
        found = gradients(weights, pixels(moved.inputs[taken]), moved.labels[taken])
        rates = schedule.lr * (1.0 - step / steps.clamp(min=1)) * (step < steps)
        for name, gradient in found.items():
            rate = rates.view(-1, *[1] * (gradient.ndim - 1))
            push = gradient.add(weights[name], alpha=schedule.weight_decay)
            speeds[name].mul_(MOMENTUM).add_(push)
            after = weights[name] - rate * push.add_(speeds[name], alpha=MOMENTUM)
            weights[name] = torch.where(rate > 0, after, weights[name])
    return {name: value.cpu() for name, value in weights.items()}


def stacked_scores(model: nn.Module, weights: State, inputs: Tensor, how: How) -> Tensor:
    """What every teacher says of the same inputs, shape (teachers, inputs, classes)."""
    if how == "gemm":
        return gemm_scores(linear_layers(model), weights, inputs.flatten(1))
    found: Tensor = vmap(lambda one: functional_call(model, one, (inputs,)))(weights)
    return found


def vmap_gradients(model: nn.Module) -> Gradients:
    """The gradients of every teacher's mean loss, by ``torch.func.vmap`` of any network."""

    def loss(weights: State, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, weights, (x,)), y)

    found: Gradients = vmap(grad(loss))
    return found


def gemm_gradients(model: nn.Module) -> Gradients:
    """The same for a stack of linear layers, by one batched product of matrices a layer."""
    layers = linear_layers(model)

    def gradients(weights: State, x: Tensor, y: Tensor) -> State:
        leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
        scores = gemm_scores(layers, leaves, x.flatten(2))
        total = functional.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="sum")
        found = torch.autograd.grad(total / x.shape[1], list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    return gradients


def gemm_scores(layers: Layers, weights: State, x: Tensor) -> Tensor:
    """The output of the layers: of inputs (teachers, rows, features), or of (rows, features).

    Inputs that all teachers share meet their first weights in a single product.
    """
    for name, layer in layers:
        if type(layer) is not nn.Linear:
            x = layer(x)
            continue
        matrix = weights[f"{name}.weight".lstrip(".")]
        bias = weights.get(f"{name}.bias".lstrip("."))
        if x.ndim == 2:
            x = functional.linear(x, matrix.flatten(0, 1)).unflatten(1, matrix.shape[:2])
            x = x.transpose(0, 1)
            x = x if bias is None else x + bias[:, None]
        elif bias is None:
            x = torch.bmm(x, matrix.mT)
        else:
            x = torch.baddbmm(bias[:, None], x, matrix.mT)
    return x


def _rows(part: Part, schedule: Schedule) -> Iterator[NDArray[np.int64]]:
    """For each step, the rows of ``part`` that each teacher sees, shape (teachers, batch_size).

    A teacher that has no step left is given row 0, from which it learns nothing: its rate is 0.
    """
    sizes = [int(size) for size in part.sizes]
    streams = [schedule.batches(*one) for one in zip(part.teachers, sizes, strict=True)]
    nothing = np.zeros(schedule.batch_size, dtype=np.int64)
    for _ in range(max(map(schedule.steps, sizes))):
        found = [next(stream, None) for stream in streams]
        pairs = zip(found, part.starts, strict=True)
        yield np.stack([nothing if rows is None else rows + start for rows, start in pairs])
