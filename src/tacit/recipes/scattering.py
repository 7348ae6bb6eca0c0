"""What the scattering recipes share: features that cost nothing, and two heads to learn on them.

Images become scattering features at several scales, whitened by statistics of synthetic images
(``tacit.models``): of one image at a time, and so free. Only two things touch the private data
together: a noisy mean of the features, which they are then measured from, and the training of the
head. Both are in the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

from tacit import losses, models
from tacit.accounting import Gaussian
from tacit.mechanisms import gaussian
from tacit.recipes import parts
from tacit.runs import Anchor
from tacit.training import Performance, Prepared, Schedule
from tacit.training.fit import arithmetic

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.data import Split
    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.models.synthetic import Kind
    from tacit.runs import Outline, Releasing, Task
    from tacit.training import Plan

BIAS = 0.3  # the constant beside features of norm 1
SLACK = 1e-5  # by which rounding may lift a norm above 1
MOST_CHANNELS = 512  # of a CNN's maps: the strongest directions
BLOCK = 4096  # rows of a physical batch, in the sums


def published(head: str, *results: tuple[float, float]) -> tuple[Anchor, ...]:
    """What Tramèr & Boneh 2021 report for a head, as (ε, accuracy)."""
    return tuple(
        Anchor(
            epsilon=epsilon,
            accuracy=accuracy,
            source=f"Tramèr & Boneh 2021, ScatterNet + {head}",
            shortcuts="shuffled batches accounted as Poisson samples; batch norm's statistics, "
            "where used, clipped at a median that is not private",
        )
        for epsilon, accuracy in results
    )


@dataclass(frozen=True, kw_only=True)
class HeadTraining:
    """How a head is trained. The rate falls over the second half; the last fifth is averaged."""

    epochs: float
    lot: int
    clip: float
    lr: float


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``epochs``, ``lot``, ``clip`` and ``lr`` are the head's own for this ε where they are left out.
    Of both heads: ``scales`` are those of the scattering transform, such as ``2+3``; ``mirrored``
    adds mirror images, ``synthetic`` is the number of synthetic images. Of the linear head:
    ``exponent`` and ``groups`` are its normalisation, ``whitening`` and ``ridge`` are p and λ,
    ``keep`` the directions that are kept (0: all); ``mean_noise`` is the σ of the noisy mean.
    """

    head: Literal["linear", "cnn"] = "linear"
    epochs: float | None = None
    lot: int | None = None
    clip: float | None = None
    lr: float | None = None
    scales: str
    exponent: float
    groups: int
    whitening: float
    ridge: float
    keep: int
    mirrored: bool = False
    synthetic: int = 20_000
    mean_noise: float = 20.0


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a data set, (images, views, …): a view is the image or its mirror image.

    A linear head has rows of norm 1, a CNN has maps.
    """

    train: Tensor
    test: Tensor


StepsFor: TypeAlias = "Callable[[float, str], HeadTraining]"  # of an ε and a head


def outline(task: Task, *, steps: StepsFor) -> Outline:
    """What a run releases: the noisy mean of a linear head's features, then the head."""
    chosen, own = task.settings, _steps(task, steps)
    # A lot that was not set is the recipe's own, or all there are.
    lot = min(own.lot, len(task.data.train)) if chosen.lot is None else own.lot
    linear = chosen.head == "linear"
    return task.plan(
        lot=lot, epochs=own.epochs, clip=own.clip, views=1 if linear else 1 + chosen.mirrored,
        also=(Gaussian(chosen.mean_noise),) if linear else (),
    )  # fmt: skip


def prepare(task: Task, plan: Plan, release: Releasing, *, steps: StepsFor) -> Prepared:
    """The head that the settings name, on its features."""
    with arithmetic(tf32=False):
        found = features(task.data, task.settings, task.device)
        make = _linear if task.settings.head == "linear" else _cnn
        return make(task, plan, release, found, _steps(task, steps))


def _steps(task: Task, steps: StepsFor) -> HeadTraining:
    """The head's own, with what is set."""
    chosen = task.settings
    given = {field.name: getattr(chosen, field.name) for field in fields(HeadTraining)}
    return replace(
        steps(task.epsilon, chosen.head),
        **{name: value for name, value in given.items() if value is not None},
    )


# ---- features


def features(data: Split, chosen: Settings, device: torch.device) -> Features:
    """The features of all images, as the head wants them."""
    train, test = (np.asarray(part.inputs) for part in (data.train, data.test))
    channels, size = train.shape[1:3]
    public = _synthetic(chosen.synthetic, size, channels)
    make = (_rows if chosen.head == "linear" else _maps)(public, chosen, device)

    def views(images: NDArray[np.uint8]) -> Tensor:
        sides = [images]
        if chosen.mirrored:
            sides.append(np.ascontiguousarray(images[..., ::-1]))
        return torch.stack([make(side) for side in sides], dim=1)

    return Features(views(train), views(test))


def _rows(
    public: NDArray[np.uint8], chosen: Settings, device: torch.device
) -> Callable[[NDArray[np.uint8]], Tensor]:
    """Makes rows of norm 1, at several scales and whitened."""
    scattering = _scattering(public, chosen, chosen.exponent, chosen.groups).to(device)
    whitening = models.Whitening.of(
        models.batched(scattering, public, device=device),
        power=chosen.whitening, ridge=chosen.ridge, keep=chosen.keep or None,
    )  # fmt: skip

    def rows(pixels: Tensor) -> Tensor:
        """Whitened as they come: unwhitened, they would take several times the memory."""
        return whitening(scattering(pixels))

    return lambda images: models.batched(rows, images, device=device)


def _maps(
    public: NDArray[np.uint8], chosen: Settings, device: torch.device
) -> Callable[[NDArray[np.uint8]], Tensor]:
    """Makes maps of all scales, whitened over the features of a place, about 1 large."""
    scattering = _scattering(public, chosen, exponent=0.5, groups=31).to(device)
    places = models.batched(scattering.places, public, device=device)
    rows = places.permute(0, 2, 3, 1).flatten(0, 2)
    mixing = models.Whitening.of(
        rows, power=0.75, ridge=1e-4, keep=min(MOST_CHANNELS, rows.shape[1])
    ).directions
    mixing = mixing / (rows @ mixing.T).square().mean().sqrt()

    def mixed(pixels: Tensor) -> Tensor:
        return torch.einsum("nchw,dc->ndhw", scattering.places(pixels), mixing)

    return lambda images: models.batched(mixed, images, device=device)


def _scattering(
    public: NDArray[np.uint8], chosen: Settings, exponent: float, groups: int
) -> models.MultiScale:
    return models.MultiScale(
        public.shape[2], channels=public.shape[1], exponent=exponent, groups=groups,
        scales=[int(scale) for scale in chosen.scales.split("+")],
    )  # fmt: skip


def _synthetic(count: int, size: int, channels: int) -> NDArray[np.uint8]:
    """Strokes and blobs for grey images; dead leaves and 1/f noise, as in photographs, for colour.

    The seed is fixed: these images, and with them the features, are the same for everyone.
    """
    kinds: tuple[Kind, Kind] = ("strokes", "blobs") if channels == 1 else ("dead-leaves", "noise")
    return np.concatenate(
        [
            models.synthetic_images(count // 2, size=size, channels=channels, kind=kind, seed=seed)
            for seed, kind in enumerate(kinds)
        ]
    )


# ---- the linear head


class LinearHead(nn.Module):
    """A linear classifier; ``mean`` is what features are measured from before they come here."""

    mean: Tensor

    def __init__(self, mean: Tensor, classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.linear = nn.Linear(len(mean) + 1, classes, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of rows that ``centred`` made."""
        found: Tensor = self.linear(rows)
        return found


def centred(rows: Tensor, mean: Tensor) -> Tensor:
    """Rows measured from ``mean``, of norm 1 again, and with a constant beside them."""
    moved = functional.normalize(rows - mean, dim=-1)
    return functional.pad(moved, (0, 1), value=BIAS)


def _linear(
    task: Task, plan: Plan, release: Releasing, found: Features, steps: HeadTraining
) -> Prepared:
    mean = _noisy_mean(task, release, found.train)
    model = LinearHead(mean, len(task.data.classes)).to(task.device)
    ready = Features(centred(found.train, mean), centred(found.test, mean))
    return _prepared(task, model, plan, steps, ready, mean_loss)


def _noisy_mean(task: Task, release: Releasing, rows: Tensor) -> Tensor:
    """The mean of all features, each record's views averaged and so of norm 1 at most."""
    noise = task.settings.mean_noise

    def mechanism(budget: Budget | None) -> Released[Any]:
        total: Any = sum(part.double().mean(1).sum(0) for part in rows.split(BLOCK))
        return gaussian(
            total.cpu().numpy(), sensitivity=1.0 + SLACK, noise_multiplier=noise, budget=budget
        )

    released = release(
        "mean",
        mechanism,
        what="the sum of all feature vectors, each of norm 1, which features are measured from",
    )
    return torch.as_tensor(released / len(rows), dtype=torch.float32, device=rows.device)


def mean_loss(model: nn.Module, batch: Any) -> Tensor:
    """The mean over an image's views of the cross entropy."""
    x, y = batch
    scores = model(x)
    return (
        losses.cross_entropy(scores.flatten(0, 1), y.repeat_interleave(scores.shape[1]))
        .view(scores.shape[:2])
        .mean(1)
    )


# ---- the CNN


def _cnn(
    task: Task, plan: Plan, release: Releasing, found: Features, steps: HeadTraining
) -> Prepared:
    del release  # nothing is released before training
    channels, size = found.train.shape[2:4]
    model = models.MapCnn(channels, size=size, classes=len(task.data.classes)).to(task.device)
    return _prepared(task, model, plan, steps, found, random_loss)


def random_loss(model: nn.Module, batch: Any) -> Tensor:
    """The cross entropy of a random view; the plan's ``views`` repeats an image for it."""
    x, y = batch
    which = torch.randint(x.shape[1], (len(y),), device=y.device)
    return losses.cross_entropy(model(x[torch.arange(len(y), device=y.device), which]), y)


# ---- both


def mean_correct(model: nn.Module, batch: Any) -> Tensor:
    """Where the mean probability over an image's views is largest at its label."""
    x, y = batch
    chances = [model(x[:, view]).softmax(-1) for view in range(x.shape[1])]
    found: Tensor = torch.stack(chances).mean(0).argmax(1) == y
    return found


def _prepared(
    task: Task,
    model: nn.Module,
    plan: Plan,
    steps: HeadTraining,
    found: Features,
    loss: Callable[[nn.Module, Any], Tensor],
) -> Prepared:
    optimizer = torch.optim.SGD(model.parameters(), lr=steps.lr)

    def labelled(inputs: Tensor, labels: NDArray[np.int64]) -> TensorDataset:
        return TensorDataset(inputs, torch.as_tensor(labels, device=inputs.device))

    return Prepared(
        model=model,
        optimizer=optimizer,
        plan=plan,
        dataset=labelled(found.train, task.data.train.labels),
        loss=loss,
        correct=mean_correct,
        held_out=labelled(found.test, task.data.test.labels),
        schedule=Schedule(
            scheduler=parts.falling(optimizer, plan.steps, 0.5),
            average=AveragedModel(model),
            average_from=int(plan.steps * 0.8),
        ),
        performance=Performance(compile=False),
        tf32=False,
        notes=(f"the head was trained with a learning rate of {steps.lr:g} at first",),
    )
