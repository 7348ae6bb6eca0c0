"""Released values come back from their files as they were, and nothing in a file is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tacit.accounting import Gaussian
from tacit.errors import CheckpointError
from tacit.mechanisms import Components, Released
from tacit.runs import kept
from tacit.training import checkpoint_file

if TYPE_CHECKING:
    from pathlib import Path

VALUES = [
    3.25, 7, "text", None, np.arange(6.0).reshape(2, 3), np.array(2.5), np.arange(3),
    torch.ones(2, dtype=torch.float64), [1.0, np.zeros(2)], (1, "a"), {"x": np.ones(1), "y": 2},
]  # fmt: skip


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(
            one, other
        )  # fmt: skip
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_come_back(value: Any, tmp_path: Path) -> None:
    event = Gaussian(3.5)
    kept.write_released(tmp_path / "x", Released(value, event, "add-remove", "example"), "words")
    found, found_event = kept.read_released(tmp_path / "x")
    assert same(value, found)
    assert found_event == event


def test_components_come_back(tmp_path: Path) -> None:
    value = Components(np.eye(2), np.array([2.0, 1.0]), np.zeros(2))
    kept.write_released(tmp_path / "x", Released(value, Gaussian(1.0), "add-remove", "example"), "")
    found, _ = kept.read_released(tmp_path / "x")
    assert isinstance(found, Components)
    assert same(found.directions, value.directions)
    assert same(found.strengths, value.strengths)
    assert same(found.centre, value.centre)


def test_what_has_no_form_is_refused(tmp_path: Path) -> None:
    odd = Released(object(), Gaussian(1.0), "add-remove", "example")
    with pytest.raises(CheckpointError, match="is a object"):
        kept.write_released(tmp_path / "x", odd, "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "document",
    [{}, {"value": 1}, {"value": {"dict": [["tacit kind", "os.system"]]}, "event": {}},
     {"value": 1, "event": {"kind": "Nothing"}}, []],
)  # fmt: skip
def test_foreign_documents_are_refused(document: Any, tmp_path: Path) -> None:
    checkpoint_file.write(tmp_path / "x", document, {})
    with pytest.raises((CheckpointError, ValueError)):
        kept.read_released(tmp_path / "x")
