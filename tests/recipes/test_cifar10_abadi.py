"""Patches of 24×24 and everything trained from scratch."""

from __future__ import annotations

import torch

from tacit import recipes
from tacit.recipes.cifar10_abadi import middle

from .pictures import check_published, pictures


def test_what_was_published_and_what_it_was_pre_trained_on() -> None:
    module = check_published("cifar10-abadi", {2.0: 67.0, 4.0: 70.0, 8.0: 73.0})
    assert all("pre-trained" in one.shortcuts for one in module.RECIPE.anchors)
    assert [module.settings(spent).lot for spent in (2.0, 4.0, 8.0)] == [2000, 4000, 4000]
    assert module.settings(8.0).clip == 3.0


def test_the_middle() -> None:
    images = torch.arange(32.0).expand(2, 3, 32, 32)
    assert torch.equal(middle(images), torch.arange(4.0, 28.0).expand(2, 3, 24, 24))


def test_small_runs() -> None:
    data = pictures(channels=3, size=32, train=60, test=20)
    for more in ({}, {"random": True, "views": 2}):
        small = {"epochs": 1, "lot": 30} | more
        done = recipes.run("cifar10-abadi", epsilon=8, settings=small, data=data, progress=False)
        assert done.statement.epsilon <= 8.0
        assert done.statement.plan is not None
        assert done.statement.plan["views"] == small.get("views", 1)
