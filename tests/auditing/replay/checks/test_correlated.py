"""Correlated noise is the strategy's inverse times independent noise, number by number."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pytest

from tacit.auditing.replay import TACIT
from tacit.auditing.replay.checks import correlated
from tacit.auditing.replay.experiments import Experiments
from tacit.auditing.replay.laboratory import Laboratory
from tacit.auditing.replay.standard import special_settings
from tacit.training.correlation import Course

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tacit.auditing.replay import Finding


def _asked(name: str, folder: Path) -> Finding:
    return correlated.exactly(Experiments(Laboratory(special_settings()[name], TACIT, folder)))


@pytest.mark.parametrize("name", ["correlated", "replayed", "buffered"])
def test_noise_is_the_strategys(name: str, tmp_path: Path) -> None:
    found = _asked(name, tmp_path)
    assert found.passed, found.describe()
    assert dict(found.numbers)["off"] < 1e-5


_norms = Course.norms


@pytest.mark.parametrize(
    "wrong",
    [
        lambda own: [*[1.0] * (len(_norms(own)) - 1), _norms(own)[-1]],  # of the last columns
        lambda own: [1.001 * one for one in _norms(own)],
    ],
)
def test_a_column_that_is_a_little_off_is_seen(
    wrong: Callable[[Course], list[float]], tmp_path: Path
) -> None:
    with patch.object(Course, "norms", wrong):
        found = _asked("correlated", tmp_path)
    assert not found.passed
    assert found.component == "noise"


def test_what_has_no_correlation_has_the_identity() -> None:
    plain = correlated.uncorrelated(special_settings()["correlated"].plan)
    assert plain.correlation is None
    assert np.array_equal(correlated.strategy_of(plain), np.eye(plain.steps))
