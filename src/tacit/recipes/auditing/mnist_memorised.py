"""``tacit audit mnist-memorised``: what a network remembers of its data, and what privacy changes.

A network with one hidden layer learns about 250 of 500 MNIST images by heart, without privacy, 32
times with another half each. LiRA (Carlini et al. 2022) attacks each of these models with the
others as its shadow models. The same network, trained by ``tacit.fit`` at ε = 2, is attacked
likewise, and its curve is held against the most that the guarantee allows.

Coins decide who is in. In the private models an image that is out is sampled like any other and its
loss taken times 0: number of images, sampling rate and noise stay as they are, and what the attack
is held against is the guarantee for adding or removing one image.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

from tacit.accounting import profile
from tacit.accounting.serialization import as_dict
from tacit.auditing.attacks import Shadows, find, split
from tacit.data import load
from tacit.recipes.auditing.audit_file import NO_PROOF, Audited, Claim
from tacit.recipes.auditing.evidence import by_guesses, measured, most_allowed
from tacit.recipes.auditing.experiment import Conditions, Experiment
from tacit.recipes.auditing.trial import Crew, shadows_of, threads, threads_for, without
from tacit.runs.run import seeded
from tacit.training import Plan, Prepared, Schedule
from tacit.training.fit import Watch, carry_out

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.auditing.attacks import Attack
    from tacit.data import Examples
    from tacit.recipes.auditing.audit_file import AttackFigures
    from tacit.recipes.auditing.evidence import ByCoins

DELTA: Final = 1e-5
NORM: Final = 5.0  # of an image's pixels, about their mean
PLAIN: Final = "without privacy"
INDEPENDENT: Final = (
    "The intervals take scores for independent trials, which those of one model, or of one image "
    "under many models, are only roughly."
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the experiment is, and how the two kinds of models are trained."""

    images: int = 500
    models: int = 32
    hidden: int = 128
    epochs: int = 60
    batch: int = 50
    lr: float = 0.1
    epsilon: float = 2.0
    steps: int = 40
    clip: float = 1.0
    private_lr: float = 1.0


def run(conditions: Conditions) -> Audited:
    """The experiment on MNIST."""
    folder = None if conditions.data is None else Path(conditions.data)
    return memorise(load("mnist", folder).train, 10, Size(), conditions)


def memorise(
    examples: Examples,
    classes: int,
    size: Size,
    conditions: Conditions,
    name: str = "mnist-memorised",
) -> Audited:
    """Trains both kinds of models on random examples, attacks them, and holds both together."""
    rows = np.random.default_rng([conditions.seed, 2]).choice(
        len(examples), size.images, replace=False
    )
    pixels, labels = _prepared(examples, rows)
    plan, few = plan_of(size), threads_for(conditions.workers)
    lesson = _Lesson(pixels, labels, classes, size, few)
    plain = _models(partial(without_privacy, lesson), labels, size, conditions, "plain")
    private = _models(partial(with_privacy, lesson), labels, size, conditions, "private")
    judged = _judged(plan, private)
    named = f"epsilon = {size.epsilon:g}"
    attacks = (
        _attacked(plain, None, PLAIN),
        _attacked(private, plan, named),
    )
    return Audited(
        kind="experiment",
        subject=name,
        words=_words(attacks, judged),
        contradicted=judged.contradicted,
        verdict=judged.verdict,
        curve_p_value=judged.p_value,
        claim=Claim(
            epsilon=size.epsilon, delta=DELTA, adjacency=plan.adjacency, event=as_dict(plan.event)
        ),
        attacks=attacks,
        details=(_row(PLAIN, plain, attacks[0]), _row(named, private, attacks[1])),
        settings={"seed": conditions.seed, "delta": DELTA, **asdict(size)},
        notes=(INDEPENDENT, NO_PROOF),
    )


# ---- the two kinds of models


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Lesson:
    """What both kinds of models learn."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: int
    size: Size
    threads: int | None

    def network(self) -> nn.Sequential:
        return torch.nn.Sequential(
            torch.nn.Linear(self.pixels.shape[1], self.size.hidden),
            torch.nn.ReLU(),
            torch.nn.Linear(self.size.hidden, self.classes),
        )

    def tensors(self) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.pixels), torch.from_numpy(self.labels)


def without_privacy(lesson: _Lesson, members: NDArray[np.bool_], seed: int) -> NDArray[np.float32]:
    """The logits of a network that learned the members by heart."""
    size = lesson.size
    with threads(lesson.threads), seeded(seed):
        x, y = lesson.tensors()
        inside = torch.from_numpy(np.flatnonzero(members))
        network = lesson.network()
        optimizer = torch.optim.SGD(network.parameters(), lr=size.lr, momentum=0.9)
        for _ in range(size.epochs):
            for rows in inside[torch.randperm(len(inside))].split(size.batch):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
                optimizer.step()
        return _logits(network, x)


def plan_of(size: Size) -> Plan:
    """All images at once, in as many steps, with the noise that the ε asks for."""
    return Plan.for_budget(
        epsilon=size.epsilon, delta=DELTA, examples=size.images, lot_size=size.images,
        steps=size.steps, clip=size.clip,
    )  # fmt: skip


def with_privacy(lesson: _Lesson, members: NDArray[np.bool_], seed: int) -> NDArray[np.float32]:
    """The logits of a network that ``tacit.fit`` trained, its weights averaged over the end."""
    size, plan = lesson.size, plan_of(lesson.size)
    with threads(lesson.threads), seeded(seed):
        x, y = lesson.tensors()
        network = lesson.network()
        average = AveragedModel(network)
        prepared = Prepared(
            model=network, optimizer=torch.optim.SGD(network.parameters(), lr=size.private_lr),
            plan=plan, dataset=TensorDataset(x, y),
            schedule=Schedule(average=average, average_from=size.steps // 2),
        )  # fmt: skip
        carry_out(without(prepared, ~members), delta=DELTA, watch=Watch(progress=False))
        return _logits(average.module, x)


def _logits(network: nn.Module, x: Tensor) -> NDArray[np.float32]:
    with torch.no_grad():
        found: NDArray[np.float32] = network(x).numpy()
    return found


def _prepared(
    examples: Examples, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Pixels about their image's own mean, of one norm: public, and of one image at a time."""
    flat = np.asarray(examples.inputs)[rows].reshape(len(rows), -1).astype(np.float32)
    centred = flat - flat.mean(axis=1, keepdims=True)
    lengths = np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6)
    return NORM * centred / lengths, examples.labels[rows]


def _models(
    train: partial[NDArray[np.float32]],
    labels: NDArray[np.int64],
    size: Size,
    conditions: Conditions,
    name: str,
) -> Shadows:
    crew = Crew(
        count=size.models, seed=conditions.seed, workers=conditions.workers,
        folder=None if conditions.folder is None else conditions.folder / name,
        progress=conditions.progress,
    )  # fmt: skip
    found = shadows_of(train, labels, crew)
    assert found is not None
    return found


# ---- what is found


def _lira() -> Attack:
    return find("lira")


def _attacked(models: Shadows, plan: Plan | None, words: str) -> AttackFigures:
    """All models together: each was attacked with the others."""
    curve = None if plan is None else profile(plan.event, plan.adjacency)
    scores = split(_lira().each(models), models.members)
    return measured("lira", scores, most_allowed(curve), model=words)


def _judged(plan: Plan, models: Shadows) -> ByCoins:
    """By the first model, chosen beforehand: a run of its own, whose coins the others do not know.

    Its twin, which was trained on exactly the other images, is left out of the attack.
    """
    scores = _lira().each(models)[0]
    curve = profile(plan.event, plan.adjacency)
    return by_guesses(plan.epsilon(DELTA), DELTA, {"lira": scores}, models.members[0], curve)


def _row(words: str, models: Shadows, attack: AttackFigures) -> dict[str, Any]:
    right = models.logits[:, :, 0].argmax(axis=-1) == models.labels
    found = attack.found[1]
    return {
        "model": words,
        "accuracy on its own images": round(float(right[models.members].mean()), 4),
        "accuracy on the others": round(float(right[~models.members].mean()), 4),
        "found at 0.1 % false alarms": round(found.tpr.value, 5),
        "times the false alarms": round(found.tpr.value / found.fpr, 1),
        "allowed": None if found.allowed is None else round(found.allowed, 5),
    }


def _words(attacks: tuple[AttackFigures, AttackFigures], judged: ByCoins) -> str:
    plain, private = (one.found[1] for one in attacks)
    return (
        f"without privacy LiRA finds {plain.tpr.value:.2%} of the members at 0.1% false alarms, "
        f"{plain.tpr.value / plain.fpr:.0f} times as many as by chance; with privacy "
        f"{private.tpr.value:.2%}, where {private.allowed or 0.0:.2%} are allowed; "
        f"{judged.describe()}"
    )


EXPERIMENT = Experiment(
    name="mnist-memorised",
    summary="LiRA on a network that learned 250 images by heart, and on its private twin",
    data="mnist",
    run=run,
)
