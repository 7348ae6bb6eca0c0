"""The figures of a report are computed again; what the files say of them is not believed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

from tacit.accounting import Composed, Exponential, Gaussian, epsilon
from tacit.accounting.serialization import as_dict
from tacit.errors import CheckpointError
from tacit.reports.run_folder import read
from tacit.reports.run_summary import MOST_MOMENTS, summarise
from tacit.statement import Statement
from tacit.training.plan import Plan

PLAIN = {"plan": None, "steps_planned": None, "steps_taken": None, "preprocessing": ()}


def test_each_moment_is_charged_with_preprocessing(summary, whole):
    plan = Plan.from_dict(whole[0].plan)
    for moment, line in zip(summary.moments, whole[2], strict=True):
        event = Composed(Gaussian(20.0), plan.event_after(moment.steps))
        assert moment.epsilon == pytest.approx(epsilon(event, 1e-5), rel=1e-9)
        assert moment.epsilon > line["epsilon"]
        assert moment.accuracy == line["held_out_accuracy"]
    assert summary.moments[-1].epsilon == pytest.approx(summary.statement.epsilon, rel=1e-9)


def test_a_history_that_spends_less_than_the_plan_is_refused(run, whole):
    lines = [dict(line) for line in whole[2]]
    lines[3]["epsilon"] *= 0.99
    (run / "history.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(CheckpointError, match=r"after 16 steps epsilon is .*, got"):
        summarise(read(run))


def test_of_many_epochs_some_are_shown_and_the_last(make, whole):
    last = whole[2][-1]
    lines = [last | {"epoch": epoch} for epoch in range(1, 500)]
    moments = summarise(read(make(lines=lines))).moments
    assert len(moments) <= MOST_MOMENTS
    assert moments[-1].epoch == 499


def test_the_drawn_curves_are_those_of_the_gaussian(make):
    event = as_dict(Gaussian(1.0))
    stated = PLAIN | {"event": event, "epsilon": epsilon(Gaussian(1.0), 1e-5)}
    summary = summarise(read(make({"plan": None, "epsilon": 9.0}, stated, [])))
    for loss, delta in summary.curve:
        exact = norm.cdf(0.5 - loss) - math.exp(loss) * norm.cdf(-0.5 - loss)
        assert delta == pytest.approx(exact, rel=1e-6)
    false, true = np.array(summary.attack).T
    exact = norm.cdf(norm.ppf(false) + 1.0)
    assert np.all(true >= exact - 1e-9)
    assert np.all(true <= exact * 1.02)


def test_where_a_curve_is_too_slow_nothing_is_drawn(make):
    event = as_dict(Exponential(0.5))
    stated = PLAIN | {"event": event, "epsilon": epsilon(Exponential(0.5), 1e-5)}
    summary = summarise(read(make({"plan": None}, stated, [])))
    assert (summary.curve, summary.attack) == ((), ())


def test_void_and_overspent_are_seen(make, summary):
    assert not summary.void
    assert not summary.overspent
    seeded = {"void": True}
    summary = summarise(read(make({"epsilon": 0.5}, seeded)))
    assert summary.void
    assert summary.overspent


def test_json_holds_statement_and_summary(summary, whole):
    plain = json.loads(json.dumps(summary.report_as_dict(), allow_nan=False))
    assert Statement.from_json(json.dumps(plain["statement"])) == whole[1]
    assert plain["summary"]["accuracy"] == 0.9
    assert plain["summary"]["accuracy_standard_error"] == pytest.approx(math.sqrt(0.09 / 400))
    assert len(plain["summary"]["history"]) == 10
