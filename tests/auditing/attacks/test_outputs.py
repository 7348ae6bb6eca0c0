"""What attacks take, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.auditing.attacks import Outputs, Shadows, calibrated, lira, rmia, split
from tacit.errors import InvalidArgument


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
