"""Choosing queries, against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.transfer.active import spread, uncertain


def random_scores(points=60, classes=4, seed=0):
    return np.random.default_rng(seed).dirichlet([0.5] * classes, points)


MEASURES = {
    "margin": lambda p: sorted(p)[-1] - sorted(p)[-2],
    "entropy": lambda p: sum(x * np.log(x) for x in p if x > 0),
    "confidence": max,
}


@pytest.mark.parametrize("measure", MEASURES)
def test_the_least_sure_are_found(measure):
    scores = random_scores()
    scores[3] = [1.0, 0.0, 0.0, 0.0]
    among = np.arange(0, 60, 2)
    expected = sorted(among, key=lambda one: MEASURES[measure](scores[one].tolist()))[:7]
    assert uncertain(scores, 7, among=among, measure=measure).tolist() == expected


def test_spread_points_are_those_of_the_textbook():
    points = np.random.default_rng(1).normal(size=(80, 3))
    chosen = [5, 9]
    found = spread(points, 6, chosen=chosen)
    for one in found:
        far = [min(np.linalg.norm(points[k] - points[c]) for c in chosen) for k in range(80)]
        assert one == int(np.argmax(far))
        chosen.append(one)
    first = spread(points, 1)
    assert first[0] == np.argmin(np.linalg.norm(points - points.mean(axis=0), axis=1))


def test_spread_covers_at_least_half_as_well_as_the_best():
    """Gonzalez 1985: no more than twice the least radius, by trying every pair."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        points = rng.normal(size=(12, 2))
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        best = min(np.minimum(apart[a], apart[b]).max() for a in range(12) for b in range(a))
        found = spread(points, 2)
        assert apart[found].min(axis=0).max() <= 2 * best + 1e-12


def test_equal_points_are_not_chosen_twice():
    assert sorted(spread(np.zeros((5, 2)), 5).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(spread(np.zeros((5, 2)), 3, among=[1, 3, 4], chosen=[0]).tolist()) == [1, 3, 4]


def test_refusals():
    with pytest.raises(InvalidArgument, match="count"):
        spread(np.zeros((3, 2)), 4)
    with pytest.raises(InvalidArgument, match="features"):
        spread(np.array([[np.nan]]), 1)
    with pytest.raises(InvalidArgument, match="scores"):
        uncertain(np.ones(3), 1)
    with pytest.raises(InvalidArgument, match="measure"):
        uncertain(random_scores(), 1, measure="luck")
