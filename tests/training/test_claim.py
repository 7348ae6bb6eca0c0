"""What a training run states of itself: who sees what, what is released, how it was sampled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tacit.statement import Statement
from tacit.training.claim import Run, statement
from tacit.training.plan import Plan
from tacit.training.sampling import FullBatch, TruncatedPoisson


def claim(steps: int = 10, **changes: Any) -> Statement:
    shape: dict[str, Any] = {"lot_size": 25, "noise_multiplier": 2.0, "clip": 1.0}
    plan = Plan(examples=1000, steps=steps, **(shape | changes))
    return statement(plan, 1e-5, steps, Run(steps, unsafe=False), lost=0, ledger=None)


def test_every_field_of_a_statement_is_filled():
    found = claim()
    plain = json.loads(found.to_json())
    empty = {name for name, value in plain.items() if value in (None, [], {})}
    # What a run does not know of itself is for whoever runs it to add.
    assert empty == {
        "stopped_early", "ledger", "preprocessing", "tuning", "versions", "configuration",
        "data_dependent", "files", "charge", "signature",
    }  # fmt: skip
    assert Statement.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Poisson: each of 1,000 examples joins each lot by itself, with probability 0.025;"),
        ({"lot_size": 1000, "sampling": FullBatch()}, "every lot is all 1,000 examples"),
        ({"sampling": TruncatedPoisson(90)}, "TruncatedPoisson: .* of more than 90 that many are"),
        ({"unit": "user", "examples_per_user": 3}, "each of 1,000 users joins"),
    ],
)
def test_the_sampling_that_was_used_is_told(changes, words):
    import re  # noqa: PLC0415

    assert re.search(words, claim(**changes).sampling)


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ("fast", "no proof against somebody who breaks that generator"),
        ("secure", "no low bit of a parameter tells anything"),
        ("exact", "nothing depends on floating-point sums"),
    ],
)
def test_the_posture_of_randomness_is_told(noise, words):
    assert words in claim(noise=noise).randomness


def test_the_threat_model_is_every_step():
    found = claim()
    assert "whoever sees the result of every single step" in found.threat_model
    assert "It does not hold against whoever sees into the computer" in found.threat_model
    assert any("held-out examples" in one for one in found.not_promised)


def test_a_model_that_learned_the_data_before_is_not_covered():
    """It tells of them, however privately it learns on."""
    assert any("such as first weights" in one for one in claim().assumptions)


def test_a_fixed_seed_is_told_to_void_it():
    plan = Plan(examples=1000, lot_size=25, steps=10, noise_multiplier=2.0, clip=1.0)
    found = statement(plan, 1e-5, 10, Run(10, unsafe=True), lost=0, ledger=None)
    assert "THIS VOIDS THE GUARANTEE" in found.assumptions[-1]
    assert "made of one unit's data alone" in found.assumptions[0]  # which nobody can check
