"""A setting: the model, loss, data and plan that an engine is tested with, and its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from tacit.training.performance import Performance

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.training.plan import Plan

Loss: TypeAlias = "Callable[[nn.Module, Any], Tensor]"
MakeOptimizer: TypeAlias = "Callable[[Iterable[nn.Parameter]], Optimizer]"


def gentle_sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    """SGD with momentum and a small rate."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """What a user would hand to ``tacit.private``; the self-test needs nothing else.

    Attributes:
        model: Makes a new model, on the CPU. Its weights may be random.
        loss: ``loss(model, batch)``, one number for each row, as for ``tacit.fit``.
        dataset: Map-style. A few dozen of its records are used.
        plan: The claim. Its clip, style, noise, unit, views, adjacency and σ are tested as they
            are; the numbers of examples and steps are replaced by small ones.
        optimizer: Makes the optimizer of the trainable parameters.
        groups: The user of every example, where the plan's unit is the user.
        lengths: Of every example, as for ``tacit.private``: how rows share batches.
        collate: Makes a batch of a list of examples; PyTorch's default if left out.
        performance: How lots are computed; the batch size is varied by the test.
    """

    model: Callable[[], nn.Module]
    loss: Loss
    dataset: Dataset[Any]
    plan: Plan
    optimizer: MakeOptimizer = gentle_sgd
    groups: Sequence[int] | NDArray[np.int64] | None = None
    lengths: Sequence[int] | NDArray[np.int64] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    performance: Performance = field(default_factory=Performance)


# ---- the few records that a run is given: which ones, whose, and what was done to them


Change = Callable[[Any], Any]


@final
@dataclass(frozen=True, eq=False)
class Records:
    """Examples of a data set, in order, and the unit of privacy of each, counted from 0.

    ``changes`` are made to the examples of a unit when they are read.
    """

    examples: NDArray[np.int64]
    units: NDArray[np.int64]
    changes: Mapping[int, Change] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many units there are."""
        return int(self.units.max(initial=-1)) + 1

    def of(self, dataset: Dataset[Any]) -> list[Any]:
        """The examples themselves, with whatever was done to them."""
        nothing: Change = _as_it_is
        return [
            self.changes.get(int(unit), nothing)(dataset[int(at)])
            for at, unit in zip(self.examples, self.units, strict=True)
        ]

    def without(self, unit: int) -> Records:
        """The neighbour that lacks one unit, the last: the others keep their numbers."""
        if unit != self.count - 1:
            raise ValueError("only the last unit can be left out")
        kept = self.units != unit
        return Records(self.examples[kept], self.units[kept], self.changes)

    def changed(self, unit: int, change: Change) -> Records:
        """The neighbour in which the examples of one unit are others."""
        return replace(self, changes={**self.changes, unit: change})

    def replaced(self, unit: int, by: NDArray[np.int64]) -> Records:
        """The neighbour in which one unit has other examples, as many as it had."""
        examples = self.examples.copy()
        examples[self.units == unit] = np.resize(by, int((self.units == unit).sum()))
        return replace(self, examples=examples)


def _as_it_is(example: Any) -> Any:
    return example


def chosen(setting: Setting, most: int, *, capped: bool = True) -> Records:
    """The first units of a setting, ``most`` of them if there are as many.

    If ``capped``, no user has more examples than the plan takes at a time: of more, a new choice
    would be made in every step.
    """
    length = len(setting.dataset)  # type: ignore[arg-type]  # a map-style data set has one
    if setting.groups is None:
        examples = np.arange(min(most, length), dtype=np.int64)
        return Records(examples, examples.copy())
    owners = np.unique(np.asarray(setting.groups), return_inverse=True)[1]
    examples = np.flatnonzero(owners < most).astype(np.int64)
    cap = setting.plan.examples_per_user
    if capped and cap is not None:
        examples = examples[_number_within(owners[examples]) < cap]
    return Records(examples, owners[examples].astype(np.int64))


def _number_within(owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of every example, how many its owner has before it."""
    order = np.argsort(owners, kind="stable")
    ordered = owners[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    number = np.empty(len(owners), dtype=np.int64)
    number[order] = np.arange(len(owners)) - starts
    return number


def spare(setting: Setting, records: Records) -> NDArray[np.int64]:
    """Examples of a unit that is not among ``records``; of their first one if there is no other."""
    if setting.groups is None:
        length = len(setting.dataset)  # type: ignore[arg-type]
        return np.array([records.count if records.count < length else 0], dtype=np.int64)
    owners = np.unique(np.asarray(setting.groups), return_inverse=True)[1]
    found = np.flatnonzero(owners == records.count).astype(np.int64)
    return found if len(found) else records.examples[records.units == 0]


def filled_with(value: float) -> Change:
    """Puts ``value`` into every real number of an example."""

    def change(example: Any) -> Any:
        return tree_map(lambda leaf: _filled(leaf, value), example)

    return change


def has_real_numbers(example: Any) -> bool:
    """Whether an example holds a number that could be NaN, beside its labels."""
    return any(_is_real(leaf) for leaf in tree_leaves(example))


def _is_real(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        return leaf.is_floating_point()
    if isinstance(leaf, np.ndarray):
        return bool(np.issubdtype(leaf.dtype, np.floating))
    return isinstance(leaf, float)


def _filled(leaf: Any, value: float) -> Any:
    if not _is_real(leaf):
        return leaf
    if isinstance(leaf, torch.Tensor):
        return torch.full_like(leaf, value)
    if isinstance(leaf, np.ndarray):
        return np.full_like(leaf, value)
    return value
