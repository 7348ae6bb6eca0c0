"""The worst direction of an image."""

import torch
from torch import nn

from tacit.transfer.students import methods


def test_the_divergence_is_kullback_leiblers() -> None:
    said, says = torch.randn(6, 4).double(), torch.randn(6, 4).double()
    p, q = said.softmax(1), says.softmax(1)
    expected = (p * (p / q).log()).sum(1).mean()
    torch.testing.assert_close(methods._divergence(said, says), expected)


def test_the_worst_direction_is_worse_than_random_ones() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 10), nn.Tanh(), nn.Linear(10, 3))
    images = torch.rand(20, 1, 6, 6)
    said = model(images).detach()
    worst = methods._worst(model, images, said)
    torch.testing.assert_close(worst.flatten(1).norm(dim=1), torch.ones(20))

    def change(directions: torch.Tensor) -> torch.Tensor:
        p, q = said.softmax(1), model(images + 0.1 * directions).softmax(1)
        return (p * (p / q).log()).sum(1)

    others = [change(methods._unit(torch.randn_like(images))).detach() for _ in range(30)]
    mean = torch.stack(others).mean(0)
    assert (change(worst) > 2 * mean).float().mean() > 0.9
