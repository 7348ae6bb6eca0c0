"""Trained teachers: the work of training some of them, and what they say of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.transfer.teachers.loop import train_classifier, train_network
from tacit.transfer.teachers.schedule import made, pixels
from tacit.transfer.teachers.stacked import stacked_scores, train_stacked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tacit.transfer.teachers.records import Part
    from tacit.transfer.teachers.schedule import Schedule
    from tacit.transfer.teachers.structure import How

NOBODY = 0  # the class that a teacher without records votes for
QUERIES = 256  # at a time: a stack of CNNs needs a gigabyte for them
TOGETHER = 64  # networks that answer at a time


@final
@dataclass(frozen=True, eq=False)
class Work:
    """All that training teachers has in common, apart from their records."""

    make_model: Callable[[], Any]
    schedule: Schedule
    how: How
    device: str
    network: bool

    def train(self, part: Part) -> Trained:
        """Trains the teachers of ``part``, and looks at nothing else."""
        if not self.network:
            fitted = [
                train_classifier(self.make_model, part, place, self.schedule)
                for place in range(len(part.teachers))
            ]
            return Trained(part.teachers, {}, tuple(fitted))
        if self.how != "loop":
            found = train_stacked(self.make_model, part, self.schedule, self.device, self.how)
            return Trained(part.teachers, found, ())
        states = [
            train_network(self.make_model, part, place, self.schedule, self.device)
            for place in range(len(part.teachers))
        ]
        names = states[0]
        stacked = {name: torch.stack([state[name] for state in states]) for name in names}
        return Trained(part.teachers, stacked, ())


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """Some teachers after their training: networks as stacked weights, or fitted classifiers."""

    teachers: tuple[int, ...]
    weights: Mapping[str, Tensor]
    classifiers: tuple[Any, ...]

    def labels(self, inputs: Tensor, work: Work) -> NDArray[np.int64]:
        """The class that each teacher gives to each input, shape (teachers, inputs)."""
        if self.classifiers:
            rows = inputs.flatten(1).cpu().numpy()
            return np.stack([one.predict(rows).astype(np.int64) for one in self.classifiers])
        model = made(work.make_model, work.schedule, 0).to(work.device).eval()
        found: NDArray[np.int64] = np.empty((len(self.teachers), len(inputs)), dtype=np.int64)
        for start in range(0, len(self.teachers), TOGETHER):
            some = slice(start, start + TOGETHER)
            weights = {name: value[some].to(work.device) for name, value in self.weights.items()}
            for first in range(0, len(inputs), QUERIES):
                x = pixels(inputs[first : first + QUERIES].to(work.device))
                found[some, first : first + QUERIES] = _answers(model, weights, x, work.how)
        return found


@torch.no_grad()
def _answers(
    model: nn.Module, weights: dict[str, Tensor], x: Tensor, how: How
) -> NDArray[np.int64]:
    if how != "loop":
        return stacked_scores(model, weights, x, how).argmax(2).cpu().numpy()
    count = len(next(iter(weights.values())))
    states = ({name: value[place] for name, value in weights.items()} for place in range(count))
    scores = [functional_call(model, state, (x,)).argmax(1) for state in states]
    return torch.stack(scores).cpu().numpy()


def joined(parts: Sequence[Trained]) -> Trained:
    """All teachers of these parts, in the order of their numbers."""
    teachers = [teacher for one in parts for teacher in one.teachers]
    order = sorted(range(len(teachers)), key=teachers.__getitem__)
    fitted = [one for part in parts for one in part.classifiers]
    weights = {
        name: torch.cat([part.weights[name] for part in parts])[order] for name in parts[0].weights
    }
    return Trained(
        tuple(teachers[place] for place in order),
        weights,
        tuple(fitted[place] for place in order) if fitted else (),
    )
