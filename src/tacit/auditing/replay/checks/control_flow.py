"""Control flow: neither how far a run goes nor what it publishes depends on a record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit.auditing.replay import plans
from tacit.auditing.replay.experiments import kept_lots, long_run, one_odd_unit
from tacit.auditing.replay.forbidden.own_model import TASKS
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.trace import Variation
from tacit.auditing.replay.watch import numbers_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace


def steps(experiments: Experiments) -> Finding:
    """As many steps are taken as planned, whoever is in the data."""
    few = experiments.few
    last = few.count - 1
    odd: list[str] = []
    for name, factor in (("as they are", 1.0), ("with a NaN", float("nan"))):
        trace = experiments.two_steps(name, {last: factor})
        planned = trace.variation.plan.steps
        if trace.error is not None or len(trace.steps) != planned:
            said = f", {type(trace.error).__name__}" if trace.error else ""
            odd.append(f"{len(trace.steps)} of {planned} steps on data {name}{said}")
    return Finding(
        "control flow",
        "number of steps",
        not odd,
        "; ".join(odd) or "the planned number of steps was taken, also where a loss is NaN",
    )


def every_run(experiments: Experiments) -> Finding:
    """Every run that was watched took the steps of its plan, no fewer and no more.

    Among them are long ones, whose losses fall to nothing, stay the same, or rise.
    """
    for name, factor in (("as it is", 1.0), ("with one large", 1e3)):
        long_run(experiments, name, {experiments.many.count - 1: factor})
    odd = [
        trace for trace in experiments.complete if len(trace.steps) != trace.variation.plan.steps
    ]
    example = f", such as {len(odd[0].steps)} of {odd[0].variation.plan.steps}" if odd else ""
    return Finding(
        "control flow",
        "every run",
        not odd,
        f"{len(odd)} of {len(experiments.complete)} runs took another number of steps than "
        f"planned{example}",
        (("odd", float(len(odd))),),
    )


def refusals(experiments: Experiments) -> Finding:
    """Each of these ends in an error, and no step is taken with it or after it."""
    if not experiments.is_tacit:
        said = "what the engine refuses is not known here: nothing to check"
        return Finding("control flow", "refusals", True, said)
    few = experiments.few
    plan = plans.sampled(experiments.plan, few, steps=4, lot_size=0.6 * few.count)
    wrong = []
    for name, attempt in TASKS.items():
        variation = Variation(
            plan=plan, records=few, still=False, scale=experiments.mixed, cut=True
        )
        trace = experiments.once(f"refused: {name}", variation, attempt)
        if trace.error is None:
            wrong.append(f"{name} is not refused")
        elif len(trace.steps) > 1:
            wrong.append(f"{len(trace.steps)} steps were taken with {name}")
    return Finding(
        "control flow",
        "refusals",
        not wrong,
        "; ".join(wrong) or f"all {len(TASKS)} attempts to void the claim are refused",
        (("attempts", float(len(TASKS))),),
    )


# ---- what is published beside the parameters: nothing of it follows a record without noise


_TIMES = 1e3  # a difference of this many times the spread of repetitions is no noise
# Numbers of one tensor that are looked at. Noise of three repetitions is so close together, and so
# far from that of three others, with probability 1e-12 or so.
_MOST_SINGLE = 4_096


def published_numbers(experiments: Experiments) -> Finding:
    """What is returned or written beside the parameters does not follow one unit's losses.

    Each run is made three times, with one unit's losses next to nothing, a thousand times as large,
    and not a number. What is the same in repetitions and differs between these has no noise on it.
    """
    return _judged(experiments, "published numbers", published)


def order_of_reads(experiments: Experiments) -> Finding:
    """Which records are read, in which order and in which batches, does not follow the losses."""
    return _judged(experiments, "order of reads", _reads_of)


def _judged(experiments: Experiments, check: str, look: Any) -> Finding:
    sides = [[look(trace) for trace in side] for side in one_odd_unit(experiments).values()]
    first, *others = sides
    known = dict.fromkeys(name for side in sides for leaves in side for name in leaves)
    telling = [name for name in known if any(_follows(name, first, other) for other in others)]
    return Finding(
        "control flow",
        check,
        not telling,
        f"{len(known)} values do not follow one unit's losses"
        if not telling
        else f"{telling[0]} follows one unit's losses and has no noise on it"
        + (f", and so do {len(telling) - 1} more" if len(telling) > 1 else ""),
        (("values", float(len(known))), ("telling", float(len(telling)))),
    )


def published(trace: Trace) -> dict[str, Any]:
    """Everything that a run hands out, prints or leaves in its optimizer."""
    found: dict[str, Any] = {}
    if trace.outcome is not None:
        _collect("", {"epsilon": trace.outcome.epsilon, **trace.outcome.published}, found)
    _collect("printed", numbers_in(trace.printed), found)
    _collect("optimizer", trace.optimizer, found)
    return found


def _reads_of(trace: Trace) -> dict[str, Any]:
    """What a run read, and how it went on."""
    found = {"steps": len(trace.steps), "reads": len(trace.reads)}
    read = ["order", *(f"{one.place}.{one.view}" for one in trace.reads)]
    cut = ["batches", *(str(step.batches) for step in trace.steps)]
    return {**found, "order of reads": " ".join(read), "batches": " ".join(cut)}


def _collect(path: str, value: Any, found: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _collect(f"{path}.{key}" if path else str(key), item, found)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for at, item in enumerate(value):
            _collect(f"{path}[{at}]", item, found)
    else:
        found[path] = value


def _follows(name: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> bool:
    if any(name not in leaves for leaves in (*ours, *theirs)):
        # It may come and go by chance, but not with the data alone.
        return len({name in leaves for leaves in ours}) == 1 == len(
            {name in leaves for leaves in theirs}
        ) and (name in ours[0]) != (name in theirs[0])
    one, other = ([_numbers_of(leaves[name]) for leaves in side] for side in (ours, theirs))
    if any(value is None for value in (*one, *other)):
        left, right = ({str(leaves[name]) for leaves in side} for side in (ours, theirs))
        return len(left) == 1 == len(right) and left != right
    return _apart(one, other)  # type: ignore[arg-type]  # none of them is None


def _apart(one: list[NDArray[np.float64]], other: list[NDArray[np.float64]]) -> bool:
    if len({value.shape for value in (*one, *other)}) > 1:
        return False
    if one[0].size > _MOST_SINGLE:
        one, other = ([value[:_MOST_SINGLE] for value in side] for side in (one, other))
    between = np.abs(np.mean(one, axis=0) - np.mean(other, axis=0))
    within = np.maximum(np.ptp(one, axis=0), np.ptp(other, axis=0))
    return bool(((between > _TIMES * within) & (between > 0.0)).any())


def _numbers_of(value: Any) -> NDArray[np.float64] | None:
    """A value as numbers; None if it is something else, or not finite."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().double().numpy()
    if isinstance(value, bool) or not isinstance(value, int | float | np.ndarray | np.generic):
        return None
    found = np.asarray(value).ravel()
    if found.dtype.kind not in "iuf":
        return None
    return found.astype(np.float64) if bool(np.isfinite(found).all()) else None


# ---- lots are secret: the charge for a sampled lot counts on nobody knowing whom it drew


# The least that is no coincidence: units of a lot, or sizes of lots in a row.
_FEWEST_UNITS, _FEWEST_SIZES = 4, 7


def secret_lots(experiments: Experiments) -> Finding:
    """No published list of numbers holds a lot's units, or how many each lot had."""
    trace = kept_lots(experiments)
    found = published(trace.taken(2))
    units = trace.variation.records.units
    lots = [trace.units_of(step) for step in range(len(trace.steps))]
    places = [
        np.unique([trace.reads[row].place for row in step.rows]).astype(np.int64)
        for step in trace.steps
    ]
    members = {
        tuple(lot.tolist()) for lot in (*lots, *places) if _FEWEST_UNITS <= len(lot) < len(units)
    }
    sizes = [[len(lot) for lot in lots], [len(lot) for lot in places]]
    telling = [
        name
        for name, values in _lists(found).items()
        if tuple(sorted(values)) in members or any(_within(values, one) for one in sizes)
    ]
    return Finding(
        "control flow",
        "secret lots",
        not telling,
        f"{telling[0]} tells who, or how many, were in a lot"
        if telling
        else f"none of the {len(found)} published values is the list of a lot's units, or of "
        "the lots' sizes",
        (("telling", float(len(telling))),),
    )


def _lists(found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Everything that could be a list: tensors, and numbers whose names differ in a place."""
    lists: dict[str, list[float]] = {}
    for name, value in found.items():
        values = _numbers_of(value)
        if values is None:
            continue
        if values.size > 1:
            lists[name] = values.tolist()
            continue
        patterns = r"\[\d+\](?=[^\[\]]*$)", r"\[\d+\]", r" \d+$"
        for alike in dict.fromkeys(re.sub(pattern, "[]", name) for pattern in patterns):
            lists.setdefault(alike, []).extend(values.tolist())
    return lists


def _within(values: Sequence[float], sizes: Sequence[int]) -> bool:
    """Whether the values are the sizes, in order; some at either end may be missing."""
    count = len(values)
    if count < _FEWEST_SIZES or len(set(values)) < 2:
        return False
    return any(list(sizes[at : at + count]) == list(values) for at in range(len(sizes) - count + 1))
