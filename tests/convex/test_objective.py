"""Objective perturbation's theorems: published numbers, and the exact mechanism in one dimension.

In one dimension the released minimum has a known density: θ is a strictly falling function of the
tilt. The hockey-stick divergence of two neighbouring data sets is then an integral, computed here
without a line of the library's formulas.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from tacit.convex.losses import HuberHinge, Logistic, SimplexHinge, Softmax, Squared
from tacit.convex.objective import (
    _pairs,
    cms_noise,
    kifer_ridge,
    kifer_sigma,
    profile_delta,
    profile_sigma,
    redberg_delta,
    redberg_sigma,
)
from tacit.errors import InvalidArgument, Uncalibratable

from .problems import task_for


@pytest.mark.parametrize(
    ("ridge", "sigma"), [(0.5, 11.5414), (1, 5.3045), (2.5, 4.3018), (10, 3.9765), (100, 3.8931)]
)
def test_redbergs_noise_is_the_published_one(ridge, sigma):
    found = redberg_sigma(1, 1e-5, ridge, lipschitz=1, smoothness=0.25)
    assert round(found, 4) == sigma
    assert redberg_delta(1, found, ridge) <= 1e-5
    assert redberg_delta(1, found * (1 - 1e-9), ridge) > 1e-5


def test_redbergs_delta_is_the_published_one():
    assert f"{redberg_delta(1, sigma=5, ridge=1):.5e}" == "2.59818e-05"


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.35, 1.0, 3.0])
@pytest.mark.parametrize("sigma", [0.8, 2.0, 9.0])
def test_redbergs_delta_is_the_mean_over_a_half_normal(epsilon, sigma):
    # Both branches are E[(1 - e^{ε - a - h - |Z|/σ})₊], here by quadrature in 30 digits.
    ridge, beta = 1.0, 0.25
    mpmath.mp.dps = 30
    rest = mpmath.mpf(epsilon) + mpmath.log1p(-mpmath.mpf(beta) / ridge) - 1 / (2 * sigma**2)
    start = max(mpmath.mpf(0), rest * sigma)
    truth = mpmath.quad(
        lambda z: 2 * mpmath.npdf(z) * (1 - mpmath.exp(rest - z / sigma)),
        [start, start + 2, start + 6, start + 20],
    )
    assert redberg_delta(epsilon, sigma, ridge) == pytest.approx(float(truth), rel=1e-9)


def test_kifers_noise_is_the_published_one():
    assert round(kifer_sigma(1, 1e-5), 3) == 10.082
    assert kifer_sigma(2, 1e-6, 3.0) == pytest.approx(3 * math.sqrt(8 * math.log(2e6) + 8) / 2)
    assert kifer_ridge(0.5, 0.25) == 1.0


def exact_delta(slope, bend, epsilon, sigma, ridge, others=()):
    """δ of the minimum with and without one example of these derivatives, by integration over θ.

    ``others`` are derivatives of examples that both data sets have.
    """
    theta = np.linspace(-40 * sigma / ridge, 40 * sigma / ridge, 2_000_001)
    pull = ridge * theta + sum(one[0](theta) for one in others)
    stretch = ridge + sum(one[1](theta) for one in others)

    def density(first, second):
        return norm.pdf(first, scale=sigma) * second

    without = density(pull, stretch)
    with_it = density(pull + slope(theta), stretch + bend(theta))
    gaps = [a - math.exp(epsilon) * b for a, b in ((without, with_it), (with_it, without))]
    return max(np.sum(np.maximum(gap, 0)) * (theta[1] - theta[0]) for gap in gaps)


def derivatives(loss, target, norm_of_row=1.0):
    def slope(theta):
        return (
            loss.slopes(norm_of_row * theta[:, None], np.full(len(theta), target))[:, 0]
            * norm_of_row
        )

    def bend(theta):
        ones = np.ones((len(theta), 1))
        bends = loss.bends(norm_of_row * theta[:, None], np.full(len(theta), target), ones)
        return bends[:, 0] * norm_of_row**2

    return slope, bend


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5), HuberHinge(0.05)])
@pytest.mark.parametrize(
    ("epsilon", "sigma", "ridge"), [(1.0, 2.0, 1.0), (0.5, 3.0, 4.0), (3, 1, 0.3)]
)
def test_profile_covers_the_exact_mechanism_and_is_sharper_than_redbergs(
    loss, epsilon, sigma, ridge
):
    task = task_for(loss, epsilon=epsilon)
    claimed = profile_delta(task, sigma, ridge)
    exact = exact_delta(*derivatives(loss, 1.0), epsilon, sigma, ridge)
    assert exact <= claimed * (1 + 1e-6)
    if ridge > task.smoothness:
        published = redberg_delta(epsilon, sigma, ridge, 1.0, task.smoothness)
        assert claimed < published / 1.9


def test_profile_is_tight_for_a_steep_example_without_curvature():
    # Others push θ to where the loss is a straight line: the mechanism is then a Gaussian one.
    def pull(theta):
        return np.full_like(theta, 30.0)

    def none(theta):
        return np.zeros_like(theta)

    loss = Logistic()
    task = task_for(loss, epsilon=1.0)
    exact = exact_delta(*derivatives(loss, 1.0), 1.0, 2.0, 0.9, others=[(pull, none)])
    flat = task_for(loss, epsilon=1.0 + math.log1p(0.25 / 0.9))  # gives the determinant back
    assert exact == pytest.approx(profile_delta(flat, 2.0, 0.9), rel=1e-3)
    assert exact <= profile_delta(task, 2.0, 0.9)


def test_half_the_noise_would_break_the_claim():
    loss = Logistic()
    task = task_for(loss, epsilon=1.0, delta=1e-3)
    ridge = 100.0
    sigma = profile_sigma(task, ridge)
    assert exact_delta(*derivatives(loss, 1.0), 1.0, sigma, ridge) <= 1e-3
    assert exact_delta(*derivatives(loss, 1.0), 1.0, 0.4 * sigma, ridge) > 1e-3


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Softmax(5), SimplexHinge(3)])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_profile_noise_just_meets_the_goal(loss, adjacency):
    task = task_for(loss, adjacency=adjacency, clip=1.0 if isinstance(loss, Squared) else None)
    sigma = profile_sigma(task, 50.0)
    assert profile_delta(task, sigma, 50.0) <= 1e-5 < profile_delta(task, sigma * (1 - 1e-9), 50.0)


def test_replacing_takes_about_twice_the_noise():
    sigmas = [
        profile_sigma(task_for(adjacency=one), 1000.0) for one in ("add-remove", "replace-one")
    ]
    assert 2.0 <= sigmas[1] / sigmas[0] < 2.001


def test_replaced_example_is_covered_in_one_dimension():
    # From label +1 to -1 on the same row, the worst there is: -f'(θ) - f'(-θ) = 1 apart from signs.
    loss = Logistic()
    task = task_for(loss, adjacency="replace-one", epsilon=1.0)
    ridge, sigma = 2.0, 4.0
    theta = np.linspace(-100, 100, 2_000_001)
    densities = []
    for target in (1.0, -1.0):
        slope, bend = derivatives(loss, target)
        densities.append(
            norm.pdf(ridge * theta + slope(theta), scale=sigma) * (ridge + bend(theta))
        )
    gap = np.maximum(densities[0] - math.e * densities[1], 0)
    exact = np.sum(gap) * (theta[1] - theta[0])
    assert 0 < exact <= profile_delta(task, sigma, ridge)


def test_several_classes_are_covered_in_one_dimension():
    # One feature and three classes make three parameters: by sampling the privacy loss itself.
    loss, ridge, sigma, epsilon = Softmax(3), 4.0, 2.0, 1.0
    rng = np.random.default_rng(0)
    tilt = sigma * rng.standard_normal((400_000, 3))
    theta = -tilt / ridge  # the minimum without the example
    target = np.zeros(len(theta))
    gradient = loss.slopes(theta, target)
    hessians = np.stack(
        [loss.bends(theta, target, np.tile(unit, (len(theta), 1))) for unit in np.eye(3)], axis=2
    )
    log_det = np.linalg.slogdet(np.eye(3) + hessians / ridge)[1]
    moved = tilt - gradient
    losses = (np.sum(moved**2, axis=1) - np.sum(tilt**2, axis=1)) / (2 * sigma**2) - log_det
    found = np.mean(np.maximum(0, 1 - np.exp(epsilon - losses)))
    claimed = profile_delta(task_for(loss, epsilon=epsilon), sigma, ridge)
    assert 0.001 < found < claimed


@pytest.mark.parametrize(
    ("loss", "corners"),
    [
        (Logistic(), np.array([[-1.0]])),
        (Squared(), np.array([[-1.0], [1.0]])),
        (Softmax(4), None),
    ],
)
def test_pairs_of_corners_are_no_farther_apart_than_counted(loss, corners):
    rng = np.random.default_rng(0)
    counted = np.sort([far for count, far in _pairs(loss) for _ in range(int(count))])
    for _ in range(300):
        sides = []
        for _ in range(2):
            direction = rng.standard_normal(2)
            row = direction / np.linalg.norm(direction) * rng.choice([1.0, rng.random()])
            label = rng.integers(4)
            ends = np.delete(np.eye(4), label, 0) - np.eye(4)[label] if corners is None else corners
            sides.append([np.outer(end, row).ravel() for end in ends])
        if rng.random() < 0.3:
            sides[1] = [-one for one in sides[0]]
        apart = np.sort([np.linalg.norm(a - b) for a in sides[0] for b in sides[1]])
        longest = 1.0 if corners is not None else math.sqrt(2)
        assert np.all(apart <= counted * longest * (1 + 1e-9))


@pytest.mark.parametrize("norm_of_rows", [0.5, 1.0, 7.0])
def test_cms_noise_scales_with_the_norm_and_smoothness_with_its_square(norm_of_rows):
    # diffprivlib 0.6 takes c·R for the smoothness; R² is right.
    task = task_for(norm=norm_of_rows, delta=0.0, adjacency="replace-one", examples=1000)
    ridge = 20.0 * norm_of_rows**2
    noise = cms_noise(task, ridge)
    left = 1.0 - math.log(1 + 2 * 0.25 / 20 + (0.25 / 20) ** 2)
    assert noise.scale == pytest.approx(2 * norm_of_rows / left)
    assert noise.extra_ridge == 0.0


def test_cms_raises_a_small_ridge():
    task = task_for(norm=3.0, delta=0.0, adjacency="replace-one")
    noise = cms_noise(task, 0.01)
    assert noise.extra_ridge + 0.01 == pytest.approx(0.25 * 9 / math.expm1(0.25))
    assert noise.scale == pytest.approx(2 * 3.0 / 0.5)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_cms_bounds_the_privacy_loss_in_one_dimension(adjacency):
    loss, ridge = Logistic(), 1.5
    task = task_for(loss, delta=0.0, adjacency=adjacency, epsilon=0.8)
    noise = cms_noise(task, ridge)
    theta = np.linspace(-200, 200, 400_001)
    total = ridge + noise.extra_ridge

    def log_density(slope, bend):
        return -np.abs(total * theta + slope(theta)) / noise.scale + np.log(total + bend(theta))

    def zero(values):
        return np.zeros_like(values)

    other = (zero, zero) if adjacency == "add-remove" else derivatives(loss, -1.0)
    gap = np.abs(log_density(*derivatives(loss, 1.0)) - log_density(*other))
    # In one dimension the slopes of both labels add up to 1, so that replacing reaches half of 2L.
    assert (0.5 if adjacency == "add-remove" else 0.25) * 0.8 < gap.max() <= 0.8


def test_bad_arguments_are_refused():
    with pytest.raises(InvalidArgument, match="ridge"):
        redberg_delta(1.0, 5.0, ridge=0.25)
    with pytest.raises(Uncalibratable, match="regularization"):
        profile_sigma(task_for(epsilon=0.1), 0.01)
    assert profile_delta(task_for(epsilon=0.1), 5.0, 0.01) == 1.0
    with pytest.raises(InvalidArgument, match="delta"):
        kifer_sigma(1.0, 0.0)
