"""What must hold throughout training: hooks are taken off again, gradients are refused."""

from __future__ import annotations

import pytest
import torch

from tacit.errors import ProtocolError
from tacit.training.guards import Guard

from .sessions import network, sgd


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
