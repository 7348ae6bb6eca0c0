"""What every mechanism keeps to: charged before noise is drawn, as was asked, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tacit.accounting import epsilon as epsilon_of
from tacit.accounting import from_json, to_json
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.ledger import Budget, Ledger
from tacit.mechanisms import (
    Released,
    SparseVector,
    bounded_laplace,
    covariance,
    discrete_gaussian,
    discrete_laplace,
    exponential,
    gaussian,
    histogram,
    laplace,
    mean,
    noisy_max,
    pca,
    permute_and_flip,
    quantile,
    randomized_response,
    standard_deviation,
    top_k,
    variance,
)
from tacit.mechanisms import sum as private_sum
from tacit.randomness import KeyedStream, SecureStream, SharedStream, UnsafeSeededStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_ROWS = np.random.default_rng(0).normal(size=(50, 3))
_PURE = {"epsilon": 0.7}
_SMOOTH = {"epsilon": 0.7, "delta": 1e-6}

_CASES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "laplace": (lambda **a: laplace(3.0, sensitivity=1, **a), _PURE),
    "gaussian": (lambda **a: gaussian([3.0, 4.0], sensitivity=1, **a), _SMOOTH),
    "classical": (lambda **a: gaussian(3.0, sensitivity=1, calibration="classical", **a), _SMOOTH),
    "bounded_laplace": (
        lambda **a: bounded_laplace(0.5, sensitivity=0.1, bounds=(0, 1), **a),
        _PURE,
    ),
    "discrete_laplace": (lambda **a: discrete_laplace([3, 4], sensitivity=2, **a), _PURE),
    "discrete_gaussian": (lambda **a: discrete_gaussian(3, **a), _SMOOTH),
    "discrete_gaussians": (lambda **a: discrete_gaussian([3, 4], sensitivity=2, **a), _SMOOTH),
    "randomized_response": (lambda **a: randomized_response([0, 1], **a), _PURE),
    "exponential": (lambda **a: exponential([1, 2], sensitivity=1, **a), _PURE),
    "permute_and_flip": (lambda **a: permute_and_flip([1, 2], sensitivity=1, **a), _PURE),
    "noisy_max": (lambda **a: noisy_max([1, 2], sensitivity=1, noise="laplace", **a), _PURE),
    "gumbel": (lambda **a: noisy_max([1, 2], sensitivity=1, noise="gumbel", **a), _PURE),
    "top_k": (lambda **a: top_k([1, 2, 3], 3, sensitivity=1, **a), _PURE),
    "top_k by peeling": (
        lambda **a: top_k([1, 2, 3], 3, sensitivity=1, noise="exponential", **a),
        _PURE,
    ),
    "top_k of many": (lambda **a: top_k(range(25), 20, sensitivity=1, **a), _SMOOTH),
    "SparseVector": (lambda **a: SparseVector(3, sensitivity=1, cutoff=3, **a), _PURE),
    "Gaussian SparseVector": (
        lambda **a: SparseVector(3, sensitivity=1, noise="gaussian", length=9, **a),
        _SMOOTH,
    ),
    "histogram": (lambda **a: histogram([0, 1], cells=2, **a), _PURE),
    "Gaussian histogram": (lambda **a: histogram([0, 1], cells=2, **a), _SMOOTH),
    "unknown keys": (lambda **a: histogram(["a", "b"], **a), _SMOOTH),
    "sum": (lambda **a: private_sum(_ROWS, bounds=(-1, [1, 2, 3]), **a), _PURE),
    "Gaussian sum": (lambda **a: private_sum(_ROWS[:, 0], bounds=(0, 1), **a), _SMOOTH),
    "mean": (lambda **a: mean(_ROWS, bounds=(-1, 1), **a), _PURE),
    "Gaussian mean": (lambda **a: mean(_ROWS, bounds=(-1, 1), **a), _SMOOTH),
    "variance": (lambda **a: variance(_ROWS, bounds=(-1, 1), **a), _PURE),
    "standard_deviation": (
        lambda **a: standard_deviation(_ROWS, bounds=(-1, 1), skip_missing=True, **a),
        _SMOOTH,
    ),
    "quantile": (lambda **a: quantile(_ROWS[:, 0], 0.3, bounds=(-3, 3), **a), _PURE),
    "covariance": (lambda **a: covariance(_ROWS, norm=2, **a), _SMOOTH),
    "pca": (lambda **a: pca(_ROWS, 1, **a), _SMOOTH),
}
_ADJACENCIES = ("add-remove", "replace-one", "zero-out")
every = pytest.mark.parametrize(("call", "asked"), _CASES.values(), ids=list(_CASES))


class _Watched:
    """A stream that notes how many entries the ledger held when it was first drawn from."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._stream = SecureStream("watched")
        self.entries: int | None = None

    def bytes(self, count: int) -> bytes:
        if self.entries is None:
            self.entries = len(self._ledger.history())
        return self._stream.bytes(count)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as opened:
        yield opened


def _open(ledger: Ledger, asked: dict[str, Any], adjacency: Any = "add-remove") -> Budget:
    return ledger.open(
        "data", epsilon=asked["epsilon"], delta=asked.get("delta", 0.0), adjacency=adjacency
    )


@pytest.mark.parametrize(
    "name",
    [
        *("bounded_laplace", "discrete_gaussians", "exponential", "gumbel", "permute_and_flip"),
        *("quantile", "top_k", "top_k of many", "unknown keys"),
    ],
)
def test_an_event_promises_as_much_to_its_own_neighbours_only(name: str) -> None:
    """To replace a record is to remove one and to add one: what is proved of each counts twice."""
    call, asked = _CASES[name]
    event, delta = call(**asked).event, 2.0 * np.exp(asked["epsilon"]) * 1e-6
    own, other = (epsilon_of(event, delta, adjacency=one) for one in _ADJACENCIES[:2])
    assert own <= asked["epsilon"]
    assert other > 1.5 * own


@every
@pytest.mark.parametrize(
    "adjacency",
    [
        pytest.param(one, marks=pytest.mark.slow if one == "zero-out" else ())
        for one in _ADJACENCIES
    ],
)
def test_a_budget_of_just_what_was_asked_holds_it_once(
    ledger: Ledger, call: Callable[..., Any], asked: dict[str, Any], adjacency: Any
) -> None:
    budget = _open(ledger, asked, adjacency)
    before = len(ledger.history())
    stream = _Watched(ledger)
    released = call(**asked, budget=budget, stream=stream, label="first")
    assert stream.entries is not None
    assert stream.entries > before  # charged, and written, before the first random byte
    assert released.adjacency == adjacency
    assert released.entry == ledger.history()[-1].number
    assert ledger.history()[-1].data["label"] == "first"
    spent = budget.spent()
    assert asked["epsilon"] * 0.75 < spent.epsilon <= asked["epsilon"]
    assert spent.delta <= asked.get("delta", 0.0)
    again = _Watched(ledger)
    with pytest.raises(BudgetExceeded):
        call(**asked, budget=budget, stream=again)
    assert again.entries is None  # no noise was drawn for what was not granted


@every
@pytest.mark.parametrize("adjacency", _ADJACENCIES)
def test_the_accountant_knows_the_event(
    call: Callable[..., Any], asked: dict[str, Any], adjacency: Any
) -> None:
    released = call(**asked, adjacency=adjacency)
    assert from_json(to_json(released.event)) == released.event
    delta = asked.get("delta", 1e-9)
    found = epsilon_of(released.event, delta, adjacency=adjacency)
    assert asked["epsilon"] * 0.6 < found <= asked["epsilon"]
    assert isinstance(released, Released | SparseVector)
    assert released.entry is None


@every
def test_renyi_budgets_take_it(
    ledger: Ledger, call: Callable[..., Any], asked: dict[str, Any]
) -> None:
    budget = ledger.open("renyi", epsilon=8, delta=1e-4, composition="renyi")
    call(**asked, budget=budget)
    assert 0 < budget.spent().epsilon < 8


@every
def test_the_budgets_neighbours_and_units_must_be_those_asked_for(
    ledger: Ledger, call: Callable[..., Any], asked: dict[str, Any]
) -> None:
    budget = _open(ledger, asked, "replace-one")
    stream = _Watched(ledger)
    with pytest.raises(InvalidArgument, match="adjacency must be that of the budget 'data'"):
        call(**asked, budget=budget, adjacency="add-remove", stream=stream)
    with pytest.raises(InvalidArgument, match="unit must be that of the budget 'data'"):
        call(**asked, budget=budget, unit="user", stream=stream)
    with pytest.raises(InvalidArgument, match="budget must be a budget of a ledger"):
        call(**asked, budget="data", stream=stream)
    assert stream.entries is None


@pytest.mark.parametrize("call", [
    lambda epsilon: laplace(1.0, sensitivity=1, epsilon=epsilon),
    lambda epsilon: histogram(["a"], epsilon=epsilon, delta=1e-6),
    lambda epsilon: noisy_max([1, 2], sensitivity=1, epsilon=epsilon),
])  # fmt: skip
def test_noise_of_no_finite_scale_is_refused(call: Callable[[float], Any]) -> None:
    with pytest.raises(InvalidArgument, match="an epsilon of 1e-320"):
        call(1e-320)


@pytest.mark.parametrize("call", [
    lambda budget: laplace(1.0, sensitivity=1e308, epsilon=1e-3, budget=budget),
    lambda budget: gaussian(1.0, sensitivity=1e308, epsilon=1e-3, delta=1e-6, budget=budget),
    lambda budget: discrete_laplace(1, sensitivity=10**17, epsilon=1e-3, budget=budget),
    lambda budget: discrete_gaussian(1, sensitivity=1e17, rho=1e-3, budget=budget),
])  # fmt: skip
def test_noise_that_cannot_be_drawn_is_not_charged(
    ledger: Ledger, call: Callable[[Budget], Any]
) -> None:
    budget = ledger.open("wide", epsilon=1, delta=1e-5)
    with pytest.raises(InvalidArgument, match="sensitivity must be less, or epsilon"):
        call(budget)
    assert budget.spent().epsilon == 0.0


@every
def test_a_user_can_be_the_unit(
    ledger: Ledger, call: Callable[..., Any], asked: dict[str, Any]
) -> None:
    budget = ledger.open("users", epsilon=3, delta=1e-3, unit="user")
    assert call(**asked, budget=budget).unit == "user"


def test_what_was_released_can_be_charged_as_it_is(ledger: Ledger) -> None:
    """For whoever released first and has a budget only now."""
    budget = ledger.open("later", epsilon=1, delta=0)
    budget.reserve(laplace(3.0, sensitivity=1, epsilon=0.25))
    assert budget.spent().epsilon == 0.25


@every
def test_noise_that_can_be_drawn_again_cannot_be_charged(
    ledger: Ledger, call: Callable[..., Any], asked: dict[str, Any]
) -> None:
    budget = _open(ledger, asked, "add-remove")
    before = len(ledger.history())
    for stream in (
        UnsafeSeededStream(0, "test"),
        KeyedStream(bytes(32), bytes(12)),
        SharedStream(bytes(range(32)), "test"),
    ):
        with pytest.raises(InvalidArgument, match="stream must be left out with a budget"):
            call(**asked, budget=budget, stream=stream)
    assert len(ledger.history()) == before
