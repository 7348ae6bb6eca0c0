"""A run's folder may come from anyone: what is missing, malformed or false is refused in a line."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tacit.accounting import Gaussian, PureDp
from tacit.accounting.serialization import as_dict
from tacit.errors import CheckpointError
from tacit.reports import run_folder
from tacit.reports.run_folder import read
from tacit.training.plan import Plan


def refused(folder: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def change(folder: Any, name: str, **fields: Any) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_run_is_read_as_it_was_written(run, whole):
    files = read(run)
    record, statement, lines = whole
    assert files.statement == statement
    assert files.record.configuration == record.configuration
    assert [one.steps for one in files.history] == [line["steps"] for line in lines]
    assert files.plan == Plan.from_dict(record.plan)
    assert files.accuracy == 0.9
    assert files.is_all


def test_a_folder_without_a_run(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        refused(place, "holds no run; name the folder that --out named")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "holds no run")


def test_a_run_that_has_not_ended(run):
    (run / "statement.json").unlink()
    refused(run, r"has not come to its end; go on with it \(tacit train --resume")


def test_a_run_that_says_it_has_not_ended(make):
    refused(make({"finished": False, "test_accuracy": None}), "has not come to its end")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.5),
        ("delta", 1e-9),
        ("adjacency", "replace-one"),
        ("figures", {"mu": 0.0}),
        ("event", as_dict(PureDp(0.1))),
        ("event", {"kind": ["Gaussian"]}),
        ("event", {"kind": "Gaussian", "sigma": {}, "replace_distance": 2.0}),
        ("event", as_dict(PureDp(1e4))),
        ("accountant", []),
        ("delta", 10**400),
        ("configuration", "0" * 64),
        ("unknown", 1),
    ],
)
def test_a_statement_that_was_tampered_with(run, name, value):
    change(run, "statement.json", **{name: value})
    refused(run, r"statement\.json")


def test_figures_that_are_left_out_are_computed(run, whole):
    change(run, "statement.json", figures=None)
    assert read(run).statement.figures() == whole[1].figures()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"epsilon": NaN}', "\x00"])
@pytest.mark.parametrize("name", ["statement.json", "run.json"])
def test_files_that_are_no_json(run, name, text):
    (run / name).write_text(text)
    refused(run, name)


def test_files_that_are_no_text_or_too_long(run, monkeypatch):
    (run / "statement.json").write_bytes(b"\xff\xfe")
    refused(run, r"statement\.json cannot be read")
    monkeypatch.setattr(run_folder, "LARGEST", 10)
    refused(run, r"run\.json is larger than")


def test_a_file_that_is_a_pipe_is_not_waited_for(run):
    (run / "history.jsonl").unlink()
    os.mkfifo(run / "history.jsonl")
    refused(run, r"history\.jsonl is no file")


def test_a_plan_that_the_event_does_not_charge(run):
    quieter = Plan(examples=1000, lot_size=250, steps=40, noise_multiplier=8.0, clip=1.0)
    for name in ("run.json", "statement.json"):
        change(run, name, plan=quieter.as_dict())
    refused(run, "event must cover the 40 steps of its plan that were taken or lost, got one .* 0")


def test_a_plan_that_is_none(run):
    for name in ("run.json", "statement.json"):
        change(run, name, plan={"steps": 40})
    refused(run, "plan must have exactly the fields")


@pytest.mark.parametrize("name", ["run.json", "statement.json"])
def test_a_plan_that_is_left_out_of_one_file(run, name):
    change(run, name, plan=None)
    refused(run, "plan differs|plan must be given with steps_planned")


def test_a_record_and_a_statement_of_different_runs(run):
    change(run, "statement.json", configuration="0" * 64)
    refused(run, "are of different runs: configuration differs")


def test_a_record_that_was_changed(run):
    change(run, "run.json", settings={"lot": 1})
    refused(run, "its settings were changed after the run began")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("summary", 3),
        ("epsilon", "2"),
        ("settings", {"lot": []}),
        ("versions", {"numpy": 2}),
        ("command", ("tacit", 1)),
        ("notes", ({},)),
        ("anchors", ({"epsilon": 1},)),
        ("anchors", ({"epsilon": "1", "accuracy": 1, "source": "", "shortcuts": ""},)),
        ("data", {"name": "digits", "files": {}, "train": "many", "test": 1}),
        ("data", {"name": "digits", "files": {"a": 1}, "train": 1, "test": 1}),
        ("test_accuracy", 1.5),
        ("test_accuracy", None),
        ("device", None),
        ("search", [1]),
        ("winner", {"lr": []}),
    ],
)
def test_a_record_with_values_of_the_wrong_kind(run, whole, name, value):
    record = whole[0]
    text = json.dumps(value)
    (run / "run.json").unlink()
    plain = {"format": "tacit-run", "version": 1}
    plain |= {field: getattr(record, field) for field in record.__slots__}
    plain[name] = json.loads(text)
    plain["configuration"] = type(record)(
        **{key: plain[key] for key in record.__slots__}
    ).configuration
    (run / "run.json").write_text(json.dumps(plain))
    refused(run, rf"run\.json is not the record of a run: {name} must be")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x", "line 1"),
        ("[]", "exactly"),
        ('{"epoch": 1}', "exactly"),
        ({"loss": 0.5}, "exactly"),
        ({"epoch": 1.5}, "epoch must be a whole number"),
        ({"steps": 41}, "steps must be at most the plan's 40, got 41"),
        ({"held_out_accuracy": 2}, "held_out_accuracy must lie between 0 and 1"),
        ({"held_out_accuracy": "<b>"}, "held_out_accuracy must lie"),
        ({"epsilon": None}, "epsilon must be a number"),
        ({"metrics": {"<b>": 1.0}}, "metrics must have names"),
        ({"metrics": {"auc": "<b>"}}, "metrics.*must be a number"),
        ({"metrics": [1.0]}, "metrics must be numbers by name"),
        ({"epsilon": -1}, "epsilon must be a number"),
    ],
)
def test_a_history_that_is_none(run, whole, line, words):
    text = line if isinstance(line, str) else json.dumps(whole[2][0] | line)
    (run / "history.jsonl").write_text(f"{text}\n")
    refused(run, rf"history\.jsonl, line 1, is refused: .*{words}|history.*{words}")


def test_a_run_without_plan_and_history(make):
    event = as_dict(Gaussian(4.0))
    stated = {"plan": None, "steps_planned": None, "steps_taken": None, "event": event}
    files = read(make({"plan": None}, stated | {"preprocessing": ()}, []))
    assert files.plan is None
    assert files.history == ()
    assert not files.is_all
