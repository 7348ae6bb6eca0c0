"""A small version of ``benchmarks/recipes.py``: runs on digits, rows, and the table of them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tacit import recipes
from tacit.accounting import bounds
from tacit.accounting.serialization import from_dict

from .pictures import pictures

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
JOB = {
    "recipe": "digits", "epsilon": 3.0, "delta": 1e-5, "settings": {"epochs": "2", "lot": "720"},
    "validation": False, "device": "cpu", "data": None, "processes": 1,
}  # fmt: skip


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("recipes")


def made_up(**changes: Any) -> dict[str, Any]:
    """A row as a run would make it."""
    published = {"epsilon": 2.93, "accuracy": 98.1, "source": "A paper", "shortcuts": "a shortcut"}
    row = {
        "recipe": "mnist-tempered", "epsilon": 2.93, "delta": 1e-5, "validation": False,
        "settings": {"lr": 4.0}, "epsilon_lower": 2.92999, "epsilon_upper": 2.93,
        "noise_multiplier": 1.8, "sample_rate": 0.03, "steps": 1000, "clip": 0.1, "views": 4,
        "notes": ["a note"],
        "anchors": [published], "device": "cpu", "processes": 1, "versions": {"torch": "2"},
        "command": "python", "date": "today", "commit": "0", "machine": {"cpu": "one"},
        "runs": {"0": {"accuracy": 0.984, "seconds": 9.0}},
    }  # fmt: skip
    return row | changes


def test_runs_become_one_row_with_a_mean(benchmark: Any) -> None:
    rows = benchmark.merged([[benchmark.one(JOB | {"seed": seed})] for seed in (0, 1)])
    assert len(rows) == 1
    row = rows[0]
    found = [100 * row["runs"][seed]["accuracy"] for seed in ("0", "1")]
    assert row["mean"] == pytest.approx(np.mean(found))
    assert row["standard_error"] == pytest.approx(np.std(found, ddof=1) / np.sqrt(2))
    assert row["settings"]["epochs"] == 2.0
    assert row["steps"] == pytest.approx(4)
    assert 2.999 < row["epsilon_lower"] <= row["epsilon_upper"] <= 3.0 * (1 + 1e-9)
    assert json.loads(json.dumps(row)) == row


def test_the_bracket_is_of_everything_released(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(benchmark, "loaded", lambda *_: pictures(channels=1, size=8))
    row_of = benchmark.row_of

    def noting(job: Any, done: Any, seconds: float) -> Any:
        seen.append(done.statement)
        return row_of(job, done, seconds)

    monkeypatch.setattr(benchmark, "row_of", noting)
    small = {"epochs": "1", "lot": "100", "hidden": "8", "components": "5"}
    row = benchmark.one(JOB | {"recipe": "mnist-abadi", "settings": small, "seed": 0})
    spent = bounds(from_dict(seen[0].event), 1e-5)
    assert (row["epsilon_lower"], row["epsilon_upper"]) == (spent.lower, spent.upper)
    assert row["sample_rate"] == 0.25


def test_validation_leaves_the_test_set_out(benchmark: Any) -> None:
    data = pictures(channels=1, size=8, train=400)
    split = benchmark.without_test(data)
    assert (len(split.train), len(split.test)) == (320, 80)
    assert np.array_equal(
        np.concatenate([split.train.labels, split.test.labels]), data.train.labels
    )


def test_every_combination_for_every_seed(benchmark: Any) -> None:
    arguments = benchmark.parse_arguments(
        ["--recipe", "mnist-abadi", "--seeds", "2", "--set", "clip=1", "--grid", "lr=1,2", "lot=9"]
    )
    asked = list(benchmark.runs(arguments))
    assert len(asked) == 2 * 3 * 2  # seeds, published ε, rates
    assert asked[0]["settings"] == {"clip": "1", "lr": "1", "lot": "9"}
    assert {one["epsilon"] for one in asked} == {0.5, 2.0, 8.0}


def test_features_are_computed_once_for_runs_that_only_train_otherwise(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Settings:
        lr: float
        scale: float

    calls: list[Settings] = []

    def compute(data: object, settings: Settings, device: str) -> float:
        del data, device
        calls.append(settings)
        return settings.scale

    made = ModuleType("tacit.recipes.scattering")
    made.features = compute  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tacit.recipes.scattering", made)
    monkeypatch.setattr(recipes, "scattering", made, raising=False)
    benchmark.share_features.cache_clear()
    benchmark.share_features()
    data = pictures(channels=1, size=8)
    for settings in (Settings(1.0, 2.0), Settings(3.0, 2.0), Settings(3.0, 5.0)):
        assert made.features(data, settings, "cpu") == settings.scale
    assert calls == [Settings(1.0, 2.0), Settings(3.0, 5.0)]
    made.features(pictures(channels=1, size=8), Settings(3.0, 5.0), "cpu")
    assert len(calls) == 3


def test_rows_are_written_whole_and_merged_later(benchmark: Any, tmp_path: Path) -> None:
    first, second = made_up(), made_up(runs={"1": {"accuracy": 0.982, "seconds": 11.0}})
    for name, row in (("a", first), ("b", second)):
        benchmark.write(tmp_path / f"{name}.json", [row])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]
    read = (json.loads((tmp_path / f"{name}.json").read_text())["rows"] for name in "ab")
    (row,) = benchmark.merged(read)
    assert row["mean"] == pytest.approx(98.3)
    assert row["seconds"] == 10.0


def test_the_table_has_ours_beside_the_published_one(benchmark: Any) -> None:
    seeds = {str(seed): {"accuracy": 0.984, "seconds": 9.0} for seed in range(5)}
    good, few = made_up(runs=seeds), made_up(settings={"lr": 5.0})
    bad = made_up(recipe="fashion-tempered", epsilon=2.7, anchors=[], runs=seeds)
    bad["runs"] = {seed: {"accuracy": 0.86, "seconds": 9.0} for seed in seeds}
    tuned = made_up(validation=True, settings={"lr": 6.0})
    report = benchmark.markdown(benchmark.merged([[good, few, bad, tuned]]))
    assert "| 98.40 ± 0.00 (5) | 98.1 (A paper) | +0.30 |" in report
    assert "| 98.1 | 98.40 ± 0.00 (5) | met |" in report
    assert "met, but 1 seeds only" in report
    assert "| 86.1 | 86.00 ± 0.00 (5) | **not met** |" in report
    assert "A paper: a shortcut (mnist-tempered @2.93)" in report
    assert "held-out training examples" in report
    assert "[2.92999, 2.93]" in report
    assert "lr=4; a note" in report
