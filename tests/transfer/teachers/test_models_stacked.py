"""Many networks at once: what they learn is what each would have learned alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tacit.transfer.teachers.models import stacked_scores, train_network, train_stacked
from tacit.transfer.teachers.records import Part
from tacit.transfer.teachers.schedule import MOMENTUM, TeacherSchedule, made

PLAN = TeacherSchedule(epochs=4, batch_size=8, lr=0.2, weight_decay=0.01, seed=3)
SIZES = np.array([17, 0, 31, 1])


def softmax_regression() -> nn.Module:
    return nn.Linear(5, 3)


def without_bias() -> nn.Module:
    return nn.Linear(5, 3, bias=False)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Identity())


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)
    )


def some_records(seed: int = 0) -> Part:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(SIZES.sum(), 5)).astype(np.float32)
    labels = random.integers(0, 3, SIZES.sum())
    return Part((4, 9, 2, 0), torch.from_numpy(rows), torch.from_numpy(labels), SIZES)


@pytest.mark.parametrize(
    ("make", "how"),
    [(make, how) for how in ("batched", "gemm") for make in (softmax_regression, mlp)]
    + [(without_bias, "gemm"), (cnn, "batched")],
)
def test_together_they_learn_what_each_learns_alone(make: object, how: str) -> None:
    """The loop uses torch's own optimizer and schedule."""
    part = some_records()
    found = train_stacked(make, part, PLAN, "cpu", how)  # type: ignore[arg-type]
    for place in range(4):
        alone = train_network(make, part, place, PLAN, "cpu")  # type: ignore[arg-type]
        for name, value in alone.items():
            torch.testing.assert_close(found[name][place], value, rtol=1e-4, atol=1e-5)


def test_softmax_regression_against_numpy_in_double_precision() -> None:
    """By hand: Nesterov's momentum as in Sutskever et al. 2013, with a rate that falls to 0."""
    part = some_records()
    found = train_stacked(softmax_regression, part, PLAN, "cpu", "gemm")
    place = 2
    x, y = (one.double().numpy() for one in part.of(place))
    first = made(softmax_regression, PLAN, part.teachers[place])
    weights = np.c_[first.weight.detach().numpy(), first.bias.detach().numpy()].astype(float)
    speed, steps = np.zeros_like(weights), PLAN.steps(31)
    for step, rows in enumerate(PLAN.batches(part.teachers[place], 31)):
        inputs = np.c_[x[rows], np.ones(8)]
        scores = inputs @ weights.T
        chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        error = chances - np.eye(3)[y[rows].astype(int)]
        push = error.T @ inputs / 8 + 0.01 * weights
        speed = MOMENTUM * speed + push
        weights -= 0.2 * (1 - step / steps) * (push + MOMENTUM * speed)
    np.testing.assert_allclose(found["weight"][place], weights[:, :5], atol=2e-6)
    np.testing.assert_allclose(found["bias"][place], weights[:, 5], atol=2e-6)
    assert np.abs(weights[:, :5] - first.weight.detach().numpy()).max() > 0.1  # it did learn


def test_a_teacher_without_records_keeps_its_first_weights() -> None:
    for how in ("batched", "gemm"):
        found = train_stacked(mlp, some_records(), PLAN, "cpu", how)  # type: ignore[arg-type]
        first = made(mlp, PLAN, 9).state_dict()
        assert all(torch.equal(found[name][1], first[name]) for name in first)


@pytest.mark.parametrize("how", ["batched", "gemm"])
def test_scores_of_shared_queries(how: str) -> None:
    models = [made(mlp, PLAN, teacher) for teacher in range(3)]
    weights = {
        name: torch.stack([model.state_dict()[name] for model in models])
        for name in models[0].state_dict()
    }
    queries = torch.randn(11, 5, generator=torch.Generator().manual_seed(0))
    found = stacked_scores(models[0], weights, queries, how)  # type: ignore[arg-type]
    for place, model in enumerate(models):
        torch.testing.assert_close(found[place], model(queries))
