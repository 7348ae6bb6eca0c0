"""The student of several: linear models of the graph, and a network that learns their labels.

The linear model (``graph``) is good at finding labels for all public images, and knows nothing of
how a shape may be bent. A small network learns those labels on bent copies. Of writing there are
two linear models, one for images as they are and one for images put upright. Each errs at other
images than the others do, and all of them together err least.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from tacit.transfer.students.augmentation import bent
from tacit.transfer.students.descent import Descent
from tacit.transfer.students.graph import begin
from tacit.transfer.students.network import small_network
from tacit.transfer.students.student import Pixels, Together
from tacit.transfer.students.task import cross_entropy
from tacit.transfer.students.upright import Upright

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.transfer.students.task import Task


def train(task: Task) -> nn.Module:
    """The trained model: all of them side by side."""
    ways = (False, True) if task.upright else (False,)
    graphs = [begin(replace(task, upright=one)) for one in ways]
    said = torch.stack([graph.said for graph in graphs]).mean(0).softmax(1)
    return Together(*(graph.model for graph in graphs), _network(task, said))


def _network(task: Task, said: Tensor) -> nn.Module:
    """A network that learns the likeliest label of each image, as weighty as it is likely."""
    belief, labels = said.max(1)
    if task.upright:
        pixels = Upright()(task.images.float() / 255)
        task = replace(task, images=pixels.mul(255).round().to(torch.uint8))
    network = task.model(lambda: small_network(task.images.shape[1], task.classes))
    descent = Descent(network)
    for done, rows in task.batches():
        scores = network(bent(task.pixels(rows), flip=task.flip))
        descent.step((cross_entropy(scores, labels[rows]) * belief[rows]).mean(), done)
    if task.upright:
        return nn.Sequential(Pixels(), Upright(), descent.average)
    return descent.average
