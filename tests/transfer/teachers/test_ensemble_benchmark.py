"""``benchmarks/teachers.py``: what it measures of teachers, and its pictures, in small."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def some_labels(count: int) -> tuple[Any, Any]:
    """Each teacher is right on 8 of 10 queries, and elsewhere gives any class."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 10, 300)
    wrong = random.integers(0, 10, (count, 300))
    return np.where(random.random((count, 300)) < 0.8, truth, wrong), truth


def test_what_is_measured_of_teachers() -> None:
    runs = import_module("teachers_runs")
    labels = np.array([[0, 1], [0, 1], [2, 1], [3, 4]])
    found = runs.judged(labels, np.array([0, 4]))
    assert found["teacher_accuracy"] == 3 / 8
    assert found["vote_accuracy"] == 0.5
    assert (found["top_count"], found["gap"]) == (2.5, 1.5)


def test_noise_wears_a_vote_down() -> None:
    noisy = import_module("teachers").noisy(*some_labels(50))
    gaussian, laplace = list(noisy["gaussian"].values()), list(noisy["laplace"].values())
    assert gaussian[0] > 0.99
    assert gaussian[-1] < 0.3
    assert laplace[-1] > 0.99
    assert laplace[0] < 0.3


@pytest.mark.parametrize("name", ["cnn", "cnn-views"])
def test_a_kind_of_teacher_in_small(name: str) -> None:
    runs = import_module("teachers_runs")
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 1, 28, 28), dtype=torch.uint8, generator=generator)
    split = runs.Split(images, np.arange(40) % 10, images[:5], np.arange(5))
    made = runs.inputs(runs.KINDS[name], split, None, "cpu")
    teachers = runs.train(runs.KINDS[name], made, 2, "loop", "cpu")
    assert len(made["dataset"][0]) == 40 * runs.KINDS[name].views
    assert repr(teachers) == "Teachers(count=2, classes=10, how='loop', not trained)"


def test_the_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    teachers, runs = import_module("teachers"), import_module("teachers_runs")
    record = {
        "private": 50_000,
        "counts": {str(count): runs.judged(*some_labels(count)) for count in (10, 100, 1000)},
        "noise": {str(n): teachers.noisy(*some_labels(n)) for n in teachers.NOISE_COUNTS},
    }
    for folder in ("first", "again"):
        import_module("teachers_draw").write(record, tmp_path / folder, "svg")
    for name in ("teachers.svg", "vote-noise.svg"):
        first, again = (tmp_path / folder / name for folder in ("first", "again"))
        assert first.read_bytes() == again.read_bytes()
        assert len(first.read_bytes()) > 10_000
