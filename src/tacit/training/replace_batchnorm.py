"""Replaces the layers that mix examples by ones that do not, in a copy and only when asked.

Batch normalisation divides an example's activations by statistics of the others in its batch, so
that a record moves more than its own gradient and no clipping bounds it. Group normalisation takes
its statistics within one example (Wu and He 2018, https://arxiv.org/abs/1803.08494).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TypeVar, final

from torch import nn

from tacit.errors import InvalidArgument

Model = TypeVar("Model", bound=nn.Module)

_MOST_GROUPS = 32
# How many channels a group has at least. Behind BatchNorm1d (and perhaps behind SyncBatchNorm)
# there may be nothing but channels to average over, and a group of one or two is then a constant
# or a sign; an image has its pixels as well.
_FEWEST_CHANNELS: dict[type[nn.Module], int] = {
    nn.BatchNorm1d: 16,
    nn.BatchNorm2d: 4,
    nn.BatchNorm3d: 4,
    nn.SyncBatchNorm: 16,
}


@final
@dataclass(frozen=True, slots=True)
class Replacement:
    """One layer that ``fix`` replaces: where it is, what it is, what it becomes."""

    path: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path or 'the model'}: {self.old} -> {self.new}"


def fix(model: Model) -> Model:
    """A copy of ``model`` in which no normalisation mixes examples or keeps statistics of them.

    BatchNorm and SyncBatchNorm become GroupNorm with as many groups, up to 32, as leave each of
    them enough channels; InstanceNorm stops tracking running statistics. Scale and shift, ``eps``,
    device, type, mode and what is frozen are kept; the running statistics, which were computed
    across examples, are dropped. ``model`` itself is not touched: build the optimizer from the
    copy's parameters. ``fixes(model)`` says beforehand what would change.

    >>> model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU())
    >>> isinstance(fix(model)[1], nn.GroupNorm), isinstance(model[1], nn.BatchNorm2d)
    (True, True)
    """
    fixes(model)  # refuses before the copy is made
    fixed = copy.deepcopy(model)
    # A layer used in two places is one layer, and its replacement is one as well.
    replaced = {id(old): _replacement(old) for old in fixed.modules() if _mixes(old)}
    if id(fixed) in replaced:
        return replaced[id(fixed)]  # type: ignore[return-value]  # the model is one such layer
    for parent in list(fixed.modules()):
        for name, child in parent._modules.items():
            if child is not None and id(child) in replaced:
                setattr(parent, name, replaced[id(child)])
    return fixed


def fixes(model: nn.Module) -> tuple[Replacement, ...]:
    """What ``fix(model)`` would replace, in the model's order; empty when nothing has to be.

    >>> model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU())
    >>> print(*fixes(model))
    1: BatchNorm2d(64) -> GroupNorm(16, 64)
    """
    found = []
    for path, module in model.named_modules(remove_duplicate=False):
        _check_replaceable(path, module)
        if _mixes(module):
            new = _described(_replacement(module))
            found.append(Replacement(path, _described(module), new))
    return tuple(found)


def _mixes(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return module.track_running_stats
    return type(module) in _FEWEST_CHANNELS


def _replacement(old: nn.Module) -> nn.Module:
    """The layer for ``old``'s place, holding ``old``'s own parameters."""
    assert isinstance(old, nn.modules.batchnorm._NormBase)
    if isinstance(old, nn.modules.instancenorm._InstanceNorm):
        new: nn.modules.instancenorm._InstanceNorm | nn.GroupNorm = type(old)(
            old.num_features, eps=old.eps
        )
    else:
        groups = _groups(old.num_features, _FEWEST_CHANNELS[type(old)])
        new = nn.GroupNorm(groups, old.num_features, eps=old.eps, affine=False)
    # Both kinds come without scale and shift and are given old's, tied and frozen as they are.
    new.affine = old.affine
    new.weight, new.bias = old.weight, old.bias
    return new.train(old.training)


def _groups(channels: int, fewest: int) -> int:
    """The most groups, up to 32, that divide ``channels`` and leave each at least ``fewest``.

    >>> [_groups(channels, 4) for channels in (3, 16, 64, 96, 100, 512)]
    [1, 4, 16, 24, 25, 32]
    """
    fitting = (groups for groups in range(_MOST_GROUPS, 1, -1) if channels % groups == 0)
    return next((groups for groups in fitting if channels // groups >= fewest), 1)


def _check_replaceable(path: str, module: nn.Module) -> None:
    where, kind = path or "the model", type(module).__name__
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        raise InvalidArgument(
            f"{where} is a {kind} that has not seen data: run model(x) once, on public data, "
            "before fix(model)"
        )
    batch_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
    if batch_norm and type(module) not in _FEWEST_CHANNELS:
        raise InvalidArgument(
            f"{where} is a {kind}, a kind of BatchNorm of its own that may do more than normalise: "
            "replace it by hand, with nn.GroupNorm"
        )
    if isinstance(module, nn.BatchNorm1d) and module.num_features == 1:
        raise InvalidArgument(
            f"{where} is a BatchNorm1d of one feature, which nothing can normalise within one "
            "example: take it out, or scale the feature by public constants"
        )


def _described(module: nn.Module) -> str:
    name = type(module).__name__
    if isinstance(module, nn.GroupNorm):
        return f"{name}({module.num_groups}, {module.num_channels})"
    assert isinstance(module, nn.modules.batchnorm._NormBase)
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return f"{name}({module.num_features}, track_running_stats={module.track_running_stats})"
    return f"{name}({module.num_features})"
