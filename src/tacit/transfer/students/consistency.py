"""The consistent student: it believes itself where it is sure, also of changed images.

After FixMatch (Sohn et al. 2020): the label of a point is what the student, its weights averaged,
says of a weakly changed copy, if it is sure; the student then learns that label on a strongly
changed copy. Two things are ours, for labels that are few and of which some are wrong. A given
label does not count while the student is sure of another. And where the student of the graph
(``graph``) predicts labels that it was not told, its labels are learned instead of one's own, and
it stays beside the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tacit.transfer.students.augmentation import strong, weak
from tacit.transfer.students.descent import Descent
from tacit.transfer.students.graph import begin
from tacit.transfer.students.student import Together
from tacit.transfer.students.task import BATCH, cross_entropy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tacit.transfer.students.task import Task

SURE = 0.95  # a probability above which the student believes itself
BELIEVABLE = 0.9  # the share of labels that the graph must predict from the others
LABELLED = 32  # labelled points beside each batch, if the graph labels it; else as many as it has


def train(task: Task) -> nn.Module:
    """The trained model: the network, and the graph's linear model beside it if that is good."""
    graph = begin(task)
    believable = float(graph.agrees[task.labelled].float().mean()) >= BELIEVABLE
    model = task.model()
    descent = Descent(model)
    beside = LABELLED if believable else BATCH
    for done, rows in task.batches():
        both = torch.cat([rows, task.draw(task.weights, beside)])
        if believable:
            belief, labels = graph.said[both].exp().max(1)
        else:
            labels, belief = _believed(descent.average, task, both)
        own = slice(len(rows), None)
        given = task.labels[both[own]]
        belief[own] = torch.where(labels[own] == given, 1.0, 1.0 - belief[own])
        labels[own] = given
        losses = cross_entropy(model(strong(task.pixels(both), flip=task.flip)), labels) * belief
        descent.step(losses[: len(rows)].mean() + losses[own].mean(), done)
    return Together(graph.model, descent.average) if believable else descent.average


@torch.no_grad()
def _believed(average: nn.Module, task: Task, rows: Tensor) -> tuple[Tensor, Tensor]:
    """What the averaged network says of weakly changed images; 1 where it is sure, else 0."""
    certainty, labels = average(weak(task.pixels(rows), flip=task.flip)).softmax(1).max(1)
    return labels, certainty.ge(SURE).float()
