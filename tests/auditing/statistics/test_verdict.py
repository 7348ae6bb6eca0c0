"""Claims and verdicts."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.auditing import (
    LowerBound,
    Rates,
    Scores,
    Verdict,
    clopper_pearson,
    every_threshold,
    judge,
)
from tacit.errors import InvalidArgument

RATES = Rates(tp=500, n_in=1000, fp=10, n_out=1000)


def estimate(confidence: float) -> LowerBound:
    return clopper_pearson(RATES, 1e-5, confidence)


@pytest.mark.parametrize(
    ("claimed", "contradicted", "words"),
    [
        (2.0, True, "the evidence contradicts the claim epsilon = 2"),
        (3.0, False, "not enough evidence (below 99.99%) against the claim epsilon = 3"),
        (4.0, False, "no evidence against the claim epsilon = 4"),
    ],
)
def test_verdicts(claimed: float, contradicted: bool, words: str) -> None:
    verdict = judge(claimed, estimate)
    assert verdict.contradicted is contradicted
    assert verdict.exit_status == int(contradicted)
    assert verdict.describe().startswith(words)
    assert verdict.shown == estimate(0.95)
    assert verdict.decisive == estimate(0.9999)


def test_the_words_of_the_issue() -> None:
    found = LowerBound(0.613, 1e-5, 0.95, "LiRA", "nothing")
    assert Verdict(2.0, found, found).describe() == (
        "no evidence against the claim epsilon = 2 at delta = 1e-05; the strongest attack shows "
        "epsilon >= 0.613 at 95% confidence (LiRA; it assumes nothing)"
    )


def test_the_strongest_of_several_pays_for_the_choice() -> None:
    weak = Rates(tp=50, n_in=1000, fp=50, n_out=1000)
    verdict = judge(1.0, [estimate, lambda at: clopper_pearson(weak, 1e-5, at)])
    assert verdict.shown.epsilon == pytest.approx(estimate(0.975).epsilon)
    assert verdict.shown.confidence == 0.95
    assert verdict.decisive.epsilon == pytest.approx(estimate(0.99995).epsilon)


def test_many_attacks_on_nothing_do_not_contradict() -> None:
    draw = np.random.default_rng(31)
    attacks = [Scores(draw.normal(size=100), draw.normal(size=100)) for _ in range(20)]
    verdict = judge(
        0.1, [lambda at, scores=scores: every_threshold(scores, 0.0, at) for scores in attacks]
    )
    assert not verdict.contradicted


def test_estimates_at_different_deltas_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="delta"):
        judge(1.0, [estimate, lambda at: clopper_pearson(RATES, 0.0, at)])
    with pytest.raises(InvalidArgument, match="estimates"):
        judge(1.0, [])
    with pytest.raises(InvalidArgument, match="claimed"):
        judge(-1.0, estimate)
