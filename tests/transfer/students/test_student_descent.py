"""The descent of a student's weights, and their average."""

import torch
from torch import nn

from tacit.transfer.students.student import Descent


def test_the_average_is_the_recursion_written_out() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    descent = Descent(model, memory=0.9)
    expected: list[torch.Tensor] = []
    for step in range(30):
        descent.step(model(torch.randn(8, 3)).square().sum(), step / 30)
        state = [value.clone() for value in model.state_dict().values()]
        kept = min(0.9, (1 + step) / (10 + step)) if step else 0.0
        pairs = zip(expected or state, state, strict=True)
        expected = [
            kept * old + (1 - kept) * new if new.is_floating_point() else new for old, new in pairs
        ]
    for found, wanted in zip(descent.average.state_dict().values(), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    assert not descent.average.training


def test_it_finds_a_minimum() -> None:
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    descent = Descent(model, lr=0.1)
    inputs = torch.linspace(-1, 1, 20)[:, None]
    for step in range(200):
        descent.step((model(inputs) - (3 * inputs - 1)).square().mean(), step / 200)
    torch.testing.assert_close(descent.average(inputs), 3 * inputs - 1, atol=0.05, rtol=0)
