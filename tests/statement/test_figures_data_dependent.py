"""The data-dependent figure: proved from its own numbers, told apart from the claim."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tacit.accounting import Gaussian, epsilon
from tacit.accounting.serialization import as_dict
from tacit.errors import InvalidArgument
from tacit.statement import DataDependent, Statement, extended

ORDER, DIVERGENCE, DELTA, FAILURE = 16.0, 0.4, 1e-5, 1e-6


def converted(divergence: float, order: float, delta: float) -> float:
    """Balle et al. 2020, Theorem 21: the conversion at one order."""
    return (
        divergence + math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1.0)
    )


LEAST = converted(DIVERGENCE, ORDER, DELTA - FAILURE)


def figure(**changes: float | str) -> DataDependent:
    told = {"epsilon": LEAST, "delta": DELTA, "order": ORDER, "divergence": DIVERGENCE,
            "failure": FAILURE, "what": "told once with noise"}  # fmt: skip
    return DataDependent(**(told | changes))  # type: ignore[arg-type]


def claim() -> Statement:
    event = Gaussian(4.0)
    return Statement(
        epsilon=epsilon(event, DELTA), delta=DELTA, event=as_dict(event), sampling="none",
        noise="exact", tacit_version="0.1.0",
    )  # fmt: skip


def test_what_the_divergence_amounts_to_is_accepted_and_less_is_not() -> None:
    assert figure().epsilon == LEAST
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        figure(epsilon=LEAST * (1.0 - 1e-6))


def test_the_failing_share_is_paid_from_delta() -> None:
    whole = converted(DIVERGENCE, ORDER, DELTA)
    assert whole < LEAST
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        figure(epsilon=whole)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("order", 1.0), ("order", math.nan), ("divergence", -0.1), ("divergence", math.inf),
        ("delta", 0.0), ("failure", 0.0), ("failure", DELTA), ("failure", 2e-5), ("what", " "),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused(name: str, value: float | str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        figure(**{name: value}, epsilon=99.0)


def test_a_statement_carries_it_to_json_and_back_and_keeps_its_own_claim() -> None:
    both = extended(claim(), data_dependent=figure())
    again = Statement.from_json(both.to_json())
    assert again == both
    assert again.data_dependent == figure()
    assert again.epsilon == claim().epsilon


def test_a_forged_figure_is_refused_when_it_is_read() -> None:
    plain = json.loads(extended(claim(), data_dependent=figure()).to_json())
    plain["data_dependent"]["epsilon"] = 0.1
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        Statement.from_json(json.dumps(plain))
    plain["data_dependent"] = {"epsilon": 0.1}
    with pytest.raises(InvalidArgument, match="data_dependent must be"):
        Statement.from_json(json.dumps(plain))


def test_the_words_keep_the_two_apart() -> None:
    both = replace(claim(), data_dependent=figure())
    lines = both.describe().splitlines()
    assert lines[0] == claim().describe().splitlines()[0]
    (told,) = (line for line in lines if line.startswith("Beside the claim"))
    assert "dependent on the data" in told
    assert "as much as the claim says" in told
