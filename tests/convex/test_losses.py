"""Losses: derivatives against finite differences, and constants against random search."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.convex.losses import HuberHinge, Huberised, Logistic, SimplexHinge, Softmax

from .problems import LOSSES, targets_for

SMOOTH = ("logistic", "squared", "linear", "softmax")


@pytest.fixture(params=list(LOSSES))
def loss(request):
    return LOSSES[request.param]


def scores_and_targets(loss, count=4000, scale=3.0):
    rng = np.random.default_rng(1)
    return scale * rng.standard_normal((count, loss.outputs)), targets_for(loss, count, rng)


def test_slopes_are_the_derivatives_of_the_values(loss):
    scores, targets = scores_and_targets(loss)
    slopes = loss.slopes(scores, targets)
    for place in range(loss.outputs):
        step = np.zeros(loss.outputs)
        step[place] = 1e-5
        ahead, behind = loss.values(scores + step, targets), loss.values(scores - step, targets)
        # A second derivative that jumps leaves an error of its height times the step.
        assert np.max(np.abs((ahead - behind) / 2e-5 - slopes[:, place])) < 2e-4


@pytest.mark.parametrize("name", list(LOSSES))
def test_bends_are_the_derivatives_of_the_slopes(name):
    loss = LOSSES[name]
    scores, targets = scores_and_targets(loss)
    direction = np.random.default_rng(2).standard_normal(scores.shape)
    bends = loss.bends(scores, targets, direction)
    ahead = loss.slopes(scores + 1e-6 * direction, targets)
    behind = loss.slopes(scores - 1e-6 * direction, targets)
    wrong = np.abs((ahead - behind) / 2e-6 - bends).max(axis=1) > 1e-4
    # Where the second derivative jumps, a few of the random points straddle the jump.
    assert np.mean(wrong) < (1e-9 if name in SMOOTH else 2e-3)


def test_constants_hold_and_are_nearly_reached(loss):
    scores, targets = scores_and_targets(loss, 20_000, scale=6.0)
    slopes = np.linalg.norm(loss.slopes(scores, targets), axis=1)
    if math.isfinite(loss.slope):
        assert slopes.max() <= loss.slope * (1 + 1e-12)
        assert slopes.max() > 0.98 * loss.slope
    hessians = np.stack(
        [
            loss.bends(scores, targets, np.tile(unit, (len(scores), 1)))
            for unit in np.eye(loss.outputs)
        ],
        axis=2,
    )
    eigenvalues = np.linalg.eigvalsh(hessians)
    assert eigenvalues.min() > -1e-12
    assert eigenvalues.max() <= loss.curvature * (1 + 1e-12)
    for ratio in (0.01, 1.0, 100.0):
        volumes = np.log1p(ratio * np.maximum(eigenvalues, 0)).sum(axis=1)
        assert volumes.max() <= loss.log_volume(ratio) * (1 + 1e-12)
        if loss.curvature:
            assert volumes.max() > 0.5 * loss.log_volume(ratio)


def test_slopes_lie_in_the_hull_of_the_corners(loss):
    # Of 0 and e_k - e_y for several scores, of 0 and -y (or ±1) for one.
    scores, targets = scores_and_targets(loss)
    slopes = loss.slopes(scores, targets)
    if loss.outputs > 1:
        rows = np.arange(len(slopes)), targets.astype(int)
        wrong = np.delete(slopes, 0, axis=1)  # all but one coordinate: the rest follows
        assert np.allclose(slopes.sum(axis=1), 0)
        assert slopes[rows].max() <= 1e-15
        slopes[rows] = 0.0
        assert slopes.min() >= 0
        assert slopes.sum(axis=1).max() <= loss.slope / math.sqrt(2) + 1e-12
        assert loss.corners == loss.outputs - 1
        assert wrong.shape[1] == loss.corners
    elif loss.corners == 1:
        sign = -targets if not np.all(slopes > 0) else np.ones_like(targets)
        assert np.all(sign * slopes[:, 0] >= 0)


def test_two_classes_are_the_scalar_losses():
    rng = np.random.default_rng(3)
    margins = 3 * rng.standard_normal(500)
    pairs = np.column_stack([np.zeros(500), margins])
    signs, classes = np.ones(500), np.ones(500)
    for joint, scalar in ((Softmax(2), Logistic()), (SimplexHinge(2, 0.3), HuberHinge(0.3))):
        assert np.allclose(
            joint.values(pairs, classes), scalar.values(margins[:, None], signs), atol=1e-12
        )


def test_cut_softmax_of_two_classes_is_the_huberised_logistic_loss():
    margins = np.linspace(-6, 6, 201)
    pairs, ones = np.column_stack([np.zeros(201), margins]), np.ones(201)
    for mass in (0.2, 0.5, 0.9):
        hubers = Huberised(Logistic(), mass)
        values = hubers.values(margins[:, None], ones, ones)
        assert Softmax(2, mass).values(pairs, ones) == pytest.approx(values, abs=1e-12)
        slopes = hubers.slopes(margins[:, None], ones, ones)[:, 0]
        assert Softmax(2, mass).slopes(pairs, ones)[:, 1] == pytest.approx(slopes, abs=1e-12)


def test_simplex_hinge_is_above_crammer_and_singers_by_at_most_the_smoothing():
    rng = np.random.default_rng(4)
    loss = SimplexHinge(5, 0.2)
    scores, targets = 2 * rng.standard_normal((1000, 5)), rng.integers(0, 5, 1000).astype(float)
    margins = scores + 1.2
    margins[np.arange(1000), targets.astype(int)] -= 1.2
    hinge = margins.max(axis=1) - scores[np.arange(1000), targets.astype(int)]
    gap = hinge - loss.values(scores, targets)
    assert gap.min() > -1e-12
    assert gap.max() <= 0.2 + 1e-12  # h/2·|p - e_y|² with |p - e_y|² ≤ 2


def test_huge_scores_do_not_overflow(loss):
    scores, targets = scores_and_targets(loss, 50, scale=1e6)
    assert np.isfinite(loss.values(scores, targets)).all()
    assert np.isfinite(loss.slopes(scores, targets)).all()
