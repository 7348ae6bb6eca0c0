"""Clusters: planted ones are found, the same each time, by the definition of k-means."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.transfer.neighbours import Neighbours, cluster_centres, medoids


def planted(seed: int = 0):
    rng = np.random.default_rng(seed)
    names = rng.integers(0, 6, size=600)
    return np.eye(6)[names] + 0.05 * rng.normal(size=(600, 6)), names


def test_planted_clusters_are_found():
    rows, names = planted()
    best = 0.0
    for seed in range(5):  # k-means may end in a poor place from one start, not from all five
        near = Neighbours(cluster_centres(rows, 6, seed)).nearest(rows, 1)[:, 0]
        pure = sum(np.bincount(names[near == one], minlength=6).max() for one in range(6)) / 600
        best = max(best, pure)
    assert best == 1.0


def test_centres_are_the_directions_of_their_points():
    rows, _ = planted(1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    centres = cluster_centres(rows, 4, seed=2)
    near = Neighbours(centres).nearest(rows, 1)[:, 0]
    for place in range(4):
        mean = rows[near == place].sum(0)
        assert centres[place] @ mean / np.linalg.norm(mean) == pytest.approx(1.0, abs=1e-4)


def test_the_seed_decides():
    rows, _ = planted(2)
    assert np.array_equal(cluster_centres(rows, 9, 3), cluster_centres(rows, 9, 3))
    assert not np.array_equal(cluster_centres(rows, 9, 3), cluster_centres(rows, 9, 4))


def test_points_that_coincide_leave_centres_where_they_began():
    rows = np.tile([[1.0, 2.0]], (30, 1))
    centres = cluster_centres(rows, 4, seed=0)
    assert np.isfinite(centres).all()
    assert np.allclose(centres[:, 1] / centres[:, 0], 2.0, rtol=1e-2)


def test_medoids_are_points_each_once():
    rows, _ = planted(3)
    found = medoids(rows, cluster_centres(rows, 20, seed=0))
    assert len(set(found.tolist())) == len(found)
    assert 6 <= len(found) <= 20


def test_more_clusters_than_points():
    with pytest.raises(InvalidArgument, match="at most the 3 points"):
        cluster_centres(np.eye(3), 4, seed=0)
