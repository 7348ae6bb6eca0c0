"""Two sampled steps: the one integral against a plain double one in high precision."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting.exact import two_steps
from tacit.accounting.exact.two_steps import TwoStepProfile


@cache
def _truth(profile: TwoStepProfile, epsilon: float) -> mp.mpf:
    """δ(ε): over all of the first step's outcomes, and without the symmetry of the two."""
    q, sigma = mp.mpf(profile.rate), mp.mpf(profile.sigma)
    mean, odds = 1 / (2 * sigma**2), q / (1 - q)
    sign = -1 if profile.reverse else 1

    def density(y: mp.mpf, rate: mp.mpf) -> mp.mpf:
        bells = [mp.exp(-(((y + side * mean) * sigma) ** 2) / 2) for side in (1, -1)]
        return ((1 - rate) * bells[0] + rate * bells[1]) * sigma / mp.sqrt(2 * mp.pi)

    def tail(y: mp.mpf, rate: mp.mpf) -> mp.mpf:
        scale = sign * sigma / mp.sqrt(2)
        ends = [mp.erfc((y + side * mean) * scale) / 2 for side in (1, -1)]
        return (1 - rate) * ends[0] + rate * ends[1]

    most = mp.exp(sign * mp.mpf(epsilon)) / (1 - q) ** 2 - 1
    edge = mp.log(most / odds)

    def mass(rate: mp.mpf) -> mp.mpf:
        def inner(y: mp.mpf) -> mp.mpf:
            w = odds * mp.exp(y)
            return density(y, rate) * tail(mp.log((most - w) / (1 + w) / odds), rate)

        ends = [*mp.linspace(-mean - 12 / sigma, edge - 1, 12), edge - 0.1, edge - 0.001]
        inside = mp.quad(inner, [*ends, edge - mp.mpf(10) ** -15], maxdegree=4)
        return inside + (0 if profile.reverse else tail(edge, rate))

    with mp.workdps(22):
        laws = (mp.mpf(0), q) if profile.reverse else (q, mp.mpf(0))
        return mass(laws[0]) - mp.exp(mp.mpf(epsilon)) * mass(laws[1])


@pytest.mark.parametrize("nodes", [3, 6, 24])
@pytest.mark.parametrize(
    ("profile", "epsilon"),
    [
        (TwoStepProfile(1e-6, 0.614), 2e-3),
        (TwoStepProfile(0.1, 3.0), 0.3),
        (TwoStepProfile(0.2, 0.8, reverse=True), 0.3),
    ],
)
def test_the_errors_are_bounded_however_few_the_nodes(
    profile: TwoStepProfile, epsilon: float, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, weights = np.polynomial.legendre.leggauss(nodes)
    shape = two_steps._SHAPE * 3.0 ** (2 * (two_steps._NODES - nodes))
    monkeypatch.setattr(two_steps, "_X", places)
    monkeypatch.setattr(two_steps, "_WEIGHTS", weights)
    monkeypatch.setattr(two_steps, "_SHAPE", shape)
    found, truth = profile.enclose(epsilon), _truth(profile, epsilon)
    # The digits of the truth, of both masses: their difference has fewer.
    off = abs(found.estimate - truth) - mp.mpf(10) ** -17 * abs(found.slope)
    assert off <= found.errors.above
    if nodes == 24:
        assert found.errors.above <= -1e-11 * found.slope
    if nodes == 3:
        assert off > found.errors.rounding  # so few do make an error


def test_no_loss_of_plain_noise_is_larger_than_both_steps_allow() -> None:
    found = TwoStepProfile(0.1, 1.0, reverse=True).enclose(0.211)
    assert found.upper < 1e-280


def test_the_slope_is_that_of_the_values() -> None:
    profile = TwoStepProfile(1e-3, 0.7)
    low, middle, high = (profile.enclose(epsilon) for epsilon in (0.4, 0.4001, 0.4002))
    assert (high.estimate - low.estimate) / 2e-4 == pytest.approx(middle.slope, rel=1e-6)


def test_guesses_are_near() -> None:
    profile = TwoStepProfile(1e-4, 0.8)
    assert profile.enclose(profile.guess(1e-6)).estimate == pytest.approx(1e-6, rel=0.1)


def test_what_lies_before_the_first_node_is_bounded_by_the_largest_tail() -> None:
    # Next to the largest loss all of the region is far out, and its edge bends at every y.
    profile = TwoStepProfile(0.3, 1.0, reverse=True)
    epsilon = -2.0 * float(np.log1p(-0.3)) * (1.0 - 1e-4)
    region = two_steps._Region(profile, epsilon)
    before = replace(profile, reverse=True)
    first, most, odds = region._first, region._most, profile.odds
    y = np.linspace(first - 8.0, first, 4001)
    w = odds * np.exp(y)
    tail = profile.tail(0.0, np.log((most - w) / ((1.0 + w) * odds)))
    left = 2.0 * float((np.diff(before.tail(0.0, y)) * tail[1:]).sum())  # no more than it is
    _, (_, truncation, _) = region.mass(0.0)
    assert 0.0 < left <= truncation


@pytest.mark.parametrize("epsilon", [600.5, 711.0, 1e6])
def test_a_loss_beyond_all_numbers_is_no_warning(epsilon: float) -> None:
    for reverse in (False, True):
        assert TwoStepProfile(1e-9, 0.3, reverse=reverse).enclose(epsilon).upper <= 1e-289
