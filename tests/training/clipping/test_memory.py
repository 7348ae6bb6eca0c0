"""What the engine allocates at its peak, against the B·|θ| of per-example gradients."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tacit.training.clipping import clipped_gradients

from .networks import Gpt

if TYPE_CHECKING:
    from collections.abc import Callable

FLOAT = 4  # bytes


class Meter(TorchDispatchMode):
    """Adds up the bytes of storages made while it is entered, and takes off those that are gone.

    What a kernel needs for itself and frees before it returns is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: dict[int, weakref.ref[Any]] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(x.untyped_storage()) for x in tree_iter((args, kwargs)) if _strided(x)}
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if _strided(value) and id(value.untyped_storage()) not in given:
                self._count(value.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._seen and self._seen[key]() is storage:
            return

        def gone(_: object) -> None:
            self._seen.pop(key, None)
            self.now -= size

        self._seen[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


def _strided(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided


def measured(model: nn.Module, losses: Callable[[], Tensor], rows: int) -> tuple[int, int]:
    """The peak of one call in bytes, and the size of the parameters."""
    parameters = dict(model.named_parameters())
    with Meter() as meter:
        result = clipped_gradients(parameters, losses, rows=rows, clip=1.0)
    assert all(result.sums[name].shape == p.shape for name, p in parameters.items())
    return meter.peak, FLOAT * sum(p.numel() for p in parameters.values())


def test_the_meter_sees_what_is_held_at_once_and_not_what_was_freed():
    x = torch.randn(8, 100)
    with Meter() as meter:
        for _ in range(3):
            outer = x[:, :, None] * x[:, None, :]
            del outer
        kept = [x + 1, x.view(-1), (x + 2).mul_(3)]
    assert 8 * 100 * 100 * FLOAT <= meter.peak < 1.1 * 8 * 100 * 100 * FLOAT
    assert meter.now == 2 * x.numel() * FLOAT
    del kept
    assert meter.now == 0


def test_the_meter_sees_a_backward_pass():
    model, x = nn.Linear(50, 50, bias=False), torch.randn(8, 50)
    with Meter() as meter:
        for loss in model(x).square().sum(1):
            loss.backward(retain_graph=True)
    assert meter.peak > FLOAT * model.weight.numel()


def test_a_wide_network_takes_far_less_than_its_examples_gradients():
    rows = 64
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))
    x = torch.randn(rows, 1024)
    peak, size = measured(model, lambda: model(x).square().mean(1), rows)
    assert peak < rows * size / 16


def test_a_wide_network_with_a_reused_layer_takes_far_less_than_its_examples_gradients():
    rows = 64
    layer = nn.Linear(1024, 1024)
    x = torch.randn(rows, 1024)
    peak, size = measured(layer, lambda: layer(F.relu(layer(x))).square().mean(1), rows)
    assert peak < rows * size / 8


def test_a_gpt_block_takes_far_less_than_its_examples_gradients():
    rows, time = 64, 16
    model = Gpt(vocabulary=256, width=256, time=time)
    tokens = torch.randint(256, (rows, time))

    def losses() -> Tensor:
        logits = model(tokens)[:, :-1].transpose(1, 2)
        return F.cross_entropy(logits, tokens[:, 1:], reduction="none").mean(1)

    peak, size = measured(model, losses, rows)
    assert peak < rows * size / 3


def test_group_norms_keep_nothing_of_the_size_of_an_activation():
    """Beside what an ordinary backward pass holds there are gradients by row and channel."""
    rows, layers = 8, 6
    norms = [nn.Sequential(nn.GroupNorm(4, 16), nn.Tanh()) for _ in range(layers)]
    model, x = nn.Sequential(*norms), torch.randn(rows, 16, 24, 24)

    def losses() -> Tensor:
        return model(x).square().mean((1, 2, 3))

    with Meter() as ordinary:
        losses().sum().backward()
    peak, _ = measured(model, losses, rows)
    assert peak < ordinary.peak + 3 * FLOAT * x.numel()  # x̂, its product, and the probes of rows
