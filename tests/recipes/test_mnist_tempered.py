"""The small tanh CNN: views, a falling rate, averaged weights; and nothing of that costs ε."""

from __future__ import annotations

import pytest

from tacit import recipes
from tacit.accounting import Gaussian, PoissonSampled, Repeated, epsilon

from ..real_data import real_data
from .pictures import check_published, pictures

SMALL = {"epochs": 10, "lot": 100, "lr": 10.0, "clip": 0.1}


def test_what_was_published() -> None:
    check_published("mnist-tempered", {2.93: 98.1})


@pytest.mark.parametrize(
    "moved",
    [pytest.param({"views": 1, "shift": 0}, marks=pytest.mark.slow), {"views": 2, "shift": 1}],
)
def test_training_alone_is_charged(moved: dict[str, int]) -> None:
    data = pictures(channels=1, size=28)
    done = recipes.run(
        "mnist-tempered", epsilon=8, settings=SMALL | moved, data=data, seed=0, progress=False
    )
    plan = done.statement.plan
    assert plan is not None
    assert (plan["views"], plan["steps"], plan["clip"]) == (moved["views"], 40, 0.1)
    event = Repeated(PoissonSampled(0.25, Gaussian(plan["noise_multiplier"])), 40)
    assert done.statement.epsilon == pytest.approx(epsilon(event, 1e-5), rel=1e-9)
    assert 7.999 < done.statement.epsilon <= 8.0
    assert done.statement.preprocessing == ()
    assert done.accuracy > 0.5  # guessing has 0.1


@pytest.mark.slow
def test_on_the_published_files() -> None:
    folder = real_data("mnist")
    few = {"epochs": 0.1, "lot": 600, "views": 1, "shift": 0}
    done = recipes.run("mnist-tempered", epsilon=8, settings=few, data=folder, progress=False)
    assert done.accuracy > 0.2
