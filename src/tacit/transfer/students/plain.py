"""The plain student: it learns the labelled points, changed at random, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.transfer.students.augmentation import strong
from tacit.transfer.students.descent import Descent
from tacit.transfer.students.task import BATCH, cross_entropy

if TYPE_CHECKING:
    from torch import nn

    from tacit.transfer.students.task import Task


def train(task: Task) -> nn.Module:
    """The trained model."""
    model = task.model()
    descent = Descent(model)
    for done, rows in task.batches():
        drawn = task.draw(task.weights, max(len(rows), BATCH))
        scores = model(strong(task.pixels(drawn), flip=task.flip))
        descent.step(cross_entropy(scores, task.labels[drawn]).mean(), done)
    return descent.average
