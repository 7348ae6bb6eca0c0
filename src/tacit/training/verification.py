"""Checking on real data that one example moves the released sum by a bounded amount, and alone.

The first batch of a run, a small one, is passed through the loop three times under the same random
numbers: as it is, with one unit replaced by another, and with all but one replaced. Nothing but the
replaced units' own losses, norms and bounded contributions may change; otherwise the module where
other rows first change is named. The batch counts only when its repetitions have agreed with it.
"""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from tacit.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn

    from tacit.training.clipping.clipped import ClippedBatch
    from tacit.training.clipping.engine import Structure
    from tacit.training.lot import Batch

# In a small batch one unit's share of whatever is mixed is large, and the check costs little.
WATCHED_UNITS = 8
# Relative, and far above what a repetition of the same operations on the same shapes differs by.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_HALF_TOLERANCE = 1e-2


@final
@dataclass(frozen=True, slots=True)
class Verification:
    """What a check found: how far replacing one unit moved the sum, and how far it may."""

    units: int
    moved: float
    limit: float


@final
@dataclass(frozen=True, slots=True)
class _Pass:
    """What the first pass over the batch came to."""

    batch: Batch
    losses: Tensor
    result: ClippedBatch
    tolerance: float


@final
class Verifier:
    """Watches the first batch (and any that is asked for), and compares it with repetitions."""

    def __init__(self, model: nn.Module, parameters: Mapping[str, Tensor]) -> None:
        self._model = model
        self._parameters = parameters
        self._armed = True
        self._first: _Pass | None = None
        self._pending: Verification | None = None  # the first repetition agreed
        self._random: Any = None
        self._prints: list[dict[str, Tensor]] = []
        self.report: Verification | None = None

    def arm(self) -> None:
        """Checks the next batch, from the start."""
        self._armed, self._first, self._pending, self._prints = True, None, None, []

    def rest(self) -> None:
        """Checks no more batches."""
        self._armed = False

    @property
    def watches(self) -> bool:
        """Whether the batch at hand is one of those that are compared."""
        return self._armed

    @property
    def wants_probe(self) -> bool:
        """Whether the batch just done should be repeated with units replaced."""
        return self._first is not None

    @contextmanager
    def watching(self, batch: Batch) -> Iterator[None]:
        """Runs a forward pass under noted random numbers, and notes every module's rows."""
        if not batch.replaced:
            self._random = random_state()
        else:
            set_random_state(self._random)
        prints: dict[str, Tensor] = {}
        self._prints.append(prints)
        handles = [
            module.register_forward_hook(_noting(prints, f"{path or 'the model'}", batch))
            for path, module in self._model.named_modules()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def first(
        self,
        batch: Batch,
        losses: Tensor,
        result: ClippedBatch,
        structure: Structure | None,
        clip: float,
    ) -> None:
        """Takes note of a batch; one unit alone mixes with nothing, and counts at once."""
        self._check_reached(result)
        self._prints = self._prints[-1:]
        if len(batch.units) > 1:
            dtypes = {losses.dtype} | {use.dtype for use in (structure.uses if structure else ())}
            tolerance = max(_TOLERANCE.get(dtype, _HALF_TOLERANCE) for dtype in dtypes)
            self._first = _Pass(batch, losses.detach(), result, tolerance)
            return
        self._prints = []
        released = _distance(result.sums, {})
        if not released <= clip * (1.0 + 1e-3):
            raise UnsupportedModel(
                f"one unit alone added {released:.6g} to the sum, above the clip of {clip:.6g}: "
                "the engine is at fault, please report it"
            )

    def compare(self, batch: Batch, losses: Tensor, result: ClippedBatch, clip: float) -> bool:
        """Compares the repetition ``batch`` with the first pass; True if it was the last one.

        Raises:
            UnsupportedModel: if other units than the replaced changed, or the sum moved too far.
        """
        first = self._first
        assert first is not None
        self._compare_rows(first, batch, losses.detach(), result)
        count = len(batch.replaced)
        moved, limit = _distance(first.result.sums, result.sums), 2.0 * clip * count
        if not moved <= limit * (1.0 + 1e-3):
            raise UnsupportedModel(
                f"replacing {_units(count)} moved the sum by {moved:.6g}, above the limit of twice "
                f"the clip each, {limit:.6g}{self._culprit(batch, first.tolerance)}"
            )
        self._prints = self._prints[:1]
        if self._pending is None:
            self._pending = Verification(len(batch.units), moved, limit)
            return False
        self.report, self._pending = self._pending, None
        return True

    def passed(self) -> tuple[Batch, ClippedBatch]:
        """Ends the check; returns the first pass, which may count now."""
        first = self._first
        assert first is not None
        self._armed, self._first, self._prints = False, None, []
        return first.batch, first.result

    def _compare_rows(
        self, first: _Pass, batch: Batch, losses: Tensor, result: ClippedBatch
    ) -> None:
        others = [at for at in range(len(batch.units)) if at not in batch.replaced]
        for what, one, other in (
            ("loss", _other_rows(batch, first.losses), _other_rows(batch, losses)),
            ("gradient norm", _norms(first.result)[others], _norms(result)[others]),
            ("clipping", first.result.scales[:, others], result.scales[:, others]),
        ):
            if not _close(one, other, first.tolerance):
                raise UnsupportedModel(
                    f"replacing {_units(len(batch.replaced))} changed the {what} of others, so "
                    "examples are mixed"
                    f"{self._culprit(batch, first.tolerance)}; remove the operation that does it "
                    "(batch norm: tacit.training.fix(model)), or write the loss per row"
                )

    def _culprit(self, batch: Batch, tolerance: float) -> str:
        """The first module whose result changed for other rows."""
        if len(self._prints) != 2:
            return ""
        before, after = self._prints
        for name, rows in before.items():
            if name not in after or rows.shape != after[name].shape:
                continue
            one, other = _other_rows(batch, rows), _other_rows(batch, after[name])
            if not _close(one, other, tolerance):
                return f", first seen in the result of module {name}"
        return ", after the last module (in the loss, it seems)"

    def _check_reached(self, result: ClippedBatch) -> None:
        for name in self._parameters:
            if name not in result.sums:
                raise UnsupportedModel(
                    f"parameter {name} got no gradient: the losses do not depend on it (or the "
                    "forward pass uses it under no_grad or reentrant checkpointing); freeze it "
                    "with requires_grad_(False), or take it out of the optimizer"
                )


def _noting(prints: dict[str, Tensor], name: str, batch: Batch) -> Any:
    """A forward hook that keeps one number for each row of a module's result."""

    def note(module: nn.Module, args: Any, result: Any) -> None:
        del args
        tensor = next((r for r in tree_leaves(result) if _has_rows(r)), None)
        if tensor is not None:
            rows = tensor.detach().float().unsqueeze(-1).flatten(1)
            key = f"{name} ({type(module).__name__})"
            prints.setdefault(key, rows @ _uneven(rows.shape[1], rows.device))

    def _has_rows(value: Any) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.ndim > 0
            and value.shape[0] == len(batch.rows)
        )

    return note


def _uneven(count: int, device: torch.device) -> Tensor:
    """Weights between ½ and 1½, no two alike: a change of a row shows in its weighted sum."""
    return (torch.arange(count, device=device) * 0.6180339887).frac() + 0.5


def _other_rows(batch: Batch, rows: Tensor) -> Tensor:
    """``rows`` without those of replaced units and of padding."""
    return rows[torch.from_numpy(batch.kept_rows).to(rows.device)]


def _units(count: int) -> str:
    return "one unit" if count == 1 else f"{count} units"


def _norms(result: ClippedBatch) -> Tensor:
    return result.squared_norms.sum(0).sqrt()


def _close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Equal up to rounding, and not finite in the same places."""
    finite = one.isfinite()
    if not torch.equal(finite, other.isfinite()):
        return False
    size = one.abs()[finite]
    if not len(size):
        return True
    difference = (one - other).abs()[finite]
    return bool((difference <= tolerance * (size + size.mean()) + 1e-12).all())


def copied(data: Any) -> Any:
    """``data`` with its tensors copied: a loop may change its batch in place."""
    return tree_map_only(torch.Tensor, torch.clone, data)


def spliced(first: Any, second: Any, probe: Batch) -> Any:
    """The data of ``first``, with the rows of replaced units from ``second``.

    A data set that draws random numbers of its own would otherwise change every row. Whatever has
    no row for each example, or another shape, is taken from ``second`` as it is.
    """

    def one(ours: Any, theirs: Any) -> Any:
        both = isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)
        if not both or ours.shape != theirs.shape or ours.shape[:1] != (len(probe.rows),):
            return theirs
        changed = ours.clone()
        for unit in probe.replaced:
            changed[probe.rows_of(unit)] = theirs[probe.rows_of(unit)]
        return changed

    leaves, spec = tree_flatten(first)
    others, same = tree_flatten(second)
    if spec != same:
        return second
    return tree_unflatten([one(a, b) for a, b in zip(leaves, others, strict=True)], spec)


def _distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    total = 0.0
    for name in {**one, **other}:
        sides = [side[name].double() for side in (one, other) if name in side]
        difference = sides[0] - sides[1] if len(sides) == 2 else sides[0]
        total += float(difference.square().sum())
    return math.sqrt(total)


def random_state() -> Any:
    """The states of the generators that models and data sets draw from."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), cuda, random.getstate(), np.random.get_state()  # noqa: NPY002


def set_random_state(state: Any) -> None:
    """Puts back what ``random_state`` returned."""
    host, cuda, python, numpy = state
    torch.set_rng_state(host)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002 - the legacy state is what data sets draw from
