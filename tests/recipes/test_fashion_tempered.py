"""The same network on Fashion-MNIST."""

from __future__ import annotations

from tacit import recipes

from .pictures import check_published, pictures


def test_what_was_published() -> None:
    check_published("fashion-tempered", {2.7: 86.1})
    assert recipes.find("fashion-tempered").data == "fashion"


def test_a_small_run() -> None:
    small = {"epochs": 1, "lot": 50, "views": 2, "shift": 1, "flip": True}
    data = pictures(channels=1, size=28, train=200, test=50)
    done = recipes.run("fashion-tempered", epsilon=8, settings=small, data=data, progress=False)
    assert done.statement.epsilon <= 8.0
    assert done.statement.plan is not None
    assert done.statement.plan["views"] == 2
