"""A small version of ``benchmarks/transfer.py``: runs on digits, rows, and the table of them."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.recipes.transferring import METHODS, pate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
JOB = {
    "dataset": "digits", "asked": None, "delta": 1e-5, "validation": False, "device": "cpu",
    "data": None, "unverified": False, "share_teachers": False, "share_features": False,
    "seed": 0,
}  # fmt: skip
QUICK = {"student": "plain", "student_epochs": "2"}
SMALL = {
    "pate": {"teachers": "6", "epochs": "2", "queries": "40", "answers": "20", **QUICK},
    "knn": {"queries": "40", "answers": "20", **QUICK},
    "rknn": {"centres": "30", **QUICK},
}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("transfer")


def made_up(**changes: Any) -> dict[str, Any]:
    """A row as a run would make it."""
    run = {"accuracy": 0.986, "seconds": 9.0, "labelled": 286, "labels_right": 0.98,
           "data_dependent": 1.1}  # fmt: skip
    row = {
        "method": "pate", "dataset": "mnist", "asked": None, "delta": 1e-5, "validation": False,
        "settings": {"student": "graph", "aggregator": "confident", "sigma": 40.0},
        "epsilon_lower": 2.63,
        "epsilon_upper": 2.634, "notes": [], "anchors": [
            {"epsilon": 1.97, "accuracy": 98.5, "source": "A paper", "shortcuts": "a shortcut"}
        ], "device": "cpu", "share_teachers": False, "share_features": False,
        "versions": {"torch": "2"},
        "command": "python", "date": "today", "commit": "0", "machine": {"cpu": "one"},
        "runs": {"0": run},
    }  # fmt: skip
    return row | changes


@pytest.mark.parametrize("method", METHODS)
def test_a_run_becomes_a_row(benchmark: Any, method: str) -> None:
    row = benchmark.one(JOB | {"method": method, "settings": SMALL[method]})
    (told,) = row["runs"].values()
    assert 0.0 <= told["accuracy"] <= 1.0
    assert 0 < told["labelled"] <= (500 if method == "rknn" else 20)
    assert told["data_dependent"] is None
    assert row["epsilon_lower"] <= row["epsilon_upper"]
    assert json.loads(json.dumps(row)) == row
    assert benchmark.line(row, 1, 1).startswith(f"1/1 {method} digits")


def test_labels_are_compared_with_the_truth(benchmark: Any) -> None:
    parts, truth = benchmark.loaded("digits", None, False)
    whole = benchmark.load("digits")
    labels = np.concatenate([whole.train.labels, whole.test.labels])
    assert np.array_equal(truth, labels[1000:1500])
    tuned, truth = benchmark.loaded("digits", None, True)
    first = len(tuned.data.train)
    assert np.array_equal(truth, whole.train.labels[first : first + len(tuned.public)])
    assert len(parts.public) == 500


def test_rows_of_several_seeds_become_one(benchmark: Any) -> None:
    other = {"0": made_up()["runs"]["0"] | {"accuracy": 0.99}}
    rows = benchmark.merged(
        [
            [made_up()],
            [made_up(runs={"1": other["0"]})],
            [made_up(settings={"student": "graph", "sigma": 50.0})],
        ]
    )
    assert sorted(len(row["runs"]) for row in rows) == [1, 2]
    both = next(row for row in rows if len(row["runs"]) == 2)
    assert both["mean"] == pytest.approx(98.8)


def test_the_table_has_both_epsilons_and_the_shortcuts(benchmark: Any) -> None:
    report = benchmark.markdown(
        benchmark.merged([[made_up(), made_up(dataset="svhn"), made_up(
            method="knn", settings={"student": "graph", "k": 3}, epsilon_upper=0.99,
            runs={"0": made_up()["runs"]["0"] | {"data_dependent": None}})]])
    )  # fmt: skip
    row = "| mnist | PATE, Confident-GNMax | graph | 2.634 | 1.1 | 1e-05 | 286 | 98.0 | 98.60 (1)"
    assert row in report
    assert "| mnist | Private-kNN | graph | 0.99 | – |" in report
    assert "| 1.97 (told) | 98.5 | 98.60 (1) | met, but 1 seeds only |" in report
    assert "a shortcut" in report
    assert "The extra set (531,131 images) is not at hand" in report
    assert "crops rebuilt" not in report
    again = benchmark.merged([[made_up(dataset="svhn", unverified=True)]])
    assert "crops rebuilt" in benchmark.markdown(again)


@pytest.mark.usefixtures("benchmark")
@pytest.mark.parametrize(
    ("most", "told", "kept"),
    [(2.7, False, True), (1.97, False, False), (1.97, True, True), (1.0, True, False)],
)
def test_a_requirement_is_about_its_own_epsilon(most: float, told: bool, kept: bool) -> None:
    report = import_module("transfer_report")
    assert report.within(made_up(), most, told) is kept


def test_teachers_of_a_seed_are_shared(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.recipes.transferring import teacher_votes  # noqa: PLC0415

    trained: list[int] = []
    votes_of = teacher_votes.votes_of

    def counting(job: Any, images: Any) -> Any:
        trained.append(len(images))
        return votes_of(job, images)

    monkeypatch.setattr(teacher_votes, "votes_of", counting)
    monkeypatch.setattr(pate, "votes_of", pate.votes_of)  # put back at the end
    benchmark.share_teachers.__wrapped__()
    small = SMALL["pate"]
    for settings in (small, small | {"queries": "30"}, small | {"sigma": "9"}):
        benchmark.one(JOB | {"method": "pate", "settings": settings})
    benchmark.one(JOB | {"method": "pate", "settings": small, "seed": 1})
    assert trained == [40, 40]


def test_a_command_runs_and_merges(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    out = tmp_path / "rows.json"
    given = ["--method", "rknn", "--seeds", "2", "--out", str(out), "--set", "centres=20",
             "student=plain", "student_epochs=1"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["transfer.py", *given])
    benchmark.main()
    assert len(json.loads(out.read_text())["rows"][0]["runs"]) == 2
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["transfer.py", "--merge", str(out), "--record"])
    benchmark.main()
    assert "# Knowledge transfer" in (tmp_path / "results" / "transfer.md").read_text()
    assert "(2)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        benchmark.parse_arguments([])
