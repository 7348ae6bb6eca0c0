"""The convex baseline: one release, charged whole."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import recipes
from tacit.accounting import epsilon
from tacit.accounting.serialization import from_dict
from tacit.data import Examples, Split

from ..real_data import real_data
from .pictures import check_published


def people() -> Split:
    """Rows of two answers out of three and a number, which decides."""
    rng = np.random.default_rng(0)

    def part(count: int) -> Examples:
        number = rng.random(count)
        answers = np.eye(3)[rng.integers(0, 3, (count, 2))].reshape(count, 6)
        return Examples(np.column_stack([answers, number]), (number > 0.5).astype(np.int64))

    return Split("people", part(4_000), part(500), ("less", "more"), {"made": "up"})


def test_what_is_said() -> None:
    check_published("adult-logistic", {})


def test_one_release_is_charged() -> None:
    small = {"norm": 2.0, "method": "objective"}
    done = recipes.run("adult-logistic", epsilon=4, settings=small, data=people(), progress=False)
    claim = done.statement
    assert claim.plan is None
    assert epsilon(from_dict(claim.event), 1e-5) <= claim.epsilon <= 4.0
    assert any("data_norm" in one for one in claim.assumptions)
    assert isinstance(done.model, dict)
    assert done.model["coefficients"].shape == (1, 7)
    assert done.accuracy > 0.8


def test_on_the_published_files() -> None:
    done = recipes.run("adult-logistic", epsilon=1, data=real_data("adult"), progress=False)
    assert done.accuracy == pytest.approx(0.85, abs=0.02)
