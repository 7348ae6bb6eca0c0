"""The consistent student."""

import pytest
import torch
from torch import nn

from tacit.transfer.students import graph
from tacit.transfer.students.student import StudentTask, Together


def squares(*, right: bool) -> StudentTask:
    """Bright squares above or below; labels that say which, or labels at random."""
    torch.manual_seed(0)
    truth = torch.randint(0, 2, (150,))
    images = torch.randint(0, 20, (150, 1, 8, 8))
    for image, label in zip(images, truth.tolist(), strict=True):
        image[0, 4 * label : 4 * label + 4, 2:6] += 150
    labels = torch.where(
        torch.arange(150) < 40, truth if right else torch.randint(0, 2, (150,)), -1
    )
    return StudentTask(
        images=images.to(torch.uint8), labels=labels, weights=labels.ge(0).float(), classes=2,
        epochs=2, flip=False, network=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 2)),
        progress=None,
    )  # fmt: skip


@pytest.mark.parametrize("right", [True, False])
def test_the_graph_helps_only_if_it_predicts_labels(right: bool) -> None:
    assert isinstance(graph.train_consistency(squares(right=right)), Together) == right


@pytest.mark.parametrize(("right", "beside"), [(True, 32), (False, 128)])
def test_a_network_that_has_labels_to_find_is_shown_many_of_those_it_was_given(
    right: bool, beside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def noting(_task: StudentTask, chances: torch.Tensor, size: int) -> torch.Tensor:
        drawn.append(size)
        return torch.multinomial(chances, size, replacement=True)

    monkeypatch.setattr(StudentTask, "draw", noting)
    graph.train_consistency(squares(right=right))
    assert drawn == [beside, beside]


def test_it_is_believed_where_it_is_sure() -> None:
    task = squares(right=True)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with torch.no_grad():
        flat[1].weight.zero_()
        flat[1].bias.copy_(torch.tensor([3.0, 0.0]))  # a probability of 0.953
        labels, belief = graph._believed(flat, task, torch.arange(10))
        assert labels.tolist() == [0] * 10
        assert belief.tolist() == [1.0] * 10
        flat[1].bias.copy_(torch.tensor([0.0, 2.9]))  # 0.948
        labels, belief = graph._believed(flat, task, torch.arange(10))
        assert labels.tolist() == [1] * 10
        assert belief.tolist() == [0.0] * 10
