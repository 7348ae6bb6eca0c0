"""Small problems that several tests use."""

from __future__ import annotations

import numpy as np

from tacit.convex.losses import HuberHinge, Linear, Logistic, SimplexHinge, Softmax, Squared
from tacit.convex.problem import ConvexTask, Problem, shortened

SCALAR = {
    "logistic": Logistic(),
    "squared": Squared(),
    "linear": Linear(),
    "hinge": HuberHinge(0.5),
    "narrow hinge": HuberHinge(0.1),
}
SEVERAL = {
    "softmax": Softmax(4),
    "half softmax": Softmax(4, 0.5),
    "simplex hinge": SimplexHinge(4, 0.5),
    "two": SimplexHinge(2),
}
LOSSES = SCALAR | SEVERAL


def targets_for(loss, count, rng):
    if loss.outputs > 1:
        return rng.integers(0, loss.outputs, count).astype(float)
    return (
        rng.standard_normal(count) if isinstance(loss, Squared) else rng.choice([-1.0, 1.0], count)
    )


def task_for(loss=None, **changes):
    given = {
        "examples": 200,
        "features": 3,
        "loss": loss or Logistic(),
        "norm": 1.0,
        "epsilon": 1.0,
        "delta": 1e-5,
    }
    return ConvexTask(**(given | changes))


def problem_for(task, seed=0):
    rng = np.random.default_rng(seed)
    rows = shortened(rng.standard_normal((task.examples, task.features)), task.norm)
    return Problem(task, rows, targets_for(task.loss, task.examples, rng))
