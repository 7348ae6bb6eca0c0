"""Noisy max and sparse vector against the laws of their outcomes, integrated or listed."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from tacit.accounting import (
    Composed,
    Exponential,
    Gaussian,
    NoisyMax,
    PoissonSampled,
    PureDp,
    Repeated,
    SampledWithoutReplacement,
    SparseVector,
    UnsupportedEvent,
    compare,
    epsilon,
    from_json,
    group,
    to_json,
)
from tacit.accounting.black_boxes import concrete, pure_loss
from tacit.accounting.renyi.profile import renyi_profile
from tacit.errors import InvalidArgument

# Each noise of scale 1: its density and its distribution function.
NOISES = {
    "laplace": (
        lambda x: 0.5 * np.exp(-abs(x)),
        lambda x: 0.5 * np.exp(x) if x < 0 else 1 - 0.5 * np.exp(-x),
    ),
    "gumbel": (
        lambda x: np.exp(-x - np.exp(-x)),
        lambda x: np.exp(-np.exp(-x)),
    ),
    "exponential": (
        lambda x: np.exp(-x) if x >= 0 else 0.0,
        lambda x: -np.expm1(-x) if x >= 0 else 0.0,
    ),
}


def winners(scores: list[float], noise: str, scale: float) -> list[float]:
    """The probability that each score wins."""
    density, below = NOISES[noise]
    found = []
    for i, score in enumerate(scores):
        others = [other for j, other in enumerate(scores) if j != i]

        def chance(x: float, score: float = score, others: list[float] = others) -> float:
            beaten = [below((score + x * scale - other) / scale) for other in others]
            return float(density(x) * math.prod(beaten))

        kinks = sorted((other - score) / scale for other in others if abs(other - score) < 40)
        ends = [-40.0, *kinks, 0.0, 60.0]
        pieces = sorted(set(ends))
        found.append(
            math.fsum(quad(chance, a, b, epsabs=1e-13, limit=200)[0] for a, b in pairwise(pieces))
        )
    assert math.fsum(found) == pytest.approx(1.0, abs=1e-9)
    return found


def losses(one: list[float], other: list[float], noise: str, scale: float) -> list[float]:
    pairs = zip(winners(one, noise, scale), winners(other, noise, scale), strict=True)
    return [math.log(a / b) for a, b in pairs]


@pytest.mark.parametrize("noise", ["laplace", "gumbel", "exponential"])
@pytest.mark.parametrize("monotone", [False, True])
def test_noisy_max_attains_its_loss_and_never_exceeds_it(noise: str, monotone: bool) -> None:
    event = NoisyMax(1.5, noise, monotone)  # type: ignore[arg-type]
    bound = pure_loss(event, "add-remove")
    assert bound == pytest.approx((1 if monotone else 2) / 1.5)
    low = 0.0 if monotone else -1.0
    worst = 0.0
    # The last base lets the first candidate win from far behind: there the loss is attained.
    for base in ([0.0, 0.0, 0.0], [0.0, 0.7, 2.0], [0.0, 9.0, 9.0]):
        for moves in product((low, 1.0), repeat=3):
            moved = [a + b for a, b in zip(base, moves, strict=True)]
            worst = max(worst, *map(abs, losses(base, moved, noise, 1.5)))
    assert 0.98 * bound < worst <= bound * (1.0 + 1e-6)


def test_permute_and_flip_has_no_bounded_range() -> None:
    """Permute-and-flip from equal scores to scores 2 apart: the loss spans more than ε = 2."""
    spread = {
        noise: np.ptp(losses([0.0, 0.0], [1.0, -1.0], noise, 1.0))
        for noise in ("gumbel", "exponential")
    }
    assert spread["gumbel"] == pytest.approx(2.0, rel=1e-6)
    assert spread["exponential"] == pytest.approx(2.0 + math.log(2.0 - math.exp(-2.0)), rel=1e-6)
    assert concrete(NoisyMax(1.0), "add-remove") == Exponential(2.0)
    assert concrete(NoisyMax(1.0, "exponential"), "add-remove") == PureDp(2.0)


def test_adjacency_moves_the_scores() -> None:
    counts = NoisyMax(1.0, "laplace", monotone=True, replace_distance=1.0)
    assert pure_loss(counts, "add-remove") == pure_loss(counts, "zero-out") == 1.0
    assert pure_loss(counts, "replace-one") == 2.0  # one count falls while another rises
    anything = NoisyMax(1.0, "laplace")
    assert pure_loss(anything, "replace-one") == 4.0
    assert epsilon(anything, 1e-9, "basic", "replace-one") == 4.0
    vector = SparseVector(1.0, 1.0, cutoff=3, monotone=True)
    assert pure_loss(vector, "add-remove") == pytest.approx(4.0)
    assert pure_loss(vector, "replace-one") == pytest.approx(1.0 + 6.0)


def answers(queries: list[float], event: SparseVector) -> dict[tuple[bool, ...], float]:
    """The probability of every sequence of answers, at threshold 0, by integrating its noise."""
    if event.noise == "laplace":
        b = event.threshold_scale
        z, weight = _panels(lambda x: 0.5 * np.exp(-np.abs(x) / b) / b, 45 * b, queries)

        def above(x: np.ndarray) -> np.ndarray:
            x = x / event.query_scale
            return np.where(x < 0, 1 - 0.5 * np.exp(np.minimum(x, 0)), 0.5 * np.exp(-np.abs(x)))
    else:
        s = event.threshold_scale
        z, weight = _panels(
            lambda x: np.exp(-0.5 * (x / s) ** 2) / s / np.sqrt(2 * np.pi), 12 * s, queries
        )

        def above(x: np.ndarray) -> np.ndarray:
            return ndtr(-x / event.query_scale)

    found: dict[tuple[bool, ...], float] = {}

    def go_on(told: tuple[bool, ...], chance: np.ndarray) -> None:
        if len(told) == len(queries) or sum(told) == event.cutoff:
            found[told] = float(chance @ weight)
            return
        hit = above(z - queries[len(told)])
        go_on((*told, True), chance * hit)
        go_on((*told, False), chance * (1.0 - hit))

    go_on((), np.ones_like(z))
    assert math.fsum(found.values()) == pytest.approx(1.0, abs=1e-9)
    return found


def _panels(density, reach: float, queries: list[float]):  # type: ignore[no-untyped-def]
    """Gauss-Legendre nodes between the kinks of the integrand."""
    ends = sorted({-reach, reach, 0.0, *(q for q in queries if abs(q) < reach)})
    nodes, weights = np.polynomial.legendre.leggauss(120)
    z = np.concatenate([0.5 * (b - a) * nodes + 0.5 * (a + b) for a, b in pairwise(ends)])
    w = np.concatenate([0.5 * (b - a) * weights for a, b in pairwise(ends)])
    return z, w * density(z)


QUERIES = ([0.0, 0.0, 0.0, 0.0], [-6.0, -6.0, -6.0, 6.0], [-1.0, 0.5, -2.0, 1.0], [9.0] * 4)


@pytest.mark.parametrize("cutoff", [1, 2])
@pytest.mark.parametrize("monotone", [False, True])
def test_sparse_vector_stays_within_its_loss(cutoff: int, monotone: bool) -> None:
    event = SparseVector(2.0, 3.0, cutoff, monotone=monotone)
    bound = pure_loss(event, "add-remove")
    assert bound == pytest.approx(1 / 2.0 + (1 if monotone else 2) * cutoff / 3.0)
    worst = 0.0
    for base in QUERIES:
        one = answers(base, event)
        for moves in product((0.0 if monotone else -1.0, 1.0), repeat=4):
            other = answers([a + b for a, b in zip(base, moves, strict=True)], event)
            worst = max(worst, *(abs(math.log(one[a] / other[a])) for a in one))
    assert 0.5 * bound < worst <= bound * (1.0 + 1e-7)


@pytest.mark.parametrize(
    "event",
    [
        SparseVector(2.0, 3.0, 1, "gaussian", length=4),
        SparseVector(2.0, 3.0, 2, "gaussian", length=4),
        SparseVector(2.0, 3.0, 1, "gaussian", monotone=True, length=4),
        SparseVector(1.0, 3.0, 2, "laplace"),
        SparseVector(1.0, 3.0, 1, "laplace", monotone=True),
    ],
)
def test_the_renyi_curve_of_sparse_vector_bounds_the_truth(event: SparseVector) -> None:
    orders = np.array([1.1, 1.5, 2.0, 4.0, 10.0, 30.0])
    bound = renyi_profile(event, "add-remove", "rdp").curve(orders)
    worst = np.zeros_like(orders)
    for base in QUERIES:
        one = answers(base, event)
        for moves in product((0.0 if event.monotone else -1.0, 1.0), repeat=4):
            other = answers([a + b for a, b in zip(base, moves, strict=True)], event)
            for p, q in ((one, other), (other, one)):
                logs = [[math.log(p[a]), math.log(q[a])] for a in p if min(p[a], q[a]) > 1e-280]
                first, second = np.array(logs).T
                moments = np.logaddexp.reduce(
                    orders[:, None] * first + (1.0 - orders[:, None]) * second, axis=1
                )
                worst = np.maximum(worst, moments / (orders - 1.0))
    assert np.all(worst <= bound * (1.0 + 1e-9))
    assert worst[-1] >= 0.08 * bound[-1]  # the bound is about them


def test_counting_the_answers_costs_nothing_at_small_orders() -> None:
    """Where ln N/(α-1) of the published length-capped bound explodes, ours has a limit."""
    event = SparseVector(5.0, 10.0, noise="gaussian", length=1000)
    plain = 0.5 * (1 / 5.0) ** 2 + 0.5 * (2 / 10.0) ** 2
    curve = renyi_profile(event, "add-remove", "rdp").curve
    for order in (1.001, 2.0, 8.0, 40.0):
        ours = float(curve(np.array([order]))[0])
        published = plain * order + math.log(1001) / (order - 1.0)
        assert plain * order < ours < published
    assert float(curve(np.array([1.001]))[0]) < 1.0


def test_choices_compose_repeat_and_are_sampled() -> None:
    vector, best = SparseVector(20.0, 40.0), NoisyMax(10.0, "exponential", monotone=True)
    whole = Composed(Repeated(best, 5), vector, Gaussian(5.0))
    same = Composed(Repeated(PureDp(0.1), 5), PureDp(pure_loss(vector, "add-remove")), Gaussian(5))
    assert epsilon(whole, 1e-6) == pytest.approx(epsilon(same, 1e-6), rel=1e-12)
    sampled = PoissonSampled(0.1, best)
    assert epsilon(sampled, 1e-9) == epsilon(PoissonSampled(0.1, PureDp(0.1)), 1e-9)
    fixed = SampledWithoutReplacement(100, 10, best)  # a sample without the record has another
    assert epsilon(fixed, 1e-9, "basic") == pytest.approx(math.log1p(0.1 * math.expm1(0.2)))
    gumbel = Repeated(NoisyMax(20.0), 100)
    assert epsilon(gumbel, 1e-6) == epsilon(Repeated(Exponential(0.1), 100), 1e-6)


def test_who_knows_what() -> None:
    refused = {row.accountant for row in compare(NoisyMax(2.0, "laplace"), 1e-6) if row.note}
    assert refused == {"gdp", "gdp-clt"}
    noisy = SparseVector(5.0, 10.0, noise="gaussian", length=10)
    rows = {row.accountant: row for row in compare(noisy, 1e-6)}
    assert {name for name, row in rows.items() if row.note} == {"gdp", "gdp-clt", "zcdp"}
    assert "SparseVector" in rows["zcdp"].note
    with pytest.raises(UnsupportedEvent, match="SparseVector"):
        epsilon(PoissonSampled(0.1, Composed(noisy, Gaussian(1.0))), 1e-6, "gdp")


def test_groups() -> None:
    assert group(NoisyMax(4.0), 2) == NoisyMax(2.0)
    laplace = SparseVector(4.0, 8.0, monotone=True)
    assert group(laplace, 2) == SparseVector(2.0, 4.0, monotone=True)
    gaussian = SparseVector(4.0, 8.0, noise="gaussian", monotone=True, length=3)
    assert group(gaussian, 2) == SparseVector(2.0, 4.0, noise="gaussian", length=3)
    assert group(gaussian, 1) == gaussian


@pytest.mark.parametrize(
    "event",
    [
        NoisyMax(0.1, "laplace", True, 1.0),
        SparseVector(1.0, 1 / 3, 4, "gaussian", True, 17, math.sqrt(2)),
        SparseVector(1.0, 1 / 3),
    ],
)
def test_json(event: NoisyMax | SparseVector) -> None:
    assert from_json(to_json(Repeated(event, 3))) == Repeated(event, 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NoisyMax(0.0), "scale must be a positive finite number, got 0.0"),
        (lambda: NoisyMax(1.0, "cauchy"), "noise must be one of .* got 'cauchy'"),
        (lambda: NoisyMax(1.0, monotone=1), "monotone must be True or False, got 1"),
        (lambda: SparseVector(1.0, 0.0), "query_scale must be a positive"),
        (lambda: SparseVector(1.0, 1.0, 0), "cutoff must be a whole number"),
        (lambda: SparseVector(1.0, 1.0, noise="gaussian"), "length must be given with Gaussian"),
        (lambda: SparseVector(1.0, 1.0, noise="gumbel"), "noise must be one of"),
        (lambda: SparseVector(1.0, 1.0, length=0), "length must be a whole number"),
    ],
)
def test_refusals(make: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()  # type: ignore[operator]
