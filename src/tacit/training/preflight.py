"""What is checked before a run touches its data or its budget: the process, optimizers, folders.

What needs the loop itself is rehearsed: see ``tacit.training.lot`` and ``verification``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from torch.optim.lr_scheduler import ReduceLROnPlateau

from tacit.errors import InvalidArgument, UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from torch.optim import Optimizer


def check_launch(environment: Mapping[str, str] = os.environ) -> None:
    """Refuses one of several processes that torchrun started: each would train by itself."""
    world = environment.get("WORLD_SIZE", "1")
    if "RANK" in environment and world.isdecimal() and int(world) > 1:
        raise UnsupportedModel(
            f"this is one of WORLD_SIZE={world} processes, as torchrun starts them: each would "
            "train and spend by itself, and a plan covers one; start one process with python"
        )


def check_optimizers(optimizers: Sequence[object]) -> None:
    """Refuses an optimizer that accelerate has wrapped: its steps go past the guard."""
    for optimizer in optimizers:
        if type(optimizer).__module__.partition(".")[0] == "accelerate":
            raise InvalidArgument(
                f"optimizer is accelerate's {type(optimizer).__name__}, which steps another one: "
                "pass optimizer.optimizer, and give tacit model and data set without "
                "accelerator.prepare"
            )


def check_device(parameters: Mapping[str, Tensor]) -> None:
    """Refuses parameters that are nowhere yet."""
    for name, parameter in parameters.items():
        if parameter.device.type == "meta":
            raise InvalidArgument(
                f"parameter {name} is on the device 'meta', which holds no numbers; load the "
                "model with model.to_empty(device=...) and its weights first"
            )


def check_states(state: Mapping[str, object]) -> None:
    """Refuses schedules that follow a metric, which may be the private training loss."""
    for name, item in state.items():
        if isinstance(item, ReduceLROnPlateau):
            raise InvalidArgument(
                f"{name} is a ReduceLROnPlateau, which follows a metric: the training loss is "
                "secret, and a learning rate that follows it gives it away; use a schedule of the "
                "number of steps, such as CosineAnnealingLR"
            )


def check_scheduler(scheduler: object, optimizers: Sequence[Optimizer]) -> None:
    """Refuses a schedule that ``fit`` cannot step by itself, or that steps nothing."""
    if scheduler is None:
        return
    check_states({"scheduler": scheduler})
    own = getattr(scheduler, "optimizer", None)
    if own is not None and not any(own is one for one in optimizers):
        raise InvalidArgument(
            f"scheduler must be made for the optimizer that is passed, got a "
            f"{type(scheduler).__name__} of another one, which would change nothing"
        )


def check_place(name: str, path: str | os.PathLike[str] | None) -> None:
    """Makes the folder of a file that is going to be written, and tries to write there."""
    if path is None:
        return
    place = Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except OSError as error:
        raise InvalidArgument(
            f"{name} must be a file in a folder that can be written, got {str(place)!r}: "
            f"{error.strerror}"
        ) from None
    if place.is_dir():
        raise InvalidArgument(f"{name} must be a file, got the folder {str(place)!r}")
