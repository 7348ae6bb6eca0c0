"""One teacher after the other: any network, and any classifier of scikit-learn's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from tacit.transfer.teachers.schedule import MOMENTUM, made, pixels, seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tacit.transfer.teachers.records import Part
    from tacit.transfer.teachers.schedule import Schedule

    State = Mapping[str, Tensor]


def train_network(
    make_model: Callable[[], nn.Module], part: Part, place: int, schedule: Schedule, device: str
) -> State:
    """The trained state of the teacher at this place of ``part``, on the CPU."""
    teacher, size = part.teachers[place], int(part.sizes[place])
    model = made(make_model, schedule, teacher).to(device).train()
    inputs, labels = (one.to(device) for one in part.of(place))
    steps = max(1, schedule.steps(size))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=schedule.lr, weight_decay=schedule.weight_decay,
        momentum=MOMENTUM, nesterov=True,
    )  # fmt: skip
    falling = LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    with seeded(schedule.seed_of(teacher)):  # for dropout: nothing of the teachers before
        for batch in schedule.batches(teacher, size):
            rows = torch.from_numpy(batch).to(device)
            loss = functional.cross_entropy(model(pixels(inputs[rows])), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            falling.step()
    return {name: value.detach().cpu() for name, value in model.state_dict().items()}


@final
class Constant:
    """Gives every query the same class: what a teacher does that has seen one class only."""

    def __init__(self, label: int) -> None:
        self._label = label

    def predict(self, inputs: Any) -> Any:
        """The label, once for each row."""
        return np.full(len(inputs), self._label, dtype=np.int64)


def train_classifier(
    make_model: Callable[[], Any], part: Part, place: int, schedule: Schedule
) -> Any:
    """The fitted classifier of the teacher at this place; it has a seed of its own."""
    inputs, labels = part.of(place)
    found = torch.unique(labels)
    if len(found) < 2:  # many classifiers refuse one class
        return Constant(int(found[0]) if len(found) else 0)
    teacher = part.teachers[place]
    model = made(make_model, schedule, teacher)
    if model.get_params().get("random_state", 0) is None:
        model.set_params(random_state=schedule.seed_of(teacher))
    return model.fit(inputs.flatten(1).cpu().numpy(), labels.numpy())
