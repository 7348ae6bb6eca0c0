"""Secrets in the windows of a text: a training, and what its model tells of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from torch.utils.data import TensorDataset

from tacit import losses
from tacit._validation import whole
from tacit.auditing.secrets import (
    SecretFormat,
    combined_p_value,
    insert_into_unit,
    measure,
    next_token_of,
)
from tacit.errors import DataError, InvalidArgument
from tacit.models.networks import CharacterMlp
from tacit.recipes.auditing.secret_results import Situation, Told
from tacit.training import Performance, Plan, fit

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.auditing.secrets import Canary
    from tacit.data.description import Split

SYMBOLS: Final = 128
NAMES: Final = (
    "Agnes", "Boris", "Clara", "Dimka", "Elena", "Fritz", "Greta", "Hanna",
    "Irina", "Jonas", "Karin", "Lukas", "Mirja", "Nadia", "Oskar", "Petra",
)  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``secrets`` of ``digits`` digits stand ``times`` times in a window each. ``epochs``, ``batch``,
    ``lr`` are of the plain training, where a batch's gradient that is longer than ``longest`` is
    cut to it, as is usual for text; ``private_epochs``, ``lot``, ``clip``, ``private_lr`` of the
    private ones, at ``epsilons`` and ``delta``. Exposure is measured against ``candidates`` random
    secrets.
    """

    secrets: int = 8
    digits: int = 9
    window: int = 2048
    times: int = 112
    epochs: float = 8.0
    batch: int = 16
    lr: float = 2.0
    momentum: float = 0.9
    longest: float = 0.25
    epsilons: tuple[float, ...] = (8.0, 2.0)
    delta: float = 1e-5
    private_epochs: float = 4.0
    lot: int = 128
    clip: float = 0.5
    private_lr: float = 0.5
    context: int = 8
    width: int = 128
    candidates: int = 10_000
    beam: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.secrets <= len(NAMES):
            raise InvalidArgument(f"secrets must be 1 to {len(NAMES)}, got {self.secrets!r}")
        whole("digits", self.digits)


@final
@dataclass(frozen=True, eq=False)
class Trial:
    """What all trainings have in common."""

    settings: Settings
    seed: int
    rows: NDArray[np.uint8]
    held_out: NDArray[np.uint8]
    formats: tuple[SecretFormat, ...]
    canaries: tuple[Canary, ...]
    units: tuple[int, ...]


def trial_of(settings: Settings, split: Split, seed: int) -> Trial:
    """Draws the secrets and the windows that they stand in."""
    draw = np.random.default_rng(seed)
    rows, held_out = (
        _windows(part.inputs, part.labels, settings) for part in (split.train, split.test)
    )
    names = NAMES[: settings.secrets]
    if len(rows) < len(names) or not len(held_out):
        raise DataError(
            f"{split.name} has {len(rows)} windows to learn and {len(held_out)} to test on, too "
            f"few for {len(names)} secrets; choose shorter ones"
        )
    formats = tuple(SecretFormat(f"\n{name}: {{digits:{settings.digits}}}") for name in names)
    return Trial(
        settings, seed, rows, held_out, formats,
        tuple(form.draw(seed=draw)[0] for form in formats),
        tuple(draw.choice(len(rows), len(names), replace=False).tolist()),
    )  # fmt: skip


def _windows(inputs: Any, labels: NDArray[np.int64], settings: Settings) -> NDArray[np.uint8]:
    """The text, cut anew: a window and the one character more that is to be predicted."""
    text = np.concatenate([inputs, labels[:, -1:].astype(np.uint8)], axis=1).ravel()
    if text.max() >= SYMBOLS:
        raise DataError("the text must be ASCII: the model knows 128 characters")
    length = settings.window + 1
    return text[: len(text) // length * length].reshape(-1, length)


def situations(settings: Settings) -> list[tuple[int, float | None]]:
    """How often secrets are inserted, and the guarantee's ε, for each training."""
    plain: list[tuple[int, float | None]] = [(settings.times, None), (1, None)]
    return [*plain, *((settings.times, epsilon) for epsilon in settings.epsilons)]


def named(times: int, epsilon: float | None) -> str:
    """A training's name."""
    often = "once" if times == 1 else f"{times} times"
    return f"{often}, not private" if epsilon is None else f"{often}, ε = {epsilon:g}"


def carry_out(
    trial: Trial, times: int, epsilon: float | None, *, progress: bool | None = False
) -> Situation:
    """Trains one model and asks it for the secrets."""
    rows = trial.rows
    for canary, unit in zip(trial.canaries, trial.units, strict=True):
        rows = insert_into_unit(rows, unit, [ord(one) for one in canary.text], times)
    started = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial.seed)  # the first weights and the order; never sampling or noise
        model = CharacterMlp(SYMBOLS, context=trial.settings.context, width=trial.settings.width)
        if epsilon is None:
            steps = _train_plainly(model, _dataset(rows), trial.settings)
        else:
            steps = _train_privately(model, _dataset(rows), trial.settings, epsilon, progress)
    seconds = time.perf_counter() - started
    told = _told(model, trial)
    return Situation(
        name=named(times, epsilon),
        times=times,
        epsilon=epsilon,
        delta=None if epsilon is None else trial.settings.delta,
        steps=steps,
        seconds=seconds,
        bits_per_character=_bits(model, trial.held_out),
        secrets=told,
        p_value=combined_p_value(one.p_value for one in told),
    )


def _dataset(rows: NDArray[np.uint8]) -> TensorDataset:
    tokens = torch.from_numpy(rows.astype(np.int64))
    return TensorDataset(tokens[:, :-1], tokens[:, 1:])


def _loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return losses.token_mean(model(batch[0]), batch[1])


def _train_plainly(model: nn.Module, dataset: TensorDataset, settings: Settings) -> int:
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr, momentum=settings.momentum)
    texts, labels = dataset.tensors
    steps = max(1, round(settings.epochs * len(texts) / settings.batch))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(order) < settings.batch:
            order = torch.randperm(len(texts))
        rows, order = order[: settings.batch], order[settings.batch :]
        optimizer.zero_grad()
        _loss(model, (texts[rows], labels[rows])).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.longest)
        optimizer.step()
        schedule.step()
    return steps


def _train_privately(
    model: nn.Module,
    dataset: TensorDataset,
    settings: Settings,
    epsilon: float,
    progress: bool | None,
) -> int:
    plan = Plan.for_budget(
        epsilon=epsilon, delta=settings.delta, examples=len(dataset), lot_size=settings.lot,
        epochs=settings.private_epochs, clip=settings.clip,
    )  # fmt: skip
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings.private_lr, momentum=settings.momentum
    )
    fit(
        model, dataset, plan,
        optimizer=optimizer, delta=settings.delta, loss=_loss, progress=progress,
        performance=Performance(batch=32),
    )  # fmt: skip
    return plan.steps


def _told(model: nn.Module, trial: Trial) -> tuple[Told, ...]:
    follows, settings = next_token_of(model), trial.settings
    found = []
    for number, (form, canary) in enumerate(zip(trial.formats, trial.canaries, strict=True)):
        measured = measure(
            follows, form.space(), canary.tokens(),
            candidates=settings.candidates, width=settings.beam, seed=trial.seed + 1 + number,
        )  # fmt: skip
        found.append(Told.of(NAMES[number], canary, measured))
    return tuple(found)


@torch.no_grad()
def _bits(model: nn.Module, rows: NDArray[np.uint8]) -> float:
    texts, labels = _dataset(rows).tensors
    parts = zip(texts.split(64), labels.split(64), strict=True)
    total = sum(float(_loss(model, part).sum()) for part in parts)
    return total / len(texts) / float(np.log(2.0))
