"""A private search of settings: its price, its noise, and which candidates share a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from tacit.accounting import Composed, Gaussian, PrivateSelection, epsilon
from tacit.errors import InvalidArgument
from tacit.runs import Interruption, Task
from tacit.runs.search import Search, Searching, search_from

from . import small

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.selection import Winner


def search(journal: Path, recipe: Any = None, **told: Any) -> Winner:
    task = Task(
        settings=small.Settings(), data=small.split(), epsilon=3.0, delta=1e-5,
        device=torch.device("cpu"),
    )  # fmt: skip
    asked = Search(**{"candidates": {"lr": (0.5, 0.4)}, "runs": 2.0} | told)
    searching = Searching(recipe or small.recipe(), task, asked, Interruption())
    return searching.run(None, "label", journal)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Winner:
    """What a search by public scores finds: several tests look at it."""
    return search(tmp_path_factory.mktemp("found"))


def test_candidates_of_one_plan_are_charged_exactly(found: Winner) -> None:
    event = found.event
    assert isinstance(event, PrivateSelection)
    assert isinstance(event.base, Composed)
    assert event.base.events[0] == Gaussian(small.MEAN_NOISE)
    assert found.epsilon == pytest.approx(3.0)
    # The winner's own plan has the noise that the search counts with.
    noise = found.model.statement.plan["noise_multiplier"]
    assert found.terms.allowance.noise == noise
    inner = epsilon(event.base, 1e-5)
    assert found.tuning_cost == pytest.approx(3.0 - inner)
    assert found.model.statement.epsilon == pytest.approx(found.terms.allowance.epsilon)


def test_candidates_of_different_plans_have_a_share_each(tmp_path: Path) -> None:
    found = search(tmp_path, candidates={"steps": (5, 10)})
    assert found.terms.allowance.noise is None
    assert found.epsilon <= 3.0
    assert found.model.statement.epsilon <= found.terms.allowance.epsilon * (1 + 1e-9)
    assert found.model.statement.delta == found.terms.allowance.delta


@pytest.mark.slow
def test_a_noisy_score_on_training_data_is_charged(tmp_path: Path, found: Winner) -> None:
    charged = search(tmp_path, score="training", score_epsilon=0.5)
    assert charged.epsilon == pytest.approx(3.0)
    assert charged.terms.allowance.noise > found.terms.allowance.noise
    assert 0.0 < charged.score < 1.5


def test_the_score_is_the_winners_held_out_accuracy(found: Winner) -> None:
    assert found.candidate["lr"] in (0.5, 0.4)
    assert found.score == found.model.accuracy


def test_a_recipe_without_a_plan_can_be_searched(tmp_path: Path) -> None:
    def train(job: Any) -> Any:
        job.release("mean", small.mean_of([]), what="x")
        return job.conclude({}, accuracy=job.settings.lr, sampling="none", noise="x")

    recipe = small.unplanned(train)
    found = search(tmp_path, recipe)
    assert found.model.accuracy in (0.5, 0.4)
    with pytest.raises(InvalidArgument, match="needs a recipe that fits a plan"):
        search(tmp_path / "other", recipe, score="training", score_epsilon=0.5)


def test_a_search_comes_back_from_its_plain_form() -> None:
    one = Search(candidates={"lr": (0.5,), "lot": (3, 4)}, runs=2.0)
    assert search_from(one.as_dict(), small.Settings()) == one
    assert one.count == 2
