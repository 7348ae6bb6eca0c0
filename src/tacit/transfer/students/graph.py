"""The student of the graph: labels spread over all points, and a linear model learns them.

It learns on scattering features, which no label was needed for, and so takes seconds: the first
choice where a few labels have to do and images are simple. For photographs the features say too
little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import nn

from tacit.transfer.students.features import Whitened
from tacit.transfer.students.spreading import spread
from tacit.transfer.students.student import Pixels
from tacit.transfer.students.task import cross_entropy

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.transfer.students.task import Task

ROUNDS = 3
STEPS = 100
DECAY = 1e-5


@final
@dataclass(frozen=True, eq=False)
class Beginning:
    """A model learned from spread labels.

    Args:
        model: takes images and gives scores.
        said: the log-probability that it gives to each class of each public point.
        agrees: of each point with a label, whether the other labels say the same.
    """

    model: nn.Module
    said: Tensor
    agrees: Tensor


def train(task: Task) -> nn.Module:
    """The trained model."""
    return begin(task).model


def begin(task: Task) -> Beginning:
    """Spreads the labels, learns them, and then what it has made of them."""
    features, rows = Whitened.of(task.images, upright=task.upright)
    first = spread(rows, task.labels, task.weights, task.classes)
    labels, certainty = first.labels, first.certainty
    head = nn.Linear(rows.shape[1], task.classes).to(task.device)
    for _ in range(ROUNDS):
        _learn(head, rows, labels, certainty)
        said = head(rows).detach().log_softmax(1)
        certainty, labels = said.exp().max(1)
    return Beginning(nn.Sequential(Pixels(), features, head), said, first.agrees)


def _learn(head: nn.Linear, rows: Tensor, labels: Tensor, certainty: Tensor) -> None:
    """Logistic regression, each point as weighty as its label is certain."""
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=STEPS, history_size=10)

    def loss() -> Tensor:
        optimizer.zero_grad()
        size = sum(parameter.square().sum() for parameter in head.parameters())
        value = (certainty * cross_entropy(head(rows), labels)).mean() + DECAY * size
        value.backward()
        return value

    optimizer.step(loss)
