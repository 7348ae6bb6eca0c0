"""Mechanisms given by what is known of them, and what is handed to others, and back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

from tacit.accounting import (
    Composed,
    Gaussian,
    Laplace,
    LossDistribution,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    UnsupportedEvent,
    bounds,
    delta,
    epsilon,
    from_dp_accounting,
    from_json,
    from_laws,
    from_profile,
    from_tradeoff,
    loss_distribution,
    profile,
    read_tradeoff,
    to_dp_accounting,
    to_json,
    write_tradeoff,
)
from tacit.errors import InvalidArgument

RUN = Repeated(PoissonSampled(0.01, Gaussian(1.0)), 500)
PLACES = np.linspace(0.0, 4.0, 201)


def test_a_profile_is_bounded_and_met_at_its_points() -> None:
    points = [0.0, 0.5, 1.0, 2.0, 4.0]
    deltas = [delta(Gaussian(1.0), one) for one in points]
    box = from_profile(points, deltas)
    for one, other in zip(points, deltas, strict=True):
        assert delta(box, one) == pytest.approx(other, rel=1e-9)
    for place in PLACES.tolist():
        assert delta(box, place) >= delta(Gaussian(1.0), place) * (1 - 1e-12)
    twice = [delta(Repeated(box, 2), one) for one in points]
    assert all(a > delta(Repeated(Gaussian(1.0), 2), b) for a, b in zip(twice, points, strict=True))


def test_one_point_is_the_black_box_of_that_pair() -> None:
    """Of (ε, δ) alone, (Kairouz, Oh & Viswanath 2015) tell the worst."""
    box = from_profile([1.0], [1e-6])
    for place in (0.0, 0.3, 0.9, 1.0, 3.0):
        odds = max(0.0, (math.e - math.exp(place)) / (1 + math.e))
        assert delta(box, place) == pytest.approx(1e-6 + (1 - 1e-6) * odds, abs=3e-11)


def test_noise_in_the_points_does_not_void_the_bound() -> None:
    random = np.random.default_rng(3)
    points = np.linspace(0.0, 3.0, 40).tolist()
    deltas = [delta(Gaussian(1.0), one) * float(random.uniform(1.0, 1.3)) for one in points]
    box = from_profile(points, deltas)
    for place in PLACES.tolist():
        assert delta(box, place) >= delta(Gaussian(1.0), place) * (1 - 1e-12)


def test_a_tradeoff_curve_bounds_the_mechanism() -> None:
    rates = np.concatenate([[0.0], np.geomspace(1e-9, 1e-2, 300), np.linspace(0.011, 1.0, 600)])
    errors = norm.cdf(norm.isf(rates) - 0.5)
    box = from_tradeoff(rates.tolist(), errors.tolist())
    for place in (0.0, 0.2, 0.7, 1.5):
        truth = delta(Gaussian(2.0), place)
        assert truth <= delta(box, place) <= 1.2 * truth + 1e-3
    assert epsilon(box, 1e-5) >= epsilon(Gaussian(2.0), 1e-5)


def test_two_laws_and_two_densities() -> None:
    p, q = (0.5, 0.3, 0.2, 0.0), (0.25, 0.35, 0.3, 0.1)
    box = from_laws(p, q)
    for place in (0.0, 0.1, 0.5, 1.0):
        ways = [
            sum(max(0.0, a - math.exp(place) * b) for a, b in zip(x, y, strict=True))
            for x, y in ((p, q), (q, p))
        ]
        assert delta(box, place) == pytest.approx(max(ways), rel=1e-9)
        assert delta(box, place, adjacency="remove-only") == pytest.approx(ways[0], abs=3e-11)
        assert delta(box, place, adjacency="add-only") == pytest.approx(ways[1], rel=1e-9)
    edges = np.concatenate([[-np.inf], np.linspace(-9.0, 10.0, 2000), [np.inf]])
    cells = np.diff(norm.cdf(edges - 1.0)), np.diff(norm.cdf(edges))
    losses = edges - 0.5
    box = from_laws(*(one.tolist() for one in cells), losses[:-1].tolist(), losses[1:].tolist())
    for place in (0.0, 1.0, 3.0):
        truth = delta(Gaussian(1.0), place)
        assert truth <= delta(box, place) <= truth * (1 + 1e-3)


def test_export_bounds_the_event_and_comes_back() -> None:
    law = loss_distribution(RUN, spacing=5e-3)
    for place in (0.0, 0.5, 1.0, 2.0):
        truth = delta(RUN, place)
        assert truth <= delta(law, place) <= truth * 1.01 + 2e-12
    both = to_dp_accounting(law, 5e-3)
    assert sum(both["rounded_probability_mass_function"].values()) == pytest.approx(1.0, abs=1e-9)
    again = from_dp_accounting(json.dumps(both))
    assert epsilon(again, 1e-5) == pytest.approx(epsilon(law, 1e-5), rel=1e-9)
    asked = {"rounded_probability_mass_function": {0: 1.0}, "infinity_mass": 0.0,
             "value_discretization_interval": 0.1, "pessimistic_estimate": False}  # fmt: skip
    with pytest.raises(InvalidArgument, match="optimistic"):
        from_dp_accounting(asked)


@pytest.mark.parametrize(
    ("least", "points"), [(1e-6, 40), pytest.param(1e-8, 100, marks=pytest.mark.slow)]
)
def test_points_of_a_tradeoff_as_text(least: float, points: int) -> None:
    rates = np.geomspace(least, 1.0, points).tolist()
    text = write_tradeoff(RandomizedResponse(1.0), rates)
    for line in text.splitlines()[1::5]:
        rate, error = map(float, line.split(","))
        truth = max(1 - math.e * rate, (1 - rate) / math.e, 0.0)
        assert error <= truth + 1e-12
        assert error == pytest.approx(truth, abs=1e-3)
    assert epsilon(read_tradeoff(text), 0.05) >= epsilon(RandomizedResponse(1.0), 0.05)
    with pytest.raises(InvalidArgument, match="first line"):
        read_tradeoff("0,1\n")


def test_it_is_an_event_like_others() -> None:
    box = from_profile([0.0, 1.0], [0.3, 1e-7])
    assert from_json(to_json(box)) == box
    assert bounds(Composed(box, Laplace(2.0)), 1e-5).upper > epsilon(box, 1e-5)
    assert profile(box).advantage() == pytest.approx(0.3)
    with pytest.raises(UnsupportedEvent):
        epsilon(PoissonSampled(0.1, box), 1e-5)
    named = from_profile([1.0], [1e-7], "add-remove")
    with pytest.raises(UnsupportedEvent):
        epsilon(named, 1e-5, adjacency="replace-one")
    with pytest.raises(InvalidArgument, match="mass of Q"):
        LossDistribution((-1.0,), (1.0,))
    with pytest.raises(InvalidArgument, match="add up to 1"):
        LossDistribution((1.0,), (0.5,))


def test_what_a_law_lacks_of_one_may_be_an_infinite_loss() -> None:
    short = LossDistribution((0.0,), (1.0 - 9e-10,))
    assert delta(short, 0.0) == pytest.approx(9.2e-10, rel=1e-6)  # a masses' slack of 2e-11 too
    assert epsilon(short, 1e-10) == math.inf
    assert from_json(to_json(short)) == short
    law = {"infinity_mass": 0.0, "value_discretization_interval": 0.1, "pessimistic_estimate": True}
    read = from_dp_accounting(law | {"rounded_probability_mass_function": {"0": 1.0 - 9e-10}})
    assert read.infinite == pytest.approx(9e-10, rel=1e-6)
    for masses in ({"0": 0.5}, {}):
        with pytest.raises(InvalidArgument, match="add up to 1"):
            from_dp_accounting(law | {"rounded_probability_mass_function": masses})
    rounded = LossDistribution((0.1, -0.1), (0.52497918747894, 0.47502081252106))
    assert epsilon(rounded, 0.0) == pytest.approx(0.1)
