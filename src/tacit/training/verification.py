"""Checking on real data that one example moves the released sum by a bounded amount, and alone.

The first batch of a run is passed through the loop twice: as it is, and with its first unit replaced
by another, under the same random numbers. Nothing but that unit's own loss, norm and bounded
contribution may change; otherwise the module where other rows first change is named.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from tacit.errors import UnsupportedModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn

    from tacit.training.clipping.clipped import ClippedBatch
    from tacit.training.clipping.engine import Structure
    from tacit.training.lot import Batch

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_HALF_TOLERANCE = 3e-2


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
    """What one pass over the batch came to."""

    batch: Batch
    losses: Tensor
    norms: Tensor
    sums: dict[str, Tensor]


@final
class Verifier:
    """Watches the first batch (and whichever is asked for), and compares it with its repetition."""

    def __init__(self, model: nn.Module, parameters: Mapping[str, Tensor]) -> None:
        self._model = model
        self._parameters = parameters
        self._armed = True
        self._first: _Pass | None = None
        self._second: _Pass | None = None
        self._random: Any = None
        self._prints: list[dict[str, Tensor]] = []
        self.report: Verification | None = None

    def arm(self) -> None:
        """Checks the next batch again."""
        self._armed, self._first, self._second, self._prints = True, None, None, []

    @property
    def watches(self) -> bool:
        """Whether the batch at hand is one of the two that are compared."""
        return self._armed

    @property
    def wants_probe(self) -> bool:
        """Whether the batch just done should be repeated with a unit replaced."""
        return self._armed and self._first is not None and self._second is None

    @contextmanager
    def watching(self, batch: Batch) -> Iterator[None]:
        """Runs a forward pass under noted random numbers, and notes every module's rows."""
        if not self._armed:
            yield
            return
        if batch.probe:
            _set_random(self._random)
        else:
            self._random = _random_state()
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

    def saw(
        self, batch: Batch, losses: Tensor, result: ClippedBatch, structure: Structure | None
    ) -> None:
        """Takes note of a batch that was just computed, if it is watched."""
        if not self._armed:
            return
        if not batch.probe:
            self._check_reached(structure)
            self._prints = self._prints[-1:]
        norms = result.squared_norms.sum(0).sqrt().detach()
        one = _Pass(batch, losses.detach(), norms, result.sums)
        if batch.probe:
            self._second = one
        else:
            # The sums of the first batch are those of the lot, to which others will be added.
            kept = {name: value.clone() for name, value in result.sums.items()}
            self._first = _Pass(batch, losses.detach(), norms, kept)

    def compare(self, clip: float) -> None:
        """Raises if anything but the replaced unit changed, or if it moved the sum too far."""
        first, second = self._first, self._second
        assert first is not None
        assert second is not None
        if first.losses.shape == second.losses.shape:
            self._compare_rows(first, second)
        moved = _distance(first.sums, second.sums)
        limit = 2.0 * clip
        if not moved <= limit * (1.0 + 1e-3):
            raise UnsupportedModel(
                f"replacing one unit moved the sum by {moved:.6g}, above the limit of twice the "
                f"clip, {limit:.6g}{self._culprit()}"
            )
        self.report = Verification(len(first.batch.units), moved, limit)
        # One unit alone says nothing of isolation: look again at the next batch.
        self._armed = len(first.batch.units) < 2
        self._first = self._second = None
        self._prints = []

    def _compare_rows(self, first: _Pass, second: _Pass) -> None:
        rows, units = first.batch.other_rows, slice(1, len(first.batch.units))
        for what, one, other in (
            ("loss", first.losses[rows], second.losses[rows]),
            ("gradient norm", first.norms[units], second.norms[units]),
        ):
            if not _close(one, other):
                raise UnsupportedModel(
                    f"replacing one unit changed the {what} of others, so examples are mixed"
                    f"{self._culprit()}; remove the operation that does it (batch norm: "
                    "tacit.training.fix(model)), or write the loss per row"
                )

    def _culprit(self) -> str:
        """The first module whose result changed for other rows."""
        if len(self._prints) != 2:
            return ""
        before, after = self._prints
        for name, rows in before.items():
            if name in after and not _close(rows, after[name]):
                return f", first seen in the result of module {name}"
        return ", after the last module (in the loss, it seems)"

    def _check_reached(self, structure: Structure | None) -> None:
        if structure is None or not structure.uses:
            return
        used = {n for each in structure.origins for one in each if one for n in one.names}
        for name in self._parameters:
            if name not in used:
                raise UnsupportedModel(
                    f"parameter {name} got no gradient: the forward pass does not use it (or uses it "
                    "under no_grad or reentrant checkpointing); freeze it with "
                    "requires_grad_(False), or take it out of the optimizer"
                )


def _noting(prints: dict[str, Tensor], name: str, batch: Batch) -> Any:
    """A forward hook that keeps one number for each row but those of the first unit."""

    def note(module: nn.Module, args: Any, result: Any) -> None:
        del args
        tensor = next((r for r in torch.utils._pytree.tree_leaves(result) if _has_rows(r)), None)
        if tensor is not None:
            rows = tensor.detach()[batch.other_rows].float().unsqueeze(-1).flatten(1)
            key = f"{name} ({type(module).__name__})"
            prints.setdefault(key, rows.abs().sum(1) + rows.sum(1))

    def _has_rows(value: Any) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.ndim > 0
            and value.shape[0] == len(batch.rows)
        )

    return note


def _close(one: Tensor, other: Tensor) -> bool:
    """Equal up to rounding; entries that are not finite are left out."""
    if one.shape != other.shape or not one.numel():
        return True
    tolerance = _TOLERANCE.get(one.dtype, _HALF_TOLERANCE)
    finite = one.isfinite() & other.isfinite()
    difference = (one - other).abs()[finite]
    size = one.abs()[finite]
    if not len(size):
        return True
    return bool((difference <= tolerance * (size + size.mean()) + 1e-12).all())


def _distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    total = 0.0
    for name in {**one, **other}:
        if name in one and name in other:
            total += float((one[name] - other[name]).double().square().sum())
        else:
            total += float(one.get(name, other.get(name)).double().square().sum())  # type: ignore[union-attr]
    return total**0.5


def _random_state() -> Any:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), cuda, random.getstate(), np.random.get_state()


def _set_random(state: Any) -> None:
    host, cuda, python, numpy = state
    torch.set_rng_state(host)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
    random.setstate(python)
    np.random.set_state(numpy)
