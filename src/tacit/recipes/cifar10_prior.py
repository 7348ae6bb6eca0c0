"""``tacit train cifar10-prior --epsilon 1 --device cuda``: fine-tuning a prior of synthetic images.

By Tang et al. 2023, "Differentially Private Image Classification by Learning Priors from Random
Processes" (https://arxiv.org/abs/2306.06076): WRN-16-4 begins with weights that were learned from
synthetic images alone (``tacit.recipes.prior``), and which are public. Its last layer learns first,
on features of the fixed layers below it; then all layers learn together, from 16 views of each
image, with an exponential moving average of the weights. Other than there, the filters learn as
they are used, and are no longer standardised. Both phases have the same lots and the same noise,
and are calibrated together. Up to ε = 2 lots are half as large as published, for half the time: the
noise in their mean hardly depends on their size there, and is 1.5 % more at ε = 1.

``tacit prior build`` makes the prior; the setting ``prior`` names a file elsewhere, or is ``none``
to begin with random weights. Stop it at any time (Ctrl-C) and go on with ``--resume``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tacit import models
from tacit.errors import InvalidArgument
from tacit.mechanisms.release import agreed
from tacit.recipes import parts, prior
from tacit.recipes.scattering import mean_loss
from tacit.runs import Anchor, Recipe
from tacit.training import Performance, Plan, Prepared, Schedule
from tacit.training.fit import Watch, carry_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.recipes.prior import Prior
    from tacit.runs import Outline, Releasing, Task
    from tacit.training.performance import Precision

NONE: Final = "none"  # as the setting ``prior``: random weights
PUBLIC: Final = (
    "the weights that training began with, which are public: a prior learned from synthetic images "
    "alone, as its file says (SHA-256 {sha256})"
)
WHITENED: Final = (
    "fixed maps before layers of the network, which are public: they follow from the prior and "
    "from further synthetic images"
)
_STEPS: Final = {0.5: 600, 1.0: 875, 2.0: 1125, 3.0: 1593, 4.0: 1687, 8.0: 2468}  # of both phases
_PROBE: Final = 98  # of them, 8 passes in the published lots over 50,000: the last layer alone
_LOT, _LARGEST_OF_HALVES = 4096, 2.0  # as published; and the ε up to which half of it serves
_RIDGE: Final = 1e-3  # of whitening
_BLOCK: Final = 2048  # images whose features are computed at once


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``steps`` are those of all layers, at ``lr``; before them the last layer takes ``probe`` steps
    at ``probe_lr``, on ``probe_views`` views of each image; 0 leaves that out. ``prior`` is its
    file, empty where it is to be found, or ``none``. ``layers`` may keep all but the last fixed.
    ``filters`` may stay ``standardised``, as they were in the prior, for another rate.
    ``whitened``: the layers whose inputs are whitened by synthetic images, ``none``, ``last`` or
    ``all`` of them.
    ``decay`` is the moving average's, 0 for none. ``flip`` mirrors views and averages over both
    sides in the end. ``batch`` is how many views a GPU computes at once, at most.
    """

    steps: int
    lot: int = _LOT
    clip: float = 1.0
    lr: float = 0.2
    views: int = 16
    probe: int = _PROBE
    probe_lr: float = 15.0
    probe_views: int = 8
    prior: str = ""
    layers: Literal["all", "last"] = "all"
    filters: Literal["plain", "standardised"] = "plain"
    whitened: Literal["none", "last", "all"] = "none"
    shift: int = 4
    flip: bool = True
    depth: int = 16
    width: int = 4
    decay: float = 0.9999
    precision: Literal["bfloat16", "single"] = "bfloat16"
    batch: int = 4096


def settings(epsilon: float) -> Settings:
    """The published steps of the nearest ε."""
    nearest = min(_STEPS, key=lambda known: abs(known - epsilon))
    lot = _LOT // 2 if epsilon <= _LARGEST_OF_HALVES else _LOT
    return Settings(steps=_STEPS[nearest] - _PROBE, lot=lot)


# ---- what is released: the last layer first, then all of them


def outline(task: Task) -> Outline:
    """Poisson lots of both phases, each with about the same noise."""
    chosen: Settings = task.settings
    first = probe_plan(task)
    return task.plan(
        lot=chosen.lot, steps=chosen.steps, clip=chosen.clip, views=chosen.views,
        also=() if first is None else (first.event,),
    )  # fmt: skip


def probe_plan(task: Task) -> Plan | None:
    """The plan of the first phase: the noise is what both phases as one plan would need.

    It is rounded up, so that another machine, whose arithmetic may differ in the last digit, finds
    the same.
    """
    chosen: Settings = task.settings
    if chosen.probe == 0:
        return None
    both = task.plan(lot=chosen.lot, steps=chosen.probe + chosen.steps, clip=chosen.clip).plan
    return Plan(
        examples=both.examples, lot_size=chosen.lot, steps=chosen.probe, clip=chosen.clip,
        noise_multiplier=math.ceil(both.noise_multiplier * 1e4) / 1e4,
    )  # fmt: skip


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    """The network, its last layer learned already, and its averaged twin."""
    chosen: Settings = task.settings
    on_gpu = task.device.type == "cuda"
    began = None if chosen.prior == NONE else prior.found(chosen.prior)
    model = _network(chosen, began, classes=len(task.data.classes)).to(task.device)
    if chosen.whitened != "none":
        _whiten(model, chosen, began)
    if on_gpu:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    first = probe_plan(task)
    if first is not None:
        learned = release(
            "probe",
            partial(_probe, task, first, model),
            what=f"the last layer, learned on fixed features in {first.steps} noisy steps",
        )
        _put(learned, model)
    trained = model[-1] if chosen.layers == "last" else model
    model.requires_grad_(False)
    trained.requires_grad_(True)
    return Prepared(
        model=model,
        optimizer=torch.optim.SGD(trained.parameters(), lr=chosen.lr),
        plan=plan,
        dataset=parts.images(task.data.train, task.device),
        loss=parts.loss_of(_view(chosen, task.device), torch.compile(model) if on_gpu else None),
        correct=_correct_on_both_sides if chosen.flip else None,
        held_out=parts.images(task.data.test, task.device),
        schedule=Schedule(average=parts.moving_average(model, chosen.decay)),
        performance=_performance(chosen) if on_gpu else None,
        tf32=True,
        public=() if began is None else _public(chosen, began),
    )


def _public(chosen: Settings, began: Prior) -> tuple[str, ...]:
    """What went into the network without being private."""
    maps = () if chosen.whitened == "none" else (WHITENED,)
    return (PUBLIC.format(sha256=began.sha256), *maps)


def _network(chosen: Settings, began: Prior | None, classes: int) -> nn.Sequential:
    """The network with the prior's weights, if there is one, below a last layer of zeros."""
    model = models.wide_resnet(depth=chosen.depth, width=chosen.width, classes=classes)
    if began is not None:
        _begin(model, chosen, began)
    return models.with_plain_filters(model) if chosen.filters == "plain" else model


def _begin(model: nn.Sequential, chosen: Settings, began: Prior) -> None:
    shape = (began.settings.depth, began.settings.width)
    if shape != (chosen.depth, chosen.width):
        raise InvalidArgument(
            f"depth and width must be those of the prior, {shape[0]} and {shape[1]}, got "
            f"{chosen.depth} and {chosen.width}; set them so, or name another prior"
        )
    model.load_state_dict(began.weights, strict=False)
    nn.init.zeros_(model[-1].weight)  # type: ignore[arg-type]


def _whiten(model: nn.Sequential, chosen: Settings, began: Prior | None) -> None:
    """Fixed maps before layers, by views of further synthetic images."""
    if began is None or (chosen.whitened == "all" and chosen.filters != "plain"):
        raise InvalidArgument(
            f"whitened={chosen.whitened} needs a prior, and for all layers filters=plain; set it "
            "to none"
        )
    seen = next(prior.further_views(began.settings, next(model.parameters()).device))
    layers: Literal["last", "all"] = "last" if chosen.whitened == "last" else "all"
    models.with_whitened_inputs(model, seen, ridge=_RIDGE, layers=layers)


def _performance(chosen: Settings) -> Performance:
    precision: Precision = chosen.precision
    return Performance(batch=chosen.batch, precision=precision, capture=True)


def _view(chosen: Settings, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A random view of each row, as the device likes it to lie in memory."""
    on_gpu = device.type == "cuda"

    def view(rows: Tensor) -> Tensor:
        moved = parts.crops(rows, rows.shape[-1], pad=chosen.shift, flip=chosen.flip)
        return moved.contiguous(memory_format=torch.channels_last) if on_gpu else moved

    return view


def _correct_on_both_sides(model: nn.Module, batch: Any) -> Tensor:
    """Where the mean probability of an image and its mirror image is largest at its label."""
    x, y = batch
    chances = model(x).softmax(-1) + model(x.flip(-1)).softmax(-1)
    found: Tensor = chances.argmax(1) == y
    return found


# ---- the last layer alone, on features that are computed once


def _probe(task: Task, plan: Plan, model: nn.Sequential, budget: Budget | None) -> Released[Any]:
    """The last layer's weights and biases, shape (classes, features + 1); charged first."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise InvalidArgument(
            "probe must be 0 under torchrun, for the last layer is learned in one process; set it "
            "so, or start the recipe without torchrun"
        )
    chosen: Settings = task.settings
    charged = agreed("probe", plan.adjacency, plan.unit, budget, "", None).charge(plan.event)
    rows = _features(model, task.data.train.inputs, chosen, task.device)
    head = nn.Linear(rows.shape[-1], len(task.data.classes), device=task.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    labels = torch.as_tensor(task.data.train.labels, device=task.device)
    carry_out(
        Prepared(
            model=head, optimizer=torch.optim.SGD(head.parameters(), lr=chosen.probe_lr),
            plan=plan, dataset=TensorDataset(rows, labels), loss=mean_loss,
            performance=Performance(compile=False), tf32=False,
        ),
        delta=task.delta, watch=Watch(progress=False),
    )  # fmt: skip
    learned = torch.cat([head.weight, head.bias[:, None]], dim=1)
    return charged.release(learned.detach().cpu().numpy())


def _features(model: nn.Sequential, images: Any, chosen: Settings, device: torch.device) -> Tensor:
    """What the layers below the last make of views of each image: (images, views, features).

    Each row follows from one image alone.
    """
    body, view = model[:-1], _view(chosen, device)
    half = chosen.precision == "bfloat16" and device.type == "cuda"
    found: list[Tensor] = []
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=half):
        for start in range(0, len(images), _BLOCK):
            block = torch.as_tensor(images[start : start + _BLOCK], device=device).float()
            block = block / 127.5 - 1.0
            seen = [body(view(block)).float() for _ in range(chosen.probe_views)]
            found.append(torch.stack(seen, dim=1))
    return torch.cat(found)


def _put(learned: Any, model: nn.Sequential) -> None:
    """Gives the last layer its weights and biases."""
    both = torch.as_tensor(np.asarray(learned))
    head = model[-1]
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        head.weight.copy_(both[:, :-1])
        head.bias.copy_(both[:, -1])


TUNING: Final = (
    "settings as published for CIFAR-10, where nothing was charged for it, but for the lot, which "
    "was halved up to ε = 2 by the noise alone, and for the learning rate, which was compared "
    "(0.1, 0.3) on 5,000 training images that those two runs did not learn from, uncharged; no "
    "image was looked at to make the prior"
)

RECIPE = Recipe(
    name="cifar10-prior",
    summary="WRN-16-4 that begins with a prior of synthetic images (Tang et al. 2023), on a GPU",
    data="cifar10",
    settings=settings,
    outline=outline,
    prepare=prepare,
    anchors=(
        Anchor(
            epsilon=1.0,
            accuracy=72.3,
            source="Tang et al. 2023, DP-RandP",
            shortcuts="the colour statistics of its synthetic images come from photographs",
        ),
    ),
    tuning=TUNING,
)
