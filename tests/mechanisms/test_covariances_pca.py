"""Principal components: near the true ones where there is much data, private where not."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from tacit.accounting import Gaussian
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.mechanisms import pca
from tacit.randomness import UnsafeSeededStream


def _rows(many: int = 50_000) -> np.ndarray:
    rng = np.random.default_rng(0)
    turned, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    return np.asarray(rng.normal(size=(many, 6)) * [0.4, 0.2, 0.1, 0.05, 0.01, 0.01] @ turned.T)


def test_directions_and_strengths_are_near_the_true_ones() -> None:
    rows = _rows()
    short = rows / np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
    values, vectors = np.linalg.eigh(short.T @ short)
    found = pca(rows, 3, epsilon=1, delta=1e-6, stream=UnsafeSeededStream(0, "pca")).value
    for place in range(3):
        assert abs(found.directions[place] @ vectors[:, -1 - place]) > 0.999
        assert found.strengths[place] == pytest.approx(values[-1 - place], rel=0.05)
    assert np.allclose(found.directions @ found.directions.T, np.eye(3))
    assert found.project(rows).shape == (50_000, 3)
    assert np.all(
        np.take_along_axis(found.directions, np.abs(found.directions).argmax(1)[:, None], 1) > 0
    )


def test_a_public_centre_is_taken_off() -> None:
    rows = _rows() + 5.0
    far = pca(rows, 1, norm=20, rho=1).value
    assert abs(far.directions[0] @ np.ones(6)) / math.sqrt(6) > 0.99  # only where the data lie
    near = pca(rows, 1, centre=5.0, rho=1).value
    truth = np.linalg.eigh(np.cov(rows.T))[1][:, -1]
    assert abs(near.directions[0] @ truth) > 0.99
    assert np.abs(near.project(rows).mean()) < 0.1


def test_little_data_hides_in_the_noise() -> None:
    found = [
        abs(
            pca(
                np.eye(20)[:1], 1, epsilon=0.5, delta=1e-6, stream=UnsafeSeededStream(s, "p")
            ).value.directions[0, 0]
        )
        for s in range(40)
    ]
    assert np.mean(found) < 0.4


def test_rows_that_are_not_finite_do_not_poison_the_result() -> None:
    rows = np.vstack([_rows(5_000), np.full((3, 6), math.nan), np.full((3, 6), math.inf)])
    found = pca(rows, 1, rho=1, stream=UnsafeSeededStream(0, "pca")).value
    clean = pca(_rows(5_000), 1, rho=1, stream=UnsafeSeededStream(0, "pca")).value
    assert np.allclose(found.directions, clean.directions, atol=1e-6)


def test_frames_and_the_event() -> None:
    frame = pd.DataFrame(_rows(1_000), columns=list("abcdef"))
    for adjacency in ("add-remove", "replace-one"):
        released = pca(frame, 2, epsilon=2, delta=1e-6, adjacency=adjacency)  # type: ignore[arg-type]
        assert released.value.directions.columns.tolist() == list("abcdef")
        found = epsilon_of(released.event, 1e-6, adjacency=adjacency)  # type: ignore[arg-type]
        assert 1.999999 < found <= 2
        assert released.value.project(frame).shape == (1_000, 2)


def test_the_multiplier_asked_for_is_the_event() -> None:
    released = pca(_rows(), 3, noise_multiplier=7)
    assert released.event == Gaussian(7.0, math.sqrt(2.0))
    same = pca(_rows(), 3, noise_multiplier=7, stream=UnsafeSeededStream(0, "pca")).value
    rho = pca(_rows(), 3, rho=1 / (2 * 7**2), stream=UnsafeSeededStream(0, "pca")).value
    assert np.allclose(same.strengths, rho.strengths, rtol=1e-12)


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="components must be at most the 6 columns, got 7"):
        pca(_rows(10), 7, rho=1)
    with pytest.raises(InvalidArgument, match="centre must be a finite number"):
        pca(_rows(10), 1, centre=[1.0, 2.0], rho=1)
    with pytest.raises(InvalidArgument, match="delta must be given"):
        pca(_rows(10), 1, epsilon=1)
    with pytest.raises(InvalidArgument, match="noise_multiplier=2 must be given alone"):
        pca(_rows(10), 1, epsilon=1, noise_multiplier=2)
