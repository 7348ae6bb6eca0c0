"""Right mechanisms are not contradicted; mutated ones are."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tacit import mechanisms
from tacit.auditing.mechanism_audits import NAMES, audit_mechanism
from tacit.auditing.mechanism_cases import CASES, MANY, endings
from tacit.errors import InvalidArgument
from tacit.mechanisms import (
    _columns,
    choices,
    covariances,
    histograms,
    numbers,
    quantiles,
    responses,
    sparse_vectors,
)
from tacit.randomness import UnsafeSeededStream

AT_ONCE = [name for name in NAMES if CASES[name].draws >= MANY // 5]
ONE_BY_ONE = [name for name in NAMES if name not in AT_ONCE]


def audited(name: str, draws: int, epsilon: float = 1.0) -> Any:
    return audit_mechanism(
        name, epsilon=epsilon, draws=draws, stream=UnsafeSeededStream(1, name)
    )  # fmt: skip


def test_every_public_mechanism_is_there() -> None:
    audited = {name.partition("-")[0] for name in NAMES}
    spelled = {
        "SparseVector": "sparse", "bounded_laplace": "bounded", "discrete_gaussian": "discrete",
        "discrete_laplace": "discrete", "geometric": "discrete", "noisy_max": "noisy",
        "noisy_sum": "sum", "permute_and_flip": "permute", "randomized_response": "randomized",
        "standard_deviation": "standard", "top_k": "top",
    }  # fmt: skip
    public = set(mechanisms.__all__) - {"Components", "Released"}
    assert {spelled.get(name, name) for name in public} == audited


@pytest.mark.parametrize("name", AT_ONCE)
@pytest.mark.parametrize("epsilon", [pytest.param(0.5, marks=pytest.mark.slow), 3.0])
def test_right_mechanisms_that_draw_at_once(name: str, epsilon: float) -> None:
    audit = audited(name, 50_000, epsilon)
    assert not audit.contradicted
    assert audit.verdict.claimed == pytest.approx(epsilon, rel=0.04)
    assert audit.verdict.shown.epsilon > 0.75 * epsilon


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_right_mechanisms_that_draw_one_by_one(name: str) -> None:
    """Few draws find a gross error at most: ``make test-slow`` takes thousands, below."""
    audit = audited(name, 100, 2.0)
    assert not audit.contradicted
    assert audit.verdict.claimed == pytest.approx(2.0, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_right_mechanisms_at_length(name: str) -> None:
    """As many draws as ``tacit audit`` takes: 2,000 to 10,000 one by one, a million at once."""
    assert not audited(name, CASES[name].draws).contradicted


def quieter(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> None:
    """0.7 times the noise: the draws' scale is their first argument, or their second."""
    draw = getattr(place, name)

    def scaled(*arguments: Any) -> Any:
        at = 1 if name.startswith("grid") else 0
        changed = list(arguments)
        changed[at] = 0.7 * changed[at]
        return draw(*changed)

    monkeypatch.setattr(place, name, scaled)


@pytest.mark.parametrize(
    ("name", "place", "noise", "draws"),
    [
        ("laplace", numbers, "grid_laplace", 50_000),
        ("gaussian", numbers, "grid_gaussian", 50_000),
        ("discrete-laplace", numbers, "laplace_noise", 50_000),
        ("discrete-gaussian", numbers, "gaussian_noise", 50_000),
        ("histogram", histograms, "discrete_laplace", 50_000),
        pytest.param(
            "histogram-gaussian", histograms, "discrete_gaussian", 50_000, marks=pytest.mark.slow
        ),
        ("histogram-replaced", histograms, "discrete_laplace", 50_000),
        ("histogram-keys", histograms, "discrete_laplace", 50_000),
        ("sum", _columns, "rounded_laplace", 2000),
        pytest.param("mean", _columns, "rounded_laplace", 2000, marks=pytest.mark.slow),
        pytest.param("pca", covariances, "rounded_gaussian", 1200, marks=pytest.mark.slow),
    ],
)
def test_quieter_mechanisms(
    name: str, place: Any, noise: str, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    quieter(monkeypatch, place, noise)
    audit = audited(name, draws, 3.0)
    assert audit.contradicted
    assert audit.exit_status == 1


def test_a_forgotten_factor_of_two_between_adjacencies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacing a record moves two cells, not one."""
    monkeypatch.setattr(histograms, "distance", lambda *_: 1.0)
    assert audited("histogram-replaced", 50_000).contradicted
    assert not audited("histogram", 50_000).contradicted


@pytest.mark.parametrize("name", ["exponential", "permute-and-flip", "noisy-max"])
def test_scores_taken_to_move_one_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "_against", lambda *_: 1)
    assert audited(name, 3000).contradicted


def test_answers_that_are_too_true(monkeypatch: pytest.MonkeyPatch) -> None:
    coins = responses.coins
    monkeypatch.setattr(
        responses,
        "coins",
        lambda near, _, *rest: coins(1.2 * near, lambda _: 1.2 * near, *rest),
    )
    assert audited("randomized-response", 20_000).contradicted


def test_ranks_taken_to_move_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = quantiles.Fraction
    monkeypatch.setattr(quantiles, "Fraction", lambda asked: 3 * exact(asked))
    assert audited("quantile", 2000, 3.0).contradicted


def test_a_sparse_vector_with_quiet_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    is_positive = sparse_vectors.is_positive
    monkeypatch.setattr(
        sparse_vectors, "is_positive",
        lambda gap, noises: is_positive(gap, [(0.2 * scale, one) for scale, one in noises]),
    )  # fmt: skip
    assert audited("sparse-vector", 1500, 2.0).contradicted


def test_words_and_json() -> None:
    audit = audited("laplace", 5000)
    plain = json.loads(json.dumps(audit.as_dict(), allow_nan=False))
    assert plain["mechanism"] == "laplace"
    assert plain["contradicted"] is False
    assert "no evidence against the claim" in plain["words"]
    assert "5,000 draws" in plain["words"]
    assert plain["event"] == "Laplace(scale=1.0, replace_distance=2.0)"


def test_the_curve_speaks_where_one_delta_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Gaussian with much too little noise at large ε: the words give the curve's verdict."""
    quieter(monkeypatch, numbers, "grid_gaussian")
    audit = audited("gaussian", 50_000)
    assert audit.p_value <= 5e-5
    assert "contradicts the trade-off curve" in audit.describe()


def test_an_event_that_depends_on_the_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    event = numbers.laplace_event
    calls = iter((1.0, 2.0))
    monkeypatch.setattr(
        numbers, "laplace_event", lambda asked, *rest: event(asked * next(calls), *rest)
    )
    with pytest.raises(InvalidArgument, match="must not depend on the data"):
        audited("laplace", 100)


def test_names_are_told() -> None:
    with pytest.raises(InvalidArgument, match="laplace, gaussian"):
        audit_mechanism("laplac")
    with pytest.raises(InvalidArgument, match="draws"):
        audit_mechanism("laplace", draws=0)


def test_the_endings_of_a_sparse_vector() -> None:
    """By drawing real noise."""
    draw = np.random.default_rng(1)
    queries = (0.0, 0.0, 1.0)
    threshold = 1.0 + draw.laplace(scale=2.0, size=400_000)
    above = np.array(queries)[:, None] + draw.laplace(scale=3.0, size=(3, 400_000)) > threshold
    first = np.where(above.any(axis=0), above.argmax(axis=0), 3)
    seen = np.bincount(first, minlength=4) / 400_000
    found = endings(queries, 2.0, 3.0)
    assert math.isclose(found.sum(), 1.0, rel_tol=1e-9)
    assert np.allclose(found, seen, atol=5e-3)  # six standard deviations
