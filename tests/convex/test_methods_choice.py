"""Choosing a method: by the bounds, at one adjacency, among those that apply."""

from __future__ import annotations

import pytest

from tacit.convex.descent import DescentDesign
from tacit.convex.losses import Logistic, Softmax
from tacit.convex.methods import MethodSettings, designed, released
from tacit.convex.perturbation import AmpDesign, ObjectiveDesign, OutputDesign
from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream

from .problems import problem_for, task_for

DESIGNS = {
    "output": OutputDesign,
    "objective": ObjectiveDesign,
    "amp": AmpDesign,
    "noisy-gd": DescentDesign,
    "noisy-sgd": DescentDesign,
}


@pytest.mark.parametrize("method", list(DESIGNS))
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)])
def test_every_method_learns_at_either_adjacency(method, adjacency, loss):
    task = task_for(loss, adjacency=adjacency)
    name, design = designed(task, MethodSettings(method=method))
    assert name == method
    assert type(design) is DESIGNS[method]
    assert design.task.adjacency == adjacency
    theta = released(design, problem_for(task), UnsafeSeededStream(0, "choosing"))
    assert theta.shape == (task.parameters,)


@pytest.mark.parametrize("examples", [100, pytest.param(5000, marks=pytest.mark.slow), 10**6])
@pytest.mark.parametrize("epsilon", [pytest.param(0.05, marks=pytest.mark.slow), 1.0, 10.0])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_auto_takes_the_least_bound_at_the_tasks_adjacency(examples, epsilon, adjacency):
    task = task_for(examples=examples, features=30, epsilon=epsilon, adjacency=adjacency)
    name, design = designed(task, MethodSettings())
    assert design.task == task
    others = [
        designed(task, MethodSettings(method=one))[1] for one in ("output", "amp", "noisy-gd")
    ]
    assert design.excess_risk == min(one.excess_risk for one in others)
    assert name in DESIGNS


def test_auto_depends_on_the_facts():
    chosen = {
        designed(task_for(examples=n, features=d, epsilon=e, radius=r), MethodSettings())[0]
        for n in (50, 10**5)
        for d in (1, 10**5)
        for e in (0.01, 10)
        for r in (0.01, 20)
    }
    assert len(chosen) >= 2


def test_auto_among_what_applies():
    assert designed(task_for(delta=0.0), MethodSettings())[0] in {"output", "objective"}
    assert designed(task_for(Softmax(3), clip=0.1), MethodSettings())[0] == "noisy-gd"


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(InvalidArgument, match="method must be one of"):
        MethodSettings(method="best")
    for given in ({"steps": 5}, {"analysis": "kifer"}, {"sample_rate": 0.1}):
        with pytest.raises(InvalidArgument, match="leave it out"):
            MethodSettings(**given)
