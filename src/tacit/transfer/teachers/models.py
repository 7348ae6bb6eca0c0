"""The teachers' models: trained one by one or stacked, and what they say of queries.

``train_network`` and ``train_classifier`` train one teacher after the other: any network, and any
classifier of scikit-learn's. ``train_stacked`` trains many networks of one shape at once: weights
with one more axis, and every step for all of them. Its shapes are public: a step takes
``batch_size`` records of every teacher, and one that has taken all of its own steps stays as it is
while the others go on. So not even rounding carries from one teacher to another, as it could if
batches were as wide as the largest teacher.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from tacit.transfer.teachers.schedule import MOMENTUM, linear_layers, made, pixels, seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tacit.transfer.teachers.records import Part
    from tacit.transfer.teachers.schedule import How, Layers, TeacherSchedule

    State = dict[str, Tensor]
    Gradients = Callable[[State, Tensor, Tensor], State]


NOBODY = 0  # the class that a teacher without records votes for
QUERIES = 256  # at a time: a stack of CNNs needs a gigabyte for them
TOGETHER = 64  # networks that answer at a time
_MADE_UP = 1000  # rows, which are enough for any classifier


@final
@dataclass(frozen=True, eq=False)
class TeacherWork:
    """All that training teachers has in common, apart from their records."""

    make_model: Callable[[], Any]
    schedule: TeacherSchedule
    how: How
    device: str
    network: bool

    def train(self, part: Part) -> TrainedTeachers:
        """Trains the teachers of ``part``, and looks at nothing else."""
        if not self.network:
            fitted = [
                train_classifier(self.make_model, part, place, self.schedule)
                for place in range(len(part.teachers))
            ]
            return TrainedTeachers(part.teachers, {}, tuple(fitted))
        if self.how != "loop":
            found = train_stacked(self.make_model, part, self.schedule, self.device, self.how)
            return TrainedTeachers(part.teachers, found, ())
        states = [
            train_network(self.make_model, part, place, self.schedule, self.device)
            for place in range(len(part.teachers))
        ]
        names = states[0]
        stacked = {name: torch.stack([state[name] for state in states]) for name in names}
        return TrainedTeachers(part.teachers, stacked, ())


@final
@dataclass(frozen=True, eq=False)
class TrainedTeachers:
    """Some teachers after their training: networks as stacked weights, or fitted classifiers."""

    teachers: tuple[int, ...]
    weights: Mapping[str, Tensor]
    classifiers: tuple[Any, ...]

    def labels(self, inputs: Tensor, work: TeacherWork) -> NDArray[np.int64]:
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


def joined(parts: Sequence[TrainedTeachers]) -> TrainedTeachers:
    """All teachers of these parts, in the order of their numbers."""
    teachers = [teacher for one in parts for teacher in one.teachers]
    order = sorted(range(len(teachers)), key=teachers.__getitem__)
    fitted = [one for part in parts for one in part.classifiers]
    weights = {
        name: torch.cat([part.weights[name] for part in parts])[order] for name in parts[0].weights
    }
    return TrainedTeachers(
        tuple(teachers[place] for place in order),
        weights,
        tuple(fitted[place] for place in order) if fitted else (),
    )


def train_network(
    make_model: Callable[[], nn.Module],
    part: Part,
    place: int,
    schedule: TeacherSchedule,
    device: str,
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
    """Gives every query the same class, as a teacher does that can learn no more of its records."""

    def __init__(self, label: int) -> None:
        self._label = label

    @property
    def label(self) -> int:
        """The class."""
        return self._label

    def predict(self, inputs: Any) -> Any:
        """The label, once for each row."""
        return np.full(len(inputs), self._label, dtype=np.int64)


def train_classifier(
    make_model: Callable[[], Any], part: Part, place: int, schedule: TeacherSchedule
) -> Any:
    """The fitted classifier of the teacher at this place; it has a seed of its own.

    One that refuses its records (too few rows, one class, a missing number) gives the class that
    most of them have. An error would stop all teachers for a record of one, and tell of it.
    """
    inputs, labels = part.of(place)
    found, times = torch.unique(labels, return_counts=True)
    usual = Constant(int(found[times.argmax()]) if len(found) else NOBODY)
    if len(found) < 2:  # many classifiers refuse one class
        return usual
    rows, seed = inputs.flatten(1).cpu().numpy(), schedule.seed_of(part.teachers[place])

    def fitted(rows: NDArray[Any], labels: NDArray[np.int64]) -> Any:
        model = made(make_model, schedule, part.teachers[place])
        if model.get_params().get("random_state", 0) is None:
            model.set_params(random_state=seed)
        with seeded(seed):  # for its parts, which have none either
            model = model.fit(rows, labels)
            model.predict(rows[:1])  # neighbours are counted no sooner
        return model

    with suppress(ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return fitted(rows, labels.numpy())
    fitted(*_made_up(rows))  # a model that refuses these as well is at fault itself, and is told so
    return usual


def _made_up(like: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Rows of the same kind with two classes, which no record has a part in."""
    drawn = np.random.default_rng(0).normal(size=(_MADE_UP, *like.shape[1:]))
    if like.dtype.kind != "f":
        drawn = np.abs(16.0 * drawn)
    return drawn.astype(like.dtype), np.arange(_MADE_UP) % 2


def train_stacked(
    make_model: Callable[[], nn.Module],
    part: Part,
    schedule: TeacherSchedule,
    device: str,
    how: How,
) -> State:
    """The trained weights of all teachers of ``part``, stacked in its order, on the CPU."""
    first = [made(make_model, schedule, teacher).to(device) for teacher in part.teachers]
    gradients = gemm_gradients(first[0]) if how == "gemm" else vmap_gradients(first[0])
    weights = {name: value.detach() for name, value in stack_module_state(first)[0].items()}
    moved = part.to(device)
    steps = torch.tensor([schedule.steps(int(size)) for size in part.sizes], device=device)
    speeds = {name: torch.zeros_like(value) for name, value in weights.items()}
    for step, rows in enumerate(_rows(part, schedule)):
        taken = torch.from_numpy(rows).to(device)
        found = gradients(weights, pixels(moved.inputs[taken]), moved.labels[taken])
        rates = schedule.lr * (1.0 - step / steps.clamp(min=1)) * (step < steps)
        for name, gradient in found.items():
            rate = rates.view(-1, *[1] * (gradient.ndim - 1))
            push = gradient.add(weights[name], alpha=schedule.weight_decay)
            speeds[name].mul_(MOMENTUM).add_(push)
            after = weights[name] - rate * push.add_(speeds[name], alpha=MOMENTUM)
            weights[name] = torch.where(rate > 0, after, weights[name])
    return {name: value.cpu() for name, value in weights.items()}


def stacked_scores(model: nn.Module, weights: State, inputs: Tensor, how: How) -> Tensor:
    """What every teacher says of the same inputs, shape (teachers, inputs, classes)."""
    if how == "gemm":
        return gemm_scores(linear_layers(model), weights, inputs.flatten(1))
    found: Tensor = vmap(lambda one: functional_call(model, one, (inputs,)))(weights)
    return found


def vmap_gradients(model: nn.Module) -> Gradients:
    """The gradients of every teacher's mean loss, by ``torch.func.vmap`` of any network."""

    def loss(weights: State, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, weights, (x,)), y)

    found: Gradients = vmap(grad(loss))
    return found


def gemm_gradients(model: nn.Module) -> Gradients:
    """The same for a stack of linear layers, by one batched product of matrices a layer."""
    layers = linear_layers(model)

    def gradients(weights: State, x: Tensor, y: Tensor) -> State:
        leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
        scores = gemm_scores(layers, leaves, x.flatten(2))
        total = functional.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="sum")
        found = torch.autograd.grad(total / x.shape[1], list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    return gradients


def gemm_scores(layers: Layers, weights: State, x: Tensor) -> Tensor:
    """The output of the layers: of inputs (teachers, rows, features), or of (rows, features).

    Inputs that all teachers share meet their first weights in a single product.
    """
    for name, layer in layers:
        if type(layer) is not nn.Linear:
            x = layer(x)
            continue
        matrix = weights[f"{name}.weight".lstrip(".")]
        bias = weights.get(f"{name}.bias".lstrip("."))
        if x.ndim == 2:
            x = functional.linear(x, matrix.flatten(0, 1)).unflatten(1, matrix.shape[:2])
            x = x.transpose(0, 1)
            x = x if bias is None else x + bias[:, None]
        elif bias is None:
            x = torch.bmm(x, matrix.mT)
        else:
            x = torch.baddbmm(bias[:, None], x, matrix.mT)
    return x


def _rows(part: Part, schedule: TeacherSchedule) -> Iterator[NDArray[np.int64]]:
    """For each step, the rows of ``part`` that each teacher sees, shape (teachers, batch_size).

    A teacher that has no step left is given row 0, from which it learns nothing: its rate is 0.
    """
    sizes = [int(size) for size in part.sizes]
    streams = [schedule.batches(*one) for one in zip(part.teachers, sizes, strict=True)]
    nothing = np.zeros(schedule.batch_size, dtype=np.int64)
    for _ in range(max(map(schedule.steps, sizes))):
        found = [next(stream, None) for stream in streams]
        pairs = zip(found, part.starts, strict=True)
        yield np.stack([nothing if rows is None else rows + start for rows, start in pairs])
