"""Lots are secret: what is told of a run says neither who was in a lot nor how many were.

The charge for a sampled lot counts on nobody knowing whom it drew.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.auditing.replay.checks.published import numbers_of, told
from tacit.auditing.replay.noisy_runs import kept_lots
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tacit.auditing.replay.experiments import Experiments

# What is no chance: so many units of a lot, or sizes of lots in a row.
_FEWEST_UNITS, _FEWEST_SIZES = 4, 7


def secret(experiments: Experiments) -> Finding:
    """No list of numbers that is told holds a lot's units, or how many each lot had."""
    trace = kept_lots(experiments)
    found = told(trace.taken(2))
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
        else f"none of the {len(found)} values that are told is the list of a lot's units, or of "
        "the lots' sizes",
        (("telling", float(len(telling))),),
    )


def _lists(found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Everything that could be a list: tensors, and numbers whose names differ in a place."""
    lists: dict[str, list[float]] = {}
    for name, value in found.items():
        values = numbers_of(value)
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
