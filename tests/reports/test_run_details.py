"""A transfer's report: its labels, and the figure that is told apart from the claim."""

from __future__ import annotations

import json

import pytest

import tacit
from tacit.errors import CheckpointError
from tacit.reports.run_content import markdown
from tacit.reports.run_details import _plan
from tacit.reports.run_folder import read
from tacit.reports.run_sections import report
from tacit.reports.run_summary import summarise
from tacit.statement import DataDependent
from tacit.training import Plan

FIGURE = DataDependent(
    epsilon=1.25, delta=1e-5, order=17.0, divergence=0.5, failure=1e-6, what="told once"
)
NAME = "answers.csv"


@pytest.fixture
def transfer(make):
    """The folder of a transfer: no plan, no epochs, labels and a figure."""
    folder = make(
        {"recipe": "pate-mnist", "kind": "transfer", "plan": None},
        {"data_dependent": FIGURE, "plan": None, "steps_planned": None, "steps_taken": None}, [],
    )  # fmt: skip
    (folder / NAME).write_text("query,label\n3,7\n4,7\n9,0\n")
    return folder


def test_labels_and_figure_have_their_sections(transfer):
    summary = summarise(read(transfer))
    text = markdown(report(summary))
    assert "3 public images have a released label" in text
    assert "| 0 | 1 |\n| 7 | 2 |" in text
    assert "## The data-dependent figure: released beside the claim, and none itself" in text
    assert "It is not the guarantee of this run" in text
    assert "| ε, data-dependent | 1.25 |" in text
    assert "The student spent nothing while it learned" in text


def test_the_claim_stays_in_the_headline(transfer):
    summary = summarise(read(transfer))
    told = report(summary)
    assert "1.25" not in told.title + told.lead
    assert all("1.25" not in one.value for one in told.cards)


def test_json_has_both(transfer):
    plain = summarise(read(transfer)).report_as_dict()
    assert plain["summary"]["labelled"] == 3
    assert plain["summary"]["data_dependent_epsilon"] == 1.25
    assert plain["statement"]["data_dependent"]["failure"] == 1e-6


def test_other_runs_have_neither(run):
    summary = summarise(read(run))
    assert "labelled" not in summary.as_dict()
    assert "data-dependent" not in markdown(report(summary))


def test_answers_that_nobody_wrote_so_are_refused(transfer):
    (transfer / NAME).write_text("query,label\n3,seven\n")
    with pytest.raises(CheckpointError, match=r"answers.csv, line 2, is refused"):
        read(transfer)


def test_a_smaller_figure_than_was_told_is_refused(transfer):
    path = transfer / "statement.json"
    plain = json.loads(path.read_text())
    plain["data_dependent"]["epsilon"] = 0.2
    path.write_text(json.dumps(plain))
    with pytest.raises(CheckpointError, match="epsilon must be at least"):
        read(transfer)


def test_an_unfinished_transfer_names_its_own_command(make):
    told = {"recipe": "knn-digits", "kind": "transfer", "finished": False, "test_accuracy": None}
    with pytest.raises(CheckpointError, match=r"go on with it \(tacit transfer --resume"):
        read(make(told))


def test_groups_that_take_turns_have_their_own_rate_and_noise_is_what_is_mixed():
    terms = {"examples": 100, "lot_size": 10, "steps": 20, "noise_multiplier": 2.0, "clip": 0.5}
    plain, turns = (dict(_plan(Plan(**terms, correlation=one))) for one in (None, tacit.Banded(4)))
    assert (plain["sampling rate"], plain["noise on each coordinate of the sum (σ·clip)"]) == (
        "0.1", "1",
    )  # fmt: skip
    assert turns["groups that take turns"] == "4"
    assert turns["sampling rate within a group"] == "0.4"
    assert turns["sampling rate, of all groups together"] == "0.1"
    assert not any(name.startswith("noise on each coordinate") for name in turns)
