"""Training functions and estimators, and which candidates they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.accounting import ApproxDp
from tacit.errors import InvalidArgument
from tacit.selection.terms import Allowance
from tacit.selection.trainers import EstimatorTrainer, FunctionTrainer, listed, trainer_of

sklearn = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed")
ALLOWANCE = Allowance(ApproxDp(0.5, 1e-7), 0.5, 1e-7)
DATA = (np.zeros((3, 1)), np.zeros(3))


class Mean(sklearn.BaseEstimator):  # type: ignore[misc]
    """An estimator that keeps its parameters."""

    def __init__(
        self, epsilon: float = 1.0, delta: float = 0.0, power: int = 1, budget: Any = None
    ) -> None:
        self.epsilon, self.delta, self.power, self.budget = epsilon, delta, power, budget

    def fit(self, X: Any, y: Any) -> Mean:  # noqa: N803
        self.seen_ = (len(X), len(y))
        return self


class Leaky(Mean):
    """Says that it released more than it was allowed."""

    @property
    def event_(self) -> ApproxDp:
        return ApproxDp(2 * self.epsilon, self.delta)


class Seeded(Mean):
    """An estimator whose noise may come from a seed."""

    def __init__(self, random_state: int | None = None, epsilon: float = 1.0) -> None:
        self.random_state, self.epsilon = random_state, epsilon


def test_candidates() -> None:
    assert listed([1, 2]) == (1, 2)
    grid = {"a": [1, 2], "b": ["x", "y"]}
    assert len(listed(grid)) == 4
    assert {"a": 2, "b": "x"} in listed(grid)
    for bad in ([], {}, {"a": []}, "abc", 3):
        if bad == {}:
            assert listed(bad) == ({},)  # the empty combination: one run of the defaults
            continue
        with pytest.raises(InvalidArgument, match="candidates must"):
            listed(bad)  # type: ignore[arg-type]


def test_a_function_is_called_with_candidate_and_allowance() -> None:
    trainer = trainer_of(lambda *given: given, None, (1,), "add-remove")
    assert isinstance(trainer, FunctionTrainer)
    assert trainer(1, ALLOWANCE) == (1, ALLOWANCE)
    with pytest.raises(InvalidArgument, match="data must be left out"):
        trainer_of(len, DATA, (1,), "add-remove")
    with pytest.raises(InvalidArgument, match="train must be a function or an estimator"):
        trainer_of(3, None, (1,), "add-remove")  # type: ignore[arg-type]


def test_an_estimator_is_copied_and_given_its_share() -> None:
    own = Mean(epsilon=8.0)
    trainer = trainer_of(own, DATA, ({"power": 3},), "add-remove")
    assert isinstance(trainer, EstimatorTrainer)
    model = trainer({"power": 3}, ALLOWANCE)
    assert (model.epsilon, model.delta, model.power, model.seen_) == (0.5, 1e-7, 3, (3, 3))
    assert own.epsilon == 8.0
    with pytest.raises(InvalidArgument, match=r"train must keep to epsilon=0[.]5"):
        trainer_of(Leaky(), DATA, ({},), "add-remove")({}, ALLOWANCE)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: trainer_of(Mean(), None, ({},), "add-remove"), "data must be the pair"),
        (lambda: trainer_of(Mean(budget=3), DATA, ({},), "add-remove"), "budget=None"),
        (lambda: trainer_of(Mean(), DATA, ({"epsilon": 9},), "add-remove"), "got 'epsilon'"),
        (lambda: trainer_of(Mean(), DATA, ({"random_state": 1},), "add-remove"), "random_state"),
        (lambda: trainer_of(Seeded(0), DATA, ({},), "add-remove"), "random_state=None"),
        (lambda: trainer_of(Mean(), DATA, ({"size": 1},), "add-remove"), "got 'size'"),
        (lambda: trainer_of(Mean(), DATA, (3,), "add-remove"), "must be dictionaries"),
    ],
)
def test_refusals(make: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()


def test_an_estimator_without_epsilon_is_not_private() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    with pytest.raises(InvalidArgument, match="must have a parameter epsilon"):
        trainer_of(linear_model.LogisticRegression(), DATA, ({},), "add-remove")
