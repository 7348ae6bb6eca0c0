"""How often each unit counts in a sum that is wrong, and which component that points to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from tacit.auditing.replay.oracle import clipped, tolerance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.report import Component
    from tacit.auditing.replay.trace import Trace

_CLOSE = 1e-2  # of a weight
_UNTOLD = 1e-4  # directions of the gradients that are shorter, by comparison, tell no weight
_LISTED = 6  # units that are named one by one


def blamed(
    experiments: Experiments, trace: Trace, step: int = 0, *, otherwise: Component = "gradients"
) -> tuple[Component, str]:
    """Who is at fault for a wrong sum, and why; ``otherwise`` where that cannot be told.

    If it is a sum of what units should add, each with some weight, the gradients are right. One
    weight for all of them is a matter of the update; whole numbers are units that were left out or
    came twice; all other weights are a matter of clipping.
    """
    found = of_units(experiments, trace, step)
    if found is None:
        return _left_over(experiments, trace, step) or (otherwise, "")
    values = np.array(list(found.values()))
    note = f"; the gradients are right, but {in_words(found)}"
    rows = _rows(trace, step)
    per_unit = np.array([rows[unit] for unit in found])
    if per_unit.max() > 1 and bool(np.allclose(values, per_unit, rtol=_CLOSE)):
        return _of_rows(trace, step), f"{note}: once for every row of theirs"
    if float(np.ptp(values)) <= _CLOSE * float(values.max()):
        realised = trace.variation.plan.lot_size / len(values)
        by = f", divided by the {len(values)} of the lot" if _is(values[0], realised) else ""
        return "update", f"{note}{by}"
    whole = all(_is(value, round(value)) for value in values)
    return ("gradients" if whole else "clipping"), note


def of_units(experiments: Experiments, trace: Trace, step: int = 0) -> dict[int, float] | None:
    """How often each unit counts in the sum of a step; None if that does not explain the sum.

    Of the weights that explain it equally well, those nearest to 1 are taken.
    """
    parts = experiments.parts(trace, step)
    if not parts:
        return None
    columns, released = torch.stack(list(parts.values()), 1), trace.released(step)
    if not bool(released.isfinite().all()):
        return None
    limit = tolerance(experiments.lab, trace.variation.plan, float(columns.norm(dim=0).max()))
    for weights in (_common(columns, released), _single(columns, released)):
        low, high = float(weights.min()), max(1.0, float(weights.max()))
        if low >= -_CLOSE * high and float((columns @ weights - released).norm()) <= limit * high:
            return dict(zip(parts, weights.tolist(), strict=True))
        if _explains_any(experiments, trace, columns):
            break
    return None


def _common(columns: Tensor, released: Tensor) -> Tensor:
    """The one weight of all units that explains most of a sum."""
    expected = columns.sum(1)
    size = float(released @ expected) / max(float(expected @ expected), 1e-300)
    return torch.full((columns.shape[1],), size, dtype=torch.float64)


def _single(columns: Tensor, released: Tensor) -> Tensor:
    """The weight of each that explain most of it."""
    rest = (released - columns.sum(1)).unsqueeze(1)
    off: Tensor = torch.linalg.lstsq(columns, rest, rcond=_UNTOLD, driver="gelsd").solution
    return off.squeeze(1) + 1.0


def _is(weight: float, expected: float) -> bool:
    return abs(weight - expected) <= _CLOSE * max(1.0, abs(expected))


def in_words(weights: Mapping[int, float]) -> str:
    """Which units count how often.

    >>> in_words({0: 1.0, 1: 1.0, 2: 0.0, 3: 2.0, 4: 1.0})
    'unit 2 counts 0 times, unit 3 counts 2 times, the 3 others once'
    >>> in_words({0: 0.5, 1: 0.5})
    'all units count 0.5 times'
    >>> in_words({0: 0.31, 1: 0.5, 2: 0.8, 3: 1.7})
    'units count 0.31 to 1.7 times'
    """
    by_weight: dict[float, list[int]] = {}
    for unit, weight in weights.items():
        by_weight.setdefault(abs(round(weight, 2)), []).append(unit)
    if len(by_weight) == 1:
        return f"all units count {next(iter(weights.values())):.4g} times"
    if len(by_weight) > 3:
        return f"units count {min(weights.values()):.3g} to {max(weights.values()):.3g} times"
    others = by_weight.pop(1.0, [])
    told = [_named(units, weight) for weight, units in sorted(by_weight.items())]
    if others:
        told.append(f"the {len(others)} others once" if len(others) > 1 else "the other one once")
    return ", ".join(told)


def _named(units: list[int], weight: float) -> str:
    if len(units) > _LISTED:
        return f"{len(units)} units count {weight:.3g} times"
    if len(units) == 1:
        return f"unit {units[0]} counts {weight:.3g} times"
    listed = ", ".join(map(str, units[:-1]))
    return f"units {listed} and {units[-1]} count {weight:.3g} times"


def _explains_any(experiments: Experiments, trace: Trace, columns: Tensor) -> bool:
    """Whether so many gradients leave nothing that they could not explain."""
    plan = trace.variation.plan
    everybody = experiments.everybody
    gradients = experiments.oracle.of_step(everybody).values()
    known = torch.stack([clipped(experiments.lab, plan, one) for one in gradients], 1)
    rank = _rank(known)
    room = experiments.lab.entries if rank == known.shape[1] else rank
    return _rank(columns) > room - 2


def _rank(columns: Tensor) -> int:
    return int(torch.linalg.matrix_rank(columns, rtol=_UNTOLD))


def _rows(trace: Trace, step: int) -> dict[int, int]:
    """How many rows of each unit were computed for a step."""
    units = trace.variation.records.units
    owners = [int(units[trace.reads[row].place]) for row in set(trace.steps[step].rows.tolist())]
    return {unit: owners.count(unit) for unit in owners}


def _of_rows(trace: Trace, step: int) -> Component:
    """Rows that count one by one: several of one example are the lot's fault, else clipping's."""
    rows = set(trace.steps[step].rows.tolist())
    examples = {trace.reads[row].place for row in rows}
    return "sampling" if len(rows) > len(examples) * trace.variation.plan.views else "clipping"


def _left_over(experiments: Experiments, trace: Trace, step: int) -> tuple[Component, str] | None:
    """Whether the sum, or what it has too much, is that of an earlier step."""
    released = trace.released(step)
    expected, largest = experiments.expected(trace, step)
    plan = trace.variation.plan
    for before in range(step - 1, -1, -1):
        earlier = trace.released(before)
        limit = tolerance(experiments.lab, plan, max(largest, float(earlier.norm())))
        if float(earlier.norm()) <= limit:
            continue
        if float((released - earlier).norm()) <= limit:
            return "update", f"; it is the sum of step {before + 1} once more"
        if float((released - expected - earlier).norm()) <= limit:
            return "update", f"; the sum of step {before + 1} is still in it"
    return None
