"""How often units count: sums that are made up, with weights that are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from tacit.auditing.replay import TACIT
from tacit.auditing.replay.checks import gradients
from tacit.auditing.replay.experiments import Experiments, small_lots
from tacit.auditing.replay.laboratory import Laboratory

from ..test_self_test import setting

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.auditing.replay.trace import Trace


@pytest.fixture
def experiments(tmp_path: Path) -> Experiments:
    return Experiments(Laboratory(setting(), TACIT, tmp_path))


def with_sum(trace: Trace, total: torch.Tensor) -> Trace:
    """A run whose first step has released another sum."""
    gradient = (total / trace.variation.plan.lot_size).float()
    return replace(trace, steps=(replace(trace.steps[0], gradient=gradient),))


def weighed(experiments: Experiments, factors: list[float]) -> Trace:
    trace = experiments.sum_of("half clipped", scale=experiments.mixed)
    parts = experiments.parts(trace).values()
    terms = [factor * part for factor, part in zip(factors, parts, strict=True)]
    return with_sum(trace, torch.stack(terms).sum(0))


@pytest.mark.parametrize(
    ("factors", "component", "words"),
    [
        ([1.0] * 7 + [0.0] * 5, "gradients", "units 7, 8, 9, 10 and 11 count 0 times"),
        ([1.0, 2.0] + [1.0] * 10, "gradients", "unit 1 counts 2 times, the 11 others once"),
        ([0.25] * 12, "update", "all units count 0.25 times"),
        ([0.5 + 0.1 * at for at in range(12)], "clipping", "units count 0.5 to 1.6 times"),
    ],
)
def test_weights_are_found_and_blamed(
    experiments: Experiments, factors: list[float], component: str, words: str
) -> None:
    trace = weighed(experiments, factors)
    found = gradients.weights_of(experiments, trace)
    assert found is not None
    assert list(found.values()) == pytest.approx(factors, abs=1e-3)
    blamed, note = gradients.blamed(experiments, trace)
    assert blamed == component
    assert words in note


def test_what_no_weights_explain_is_left_to_the_gradients(experiments: Experiments) -> None:
    draw = torch.Generator().manual_seed(0)
    total = torch.randn(experiments.lab.entries, generator=draw, dtype=torch.float64)
    trace = with_sum(experiments.sum_of("half clipped", scale=experiments.mixed), total)
    assert gradients.weights_of(experiments, trace) is None
    assert gradients.blamed(experiments, trace) == ("gradients", "")
    assert gradients.blamed(experiments, trace, otherwise="update") == ("update", "")


def test_so_many_gradients_that_they_explain_any_sum_explain_none(tmp_path: Path) -> None:
    small = replace(setting(), model=lambda: torch.nn.Linear(6, 3))
    experiments = Experiments(Laboratory(small, TACIT, tmp_path))
    trace = experiments.everybody  # 48 units, 21 entries
    moved = with_sum(trace, 1.3 * trace.released() + experiments.parts(trace)[0])
    assert gradients.weights_of(experiments, moved) is None
    # One weight for all of them is found all the same.
    common = gradients.weights_of(experiments, with_sum(trace, 1.3 * trace.released()))
    assert common is not None
    assert list(common.values()) == pytest.approx([1.3] * 48, abs=1e-3)


def test_the_first_lot_of_several_units_is_not_settled(experiments: Experiments) -> None:
    for trace in small_lots(experiments):
        sizes = [len(trace.units_of(step)) for step in range(len(trace.steps))]
        several = [at for at, size in enumerate(sizes) if size > 1]
        assert trace.settled == [at for at in range(len(sizes)) if at not in several[:1]]
