"""The task: what is public, checked, and the constants that follow."""

from __future__ import annotations

import math

import pytest

from tacit.convex.losses import Logistic, Softmax, Squared
from tacit.errors import InvalidArgument

from .problems import task_for


def test_constants_follow_from_loss_and_norm():
    task = task_for(Softmax(5), norm=3.0, features=7, radius=6.0)
    assert task.parameters == 35
    assert task.lipschitz == 3 * math.sqrt(2)
    assert task.smoothness == 4.5
    assert task.reach == pytest.approx(2 * math.sqrt(5))
    assert task_for(Logistic(), clip=0.25).lipschitz == 0.25
    assert task_for(Logistic(), clip=25.0).lipschitz == 1.0
    assert task_for(adjacency="replace-one").distance == 2 * task_for().distance


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("examples", 0),
        ("norm", 0.0),
        ("norm", math.inf),
        ("epsilon", 0.0),
        ("epsilon", math.nan),
        ("delta", -0.1),
        ("delta", 1.0),
        ("adjacency", "zero-out"),
        ("adjacency", "other"),
        ("radius", -1.0),
        ("regularization", 0.0),
        ("clip", 0.0),
    ],
)
def test_bad_facts_are_refused_by_name(name, value):
    with pytest.raises(InvalidArgument, match=name):
        task_for(**{name: value})


def test_squared_loss_needs_a_clip():
    with pytest.raises(InvalidArgument, match="clip must be given"):
        task_for(Squared())
