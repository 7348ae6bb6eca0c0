"""The student that is linear models and a network side by side."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from tacit.transfer.students import graph
from tacit.transfer.students.student import StudentTask, Together


def squares(count: int = 128) -> StudentTask:
    """Bright squares above or below; every third image has a label."""
    torch.manual_seed(0)
    truth = torch.arange(count) // 2 % 2
    images = torch.randint(0, 60, (count, 1, 8, 8))
    for image, label in zip(images, truth.tolist(), strict=True):
        image[0, 4 * label : 4 * label + 4, 2:6] += 150
    labels = torch.where(torch.arange(count) % 3 == 0, truth, -1)
    return StudentTask(
        images=images.to(torch.uint8), labels=labels, weights=labels.ge(0).float(), classes=2,
        epochs=30, flip=False, network=None, progress=None,
    )  # fmt: skip


@pytest.mark.parametrize("upright", [False, True])
def test_all_of_them_vote_and_differ(upright: bool) -> None:
    task = replace(squares(), upright=upright)
    found = graph.train_committee(task).eval()
    assert isinstance(found, Together)
    assert len(found.models) == 2 + upright
    with torch.no_grad():
        each = torch.stack([one.eval()(task.images).log_softmax(1) for one in found.models])
        torch.testing.assert_close(found(task.images), each.mean(0))
    for one, other in pairwise(each):
        assert (one - other).abs().max() > 1e-3
    truth = torch.arange(len(task.images)) // 2 % 2
    for one in each:
        assert (one.argmax(1) == truth).float().mean() > 0.9


def test_the_network_learns_the_labels_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told the contrary of what the graph's linear model says, it learns the contrary."""
    real = graph.begin

    def contrary(task: StudentTask) -> graph.Beginning:
        begun = real(task)
        return replace(begun, said=begun.said.flip(1))

    monkeypatch.setattr(graph, "begin", contrary)
    task = squares()
    found = graph.train_committee(task)
    assert isinstance(found, Together)
    truth = torch.arange(len(task.images)) // 2 % 2
    with torch.no_grad():
        said = found.models[-1].eval()(task.images).argmax(1)
    assert (said == truth).float().mean() < 0.1


def test_a_network_of_ones_own_and_progress() -> None:
    seen: list[tuple[int, int]] = []
    task = replace(
        squares(), epochs=2, network=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 2)),
        progress=lambda done, of: seen.append((done, of)),
    )  # fmt: skip
    found = graph.train_committee(task)
    assert isinstance(found, Together)
    assert sum(isinstance(one, nn.Conv2d) for one in found.modules()) == 0
    assert seen == [(1, 2), (2, 2)]


def test_a_network_of_upright_images_takes_slanted_ones() -> None:
    """It is shown the same image, whichever way the writing leans."""
    task = replace(squares(), epochs=1, upright=True)
    found = graph.train_committee(task)
    assert isinstance(found, Together)
    network = found.models[-1].eval()
    place = (2 * torch.arange(28) + 1) / 28 - 1
    y, x = torch.meshgrid(place, place, indexing="ij")
    left, right = (
        torch.exp(-(((x - slant * y) / 0.2) ** 2) - (y / 0.5) ** 4)[None, None]
        for slant in (-0.4, 0.4)
    )
    with torch.no_grad():
        torch.testing.assert_close(network(left), network(right), atol=0.05, rtol=0.05)
