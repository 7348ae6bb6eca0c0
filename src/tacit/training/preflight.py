"""What is checked before a run touches its data or its budget: process, model, optimizers, folders.

What needs the loop itself is rehearsed: see ``tacit.training.lot`` and ``verification``.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import lr_scheduler

from tacit import losses
from tacit.errors import InvalidArgument, UnsupportedModel
from tacit.training.guards import check_hooks
from tacit.training.plan import Plan

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

_SECOND_ORDER = (torch.optim.LBFGS,)
_OF_OUTPUTS = ("torch.nn.functional", "tacit.losses")
_MULTIPLY = (
    lr_scheduler.LambdaLR, lr_scheduler.StepLR, lr_scheduler.MultiStepLR, lr_scheduler.LinearLR,
    lr_scheduler.ConstantLR, lr_scheduler.ExponentialLR, lr_scheduler.PolynomialLR,
)  # fmt: skip
_SPARSE = (torch.optim.SparseAdam,)


def check_roles(model: object, optimizer: object, plan: object) -> None:
    """Refuses arguments that are in another order, before anything is asked of them."""
    optimizers = optimizer if isinstance(optimizer, list | tuple) else (optimizer,)
    for name, given, kind in (
        ("model", model, nn.Module),
        *(("optimizer", one, torch.optim.Optimizer) for one in optimizers),
        ("plan", plan, Plan),
    ):
        if not isinstance(given, kind):
            raise InvalidArgument(
                f"{name} must be a {kind.__module__.partition('.')[0]} {kind.__name__}, got a "
                f"{type(given).__name__}; the order is model, optimizer, plan, dataset"
            )


def private_parameters(
    model: nn.Module, optimizers: Sequence[Optimizer]
) -> dict[str, nn.Parameter]:
    """The trainable parameters that the optimizers hold, by name."""
    held: dict[int, nn.Parameter] = {}
    for optimizer in optimizers:
        _check_optimizer(optimizer)
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if id(parameter) in held:
                raise InvalidArgument("two optimizers hold the same parameter; each needs its own")
            if parameter.requires_grad:
                held[id(parameter)] = parameter
    names: dict[str, nn.Parameter] = {}
    trainable = [one for one in model.parameters() if one.requires_grad]
    if held and trainable and not any(id(one) in held for one in trainable):
        raise InvalidArgument(
            "the optimizer holds no parameter of this model; make it of model.parameters(), after "
            "the model was made, copied or changed"
        )
    for name, parameter in model.named_parameters():
        if id(parameter) in held:
            names[name] = held.pop(id(parameter))
        elif parameter.requires_grad:
            raise InvalidArgument(
                f"parameter {name} is trainable but no optimizer holds it; add it to the "
                "optimizer, or freeze it with requires_grad_(False)"
            )
    names.update({f"(outside the model) {at}": p for at, p in enumerate(held.values())})
    if not names:
        raise InvalidArgument(
            "the optimizer holds no trainable parameter, so that nothing would be learned; "
            "unfreeze what is to be trained with requires_grad_(True)"
        )
    _check_parameters(names)
    return names


def _check_optimizer(optimizer: Optimizer) -> None:
    if isinstance(optimizer, _SECOND_ORDER):
        raise InvalidArgument(
            "LBFGS evaluates the loss several times a step, each of which would be a release; use "
            "a first-order optimizer such as torch.optim.SGD or torch.optim.AdamW"
        )
    if isinstance(optimizer, _SPARSE):
        raise InvalidArgument(
            "SparseAdam updates only rows that the lot touched, which tells who was in it; use "
            "torch.optim.Adam"
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(
            f"optimizer must be a torch optimizer, got {type(optimizer).__name__}"
        )


def _check_parameters(parameters: Mapping[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        if isinstance(parameter, UninitializedParameter):
            raise InvalidArgument(
                f"parameter {name} has no shape yet, as its module is a lazy one; pass a batch of "
                "zeros through the model first"
            )
        if not isinstance(parameter, nn.Parameter):
            raise InvalidArgument(
                f"parameter {name} is a plain tensor, whose uses are not seen; make it a "
                "torch.nn.Parameter, and give the optimizer that"
            )
    devices = {parameter.device for parameter in parameters.values()}
    if len(devices) > 1:
        raise InvalidArgument(
            f"private parameters must be on one device, got {sorted(map(str, devices))}"
        )
    for name, parameter in parameters.items():
        if not parameter.is_floating_point():
            raise UnsupportedModel(
                f"parameter {name} is {parameter.dtype}; private parameters must be real numbers"
            )
    check_hooks(parameters)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module that ``DistributedDataParallel`` wraps; what splits lots by itself is refused."""
    if isinstance(model, nn.DataParallel):
        raise UnsupportedModel(
            "DataParallel splits batches over devices by threads, past the recorder; pass the "
            "module itself, and start a process for each device with torchrun"
        )
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def check_modules(model: nn.Module) -> None:
    """Refuses modules that mix examples or keep statistics of them, with the remedy."""
    for path, module in model.named_modules():
        name = f"{path or 'the model'} ({type(module).__name__})"
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (
            module.training or not module.track_running_stats
        ):
            raise UnsupportedModel(
                f"{name} normalises over the batch, which mixes examples; use "
                "model = tacit.training.fix(model), which puts GroupNorm in its place, or put the "
                "layer into eval mode"
            )
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and (
            module.track_running_stats and module.training
        ):
            raise UnsupportedModel(
                f"{name} keeps running statistics of private data; set track_running_stats=False "
                "or use model = tacit.training.fix(model)"
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
        if isinstance(item, lr_scheduler.ReduceLROnPlateau):
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


def check_rates(optimizers: Sequence[Optimizer], scheduler: object) -> None:
    """Refuses a learning rate that teaches nothing: the budget would be spent all the same.

    A schedule may raise it from 0, unless it multiplies the rate that it began with.
    """
    groups = [group for one in optimizers for group in one.param_groups]
    rates = [float(group["lr"]) for group in groups if "lr" in group]
    for rate in rates:
        if not math.isfinite(rate):
            raise InvalidArgument(f"lr of the optimizer must be a finite number, got {rate:g}")
    multiplied = isinstance(scheduler, _MULTIPLY) and not any(map(float, scheduler.base_lrs))
    if rates and not any(rates) and (scheduler is None or multiplied):
        raise InvalidArgument(
            "lr of the optimizer must be above 0, got 0: the budget would be spent, and the model "
            "stay as it is; give a learning rate such as lr=0.1, or a schedule that raises it"
        )


def check_loss(loss: object) -> None:
    """Refuses losses of outputs and labels, as PyTorch has them: here model and batch are given."""
    if loss is None:
        return
    name = getattr(loss, "__name__", type(loss).__name__)
    ready = isinstance(loss, nn.modules.loss._Loss) or (
        getattr(loss, "__module__", "") in _OF_OUTPUTS and loss is not losses.of
    )
    if ready or not callable(loss):
        got = f"{name}, which is given outputs and labels" if ready else repr(loss)
        raise InvalidArgument(
            f"loss must be a function of model and batch, got {got}; leave it out for the cross "
            "entropy of each row, or write it as "
            "loss=lambda model, batch: tacit.losses.mse(model(batch[0]), batch[1])"
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
