"""Samplers against every sample of small data sets: what neighbours release, as Gaussian mixtures.

Records are -1, 0 or 1, and a release is the sum of a sample with Gaussian noise. The laws of the
sum are enumerated, and the hockey-stick divergence of the two mixtures is computed from them.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.accounting import (
    Gaussian,
    Laplace,
    PoissonSampled,
    SampledWithoutReplacement,
    SampledWithReplacement,
    UnsupportedEvent,
    bounds,
    delta,
    epsilon,
    group,
)

if TYPE_CHECKING:
    from tacit.accounting import Adjacency, Event

Data = tuple[int, ...]
Law = dict[float, float]
Sampler = Callable[[Data], Law]


def truncated(rate: float, cap: int) -> Sampler:
    @cache
    def law(data: Data) -> Law:
        found: dict[float, float] = defaultdict(float)
        for kept in itertools.product((0, 1), repeat=len(data)):
            chance = math.prod(rate if one else 1 - rate for one in kept)
            sample = [x for x, one in zip(data, kept, strict=True) if one]
            if len(sample) <= cap:
                found[sum(sample)] += chance
                continue
            subsets = list(itertools.combinations(sample, cap))
            for subset in subsets:
                found[sum(subset)] += chance / len(subsets)
        return dict(found)

    return law


def fixed(size: int) -> Sampler:
    @cache
    def law(data: Data) -> Law:
        subsets = list(itertools.combinations(data, size))
        found: dict[float, float] = defaultdict(float)
        for subset in subsets:
            found[sum(subset)] += 1 / len(subsets)
        return dict(found)

    return law


def drawn(size: int) -> Sampler:
    @cache
    def law(data: Data) -> Law:
        found: dict[float, float] = defaultdict(float)
        for draws in itertools.product(data, repeat=size):
            found[sum(draws)] += len(data) ** -size
        return dict(found)

    return law


def divergence(p: Law, q: Law, sigma: float, eps: float) -> float:
    """H = ∫ (p - e^ε·q)₊: between the places where the integrand changes its sign."""
    x = np.linspace(-12.0 - 8 * sigma, 12.0 + 8 * sigma, 1201)
    weights = np.array([*p.values(), *(-math.exp(eps) * one for one in q.values())])
    scaled = (x[:, None] - np.array([*p, *q])) / sigma
    gap = np.exp(-0.5 * scaled**2) @ weights
    (turns,) = np.nonzero(np.diff(np.sign(gap)))
    share = gap[turns] / (gap[turns] - gap[turns + 1])
    edges = np.concatenate([[-100.0], x[turns] + share * (x[1] - x[0]), [100.0]])
    places = (edges[:, None] - np.array([*p, *q])) / sigma
    parts = np.diff(ndtr(places) @ weights)
    return float(np.maximum(parts, 0.0).sum())


def neighbours(others: Data, adjacency: str) -> list[tuple[Data, Data]]:
    if adjacency == "add-remove":
        return [((*others, 1), others)]
    return [((*others, 1), (*others, -1 if adjacency == "replace-one" else 0))]


def worst(sampler: Sampler, people: int, adjacency: str, sigma: float, eps: float) -> float:
    most = 0.0
    for others in itertools.combinations_with_replacement((-1, 1), people - 1):
        for one, two in neighbours(others, adjacency):
            p, q = sampler(one), sampler(two)
            most = max(most, divergence(p, q, sigma, eps), divergence(q, p, sigma, eps))
    return most


CASES: dict[str, tuple[Sampler, Callable[[Gaussian], Event]]] = {
    "truncated": (
        truncated(0.4, 2),
        lambda noise: PoissonSampled(0.4, noise, cap=2, population=5),
    ),
    "fixed": (fixed(2), lambda noise: SampledWithoutReplacement(5, 2, noise)),
    "one": (fixed(1), lambda noise: SampledWithoutReplacement(5, 1, noise)),
    "drawn": (drawn(3), lambda noise: SampledWithReplacement(5, 3, noise)),
}


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
@pytest.mark.parametrize("case", CASES)
def test_no_neighbours_give_more_away(case: str, adjacency: Adjacency) -> None:
    sampler, event = CASES[case]
    for sigma, eps in ((0.7, 1.0), (2.0, 0.1)):
        truth = worst(sampler, 5, adjacency, sigma, eps)
        found = delta(event(Gaussian(sigma)), eps, adjacency=adjacency)
        assert truth <= found * (1 + 1e-6) + 1e-12, (sigma, eps, truth, found)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
def test_a_truncated_sample_of_fewer_records_gives_no_more_away(adjacency: Adjacency) -> None:
    """``population`` is a bound: with fewer records the sample is full less often."""
    event = PoissonSampled(0.4, Gaussian(0.7), cap=1, population=5)
    found = delta(event, 0.0, adjacency=adjacency)
    for people in (1, 2, 4):
        truth = worst(truncated(0.4, 1), people, adjacency, 0.7, 0.0)
        assert truth <= found * (1 + 1e-6), (people, truth, found)


@pytest.mark.parametrize("noise", [Gaussian(1.0, replace_distance=1.0), Laplace(1.0, 1.0)])
def test_a_bound_on_the_records_never_lowers_what_a_truncated_sample_costs(noise: Event) -> None:
    # A record may be the only one. Where replacing it moves no more than adding it, a full sample
    # hides it: at a bound of 100,000 records δ was a sixth of this.
    alone = PoissonSampled(0.5, noise)
    for records in (2, 100_000):
        full = PoissonSampled(0.5, noise, cap=1, population=records)
        assert delta(full, 0.4) >= delta(alone, 0.4) * (1 - 1e-6), records


def test_a_zeroed_record_of_a_fixed_sample_costs_more_than_distance_one() -> None:
    """All others at -1: whoever is not drawn leaves a record two away, so that 1 is no bound."""
    p, q = fixed(1)((1, -1, -1, -1, -1)), fixed(1)((0, -1, -1, -1, -1))
    truth = divergence(p, q, 0.5, 1.0)
    event = SampledWithoutReplacement(5, 1, Gaussian(0.5))
    found = delta(event, 1.0, adjacency="zero-out")
    assert found == pytest.approx(truth, rel=1e-3)  # and it is attained
    near = delta(PoissonSampled(0.2, Gaussian(0.5)), 1.0)  # the record alone, 1 away
    assert near < 0.75 * truth
    assert found < 0.95 * delta(event, 1.0, adjacency="replace-one")


@pytest.mark.parametrize("size", [2, 3])
def test_groups_of_samples(size: int) -> None:
    for others in ((-1, -1, -1, -1), (-1, 0, 1, 1), (0, 0, 0, 0)):
        both = (*others, *(1,) * size)
        for sampler, event in (
            (fixed(2), SampledWithoutReplacement(len(both), 2, Gaussian(0.8))),
            (truncated(0.3, 2), PoissonSampled(0.3, Gaussian(0.8), 2, len(both))),
        ):
            p, q = sampler(both), sampler(others)
            for eps in (0.0, 0.5, 2.0):
                truth = max(divergence(p, q, 0.8, eps), divergence(q, p, 0.8, eps))
                found = delta(group(event, size), eps)
                assert truth <= found * (1 + 1e-6), (others, eps, truth, found)
    with pytest.raises(UnsupportedEvent):
        epsilon(
            group(SampledWithoutReplacement(9, 2, Gaussian(1)), size), 1e-5, "exact", "zero-out"
        )


def test_the_published_lot_of_ten_is_finite() -> None:
    answers = [
        epsilon(PoissonSampled(0.01, Gaussian(1.0), cap=cap, population=1000), 1e-5)
        for cap in (16, 30, 40)
    ]
    assert all(math.isfinite(one) for one in answers)
    assert answers == sorted(answers, reverse=True)
    free = epsilon(PoissonSampled(0.01, Gaussian(1.0)), 1e-5)
    assert answers[-1] == pytest.approx(free, rel=1e-3)
    assert answers[-1] >= free


def test_a_group_of_a_thousand_is_quick_and_one_of_sixty_the_same() -> None:
    step = PoissonSampled(0.002, Gaussian(40.0))
    small = group(step, 64)
    found, wide = bounds(small, 1e-6), bounds(group(step, 65), 1e-6)
    assert found.upper < wide.lower < 1.02 * found.upper  # written out, and by its ratios
    assert bounds(group(step, 1000), 1e-6).width < 1e-8
