"""tacit's whole public path, and PyTorch without privacy, as engines to time."""

import torch
from torch.utils.data import TensorDataset

import tacit
from engine_models import Task, losses
from engine_worker import CLIP, LEARNING_RATE, NOISE_MULTIPLIER, Step, serve


def private(task: Task) -> Step:
    """A full-batch plan over tensors: nothing is left out but fetching the data."""
    model = task.model()
    data = TensorDataset(*task.data())
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    plan = tacit.Plan(
        examples=task.batch,
        lot_size=task.batch,
        steps=1_000_000,
        noise_multiplier=NOISE_MULTIPLIER,
        clip=CLIP,
    )
    dp = tacit.private(model, optimizer, plan, data).__enter__()
    lots = dp.lots()

    def step() -> None:
        for x, y in next(lots):
            dp.backward(losses(model(x), y))
        dp.step()

    return step


def plain(task: Task) -> Step:
    """The same model and optimizer, and no privacy."""
    model, (x, y) = task.model(), task.data()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        losses(model(x), y).mean().backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    serve({"tacit": private, "pytorch": plain}, ["tacit", "torch", "numpy"])
