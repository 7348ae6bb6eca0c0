"""Looking at an engine from outside, for proofs that a bug is there: nothing of the self-test's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

import tacit
from tacit.randomness import UnsafeSeededStream
from tacit.training.lot import Accumulator
from tacit.training.noise import FastNoise
from tacit.training.sampling import FullBatch, LotSampler

from .catalogue import BY_NAME

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.auditing.replay import Setting
    from tacit.training.session import Session


class Reading(Dataset[Any]):
    """A data set that notes who is read."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        return self.inner[index]


@dataclass
class Seen:
    """What a run did, step by step."""

    session: Session
    released: list[dict[str, Tensor]] = field(default_factory=list)  # what optimizers were given
    lots: list[list[int]] = field(default_factory=list)  # the records that were read
    buffers: list[dict[str, Tensor]] = field(default_factory=list)
    weights: list[dict[str, Tensor]] = field(default_factory=list)  # after the step

    def sums(self) -> list[Tensor]:
        """What was released, times the plan's lot size, as one vector a step."""
        return [self.session.plan.lot_size * flat(one) for one in self.released]


def flat(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.detach().double().flatten() for value in values.values()])


def run(setting: Setting, *, steps: int | None = None, **given: Any) -> Seen:
    """Trains as ``setting`` says; ``given`` goes to ``tacit.private``."""
    model = setting.model()
    optimizer = setting.optimizer(model.parameters())
    reading = Reading(setting.dataset)
    named = {"groups": setting.groups, "performance": setting.performance, "stop_after": steps}
    with tacit.private(model, optimizer, setting.plan, reading, **named | given) as dp:
        seen = Seen(dp)
        optimizer.register_step_pre_hook(lambda *_: seen.released.append(_gradients(model)))
        for lot in dp.lots():
            reading.read = []
            for batch in lot:
                dp.backward(setting.loss(model, batch))
            dp.step()
            seen.lots.append(reading.read)
            seen.buffers.append({name: b.clone() for name, b in model.named_buffers()})
            seen.weights.append({n: p.detach().clone() for n, p in model.named_parameters()})
    return seen


def _gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def with_plan(setting: Setting, **changed: Any) -> Setting:
    return replace(setting, plan=replace(setting.plan, **changed))


def of_everybody(setting: Setting) -> Setting:
    """Every lot is the whole data set."""
    return with_plan(setting, lot_size=setting.plan.examples, sampling=FullBatch())


def without(setting: Setting, record: int) -> Setting:
    """The data set without one record, or one user; for whole lots."""
    owners = np.arange(len(setting.dataset)) if setting.groups is None else setting.groups
    kept = np.flatnonzero(np.asarray(owners) != record)
    groups = None if setting.groups is None else np.asarray(setting.groups)[kept]
    count = setting.plan.examples - 1
    shorter = with_plan(setting, examples=count, lot_size=count)
    return replace(shorter, dataset=Subset(setting.dataset, kept.tolist()), groups=groups)


def moved(setting: Setting, record: int = 0, *, seed: int = 0) -> float:
    """How far one record moves the first step's sum, in units of the clip."""
    setting = of_everybody(setting)
    with_it, without_it = (
        run(one, steps=1, unsafe_seed=seed).sums()[0] for one in (setting, without(setting, record))
    )
    return float((with_it - without_it).norm()) / setting.plan.clip


def silent(setting: Setting) -> Setting:
    """The same with losses that are zero: what is released is noise alone."""

    def loss(model: Any, batch: Any) -> Tensor:
        return 0.0 * setting.loss(model, batch)

    return replace(setting, loss=loss)


def noise(setting: Setting, *, seed: int | None = 0) -> Tensor:
    """Noise alone, in units of σ·clip, as (steps, entries)."""
    return torch.stack(run(silent(setting), unsafe_seed=seed).sums()) / setting.plan.noise_scale


def inclusion(setting: Setting, lots: int) -> NDArray[np.bool_]:
    """Who is in each of ``lots`` lots, as (lots, records)."""
    sampler = LotSampler(setting.plan, UnsafeSeededStream(0, "lots"))
    everybody = np.arange(setting.plan.examples)
    return np.array([np.isin(everybody, sampler.draw()) for _ in range(lots)])


def noise_multipliers(setting: Setting, **given: Any) -> list[float]:
    """Of every step of a run: the noise over the longest clipped gradient."""
    scales: list[float] = []
    longest: list[list[float]] = [[]]
    add, means = Accumulator.add, FastNoise.means

    def adding(self: Any, result: Any, **named: Any) -> None:
        longest[-1].append(float((result.scales * result.squared_norms.sqrt()).max()))
        add(self, result, **named)

    def releasing(self: Any, *parts: Any, scale: float, **named: Any) -> Any:
        scales.append(scale)
        longest.append([])
        return means(self, *parts, scale=scale, **named)

    with patch.object(Accumulator, "add", adding), patch.object(FastNoise, "means", releasing):
        run(setting, unsafe_seed=0, **given)
    return [scale / max(norms) for scale, norms in zip(scales, longest, strict=False)]


def shows(*names: str) -> pytest.MarkDecorator:
    """A test that shows these bugs by a measurement of its own; it is given the mutant."""
    return pytest.mark.parametrize("mutant", [BY_NAME[name] for name in names], ids=names)
