"""Models of an audit: trained by the recipe's own code, with the plan that it should have."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import tacit
from tacit._workers import RayCluster
from tacit.data import load
from tacit.errors import InvalidArgument
from tacit.recipes import Recipe, digits, find, names
from tacit.recipes.auditing import trial as module
from tacit.recipes.auditing import trial as trials
from tacit.recipes.auditing.trial import (
    Crew,
    Trial,
    answers,
    planned,
    rows_of,
    shadows_of,
    threads_for,
    trained_on_members,
    trained_with_members,
    without,
)
from tacit.training import Plan, Prepared

from ...runs import small

if TYPE_CHECKING:
    from collections.abc import Callable


# ---- Models of an audit: trained by the recipe's own code, with the plan that it should have


def trial(recipe: Recipe | None = None, **changes: Any) -> Trial:
    data = small.split()
    asked = replace(data, test=rows_of(data.train, np.arange(10)))
    given: dict[str, Any] = {
        "recipe": recipe or small.recipe(also=False),
        "settings": small.Settings(),
        "data": asked,
        "epsilon": 2.0,
        "delta": 1e-5,
    }
    return Trial(**(given | changes))


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


def taken_apart(function: Any) -> Any:
    """A partial function compares by what it is, and not only by identity."""
    if isinstance(function, partial):
        return function.func, function.args, function.keywords
    return function


@pytest.mark.parametrize("name", names())
def test_every_recipe_can_be_sent_to_another_process(name: str) -> None:
    recipe = find(name)
    mine = trial(recipe, settings=recipe.settings(3.0))
    train = partial(trained_on_members, mine, np.arange(3))
    again = pickle.loads(pickle.dumps(train))
    assert again.args[0].recipe.train is recipe.train
    assert taken_apart(again.args[0].recipe.prepare) == taken_apart(recipe.prepare)
    assert again.args[0].settings == mine.settings


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    rows = np.arange(10)
    trained_with_members(trial(threads=1), rows, rows < 5, 1)
    assert torch.get_num_threads() == before


def test_a_recipe_without_a_plan_is_refused() -> None:
    def conclude(job: Any) -> Any:
        job.declare()

    without_plan = small.unplanned(conclude)
    with pytest.raises(InvalidArgument, match="fits no network by a plan"):
        planned(trial(without_plan))


# ---- What a model is asked: every row once, in evaluation mode, views where the recipe has some


def asked(model: torch.nn.Module, *tensors: torch.Tensor, correct: Any = None) -> Prepared:
    data = TensorDataset(*tensors)
    plan = Plan(examples=len(data), lot_size=1, steps=1, noise_multiplier=1.0, clip=1.0)
    return Prepared(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), plan=plan,
        dataset=data, held_out=data, correct=correct,
    )  # fmt: skip


def test_every_row_is_answered_in_order() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.9))
    model.train()
    x, y = torch.randn(2500, 3), torch.zeros(2500, dtype=torch.int64)
    found = answers(model, asked(model, x, y))
    assert found.shape == (2500, 1, 4)
    assert np.allclose(found[:, 0], model[0](x).detach().numpy(), atol=1e-6)
    assert model.training  # as it was


def test_views_of_an_example_come_one_after_the_other() -> None:
    model = torch.nn.Linear(2, 3)
    x, y = torch.randn(12, 2), torch.zeros(12, dtype=torch.int64)
    found = answers(model, asked(model, x, y), views=4)
    assert found.shape == (3, 4, 3)
    assert np.allclose(found[1, 2], model(x[6]).detach().numpy(), atol=1e-6)


def test_a_recipe_with_its_own_rule_hands_views_itself() -> None:
    model = torch.nn.Linear(2, 3)
    x, y = torch.randn(5, 4, 2), torch.zeros(5, dtype=torch.int64)
    found = answers(model, asked(model, x, y, correct=lambda *_: None))
    assert found.shape == (5, 4, 3)
    assert np.allclose(found[3, 1], model(x[3, 1]).detach().numpy(), atol=1e-6)


def test_batches_that_are_no_pairs() -> None:
    model = torch.nn.Linear(2, 3)
    with pytest.raises(InvalidArgument, match="batches are pairs"):
        answers(model, asked(model, torch.randn(5, 2)))


# ---- A record that is left out adds exactly nothing, whatever it holds

ROWS = 20
OUT = np.arange(ROWS) == 7


class Plain(Dataset[Any]):
    """The same rows, one by one."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[torch.Tensor, ...]:
        return tuple(one[row] for one in self.tensors)


def rows(strange: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(ROWS, 3, generator=draw), torch.randint(2, (ROWS,), generator=draw)
    if strange is not None:
        x[strange], y[strange] = 1e4, 1 - y[strange]
    return x, y


def trained(dataset: Dataset[Any], left_out: Any, views: int = 1) -> torch.Tensor:
    """The weights after three noisy steps, all chance fixed."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    plan = tacit.Plan(
        examples=ROWS, lot_size=10, steps=3, noise_multiplier=1.0, clip=1.0, views=views
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    prepared = Prepared(model=model, optimizer=optimizer, plan=plan, dataset=dataset)
    prepared = without(prepared, left_out)
    with tacit.private(
        model, optimizer, plan, prepared.dataset, collate=prepared.collate, unsafe_seed=1
    ) as dp:
        for lot in dp.lots():
            assert prepared.loss is not None
            for batch in lot:
                dp.backward(prepared.loss(model, batch))
            dp.step()
    return model.weight.detach().clone()


@pytest.mark.parametrize("kind", [TensorDataset, Plain])
@pytest.mark.parametrize("views", [1, 2])
def test_what_a_left_out_record_holds_does_not_matter(kind: Any, views: int) -> None:
    usual = trained(kind(*rows(None)), OUT, views)
    assert torch.equal(usual, trained(kind(*rows(7)), OUT, views))
    assert not torch.equal(usual, trained(kind(*rows(8)), OUT, views))


class Reversed(TensorDataset):
    """Chooses its rows itself, as data sets do that leave some out."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(len(self) - 1 - index)


def test_who_is_left_out_is_a_row_of_the_data_set_and_not_of_its_tensors() -> None:
    turned = [one.flip(0) for one in rows(None)]
    strange = [one.flip(0) for one in rows(7)]
    usual = trained(Reversed(*turned), OUT)
    assert torch.equal(usual, trained(Reversed(*strange), OUT))
    assert torch.equal(usual, trained(TensorDataset(*rows(None)), OUT))


def test_it_matters_if_it_is_in() -> None:
    everyone = np.zeros(ROWS, dtype=bool)
    whole = trained(TensorDataset(*rows(None)), everyone)
    assert not torch.equal(whole, trained(TensorDataset(*rows(7)), everyone))
    assert not torch.equal(whole, trained(TensorDataset(*rows(None)), OUT))


def test_losses_of_the_others_are_as_they_were() -> None:
    data = TensorDataset(*rows(None))
    model = torch.nn.Linear(3, 2)
    plan = tacit.Plan(examples=ROWS, lot_size=10, steps=3, noise_multiplier=1.0, clip=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    prepared = Prepared(model=model, optimizer=optimizer, plan=plan, dataset=data)
    changed = without(prepared, OUT)
    assert changed.loss is not None
    found = changed.loss(model, changed.dataset[:])
    x, y = data.tensors
    expected = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    expected[7] = 0.0
    assert torch.equal(found, expected)
    assert len(changed.dataset) == ROWS  # type: ignore[arg-type]


# ---- Shadow models: none, here, in processes or on a cluster

LABELS = np.array([0, 1, 1, 0])


def train(members: np.ndarray, seed: int) -> np.ndarray:
    """Logits that show who was a member."""
    del seed
    return np.stack([1.0 * members, 1.0 - members], axis=1).astype(np.float32)


def test_a_crew_of_none_trains_none() -> None:
    assert shadows_of(train, LABELS, Crew(count=0, seed=1)) is None


def test_each_model_is_asked_about_all_examples() -> None:
    found = shadows_of(train, LABELS, Crew(count=4, seed=1))
    assert found is not None
    assert found.members.sum(0).tolist() == [2, 2, 2, 2]
    assert np.array_equal(found.logits[:, :, 0, 0] == 1.0, found.members)


def test_a_cluster_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, Any] = {}

    def noting(train: Any, **given: Any) -> tuple[np.ndarray, np.ndarray]:
        passed.update(given)
        members = np.eye(4, dtype=bool)
        return np.stack([train(one, 0) for one in members])[:, :, None], members

    monkeypatch.setattr(module, "train_shadows", noting)
    shadows_of(train, LABELS, Crew(count=4, seed=1, workers=RayCluster(gpus=1.0)))
    assert (passed["workers"], passed["examples"]) == (RayCluster(gpus=1.0), 4)


@pytest.mark.parametrize(("workers", "cores", "each"), [(1, 8, None), (2, 8, 4), (16, 8, 1)])
def test_processes_share_the_cores(
    workers: int, cores: int, each: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert threads_for(workers) == each
