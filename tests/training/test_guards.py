"""What must hold throughout training: hooks are taken off again, gradients are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tacit.errors import ProtocolError, UnsupportedModel
from tacit.training.guards import Guard

from .sessions import network, sgd

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_guard_takes_its_hooks_off_again() -> None:
    model = network()
    optimizer = sgd(model)
    guard = Guard(model, dict(model.named_parameters()), [optimizer])
    with pytest.raises(ProtocolError):
        optimizer.step()
    guard.allow(allowed=True)
    optimizer.step()
    guard.allow(allowed=False)
    guard.close()
    optimizer.step()
    assert not optimizer._optimizer_step_pre_hooks


def test_zero_gradients_are_taken_off_and_others_refused() -> None:
    model = network()
    guard = Guard(model, dict(model.named_parameters()), [])
    model[0].weight.grad = torch.zeros(6, 5)
    guard.check_parameters()
    assert model[0].weight.grad is None
    for bad in (1e-30, float("nan")):
        model[0].weight.grad = torch.zeros(6, 5)
        model[0].weight.grad[2, 3] = bad
        with pytest.raises(ProtocolError, match=r"gradient of 0\.weight"):
            guard.check_parameters()


def _replaced(model: nn.Sequential) -> None:
    model[2].bias = nn.Parameter(model[2].bias.detach().clone())


def _added(model: nn.Sequential) -> None:
    model[1].register_buffer("seen", torch.zeros(1))


def _removed(model: nn.Sequential) -> None:
    model[0].bias = None


def _another_module(model: nn.Sequential) -> None:
    model[1] = nn.Tanh()


def _another_dictionary(model: nn.Sequential) -> None:
    held = {name: nn.Parameter(p.detach().clone()) for name, p in model[0].named_parameters()}
    model[0]._parameters = held


def _another_order(model: nn.Sequential) -> None:
    model[0]._parameters["weight"] = model[0]._parameters.pop("weight")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_replaced, r"parameter 2\.bias was replaced"),
        (_added, r"buffer seen of 1"),
        (_removed, r"parameter 0\.bias was replaced"),
        (_another_module, r"module 1 was replaced"),
        (_another_dictionary, r"parameter 0\.weight was replaced"),
        (_another_order, r"0 holds the same in another order"),
    ],
)
def test_what_modules_hold_stays_where_it_was(
    change: Callable[[nn.Sequential], None], said: str
) -> None:
    model = network()
    guard = Guard(model, dict(model.named_parameters()), [])
    model[0]._parameters = dict(model[0]._parameters)  # in another dictionary, and the same
    guard.check_before_lot()
    change(model)
    with pytest.raises((ProtocolError, UnsupportedModel), match=said):
        guard.check_before_lot()
    guard.close()
