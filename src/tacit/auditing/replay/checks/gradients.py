"""Gradients: each unit's own, and nobody else's; however a lot is cut into batches."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from tacit.auditing.replay.experiments import length, moved
from tacit.auditing.replay.oracle import clipped, is_adaptive, largest_share, tolerance
from tacit.auditing.replay.report import Finding
from tacit.training.styles import Automatic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.report import Component
    from tacit.auditing.replay.trace import Trace

_ROUGH = 3.0  # times the rounding of one computation in the model's own precision
# Of a sum: norms are taken for so much larger, lest rounding hide that one is above the clip.
_MARGIN = {"single": 0.0, "bfloat16": 2.0**-6, "float16": 4e-3}
_GROWN = 20.0  # times, at most, that an adaptive clip has in a run of small lots
_UNEVEN = (1.0, -1.0, 0.1, 30.0, 0.0, -0.3, 3.0)  # factors on losses, one after the other


def alone(experiments: Experiments) -> Finding:
    """The sum of gradients that nobody clips is that of each unit's own, computed alone."""
    trace = experiments.sum_of("unclipped", scale=experiments.loose)
    off, limit, largest = distance(experiments, trace)
    if isinstance(trace.variation.plan.clipping, Automatic):
        what = "the sum of normalised gradients"
    else:
        what = "the sum of gradients, none of which is to be clipped,"
    component: Component = "gradients"
    note = ""
    if not off <= limit:
        component, note = _blamed_of_few(experiments, trace)
    return Finding(
        component,
        "each unit alone",
        off <= limit,
        f"{what} is {off:.3g} from that of units computed one by one in double precision "
        f"(rounding explains {limit:.3g}; one unit adds up to {largest:.3g}){note}",
        (("off", off), ("limit", limit)),
    )


def _blamed_of_few(experiments: Experiments, trace: Trace) -> tuple[Component, str]:
    """Who is at fault for a wrong sum of a few units, and why.

    Of a small model, many gradients explain any sum: then four units are asked.
    """
    if weights_of(experiments, trace) is not None:
        return blamed(experiments, trace)
    four = experiments.lab.records(4)
    small = experiments.sum_of("four unclipped", scale=experiments.loose, records=four)
    off, limit, _ = distance(experiments, small)
    if off <= limit:
        return "gradients", "; that of four units alone is right"
    return blamed(experiments, small)


def everybody(experiments: Experiments) -> Finding:
    """The sum of many units, of two that are alike, of losses of all sizes and signs, is right."""
    few, mixed = experiments.few, experiments.mixed
    twins = few.replaced(few.count - 1, few.examples[few.units == 0])
    factors = dict(zip(range(few.count), itertools.cycle(_UNEVEN), strict=False))
    traces = {
        "of many units": experiments.everybody,
        "of many clipped units": experiments.sum_of(
            "everybody clipped", scale=10.0 * mixed, records=experiments.many
        ),
        "of units of which two are alike": experiments.sum_of("twins", scale=mixed, records=twins),
        "of uneven losses": experiments.sum_of("uneven", scale=mixed, factors=factors),
    }
    found = []
    for name, trace in traces.items():
        if trace.error is not None:
            return failed_run("gradients", "everybody", f"on a lot {name}", trace)
        off, limit, largest = distance(experiments, trace)
        found.append((off / limit, off, largest, name, trace))
    excess, off, largest, name, trace = max(found, key=lambda one: one[0])
    component: Component = "gradients"
    note = ""
    if excess > 1.0:
        component, note = blamed(experiments, trace)
    return Finding(
        component,
        "everybody",
        excess <= 1.0,
        f"the sum {name} is {off:.3g} from that of units computed one by one ({excess:.3g} of what "
        f"rounding explains; one unit adds up to {largest:.3g}){note}",
        (("off", off), ("excess", excess)),
    )


def cutting(experiments: Experiments) -> Finding:
    """The sum does not depend on the size of physical batches."""
    whole = experiments.sum_of("half clipped", scale=experiments.mixed)
    _, limit, _ = distance(experiments, whole)
    views = experiments.plan.views
    worst, at = 0.0, 0
    for units in (1, 5):
        batch = units * views
        trace = experiments.sum_of(f"batches of {batch}", scale=experiments.mixed, batch=batch)
        if trace.error is not None:
            return failed_run("gradients", "batch size", f"with batches of {batch} rows", trace)
        off = float((trace.released() - whole.released()).norm())
        worst, at = max((worst, at), (off, batch))
    return Finding(
        "gradients",
        "batch size",
        worst <= 2.0 * limit,
        f"the sum moves by {worst:.3g} when the lot is cut into batches of {at or 1} rows "
        f"(rounding explains {2.0 * limit:.3g})",
        (("moved", worst), ("limit", 2.0 * limit)),
    )


def distance(experiments: Experiments, trace: Trace, step: int = 0) -> tuple[float, float, float]:
    """From a released sum to the expected one, how far it may be, and the largest unit's norm."""
    expected, largest = experiments.expected(trace, step)
    off = float((trace.released(step) - expected).norm())
    # A sum that is no number is nowhere near.
    off = math.inf if math.isnan(off) else off
    limit = tolerance(experiments.lab, trace.variation.plan, largest)
    limit += _MARGIN[experiments.lab.setting.performance.precision] * float(expected.norm())
    return off, allowed(experiments, trace, step, off, limit), largest


def apart_from_scale(experiments: Experiments, trace: Trace, step: int) -> tuple[float, float]:
    """The distance where the clip, and so the sum's size, has moved with the steps."""
    expected, largest = experiments.expected(trace, step)
    released = trace.released(step)
    size = float(released @ expected) / max(float(expected @ expected), 1e-300)
    off = float((released - size * expected).norm())
    limit = tolerance(experiments.lab, trace.variation.plan, largest * max(size, 1.0))
    if not largest:  # nothing shows how the clip has moved, and the little noise with it
        limit *= _GROWN
    off = math.inf if math.isnan(off) else off
    return off, allowed(experiments, trace, step, off, limit)


def allowed(experiments: Experiments, trace: Trace, step: int, off: float, limit: float) -> float:
    """``limit``, or more where a sum is beyond it: gradients of the model may be that rough.

    Of a loss that is almost nothing, or of huge weights, few digits of a gradient are right; and in
    half precision one ReLU in a few thousand is on this or that side of 0 as the device rounds. How
    far rounding takes each unit is tried out, until that explains the sum.
    """
    if off <= limit:
        return limit
    lab, plan, parts = experiments.lab, trace.variation.plan, experiments.parts(trace, step)
    rough, explained = dict.fromkeys(parts, 0.0), limit
    for tried in experiments.oracle.as_rounded(trace, step):
        for unit, one in tried.items():
            far = float((clipped(lab, plan, one) - parts[unit]).norm())
            rough[unit] = max(rough[unit], far)
        explained = limit + _ROUGH * sum(rough.values())
        if off <= explained:
            break
    return explained


def failed_run(component: Component, check: str, when: str, trace: Trace) -> Finding:
    """The finding of a run that ended in an error, which depends on the data or on their order."""
    error = trace.error
    said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return Finding(component, check, False, f"{when} the engine ended with {said}")


# ---- parameters that move: every step computes its own gradients, and their norms


_FAR = 10.0  # lengths of the first parameters, beyond which sums may be no numbers any more
_BEYOND = 10.0  # clips: a unit with so long a gradient is clipped, wherever the clip has moved


def after_moving(experiments: Experiments) -> Finding:
    """After steps that moved the parameters far, sums are those of the parameters of the day.

    Gradients, norms or sums that are kept from an earlier step are seen here.
    """
    traces = moved(experiments)
    if not traces:
        return _skipped("the optimizer does not move the parameters in its first step")
    for trace in traces:
        others = [step.others for step in trace.taken(trace.variation.plan.steps).steps]
        if not all(torch.equal(others[0], other) for other in others):
            return _skipped("buffers of the model move with the steps, so that losses are unknown")
    found: list[tuple[float, float, int, Trace]] = [
        (off / limit, off, at, trace)
        for trace in traces
        for at in _known_steps(experiments, trace)
        for off, limit in [_apart_of_moved(experiments, trace, at)]
    ]
    if not found:
        return _skipped("the parameters are too far, or gradients too short, after one step")
    wrong = [one for one in found if one[0] > 1.0]
    excess, off, at, trace = wrong[0] if wrong else max(found, key=lambda one: one[0])
    component: Component = "gradients"
    note = ""
    if wrong:
        component, note = _blamed_of_moved(experiments, trace, at)
    return Finding(
        component,
        "moving parameters",
        not wrong,
        f"of {len(found)} steps, the first of which moves the parameters by {_moved(trace):.2g} of "
        f"their length, step {at + 1} releases a sum that is {off:.3g} from that of its own "
        f"parameters ({excess:.3g} of what rounding explains){note}",
        (("off", off), ("excess", excess)),
    )


def _skipped(why: str) -> Finding:
    return Finding("gradients", "moving parameters", True, f"{why}: nothing to check")


def _known_steps(experiments: Experiments, trace: Trace) -> list[int]:
    """The steps whose sums are known: until the parameters are too far, or the clip may be."""
    plan, kept = trace.variation.plan, []
    for at in trace.settled:
        before = trace.steps[at].before
        if before is None or not float(before.norm()) <= _FAR * length(trace.start):
            break
        if is_adaptive(plan) and not _all_beyond(experiments, trace, at):
            break
        kept.append(at)
    return kept


def _all_beyond(experiments: Experiments, trace: Trace, step: int) -> bool:
    """Whether all are clipped for sure, so that the sum is known up to the clip."""
    gradients = experiments.oracle.of_step(trace, step).values()
    return all(
        largest_share(experiments.lab, trace.variation.plan, one) >= _BEYOND for one in gradients
    )


def _apart_of_moved(experiments: Experiments, trace: Trace, step: int) -> tuple[float, float]:
    if is_adaptive(trace.variation.plan):
        return apart_from_scale(experiments, trace, step)
    return distance(experiments, trace, step)[:2]


def _blamed_of_moved(experiments: Experiments, trace: Trace, step: int) -> tuple[Component, str]:
    """Who is at fault for a sum that is not that of its parameters: what was kept too long."""
    plan, seen = trace.variation.plan, trace.steps
    for before in range(step):
        stale = experiments.oracle.at(trace, seen[step].rows, seen[before].before)
        parts = [clipped(experiments.lab, plan, one) for one in stale.values()]
        if not parts:
            continue
        limit = tolerance(experiments.lab, plan, max(float(one.norm()) for one in parts))
        if float((trace.released(step) - torch.stack(parts).sum(0)).norm()) <= limit:
            return "gradients", f"; it is that of the parameters before step {before + 1}"
    return blamed(experiments, trace, step)


def _moved(trace: Trace) -> float:
    after = trace.steps[0].after
    assert after is not None
    return float((after - trace.start).norm()) / length(trace.start)


# ---- how often each unit counts in a sum that is wrong, and which component that points to


_CLOSE = 1e-2  # of a weight
_SHORTEST = 1e-4  # directions of the gradients that are shorter, by comparison, show no weight
_LISTED = 6  # units that are named one by one


def blamed(
    experiments: Experiments, trace: Trace, step: int = 0, *, otherwise: Component = "gradients"
) -> tuple[Component, str]:
    """Who is at fault for a wrong sum, and why; ``otherwise`` where that is unknown.

    If it is a sum of what units should add, each with some weight, the gradients are right. One
    weight for all of them is a matter of the update; whole numbers are units that were left out or
    came twice; all other weights are a matter of clipping.
    """
    found = weights_of(experiments, trace, step)
    if found is None:
        return _left_over(experiments, trace, step) or (otherwise, "")
    values = np.array(list(found.values()))
    note = f"; the gradients are right, but {in_words(found)}"
    rows = _rows_per_unit(trace, step)
    per_unit = np.array([rows[unit] for unit in found])
    if per_unit.max() > 1 and bool(np.allclose(values, per_unit, rtol=_CLOSE)):
        return _of_rows(trace, step), f"{note}: once for every row of theirs"
    if float(np.ptp(values)) <= _CLOSE * float(values.max()):
        realised = trace.variation.plan.lot_size / len(values)
        by = f", divided by the {len(values)} of the lot" if _is_close(values[0], realised) else ""
        return "update", f"{note}{by}"
    whole = all(_is_close(value, round(value)) for value in values)
    return ("gradients" if whole else "clipping"), note


def weights_of(experiments: Experiments, trace: Trace, step: int = 0) -> dict[int, float] | None:
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
    for weights in (_common_weight(columns, released), _single_weights(columns, released)):
        low, high = float(weights.min()), max(1.0, float(weights.max()))
        if low >= -_CLOSE * high and float((columns @ weights - released).norm()) <= limit * high:
            return dict(zip(parts, weights.tolist(), strict=True))
        if _explains_any(experiments, trace, columns):
            break
    return None


def _common_weight(columns: Tensor, released: Tensor) -> Tensor:
    """The one weight of all units that explains most of a sum."""
    expected = columns.sum(1)
    size = float(released @ expected) / max(float(expected @ expected), 1e-300)
    return torch.full((columns.shape[1],), size, dtype=torch.float64)


def _single_weights(columns: Tensor, released: Tensor) -> Tensor:
    """The weight of each that explain most of it."""
    rest = (released - columns.sum(1)).unsqueeze(1)
    off: Tensor = torch.linalg.lstsq(columns, rest, rcond=_SHORTEST, driver="gelsd").solution
    return off.squeeze(1) + 1.0


def _is_close(weight: float, expected: float) -> bool:
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
    phrases = [_named(units, weight) for weight, units in sorted(by_weight.items())]
    if others:
        phrases.append(
            f"the {len(others)} others once" if len(others) > 1 else "the other one once"
        )
    return ", ".join(phrases)


def _named(units: list[int], weight: float) -> str:
    if len(units) > _LISTED:
        return f"{len(units)} units count {weight:.3g} times"
    if len(units) == 1:
        return f"unit {units[0]} counts {weight:.3g} times"
    listed = ", ".join(map(str, units[:-1]))
    return f"units {listed} and {units[-1]} count {weight:.3g} times"


def _explains_any(experiments: Experiments, trace: Trace, columns: Tensor) -> bool:
    """Whether there are enough gradients to explain any sum."""
    plan = trace.variation.plan
    everybody = experiments.everybody
    gradients = experiments.oracle.of_step(everybody).values()
    known = torch.stack([clipped(experiments.lab, plan, one) for one in gradients], 1)
    rank = _rank(known)
    room = experiments.lab.entries if rank == known.shape[1] else rank
    return _rank(columns) > room - 2


def _rank(columns: Tensor) -> int:
    return int(torch.linalg.matrix_rank(columns, rtol=_SHORTEST))


def _rows_per_unit(trace: Trace, step: int) -> dict[int, int]:
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
