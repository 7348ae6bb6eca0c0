"""Control flow: what an engine does, says and writes does not depend on a record without noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_TIMES = 1e3  # a difference that is so many times the spread of repetitions is no noise


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
    """Every run that was watched took the steps of its plan, no fewer and no more."""
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


def published(experiments: Experiments) -> Finding:
    """What is told or written beside the parameters does not follow one unit's losses.

    Three runs on data and three on a neighbour, where one unit's losses are a thousand times as
    large. What is the same in repetitions and differs between the two has no noise on it.
    """
    pairs = [
        (
            experiments.two_steps(f"as they are, {at}", {}, save=True),
            experiments.two_steps(
                f"one unit larger, {at}", {experiments.few.count - 1: 1e3}, save=True
            ),
        )
        for at in range(3)
    ]
    sides = [[_leaves(trace) for trace in side] for side in zip(*pairs, strict=True)]
    told = [name for name in sides[0][0] if _tells(name, sides[0], sides[1])]
    return Finding(
        "control flow",
        "published numbers",
        not told,
        f"{len(sides[0][0])} published values do not follow one unit's losses"
        if not told
        else f"{told[0]} follows one unit's losses and has no noise on it"
        + (f", and so do {len(told) - 1} more" if len(told) > 1 else ""),
        (("values", float(len(sides[0][0]))), ("telling", float(len(told)))),
    )


def _leaves(trace: Trace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if trace.outcome is not None:
        _collect("", {"epsilon": trace.outcome.epsilon, **trace.outcome.published}, found)
    return found


def _collect(path: str, value: Any, found: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _collect(f"{path}.{key}" if path else str(key), item, found)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for at, item in enumerate(value):
            _collect(f"{path}[{at}]", item, found)
    else:
        found[path] = value


def _tells(name: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> bool:
    if any(name not in leaves for leaves in (*ours, *theirs)):
        # It may come and go by chance, but not with the data alone.
        return len({name in leaves for leaves in ours}) == 1 == len(
            {name in leaves for leaves in theirs}
        ) and (name in ours[0]) != (name in theirs[0])
    one, other = ([_numbers(leaves[name]) for leaves in side] for side in (ours, theirs))
    if any(value is None for value in (*one, *other)):
        left, right = ({str(leaves[name]) for leaves in side} for side in (ours, theirs))
        return len(left) == 1 == len(right) and left != right
    return _apart(one, other)  # type: ignore[arg-type]  # none of them is None


def _apart(one: list[NDArray[np.float64]], other: list[NDArray[np.float64]]) -> bool:
    if len({value.shape for value in (*one, *other)}) > 1:
        return False
    between = float(np.linalg.norm(np.mean(one, axis=0) - np.mean(other, axis=0)))
    within = max(float(np.linalg.norm(a - b)) for side in (one, other) for a in side for b in side)
    return between > _TIMES * within and between > 0.0


def _numbers(value: Any) -> NDArray[np.float64] | None:
    if isinstance(value, torch.Tensor):
        found: NDArray[np.float64] = value.detach().double().cpu().numpy().ravel()
        return found if bool(np.isfinite(found).all()) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return np.array([float(value)]) if np.isfinite(value) else None
