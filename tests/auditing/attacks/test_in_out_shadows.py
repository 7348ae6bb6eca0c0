"""Means and spreads of both sides, and the same less some models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.auditing.attacks.in_out_shadows import InOutShadows, ShadowSide, left_out
from tacit.errors import InvalidArgument


def brute(values: np.ndarray, chosen: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
    """One example after another, with NumPy's own covariance."""
    counts, views = [], values.shape[2]
    means, scatters = np.zeros(values.shape[1:]), np.zeros((values.shape[1], views, views))
    for example in range(values.shape[1]):
        rows = values[chosen[:, example], example]
        counts.append(len(rows))
        if len(rows):
            means[example] = rows.mean(axis=0)
            scatters[example] = np.cov(rows.T, bias=True).reshape(views, views) * len(rows)
    return counts, means, scatters


def check(side: ShadowSide, values: np.ndarray, chosen: np.ndarray) -> None:
    counts, means, scatters = brute(values, chosen)
    assert side.count.tolist() == counts
    some = np.array(counts) > 0
    np.testing.assert_allclose(side.mean[some], means[some], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(side.scatter, scatters, rtol=1e-9, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(1, 3), st.integers(0, 3))
def test_less_some_models_is_as_without_them(
    seed: int, models: int, views: int, fewer: int
) -> None:
    draw = np.random.default_rng(seed)
    values = 1e3 + draw.normal(size=(models, 6, views))  # far from 0, where digits cancel
    members = draw.random((models, 6)) < 0.5
    sides = InOutShadows.of(values, members)
    check(sides.inside, values, members)
    check(sides.outside, values, ~members)
    out = draw.permutation(models)[: min(fewer, models)]
    rest = np.setdiff1d(np.arange(models), out)
    less = sides.without(values[out], members[out])
    check(less.inside, values[rest], members[rest])
    check(less.outside, values[rest], ~members[rest])


def test_one_far_model_leaves_no_trace() -> None:
    values = np.array([[[1e6]], [[1.0]], [[2.0]]])
    side = ShadowSide.of(values, np.ones((3, 1), dtype=bool)).without(values[0], np.array([True]))
    np.testing.assert_allclose(side.mean, [[1.5]], rtol=1e-9)
    np.testing.assert_allclose(side.scatter, [[[0.5]]], rtol=1e-3)


def test_too_few() -> None:
    side = ShadowSide.of(np.zeros((2, 3, 1)), np.array([[True, True, False], [True, False, False]]))
    side.needs(0, "trained on", "")
    with pytest.raises(
        InvalidArgument, match=r"at least 2 models trained on each example, and 2 of 3 .*: more"
    ):
        side.needs(2, "trained on", "more")
    with pytest.raises(InvalidArgument, match="at least 1 model trained on"):
        side.needs(1, "trained on", "more")


def test_complements_are_left_out_together() -> None:
    draw = np.random.default_rng(1)
    members = draw.random((7, 50)) < 0.5
    members[4] = ~members[1]
    assert left_out(members) == [[0], [1, 4], [2], [3], [4, 1], [5], [6]]
