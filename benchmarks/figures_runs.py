"""The training runs behind the paper's figures: which there are, and how one is done.

The network of Abadi et al. 2016, Section 5.2 (https://arxiv.org/abs/1607.00133): MNIST after
private PCA, one hidden layer of ReLU units, ten classes. It needs NumPy, SciPy and torch alone.
"""

import functools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

import tacit
from tacit.accounting import Composed, Gaussian, PoissonSampled, Repeated, epsilon
from tacit.accounting.events import Event
from tacit.data import load as load_data
from tacit.mechanisms import pca
from tacit.models import abadi_mlp

EXAMPLES = 60_000
DELTA = 1e-5
FALL, FALLING_EPOCHS = 0.1 / 0.052, 10
"""The learning rate starts so many times higher, and falls linearly over so many epochs."""
LEVELS = {"large": (8.0, 16.0), "medium": (4.0, 7.0), "small": (2.0, 4.0)}
"""The paper's noise levels: σ of training and of PCA."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a run may vary, at the paper's reference values; no components means no PCA."""

    components: int = 60
    hidden: int = 1000
    lot: int = 600
    rate: float = 0.052
    clip: float = 4.0
    noise: float = 4.0
    pca_noise: float = 7.0

    def event(self, steps: int) -> Event:
        """What so many steps release, the PCA with them."""
        training = Repeated(PoissonSampled(self.lot / EXAMPLES, Gaussian(self.noise)), steps)
        return Composed(Gaussian(self.pca_noise), training) if self.components else training


@dataclass(frozen=True)
class Run:
    """A setting and a number of steps; the seed is of the first weights, nothing else has one."""

    setting: Setting
    steps: int
    seed: int = 0


REFERENCE = Setting()
SWEPT: dict[str, tuple[float, ...]] = {
    "components": (10, 20, 40, 100, 200, 0),
    "hidden": (60, 125, 250, 500, 2000),
    "lot": (300, 1200, 2400, 4800),
    "rate": (0.0065, 0.013, 0.026, 0.104, 0.208, 0.416),
    "clip": (0.5, 1.0, 2.0, 8.0, 16.0),
    "noise": (1.5, 2.0, 3.0, 6.0, 8.0),
}
SPENDING = (0.7, 1.0, 1.5, 2.0, 3.0, 6.0, 8.0, 12.0, 16.0)


def sweeps(epochs: int) -> dict[str, list[Run]]:
    """Runs that vary one value, each until the privacy of the reference run is spent."""
    found = {}
    for name, values in SWEPT.items():
        settings = [replace(REFERENCE, **{name: value}) for value in values]
        found[name] = [Run(one, affordable(one, epochs)) for one in (REFERENCE, *settings)]
    return found


def spending(epochs: int) -> list[Run]:
    """Runs of equal length and ever more noise, the PCA's in step with the training's."""
    ratio = REFERENCE.pca_noise / REFERENCE.noise
    settings = [replace(REFERENCE, noise=one, pca_noise=ratio * one) for one in SPENDING]
    return sorted((Run(one, 100 * epochs) for one in (*settings, REFERENCE)), key=_noise)


def levels(epochs: int) -> dict[str, Run]:
    """The paper's three noise levels, for so many epochs."""
    return {
        name: Run(replace(REFERENCE, noise=noise, pca_noise=pca_noise), 100 * epochs)
        for name, (noise, pca_noise) in LEVELS.items()
    }


def everything(epochs: int, level_epochs: int, seeds: int) -> list[Run]:
    """All runs, each once: seed by seed, the long ones first, so that no process ends up alone."""
    runs = {*spending(epochs), *levels(level_epochs).values()}
    runs.update(run for sweep in sweeps(epochs).values() for run in sweep)
    ordered = sorted(runs, key=lambda run: (-run.steps, astuple(run.setting)))
    return [replace(run, seed=seed) for seed in range(seeds) for run in ordered]


def _noise(run: Run) -> float:
    return run.setting.noise


def affordable(setting: Setting, epochs: int) -> int:
    """How many steps keep within what the reference run spends in so many epochs."""
    released = replace(setting, hidden=REFERENCE.hidden, rate=REFERENCE.rate, clip=REFERENCE.clip)
    if released.components:
        released = replace(released, components=REFERENCE.components)
    return _affordable(released, 100 * epochs)


@functools.lru_cache
def _affordable(setting: Setting, reference_steps: int) -> int:
    budget = epsilon(REFERENCE.event(reference_steps), DELTA)
    low, high = 1, 2
    while epsilon(setting.event(high), DELTA) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        kept = epsilon(setting.event(middle), DELTA) <= budget
        low, high = (middle, high) if kept else (low, middle)
    return low


def train(run: Run, data: tuple[torch.Tensor, ...], *, compiled: bool) -> list[tuple[int, float]]:
    """Steps and held-out accuracy at the end of every epoch of one run."""
    images, labels, held_images, held_labels = data
    setting = run.setting
    plan = tacit.Plan(
        examples=len(images), lot_size=setting.lot, steps=run.steps,
        noise_multiplier=setting.noise, clip=setting.clip,
    )  # fmt: skip
    project = projection(images, setting)
    private = TensorDataset(project(images), labels)
    held_out = TensorDataset(project(held_images), held_labels)
    torch.manual_seed(run.seed)
    model = abadi_mlp(private.tensors[0].shape[1], setting.hidden).to(labels.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=setting.rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: times_rate(step * plan.sample_rate)
    )
    done = tacit.fit(
        model, optimizer, plan, private, schedule=tacit.Schedule(scheduler=scheduler), delta=DELTA,
        held_out=held_out, progress=False, performance=tacit.Performance(compile=compiled),
    )  # fmt: skip
    return [(one.steps, one.held_out_accuracy or 0.0) for one in done.history]


def times_rate(epoch: float) -> float:
    """By how much the learning rate is above its last value after so many epochs."""
    return 1.0 + max(0.0, 1.0 - epoch / FALLING_EPOCHS) * (FALL - 1.0)


def projection(images: torch.Tensor, setting: Setting) -> Callable[[torch.Tensor], torch.Tensor]:
    """Onto private principal components, which are found on images scaled down to norm 1."""
    if not setting.components:
        return lambda rows: rows
    found = pca(
        images.double().cpu().numpy(), setting.components, noise_multiplier=setting.pca_noise
    )
    directions = torch.from_numpy(found.value.directions).to(images)
    return lambda rows: rows @ directions.T


def load(folder: Path, device: str) -> tuple[torch.Tensor, ...]:
    """Images as rows of 784 numbers from 0 to 1, and labels: to train on, and held out."""
    split = load_data("mnist", folder, download=False)
    tensors = []
    for part in (split.train, split.test):
        rows = torch.from_numpy(part.inputs.reshape(len(part), -1)).to(device)
        tensors += [rows.float() / 255, torch.from_numpy(part.labels).to(device)]
    return tuple(tensors)


_DATA: dict[str, Any] = {}  # of a worker process: it loads the data once


def _prepare(folder: Path, device: str, compiled: bool) -> None:
    torch.set_num_threads(1)
    _DATA.update(data=load(folder, device), compiled=compiled)


def _work(run: Run) -> dict[str, Any]:
    started = time.perf_counter()
    history = train(run, _DATA["data"], compiled=_DATA["compiled"])
    row = {**asdict(run), "seconds": round(time.perf_counter() - started, 2)}
    return row | {"history": history}


def side_by_side(
    runs: list[Run], folder: Path, device: str, *, processes: int, seconds: float, compiled: bool
) -> Iterator[dict[str, Any]]:
    """The rows of finished runs as they come; nothing is started after so many seconds."""
    end = time.monotonic() + seconds
    waiting, active = list(reversed(runs)), set[Future[dict[str, Any]]]()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _prepare, (folder, device, compiled)) as pool:
        while True:
            while waiting and len(active) < processes and time.monotonic() < end:
                active.add(pool.submit(_work, waiting.pop()))
            if not active:
                return
            done, active = wait(active, return_when=FIRST_COMPLETED)
            for one in done:
                if error := one.exception():
                    print(f"a run failed, the others go on: {error}", file=sys.stderr, flush=True)
                else:
                    yield one.result()


def read(path: Path) -> tuple[list[dict[str, Any]], dict[Run, list[tuple[int, float]]]]:
    """The headers of a file of runs, and every run's history."""
    headers, found = [], {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "history" not in row:
            headers.append(row)
            continue
        run = Run(Setting(**row["setting"]), row["steps"], row["seed"])
        found[run] = [(steps, accuracy) for steps, accuracy in row["history"]]
    return headers, found
