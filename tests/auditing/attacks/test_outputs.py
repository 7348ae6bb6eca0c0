"""What attacks take, and what they refuse."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacit.auditing.attacks import Outputs, Shadows, calibrated, lira, phi, rmia, split
from tacit.auditing.attacks.outputs import (
    every_log_odds,
    log_odds_of,
    log_probability,
    margins,
    probability,
)
from tacit.errors import InvalidArgument

# ---- What attacks take, and what they refuse


def test_a_view_axis_is_added_and_nothing_is_shared() -> None:
    logits = np.zeros((3, 2))
    found = Outputs(logits, [0, 1, 0])
    assert found.logits.shape == (3, 1, 2)
    assert found.logits.dtype == np.float32
    assert found.labels.dtype == np.int64
    assert len(found) == 3
    logits[0, 0] = 9.0
    assert found.logits.max() == 0.0
    with pytest.raises(ValueError, match="read-only"):
        found.logits[0] = 1.0


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (
            np.zeros(3),
            [0, 0, 0],
            r"\(examples, views, classes\) with two classes or more, got \(3,",
        ),
        (np.zeros((3, 1)), [0, 0, 0], "two classes or more"),
        (np.zeros((0, 2)), [], "logits must be of shape"),
        ([[np.nan, 0.0]], [0], "must be finite, got 1 that are not"),
        ([[np.inf, 0.0]], [0], "must be finite"),
        (np.zeros((2, 2)), [0], "labels must be 2 whole numbers"),
        (np.zeros((2, 2)), [0.0, 1.0], "labels must be 2 whole numbers.*float64"),
        (np.zeros((2, 2)), [0, 2], "from 0 to 1, got 0 to 2"),
        (np.zeros((2, 2)), [-1, 0], "from 0 to 1, got -1 to 0"),
    ],
)
def test_outputs_that_are_none(logits: Any, labels: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Outputs(logits, labels)


@pytest.mark.parametrize(
    "members", [np.zeros((2, 3)), np.zeros((3, 2), dtype=bool), np.zeros(3, dtype=bool)]
)
def test_members_must_say_yes_or_no_of_each(members: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"members must be true or false.*\(2, 3\)"):
        Shadows(np.zeros((2, 3, 2)), [0, 0, 0], members)


def test_a_shadow_model_as_target() -> None:
    logits = np.arange(12.0).reshape(2, 3, 2)
    shadows = Shadows(logits, [0, 1, 0], np.ones((2, 3), dtype=bool))
    np.testing.assert_array_equal(shadows.model(1).logits[:, 0], logits[1])
    np.testing.assert_array_equal(shadows.model(1).labels, [0, 1, 0])


@pytest.mark.parametrize("attack", [lira, rmia, calibrated])
def test_shadows_of_other_examples_are_refused(attack: Any) -> None:
    target = Outputs(np.zeros((3, 2)), [0, 0, 1])
    members = np.array([[True] * 3, [False] * 3])
    with pytest.raises(InvalidArgument, match=r"shadows must have logits for .*\(3, 1, 2\)"):
        attack(target, Shadows(np.zeros((2, 3, 4, 2)), [0, 0, 1], members))
    with pytest.raises(InvalidArgument, match="the target's labels"):
        attack(target, Shadows(np.zeros((2, 3, 2)), [0, 0, 0], members))


def test_split() -> None:
    scores = np.arange(6.0).reshape(2, 3)
    members = np.array([[True, False, True], [False, False, True]])
    found = split(scores, members)
    assert sorted(found.inside) == [0.0, 2.0, 5.0]
    assert sorted(found.outside) == [1.0, 3.0, 4.0]
    with pytest.raises(InvalidArgument, match=r"members must be true or false.*got int64"):
        split([1.0, 2.0], [0, 1])
    with pytest.raises(InvalidArgument, match=r"shape \(2,\), got bool of shape \(3,\)"):
        split([1.0, 2.0], [True, False, True])


# ---- Signals against the same formulas in 60 digits

logits = arrays(np.float32, (3, 2, 4), elements=st.floats(-300, 300, width=32))


def exact_probabilities(row: np.ndarray) -> list[mp.mpf]:
    total = mp.fsum(mp.exp(mp.mpf(float(z))) for z in row)
    return [mp.exp(mp.mpf(float(z))) / total for z in row]


def exact_odds(row: np.ndarray, label: int) -> float:
    rest = mp.fsum(mp.exp(mp.mpf(float(z))) for j, z in enumerate(row) if j != label)
    return float(mp.log(mp.exp(mp.mpf(float(row[label]))) / rest))


@settings(max_examples=40, deadline=None)
@given(logits, st.integers(0, 3))
def test_against_sixty_digits(values: np.ndarray, label: int) -> None:
    outputs = Outputs(values, [label] * 3)
    with mp.workdps(300):
        odds = [[exact_odds(row, label) for row in views] for views in values]
        logs = [[float(mp.log(exact_probabilities(row)[label])) for row in v] for v in values]
        every = [[[exact_odds(row, j) for j in range(4)] for row in views] for views in values]
    np.testing.assert_allclose(phi(outputs), odds, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_probability(outputs), logs, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(every_log_odds(outputs.logits), every, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(probability(outputs), np.exp(logs), rtol=1e-11, atol=1e-300)


def test_a_sure_model_is_not_rounded_to_one() -> None:
    """At a low false-positive rate scores differ where probabilities are 1 in double precision."""
    outputs = Outputs([[40.0, 0.0], [50.0, 0.0], [60.0, 0.0]], [0, 0, 0])
    assert (probability(outputs) == 1.0).sum() == 3
    assert (np.diff(phi(outputs)[:, 0]) == 10.0).all()
    assert (np.diff(log_probability(outputs)[:, 0]) > 0.0).all()


def test_every_class_is_as_the_label_alone() -> None:
    draw = np.random.default_rng(1)
    values = (10.0 * draw.normal(size=(50, 3, 7))).astype(np.float32)
    every = every_log_odds(values)
    for label in range(7):
        np.testing.assert_allclose(
            every[..., label], log_odds_of(values, np.full(50, label)), rtol=1e-12, atol=1e-13
        )


def test_equal_logits() -> None:
    np.testing.assert_allclose(every_log_odds(np.zeros((1, 1, 2), np.float32)), 0.0, atol=1e-15)
    np.testing.assert_allclose(
        every_log_odds(np.zeros((1, 1, 5), np.float32)), -np.log(4.0), atol=1e-15
    )


def test_shadows_have_a_first_axis() -> None:
    draw = np.random.default_rng(1)
    values, labels = draw.normal(size=(4, 5, 2, 3)), draw.integers(3, size=5)
    shadows = Shadows(values, labels, np.zeros((4, 5), dtype=bool))
    assert phi(shadows).shape == (4, 5, 2)
    for one in range(4):
        np.testing.assert_array_equal(phi(shadows)[one], phi(shadows.model(one)))
        np.testing.assert_array_equal(
            log_probability(shadows)[one], log_probability(shadows.model(one))
        )


@pytest.mark.parametrize("shift", [-100.0, 64.0])
def test_a_constant_added_to_all_logits_says_nothing(shift: float) -> None:
    draw = np.random.default_rng(1)
    values = draw.integers(-9, 9, size=(20, 1, 3)).astype(np.float32)  # exact with the shift
    labels = draw.integers(3, size=20)
    for signal in (phi, log_probability, margins):
        np.testing.assert_allclose(
            signal(Outputs(values + shift, labels)), signal(Outputs(values, labels)), atol=1e-12
        )


def test_margins() -> None:
    outputs = Outputs([[[3.0, 1.0, 2.5], [0.0, 4.0, -1.0]]], [0])
    assert margins(outputs).tolist() == [[0.5, -4.0]]
