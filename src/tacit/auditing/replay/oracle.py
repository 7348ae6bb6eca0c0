"""The gradients as they should be: one unit at a time, by plain autograd, in double precision.

Nothing of the engine's clipping is used here; what a style does to a gradient is written down again
from its definition.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import default_collate

from tacit.auditing.replay.watch import flat
from tacit.training.styles import AdaptiveQuantile, Automatic, PerGroup, PerLayer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.auditing.replay.laboratory import Laboratory
    from tacit.auditing.replay.trace import Trace
    from tacit.training.plan import Plan


_ROWS = 6  # whose independence is asked of plain autograd
# What engines multiply losses by, at most, lest gradients underflow in float16. Long ones overflow
# then, and such a unit adds nothing.
_LARGEST_LOSS_SCALE = 2048.0
_TRIES = 16  # of another rounding, each forth and back
_ROUNDINGS = (1.0, 2.0, 4.0)  # by how many, in turn: a number passes through a few operations
_Held: TypeAlias = "tuple[nn.Module, list[Tensor]]"  # a model, and its private parameters


@final
@dataclass(frozen=True, slots=True)
class _Shaken:
    """Numbers moved by up to ``relative`` of themselves; whatever is no such number stays."""

    relative: float
    draw: torch.Generator

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        way = torch.rand(value.shape, generator=self.draw, dtype=torch.float64) * 2.0 - 1.0
        return (value * (1.0 + self.relative * way)).to(value.dtype)


@final
class Oracle:
    """The gradients of units, at the parameters at which a step should have taken them.

    Guarantee:
        A unit's gradient is that of the mean loss of its rows, each computed in a batch of its own:
        no other row can have a part in it.
    """

    def __init__(self, lab: Laboratory) -> None:
        self._lab = lab
        self._kept: dict[tuple[int, int], Tensor] = {}
        model, optimizer = lab.made(still=True)
        held = [p for group in optimizer.param_groups for p in group["params"]]
        self._models: list[_Held] = [(model, held)]
        double = copy.deepcopy((model, held))
        double[0].double()
        self._models.insert(0, double)
        self._first = flat(held)
        self._at = self._first
        self._elsewhere: dict[tuple[int, int], Tensor] = {}  # at the parameters of the last step

    def of_step(self, trace: Trace, step: int = 0, *, single: bool = False) -> dict[int, Tensor]:
        """The gradient of every unit whose losses were computed for a step, without clipping.

        Whatever factor the run had on a unit's losses is in it. The parameters are those before the
        step; if the run moves them, they must have been kept. If ``single``, it is computed in the
        model's own precision; in float16, of losses as large as an engine may make them, so that
        what may overflow there is no number.
        """
        seen = trace.taken(step + 1).steps[step]
        parameters = self._first if trace.variation.still else seen.before
        return self.at(trace, seen.rows, parameters, single=single)

    def as_rounded(self, trace: Trace, step: int = 0) -> Iterator[dict[int, Tensor]]:
        """The gradients of a step as rounding may leave them, try by try.

        The first are those in the model's ``single`` precision, as this device rounds. Then the
        parameters and the examples are moved by up to a few roundings, forth and back: a number
        that these cannot tell from 0 comes to lie on either side, and there a gradient may leap, as
        a ReLU's does. On which side it lies for an engine depends on where its own device rounds,
        and in what order it adds up. (Parameters alone move all places of an image together, which
        a normalisation takes away again.)
        """
        seen = trace.taken(step + 1).steps[step]
        parameters = self._first if trace.variation.still else seen.before
        yield self.at(trace, seen.rows, parameters, single=True)
        assert parameters is not None
        draw, sizes = torch.Generator().manual_seed(step), itertools.cycle(_ROUNDINGS)
        for size in itertools.islice(sizes, _TRIES):
            relative = size * self._rounding()
            way = torch.rand(parameters.shape, generator=draw, dtype=torch.float64) * 2.0 - 1.0
            for at in (parameters * (1.0 + relative * way), parameters * (1.0 - relative * way)):
                yield self.at(trace, seen.rows, at, single=True, shaken=_Shaken(relative, draw))

    def _rounding(self) -> float:
        """What one rounding in the model's own precision is, relative to a number."""
        precision = self._lab.setting.performance.precision
        kinds = self._lab.kinds if precision == "single" else (getattr(torch, precision),)
        return max(torch.finfo(kind).eps for kind in kinds) / 2.0

    def at(
        self,
        trace: Trace,
        computed: NDArray[np.int64],
        parameters: Tensor | None,
        *,
        single: bool = False,
        shaken: _Shaken | None = None,
    ) -> dict[int, Tensor]:
        """The same of any of a run's rows, at any parameters; of rows that are ``shaken`` a bit."""
        if parameters is None:
            raise ValueError("the parameters of so late a step are not kept")
        self._move(parameters)
        records = trace.variation.records
        rows: dict[int, dict[int, list[int]]] = {}
        for row in dict.fromkeys(computed.tolist()):
            place = trace.reads[row].place
            of_unit = rows.setdefault(int(records.units[place]), {})
            of_unit.setdefault(place, []).append(row)
        return {
            unit: self._unit(trace, unit, places, single, shaken)
            for unit, places in sorted(rows.items())
        }

    def _move(self, parameters: Tensor) -> None:
        if self._at is parameters:
            return
        parts = parameters.split([p.numel() for p in self._models[0][1]])
        with torch.no_grad():
            for _, held in self._models:
                for p, part in zip(held, parts, strict=True):
                    p.copy_(part.view(p.shape))
        self._at, self._elsewhere = parameters, {}

    def _unit(
        self,
        trace: Trace,
        unit: int,
        places: Mapping[int, Sequence[int]],
        single: bool,
        shaken: _Shaken | None,
    ) -> Tensor:
        variation = trace.variation
        # Rows that fill up a rectangle of users come again and count nothing.
        views = variation.plan.views
        used = [row for rows in places.values() for row in rows[:views]]
        factor = variation.scale * variation.factors.get(unit, 1.0)
        half = single and self._lab.setting.performance.precision == "float16"
        size = _LARGEST_LOSS_SCALE * abs(factor) if half and math.isfinite(factor) else 1.0
        rows = (self._row(trace, row, single, size or 1.0, shaken) for row in used)
        gradient = sum(rows) / len(used)
        assert isinstance(gradient, torch.Tensor)
        return gradient * factor

    def _row(
        self, trace: Trace, row: int, single: bool, size: float, shaken: _Shaken | None
    ) -> Tensor:
        read, records = trace.reads[row], trace.variation.records
        if single:
            example = read.example if shaken is None else tree_map(shaken, read.example)
            return self._gradient(example, self._models[-1:], size)
        if int(records.units[read.place]) in records.changes:
            return self._gradient(read.example, self._models)
        key = int(records.examples[read.place]), read.view
        kept = self._kept if self._at is self._first else self._elsewhere
        if key not in kept:
            kept[key] = self._gradient(read.example, self._models)
        return kept[key]

    def _gradient(self, example: Any, models: Sequence[_Held], scale: float = 1.0) -> Tensor:
        collate = self._lab.setting.collate or default_collate
        error: Exception | None = None
        # A model that cannot do with one row mixes rows: then the row is there twice.
        for copies in (1, 2):
            for model, held in models:
                batch = collate([example] * copies)
                if model is not self._models[-1][0]:
                    batch = tree_map(_doubled, batch)
                try:
                    with self._lab.precision(own=model is self._models[-1][0]):
                        losses = self._lab.setting.loss(model, batch)
                    return flat(_gradients(losses[0].sum() * scale, held)).double() / scale
                except (RuntimeError, ValueError, TypeError) as raised:
                    error = raised
        assert error is not None
        raise error


def are_independent(lab: Laboratory) -> bool | None:
    """Whether the rows of the setting's model have nothing to do with each other; None if unknown.

    That is asked of plain autograd, in double precision and without any engine: the losses and
    gradients of a few rows together against those of each alone. Every parameter must be reached.
    """
    model, optimizer = lab.made(still=True)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    model.double()
    few = lab.records(_ROWS).of(lab.setting.dataset)[:_ROWS]
    collate = lab.setting.collate or default_collate

    def found(examples: list[Any]) -> tuple[Tensor, Tensor]:
        losses = lab.setting.loss(model, tree_map(_doubled, collate(examples)))
        return losses.detach(), flat(list(torch.autograd.grad(losses.sum(), held))).double()

    try:
        alone = [found([one]) for one in few]
        together, total = found(few)
    except Exception:  # a user's model may fail in any way: then it is not the engine's
        return None
    losses, sums = torch.cat([one for one, _ in alone]), torch.stack([g for _, g in alone]).sum(0)
    return torch.allclose(losses, together, 1e-6, 1e-9) and torch.allclose(sums, total, 1e-5, 1e-9)


def _gradients(loss: Tensor, held: Sequence[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(loss, held, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(held, found, strict=True)]


def _doubled(leaf: Any) -> Any:
    is_real = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.double() if is_real else leaf


# ---- what a style does


def groups_of(plan: Plan, names: Sequence[str]) -> list[tuple[float, list[int]]]:
    """The parameters that are clipped together, by their places, and each group's bound."""
    match plan.clipping:
        case PerLayer():
            layers = [name.rpartition(".")[0] for name in names]
            kinds = list(dict.fromkeys(layers))
            bound = plan.clip / math.sqrt(len(kinds))
            return [(bound, [at for at, one in enumerate(layers) if one == k]) for k in kinds]
        case PerGroup():
            pairs = plan.clipping.pairs
            owner = [
                max((p for p, _ in pairs if _covers(p, name)), key=len, default="")
                for name in names
            ]
            return [(b, [at for at, one in enumerate(owner) if one == p]) for p, b in pairs]
        case _:
            return [(plan.clip, list(range(len(names))))]


def clipped(lab: Laboratory, plan: Plan, gradient: Tensor) -> Tensor:
    """What one unit with this gradient adds to the sum, by the definition of the plan's style."""
    if not bool(gradient.isfinite().all()):
        return torch.zeros_like(gradient)
    parts = list(gradient.clone().split(list(lab.sizes)))
    for bound, members in groups_of(plan, lab.names):
        norm = math.sqrt(sum(float(parts[at].square().sum()) for at in members))
        if isinstance(plan.clipping, Automatic):
            factor = bound / (norm + plan.clipping.stability)
        else:
            factor = 1.0 if norm <= bound else bound / norm
        for at in members:
            parts[at] = parts[at] * factor
    return torch.cat(parts)


def largest_share(lab: Laboratory, plan: Plan, gradient: Tensor) -> float:
    """The largest norm of a group of parameters, in units of the group's bound."""
    parts = gradient.split(list(lab.sizes))
    return max(
        math.sqrt(sum(float(parts[at].square().sum()) for at in members)) / bound
        for bound, members in groups_of(plan, lab.names)
    )


def tolerance(lab: Laboratory, plan: Plan, largest: float) -> float:
    """How far a right sum may be from the expected one, by rounding and what noise there is.

    ``largest`` is the largest norm of what one unit adds.
    """
    noise = 8.0 * plan.noise_multiplier * plan.clip * math.sqrt(lab.entries)
    rounding = {"single": 2e-3, "bfloat16": 0.1, "float16": 0.02}
    rounded = rounding[lab.setting.performance.precision] * largest
    # Noise on a grid rounds sums, or every gradient, by up to 2⁻¹¹ of the clip.
    grid = {"fast": 0, "secure": 2, "exact": plan.examples + 1}[plan.noise]
    return noise + rounded + grid * plan.clip * 2.0**-11


def is_adaptive(plan: Plan) -> bool:
    """Whether the clip moves from step to step."""
    return isinstance(plan.clipping, AdaptiveQuantile)


def _covers(prefix: str, name: str) -> bool:
    return prefix in {"", name} or name.startswith(f"{prefix}.")
