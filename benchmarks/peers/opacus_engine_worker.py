"""Opacus by `PrivacyEngine.make_private`, with per-sample gradients and with ghost clipping."""

import functools

import torch
from opacus import PrivacyEngine
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from engine_models import Task, losses
from engine_worker import CLIP, LEARNING_RATE, NOISE_MULTIPLIER, Step, serve


class PerRow:
    """The criterion that ghost clipping asks for one loss per row."""

    reduction = "mean"

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """One loss per row."""
        return losses(logits, targets)


def step_of(task: Task, mode: str) -> Step:
    """One lot of all rows; the loader, which only tells the sizes, is left out of the time."""
    model, (x, y) = task.model(), task.data()
    module, optimizer, *criterion, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        criterion=PerRow(),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=task.batch),
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )

    def hooks() -> None:
        optimizer.zero_grad()
        losses(module(x), y).mean().backward()
        optimizer.step()

    def ghost() -> None:
        optimizer.zero_grad()
        criterion[0](module(x), y).backward()
        optimizer.step()

    return ghost if mode == "ghost" else hooks


if __name__ == "__main__":
    modes = {f"opacus-{mode}": functools.partial(step_of, mode=mode) for mode in ("hooks", "ghost")}
    serve(modes, ["opacus", "torch", "numpy"])
