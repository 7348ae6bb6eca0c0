"""Logistic regression from OpenDP's parts, for OpenDP has none: noisy gradient descent.

The sum of the gradients, each of norm at most L by the data's bound, is released a step by
`make_gaussian` under zCDP, which `make_zCDP_to_approxDP` turns into (ε, δ). Replace-one: 2L.
"""

import math
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import opendp.prelude as dp

from convex_data import Split
from convex_worker import work

dp.enable_features("contrib")
SPACE = (dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float))


def fit(split: Split, epsilon: float, delta: float, setting: Mapping[str, Any]) -> float:
    classes = int(split.train_labels.max()) + 1
    scores = classes if classes > 2 else 1
    rows, test = (np.column_stack([x / split.norm, np.full(len(x), 0.25)]) for x in split[:4:2])
    norm = math.sqrt(1.0625)
    slope, curvature = (math.sqrt(2.0), 0.5) if scores > 1 else (1.0, 0.25)
    release = gaussian(2.0 * slope * norm, epsilon, delta, setting["steps"])
    theta = np.zeros((scores, rows.shape[1]))
    step = setting["stretch"] / (len(rows) * curvature * norm**2)
    for _ in range(setting["steps"]):
        summed = slopes(rows @ theta.T, split.train_labels).T @ rows
        theta -= step * np.reshape(release(summed.ravel().tolist()), theta.shape)
    found = test @ theta.T
    labels = found.argmax(axis=1) if scores > 1 else found[:, 0] > 0
    return float(np.mean(labels == split.test_labels))


def gaussian(sensitivity: float, epsilon: float, delta: float, steps: int) -> Any:
    """The measurement of one step, `steps` of which have (ε, δ) by OpenDP's own conversion."""

    def total(scale: float) -> float:
        rho = steps * dp.m.make_gaussian(*SPACE, scale=scale).map(sensitivity)
        # ρ adds up; one Gaussian of that ρ stands for all, to be converted.
        alone = dp.m.make_gaussian(*SPACE, scale=1.0 / math.sqrt(2.0 * rho))
        return float(dp.c.make_zCDP_to_approxDP(alone).map(1.0).epsilon(delta))

    low, high = 1e-3 * sensitivity, 1e6 * sensitivity
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if total(middle) <= epsilon else (middle, high)
    return dp.m.make_gaussian(*SPACE, scale=high)


def slopes(scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if scores.shape[1] == 1:
        return 1.0 / (1.0 + np.exp(-scores)) - labels[:, None]
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1.0
    return chances


if __name__ == "__main__":
    # More steps take minutes on MNIST, a number of noise at a time.
    settings = {
        "adult": [{"steps": steps, "stretch": 4.0} for steps in (30, 100, 300)],
        "mnist": [{"steps": 30, "stretch": 4.0}, {"steps": 60, "stretch": 3.0}],
    }
    work(fit, settings, {"opendp": version("opendp")})
