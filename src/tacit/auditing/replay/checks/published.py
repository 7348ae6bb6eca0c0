"""What is told beside the parameters: nothing of it follows a record without noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit.auditing.replay.listening import numbers_in
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_TIMES = 1e3  # a difference that is so many times the spread of repetitions is no noise
_REPEATED = 3
# Numbers of one tensor that are looked at. Noise of three repetitions is so close together, and so
# far from that of three others, with probability 1e-12 or so.
_MOST_SINGLE = 4_096
_NEIGHBOURS = {"next to nothing": 1e-6, "larger": 1e3, "not a number": float("nan")}


def numbers(experiments: Experiments) -> Finding:
    """What is told or written beside the parameters does not follow one unit's losses.

    Each run is made three times, with one unit's losses next to nothing, a thousand times as large,
    and not a number. What is the same in repetitions and differs between these has no noise on it.
    """
    return _judged(experiments, "published numbers", told)


def order(experiments: Experiments) -> Finding:
    """Which records are read, in which order and in which batches, does not follow the losses."""
    return _judged(experiments, "order of reads", _done)


def _judged(experiments: Experiments, check: str, look: Any) -> Finding:
    sides = [[look(trace) for trace in side] for side in repeated(experiments).values()]
    first, *others = sides
    known = dict.fromkeys(name for side in sides for leaves in side for name in leaves)
    telling = [name for name in known if any(_tells(name, first, other) for other in others)]
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


def repeated(experiments: Experiments) -> dict[str, list[Trace]]:
    """Three runs for each thing that one unit's losses may be."""
    last = experiments.few.count - 1
    return {
        name: [
            experiments.two_steps(f"{name}, {at}", {last: factor}, save=True)
            for at in range(_REPEATED)
        ]
        for name, factor in _NEIGHBOURS.items()
    }


def told(trace: Trace) -> dict[str, Any]:
    """Everything that a run hands out, prints or leaves in its optimizer."""
    found: dict[str, Any] = {}
    if trace.outcome is not None:
        _collect("", {"epsilon": trace.outcome.epsilon, **trace.outcome.published}, found)
    _collect("printed", numbers_in(trace.printed), found)
    _collect("optimizer", trace.optimizer, found)
    return found


def _done(trace: Trace) -> dict[str, Any]:
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


def _tells(name: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> bool:
    if any(name not in leaves for leaves in (*ours, *theirs)):
        # It may come and go by chance, but not with the data alone.
        return len({name in leaves for leaves in ours}) == 1 == len(
            {name in leaves for leaves in theirs}
        ) and (name in ours[0]) != (name in theirs[0])
    one, other = ([numbers_of(leaves[name]) for leaves in side] for side in (ours, theirs))
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


def numbers_of(value: Any) -> NDArray[np.float64] | None:
    """A value as numbers; None if it is something else, or not finite."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().double().numpy()
    if isinstance(value, bool) or not isinstance(value, int | float | np.ndarray | np.generic):
        return None
    found = np.asarray(value).ravel()
    if found.dtype.kind not in "iuf":
        return None
    return found.astype(np.float64) if bool(np.isfinite(found).all()) else None
