"""What must hold of the model and the optimizers before training, and throughout it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, final

import torch
from torch import nn

from tacit.errors import InvalidArgument, ProtocolError, UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

_SECOND_ORDER = (torch.optim.LBFGS,)
_SPARSE = (torch.optim.SparseAdam,)


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
        raise InvalidArgument("the optimizers hold no trainable parameter; there is nothing to do")
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


def check_one_process(model: nn.Module) -> None:
    """Refuses several processes: each would draw its own lots and its own noise, unaccounted."""
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise UnsupportedModel(
            f"{type(model).__name__} splits lots over devices, which the plan does not account "
            "for; pass the module itself, on one device"
        )
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        world = torch.distributed.get_world_size()
        if world > 1:
            raise UnsupportedModel(
                f"this is one of {world} processes of torch.distributed, and a plan covers one; "
                "train in one process"
            )


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


@final
class Guard:
    """Notices changes to parameters, buffers and gradients that came from no private step."""

    def __init__(
        self,
        model: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        optimizers: Sequence[Optimizer],
    ) -> None:
        self._model = model
        self._parameters = dict(parameters)
        self._open = False
        self._handles: list[RemovableHandle] = [
            optimizer.register_step_pre_hook(self._refuse_step) for optimizer in optimizers
        ]
        self._versions: dict[str, int] = {}
        self._buffers: list[tuple[nn.Module, str, str, Tensor, int]] = []
        self.note_parameters()
        self.note_buffers()

    def close(self) -> None:
        """Takes the hooks off the optimizers."""
        for handle in self._handles:
            handle.remove()

    def allow(self, *, allowed: bool) -> None:
        """Whether optimizers may step now."""
        self._open = allowed

    def note_parameters(self) -> None:
        """Takes the parameters as they are for right."""
        self._versions = {name: p._version for name, p in self._parameters.items()}

    def note_buffers(self) -> None:
        """Takes the buffers as they are for right."""
        self._buffers = [
            (module, path, name, buffer, buffer._version)
            for path, module in self._model.named_modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def check_parameters(self) -> None:
        """Raises if a parameter was changed by anything but a private step."""
        for name, parameter in self._parameters.items():
            if parameter._version != self._versions[name]:
                raise ProtocolError(
                    f"parameter {name} was changed in place inside the private context; only "
                    "dp.step() may change it (use `with dp.public():` for public updates)"
                )
            if parameter.grad is not None:
                if bool((parameter.grad != 0).any()):
                    raise ProtocolError(
                        f"the gradient of {name} was set by hand, or by loss.backward(); pass the "
                        "losses to dp.backward(), which keeps its sums elsewhere"
                    )
                parameter.grad = None

    def check_buffers(self) -> None:
        """Raises if the forward pass changed a buffer: it would hold data that got no noise."""
        for module, path, name, buffer, version in self._buffers:
            if module._buffers.get(name) is not buffer or buffer._version != version:
                raise UnsupportedModel(
                    f"buffer {name} of {path or 'the model'} ({type(module).__name__}) was changed "
                    "inside the private context, by the forward pass it seems: it would keep "
                    "private data without noise; remove it, put the module into eval mode "
                    "(tacit.training.fix(model) replaces batch norm), or change it in dp.public()"
                )

    def _refuse_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if not self._open:
            self._raise_step(optimizer)

    def _raise_step(self, optimizer: Optimizer) -> NoReturn:
        raise ProtocolError(
            f"{type(optimizer).__name__}.step() was called inside the private context; call "
            "dp.step(), which adds the noise and steps"
        )
