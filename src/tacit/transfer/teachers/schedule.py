"""How each teacher is trained, in public numbers; the same by a loop, a batch or a cluster.

Nothing here depends on more than one teacher: how many steps it takes follows from its own size,
its first weights and the order of its records from a public seed and its own number. ``way`` says
what kind of model a teacher is, and so by which way teachers can be trained together.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final, get_args

import numpy as np
import torch
from torch import Tensor, nn

from tacit.errors import InvalidArgument, UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray


MOMENTUM = 0.9


@final
@dataclass(frozen=True, kw_only=True)
class TeacherSchedule:
    """The steps of one teacher: Nesterov's momentum, at a rate that falls linearly to 0.

    Of few records, plain steps learn more than Adam's: a linear teacher of 240 images was right on
    94.2% of others instead of 93.8% (``benchmarks/teachers.py``'s features).

    Args:
        epochs: How often a teacher sees each of its records.
        batch_size: Records in a step; the last batch of an epoch is filled up from its first.
        lr: The rate at first.
        weight_decay: λ of λ/2·‖w‖², which is added to the loss.
        seed: Public. Of first weights and orders; it hides nobody, and need not.
    """

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    seed: int

    def steps(self, size: int) -> int:
        """How many steps a teacher with ``size`` records takes.

        >>> TeacherSchedule(epochs=2, batch_size=32, lr=1e-3, weight_decay=0.0, seed=0).steps(70)
        6
        """
        return self.epochs * -(-size // self.batch_size)

    def seed_of(self, teacher: int) -> int:
        """The seed of a teacher's first weights, and of whatever randomness its model has."""
        return int(np.random.SeedSequence([self.seed, teacher]).generate_state(1)[0])

    def batches(self, teacher: int, size: int) -> Iterator[NDArray[np.int64]]:
        """Which of its own records a teacher sees in each step."""
        orders = np.random.default_rng([self.seed, teacher, 1])
        for _ in range(self.epochs if size else 0):
            shape = self.steps(size) // self.epochs, self.batch_size
            yield from np.resize(orders.permutation(size), shape)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random states that this seed begins, torch's, NumPy's and Python's; afterwards they are back.

    What draws from a global state would else draw what teachers before it have left, and how much
    these drew depends on their records.
    """
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    numpys, pythons = np.random.get_state(), random.getstate()  # noqa: NPY002 - the global one
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpys)  # noqa: NPY002
            random.setstate(pythons)


def made(make_model: Callable[[], Any], schedule: TeacherSchedule, teacher: int) -> Any:
    """A teacher's model with its first weights.

    It is a copy: what ``make_model`` gives out more than once (a backbone, a scaler, a generator)
    would carry what one teacher has learned to the next.
    """
    with seeded(schedule.seed_of(teacher)):
        model = make_model()
    try:
        return deepcopy(model)
    except (RuntimeError, TypeError):
        raise InvalidArgument(
            "make_model must return a model that copy.deepcopy can copy, for teachers must not "
            f"share any of it, got {type(model).__name__}; weight_norm, say, is to be that of "
            "torch.nn.utils.parametrizations"
        ) from None


def pixels(inputs: Tensor) -> Tensor:
    """Inputs as a network takes them: uint8 are pixels, and become numbers between 0 and 1."""
    return inputs.float() / 255.0 if inputs.dtype == torch.uint8 else inputs


How: TypeAlias = Literal["loop", "batched", "gemm"]
Layers: TypeAlias = "Sequence[tuple[str, nn.Module]]"

ELEMENTWISE = (nn.Identity, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU)
TOGETHER = {"cpu": 10, "gpu": 250}  # networks that are stacked, as measured
_CHANCE = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


def way(asked: str, model: Any, device: str) -> How:
    """The way to train models like this one: the one asked for, or the fastest as measured.

    ``benchmarks/teachers.py`` has the measurements: products of matrices for linear layers
    everywhere; else the batched ensemble on a GPU, which a single small network leaves idle, and
    the loop on a CPU, where a stack of CNNs is no faster and takes more memory.

    >>> way("auto", nn.Linear(4, 2), "cpu"), way("auto", nn.Conv2d(1, 2, 3), "cpu")
    ('gemm', 'loop')
    """
    if asked != "auto" and asked not in get_args(How):
        raise InvalidArgument(f"how must be 'auto', 'loop', 'batched' or 'gemm', got {asked!r}")
    network = isinstance(model, nn.Module)
    if not network and not (hasattr(model, "fit") and hasattr(model, "predict")):
        raise InvalidArgument(
            "make_model must return an nn.Module or a scikit-learn classifier, got "
            f"{type(model).__name__}"
        )
    obstacles: dict[How, str | None] = {
        "gemm": _not_linear(model) if network else "it is no network",
        "batched": _not_batched(model) if network else "it is no network",
        "loop": None,
    }
    if asked == "auto":
        order: tuple[How, ...] = ("gemm", "loop" if device == "cpu" else "batched", "loop")
        return next(how for how in order if obstacles[how] is None)
    chosen: How = asked  # type: ignore[assignment]
    if (reason := obstacles[chosen]) is not None:
        raise UnsupportedModel(
            f"how={chosen!r} cannot train {type(model).__name__}: {reason}; take how='loop'"
        )
    return chosen


def split(teachers: Sequence[int], how: How, device: str, shared_out: bool) -> list[list[int]]:
    """Pieces that are trained, and kept, as a whole: one teacher, or as many as go together.

    >>> split([0, 1, 4], "loop", "cpu", False)
    [[0], [1], [4]]
    """
    if how == "loop":
        together = 1 if not shared_out else 4  # to send a worker one at a time takes longer
    else:
        together = TOGETHER["cpu" if device == "cpu" else "gpu"]
    return [list(teachers[at : at + together]) for at in range(0, len(teachers), together)]


def described(model: Any) -> str:
    """What tells this model from another, its weights apart."""
    if isinstance(model, nn.Module):
        shapes = [(name, tuple(value.shape)) for name, value in model.state_dict().items()]
        return f"{model!r} {shapes}"
    kind = type(model)
    return f"{kind.__module__}.{kind.__qualname__} {sorted(model.get_params().items())}"


@torch.no_grad()
def check_scores(model: Any, inputs: Tensor, classes: int) -> None:
    """Refuses a network that does not give one score a class; it is shown zeros."""
    if not isinstance(model, nn.Module):
        return
    training = model.training
    place = next((weights.device for weights in model.parameters()), torch.device("cpu"))
    zeros = torch.zeros((1, *inputs.shape[1:]), dtype=inputs.dtype, device=place)
    scores = model.eval()(pixels(zeros))
    model.train(training)
    if not isinstance(scores, Tensor) or scores.shape != (1, classes):
        shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise InvalidArgument(
            f"make_model must return a network that gives scores of shape (rows, {classes}), one "
            f"for each of the classes, got {shape} for one row"
        )


def linear_layers(model: nn.Module) -> Layers:
    """The layers of a linear stack in order, each with its name; flattening is left out.

    >>> linear_layers(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh()))
    [('1', Linear(in_features=4, out_features=3, bias=True)), ('2', Tanh())]
    """
    layers: list[tuple[str, Any]] = [("", model)]
    if type(model) is nn.Sequential:
        layers = list(model._modules.items())  # named_children would tell a layer once only
    return [(name, layer) for name, layer in layers if type(layer) is not nn.Flatten]


def _not_linear(model: nn.Module) -> str | None:
    layers = linear_layers(model)
    for _, layer in layers:
        if type(layer) is not nn.Linear and type(layer) not in ELEMENTWISE:
            return f"{type(layer).__name__} is neither linear nor elementwise"
    linear = [layer for _, layer in layers if type(layer) is nn.Linear]
    if not linear:
        return "it has no linear layer"
    if len({id(weights) for weights in model.parameters()}) != sum(
        1 + (layer.bias is not None) for layer in linear
    ):
        return "its layers share weights"
    return _frozen(model)


def _not_batched(model: nn.Module) -> str | None:
    if any(isinstance(module, _CHANCE) for module in model.modules()):
        return "dropout draws at random, and every teacher must draw for itself"
    if next(model.buffers(), None) is not None:
        return "it has buffers, such as the running means of batch norm"
    return _frozen(model)


def _frozen(model: nn.Module) -> str | None:
    fixed = [name for name, weights in model.named_parameters() if not weights.requires_grad]
    return f"{fixed[0]} is not to be trained" if fixed else None
