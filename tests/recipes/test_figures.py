"""The paper's figures: which runs ``benchmarks/figures.py`` does, one in small, the pictures."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tacit.accounting import Gaussian, PoissonSampled, Repeated, bounds, epsilon

if TYPE_CHECKING:
    from collections.abc import Iterator

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def runs() -> Any:
    return import_module("figures_runs")


def digits(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten strokes of 60 pixels, and noise."""
    generator = torch.Generator().manual_seed(4)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = 0.2 * torch.rand(count, 784, generator=generator)
    for label in range(10):
        images[labels == label, 70 * label : 70 * label + 60] += 0.8
    return images, labels


def test_a_run_learns_after_private_pca(runs: Any):
    setting = runs.Setting(components=12, hidden=50, lot=600, noise=0.5, pca_noise=1.0)
    history = runs.train(runs.Run(setting, 20), (*digits(3000), *digits(500)), compiled=False)
    assert [steps for steps, _ in history] == [5, 10, 15, 20]
    assert history[-1][1] > 0.9  # guessing has 0.1


def test_the_learning_rate_falls_as_published(runs: Any):
    rates = [runs.REFERENCE.rate * runs.times_rate(epoch) for epoch in (0, 5, 10, 99)]
    assert rates == pytest.approx([0.1, 0.076, 0.052, 0.052])


def test_the_runs_of_a_sweep_spend_what_the_reference_spends_and_no_more(runs: Any):
    budget = epsilon(runs.REFERENCE.event(500), 1e-5)
    for name, sweep in runs.sweeps(5).items():
        assert len({getattr(run.setting, name) for run in sweep}) == len(sweep)
        for run in sweep:
            assert replace(run.setting, **{name: getattr(runs.REFERENCE, name)}) == runs.REFERENCE
            assert bounds(run.setting.event(run.steps), 1e-5).upper <= budget * (1 + 1e-9)
            assert bounds(run.setting.event(run.steps + 1), 1e-5).lower > budget * (1 - 1e-9)


def test_pca_is_charged_where_there_is_one(runs: Any):
    alone = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 100)
    assert runs.Setting(components=0).event(100) == alone
    assert epsilon(runs.Setting().event(100), 1e-5) > epsilon(Gaussian(7.0), 1e-5)


def arguments(path: Path, limit: int | None) -> Namespace:
    return Namespace(
        runs=path, data=path.parent, device="cpu", processes=1, compile=False, epochs=1,
        level_epochs=2, seeds=2, limit=limit, seconds=1e9,
    )  # fmt: skip


def test_a_second_call_goes_on_with_what_is_missing(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def made_up(wanted: list[Any], *_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        for run in wanted:
            asked.append(run)
            yield {**asdict(run), "seconds": 0.0, "history": [[run.steps, 0.5]]}

    monkeypatch.setattr(runs, "side_by_side", made_up)
    driver, path = import_module("figures"), tmp_path / "runs.json"
    for limit in (3, None):
        driver.collect(arguments(path, limit))
    everything = runs.everything(1, 2, 2)
    assert asked == everything
    headers, histories = runs.read(path)
    assert [header["epochs"] for header in headers] == [1, 1]
    assert set(histories) == {*everything}


@pytest.fixture
def made_up(runs: Any) -> dict[Any, list[tuple[int, float]]]:
    """Histories that end at 0.9, and one of every point's two at 0.8."""
    return {
        run: [(max(1, run.steps // 2), 0.5), (run.steps, 0.9 - 0.1 * run.seed)]
        for run in runs.everything(2, 3, 2)
    }


def test_the_record_has_every_point_with_all_its_runs(runs: Any, made_up: Any):
    record = import_module("figures_record")
    header = import_module("figures").header(arguments(Path("runs.json"), None))
    found = record.record([header | {"epochs": 2, "level_epochs": 3}], made_up)
    points = [*found["levels"], *found["privacy"]]
    points += [row for rows in found["parameters"].values() for row in rows]
    assert len(points) == 3 + 10 + sum(map(len, runs.sweeps(2).values()))
    for row in points:
        assert row["accuracies"] == pytest.approx([0.9, 0.8])
        assert row["mean"] == pytest.approx(0.85)
    lines = record.markdown(json.loads(json.dumps(found))).splitlines()
    assert sum("| 85.00% | 90.00 80.00 |" in line for line in lines) == len(points)


@pytest.mark.slow
def test_the_pictures_are_the_same_for_the_same_runs(made_up: Any, tmp_path: Path):
    pytest.importorskip("matplotlib")
    draw = import_module("figures_draw")
    for folder in ("once", "again"):
        draw.write({"epochs": 2, "level_epochs": 3}, made_up, tmp_path / folder, "svg")
    for name in ("epsilon", "noise-levels", "privacy", "parameters"):
        once, again = (tmp_path / folder / f"{name}.svg" for folder in ("once", "again"))
        assert once.read_bytes() == again.read_bytes()
        assert len(once.read_bytes()) > 10_000
