"""Opacus on the table of small models, through `PrivacyEngine.make_private`, without noise.

Reads {"mode": "hooks" | "ghost", "rows": [names] | null} and writes one result a row. It needs the
repository's root on its path: the models and the oracle are those of tacit's own tests.
"""

import json
import math
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import torch
from benchmarks.machine import portable
from opacus import PrivacyEngine
from opacus.validators import ModuleValidator
from opacus.validators.errors import UnsupportedModuleError
from tests.training.clipping import oracle
from tests.training.clipping.cases import TABLE, Case
from torch import Tensor, nn
from torch.utils.data import DataLoader

EXACT, HALF = 1e-4, 2e-2  # ten times tacit's own tolerance: Opacus adds 1e-6 to every norm


class Whole(nn.Module):
    """Model and losses in one, so that a parameter used by the loss is inside the module."""

    def __init__(self, case: Case, model: nn.Module) -> None:
        super().__init__()
        self.case = case
        self.model = model

    def forward(self, *inputs: Tensor) -> Tensor:
        """The losses, one a row."""
        return self.case.call(self.model, inputs)


class PerRow:
    """The criterion of ghost clipping: the module's output is the losses already."""

    reduction = "sum"

    def __call__(self, losses: Tensor) -> Tensor:
        """What it is given."""
        return losses


@dataclass(frozen=True)
class Released:
    """The norms that Opacus finds, and the sums that it would add noise to."""

    norms: Tensor
    sums: dict[str, Tensor]

    @property
    def flat(self) -> Tensor:
        """The sums as one vector in double precision."""
        return torch.cat([total.double().flatten() for total in self.sums.values()])


@dataclass(frozen=True)
class Setting:
    """How Opacus is asked."""

    mode: str
    batch_first: bool = True
    fix: bool = False

    def __str__(self) -> str:
        parts = ["batch_first=False"] * (not self.batch_first) + ["ModuleValidator.fix"] * self.fix
        return ", ".join(parts)


def release(case: Case, inputs: tuple[Tensor, ...], clip: float, setting: Setting) -> Released:
    """One lot without noise."""
    whole = Whole(case, case.model())
    if setting.fix:
        whole.model = ModuleValidator.fix(whole.model)
    optimizer = torch.optim.SGD(oracle.trainable(whole).values(), lr=0.0)
    module, optimizer, *criterion, _ = PrivacyEngine().make_private(
        module=whole,
        optimizer=optimizer,
        criterion=PerRow(),
        data_loader=DataLoader(range(max(1, len(inputs[0]))), batch_size=max(1, len(inputs[0]))),
        noise_multiplier=0.0,
        max_grad_norm=clip,
        batch_first=setting.batch_first,
        loss_reduction="sum",
        poisson_sampling=False,
        grad_sample_mode=setting.mode,
    )
    losses = module(*inputs)
    if setting.mode == "ghost":
        criterion[0](losses).backward()
        norms = module.per_sample_gradient_norms
    else:
        losses.sum().backward()
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in optimizer.grad_samples]).norm(dim=0)
    optimizer.pre_step()
    sums = {name: parameter.grad for name, parameter in oracle.trainable(whole).items()}
    return Released(norms.detach(), sums)


def clips(truth: oracle.Truth) -> Iterator[float]:
    norms = truth.norms[truth.finite & (truth.norms > 0)]
    if norms.numel() == 0:
        yield 1.0
        return
    yield norms.min().item() / 2
    yield norms.median().item()
    yield 2 * norms.max().item()


def change(case: Case) -> float:
    """How far, relatively, the repair moves the losses: a repaired model may be another model."""
    model, inputs = case.model(), case.batch()
    before = case.call(model, inputs)
    after = case.call(ModuleValidator.fix(model), inputs)
    kept = before.isfinite()
    return above(((after - before).abs() / before.abs())[kept].max().item())


def compared(case: Case, setting: Setting) -> dict[str, Any]:
    """The largest errors over three clips, and whether they are within the tolerance."""
    if setting.fix and (moved := change(case)) > HALF:
        return {"status": "changed", "losses": moved, "setting": str(setting)}
    truth, worst = oracle.truth(case), {"norms": 0.0, "sum": 0.0, "released": 0.0}
    for clip in clips(truth):
        found = release(case, case.batch(), clip, setting)
        worst["norms"] = max(worst["norms"], norm_error(truth, found.norms))
        worst["sum"] = max(worst["sum"], sum_error(truth, found.flat, clip, setting))
        for row in range(case.rows):
            alone = release(case, tuple(x[row : row + 1] for x in case.batch()), clip, setting)
            worst["released"] = max(worst["released"], above(alone.flat.norm().item() / clip))
    tolerance = EXACT if case.autocast is None else HALF
    right = worst["norms"] <= tolerance and worst["sum"] <= tolerance
    right = right and worst["released"] <= 1 + tolerance
    shown = {name: value if math.isfinite(value) else None for name, value in worst.items()}
    return {"status": "passed" if right else "WRONG", "errors": shown, "setting": str(setting)}


def above(value: float) -> float:
    return float("inf") if math.isnan(value) else value  # NaN is as bad as it gets


def norm_error(truth: oracle.Truth, found: Tensor) -> float:
    """Relative. Norms in another order than the rows' do no harm: the sum tells if they did."""
    if found.shape != truth.norms.shape:
        return float("inf")
    wanted, got = truth.norms[truth.finite], found.double()[truth.finite]
    if len(wanted) == 0:
        return 0.0
    ways = (wanted, got), (wanted.sort().values, got.sort().values)
    return min(above(((b - a).abs() / a.clamp(min=1e-6)).max().item()) for a, b in ways)


def sum_error(truth: oracle.Truth, found: Tensor, clip: float, setting: Setting) -> float:
    """Relative to the sum's norm; a fixed model has other parameters: of it, that norm alone."""
    wanted = truth.clipped_sum(clip)
    scale = max(wanted.norm().item(), 1e-12)
    if setting.fix:
        return above(abs(found.norm().item() - wanted.norm().item()) / scale)
    return above((found - wanted).norm().item() / scale)


def attempt(case: Case, setting: Setting) -> dict[str, Any]:
    try:
        return compared(case, setting)
    except UnsupportedModuleError as refusal:
        return refused(refusal, setting, by="validation")
    except Exception as error:  # whatever a library raises instead of an answer is its refusal
        return refused(error, setting, by="exception")


def refused(error: Exception, setting: Setting, by: str) -> dict[str, Any]:
    message = " ".join(f"{type(error).__name__}: {error}".split())
    where = traceback.extract_tb(error.__traceback__)[-1]
    return {
        "status": "refused",
        "by": by,
        "message": message[:300],
        "where": f"{portable(where.filename.rpartition('site-packages/')[2])}:{where.lineno}",
        "setting": str(setting),
    }


def tried(case: Case, setting: Setting) -> dict[str, Any]:
    """Also with the rows in dimension 1, where the layers have them there."""
    best = attempt(case, setting)
    if best["status"] == "passed" or not case.time_major:
        return best
    other = attempt(case, replace(setting, batch_first=False))
    return other if other["status"] == "passed" else best


def result(case: Case, mode: str) -> dict[str, Any]:
    """The best that Opacus can do with the model as it is; then with the repair that it offers."""
    if case.views > 1:
        return {"status": "refused", "by": "no setting", "message": "no augmentation multiplicity"}
    best = tried(case, Setting(mode))
    if best.get("by") == "validation":
        best["fixed"] = tried(case, Setting(mode, fix=True))
    if best["status"] == "passed" and case.empty:
        best["empty"] = empty(case, mode)
    return best


def empty(case: Case, mode: str) -> str:
    """What a lot without rows does, which Poisson sampling draws now and then."""
    try:
        found = release(case, case.draw(0), 1.0, Setting(mode))
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "passed" if found.flat.count_nonzero() == 0 else "WRONG"


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    chosen = [case for case in TABLE if request["rows"] is None or case.name in request["rows"]]
    results = {}
    for case in chosen:
        results[case.name] = result(case, request["mode"])
    versions = {package: version(package) for package in ("opacus", "torch")}
    json.dump({"versions": versions, "results": results}, sys.stdout)


if __name__ == "__main__":
    main()
