"""The lectures' network on made-up digits: two epochs of ``benchmarks/mnist_lecture.py``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.training.plan import Plan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def lecture(monkeypatch: pytest.MonkeyPatch) -> Any:
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("mnist_lecture")


def digits(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten strokes of 60 pixels, and noise."""
    generator = torch.Generator().manual_seed(4)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = 0.2 * torch.rand(count, 784, generator=generator)
    for label in range(10):
        images[labels == label, 70 * label : 70 * label + 60] += 0.8
    return images, labels


def test_two_epochs_learn_and_are_accounted_for(lecture: Any) -> None:
    plan = Plan(examples=3000, lot_size=600, steps=10, noise_multiplier=4.0, clip=4.0)
    data = digits(3000)
    rows = list(lecture.run(plan, data, digits(500)))
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [row["steps"] for row in rows] == [5, 10]
    for row in rows:
        spent = row["epsilon"]
        assert 0 < spent["exact"] < spent["moments"] < spent["advanced"]
        assert spent["exact"] == pytest.approx(
            Plan(examples=3000, lot_size=600, steps=row["steps"], noise_multiplier=4.0,
                 clip=4.0).epsilon(1e-5)
        )  # fmt: skip
    assert rows[-1]["test_accuracy"] > 0.9  # guessing has 0.1


def test_the_learning_rate_falls_as_published(lecture: Any) -> None:
    assert [lecture.learning_rate(epoch) for epoch in (0, 5, 10, 99)] == pytest.approx(
        [0.1, 0.076, 0.052, 0.052]
    )
