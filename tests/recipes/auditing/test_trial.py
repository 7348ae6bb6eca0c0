"""Models of an audit: trained by the recipe's own code, with the plan that it should have."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tacit.data import load
from tacit.errors import InvalidArgument
from tacit.recipes import Recipe, digits, find, names
from tacit.recipes.auditing import trial as trials
from tacit.recipes.auditing.trial import (
    Trial,
    planned,
    rows_of,
    trained_on_members,
    trained_with_members,
)

from ...runs import small

if TYPE_CHECKING:
    from collections.abc import Callable


def trial(recipe: Recipe | None = None, **changes: Any) -> Trial:
    data = small.split()
    asked = replace(data, test=rows_of(data.train, np.arange(10)))
    told: dict[str, Any] = {
        "recipe": recipe or small.recipe(also=False),
        "settings": small.Settings(),
        "data": asked,
        "epsilon": 2.0,
        "delta": 1e-5,
    }
    return Trial(**(told | changes))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plans that were fitted, with how many rows."""
    seen: list[Any] = []
    before: Callable[..., Any] = trials.carry_out

    def carry_out(prepared: Any, **rest: Any) -> Any:
        seen.append((prepared.plan, len(prepared.dataset), prepared.held_out))
        return before(prepared, **rest)

    monkeypatch.setattr(trials, "carry_out", carry_out)
    return seen


def test_the_plan_is_the_recipes_own_and_nothing_is_released() -> None:
    calls: list[str] = []
    plan, also = planned(trial(small.recipe(calls)))
    assert plan.examples == small.TRAIN
    assert len(also) == 1
    assert calls == []


def test_left_out_records_do_not_change_the_plan(plans: list[Any]) -> None:
    rows = np.arange(100)
    found = trained_with_members(trial(), rows, rows < 40, 1)
    assert found.shape == (10, 1, 2)
    ((plan, count, held_out),) = plans
    assert plan == planned(trial())[0]
    assert count == small.TRAIN
    assert held_out is None  # accuracy on the way costs time, and is not asked for


def test_a_shadow_model_knows_its_members_only(plans: list[Any]) -> None:
    recipe = digits.RECIPE
    data = load("digits")
    asked = replace(data, test=rows_of(data.train, np.arange(10)))
    one = Trial(
        recipe=recipe, settings=replace(recipe.settings(3.0), epochs=2.0), data=asked,
        epsilon=3.0, delta=1e-5,
    )  # fmt: skip
    rows = np.arange(100)
    found = trained_on_members(one, rows, rows < 40, 1)
    assert found.shape == (10, 1, 10)
    assert plans[0][0].examples == plans[0][1] == len(data.train) - 60


def test_models_with_and_without_a_record_differ_in_it_alone() -> None:
    """The engine's noise is fresh each time: compare the means over several models."""
    rows = np.arange(small.TRAIN)
    everyone = np.ones(small.TRAIN, dtype=bool)
    generous = trial(epsilon=1e4, settings=replace(small.Settings(), lot=300))
    both = [trained_with_members(generous, rows, everyone, 1)[:, 0] for _ in range(2)]
    assert np.abs(both[0] - both[1]).max() < 0.2  # little noise
    half = trained_with_members(generous, rows, rows % 2 == 0, 1)[:, 0]
    assert np.abs(both[0] - half).max() > 0.2  # half of the data pull half as much


@pytest.mark.parametrize("name", names())
def test_every_recipe_can_be_sent_to_another_process(name: str) -> None:
    recipe = find(name)
    told = trial(recipe, settings=recipe.settings(3.0))
    train = partial(trained_on_members, told, np.arange(3))
    again = pickle.loads(pickle.dumps(train))
    assert again.args[0].recipe.train is recipe.train
    assert pickle.dumps(again.args[0].recipe.prepare) == pickle.dumps(recipe.prepare)
    assert again.args[0].settings == told.settings


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    rows = np.arange(10)
    trained_with_members(trial(threads=1), rows, rows < 5, 1)
    assert torch.get_num_threads() == before


def test_a_recipe_without_a_plan_is_refused() -> None:
    def conclude(job: Any) -> Any:
        job.declare()

    without = small.unplanned(conclude)
    with pytest.raises(InvalidArgument, match="fits no network by a plan"):
        planned(trial(without))
