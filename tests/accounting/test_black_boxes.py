"""Black boxes against every mechanism of their class that small data sets allow, by enumeration.

A mechanism is a table: a law of its output for each sample of up to three records, of which one may
be null. Tables are drawn at random and tempered so that they just keep the promise under the box's
own adjacency; what they give away on sampled data sets is then summed up exactly, for all pairs of
neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise, product
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from tacit.accounting import (
    AboveThreshold,
    Adjacency,
    ApproxDp,
    Composed,
    Event,
    Exponential,
    Gaussian,
    GaussianMixture,
    Laplace,
    NoisyMax,
    PoissonSampled,
    PureDp,
    RenyiCurve,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedConcentrated,
    UnsupportedEvent,
    ZeroConcentrated,
    compare,
    delta,
    epsilon,
    from_json,
    group,
    to_json,
)
from tacit.accounting.black_boxes import concrete, pure_loss
from tacit.accounting.renyi.profile import renyi_profile
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Sample = tuple[int, ...]
    Law = dict[Sample, float]


ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)
NULL, RECORDS, MOST, OUTPUTS = 0, (0, 1, 2), 3, 8
LOSS = 1.0
SAMPLES = [
    sample
    for size in range(MOST + 1)
    for sample in itertools.combinations_with_replacement(RECORDS, size)
]
PLACE = {sample: index for index, sample in enumerate(SAMPLES)}
REFUSED = {("replace-one", "add-remove"), ("zero-out", "add-remove")}


def neighbours(data: Sample, adjacency: Adjacency) -> Iterator[Sample]:
    """The data sets, no larger, that differ from ``data`` by one step."""
    for index, record in enumerate(data):
        rest = data[:index] + data[index + 1 :]
        if adjacency == "add-remove":
            yield tuple(sorted(rest))
        elif adjacency == "replace-one":
            yield from (tuple(sorted((*rest, other))) for other in RECORDS if other != record)
        elif record != NULL:
            yield tuple(sorted((*rest, NULL)))


def pairs_of(adjacency: Adjacency) -> list[tuple[int, int]]:
    one_way = [
        (PLACE[sample], PLACE[other])
        for sample in SAMPLES
        for other in neighbours(sample, adjacency)
    ]
    return one_way + [(other, sample) for sample, other in one_way]


def poisson(data: Sample, rate: float = 0.3) -> Law:
    law: Law = {}
    for taken in itertools.product((False, True), repeat=len(data)):
        sample = tuple(record for record, one in zip(data, taken, strict=True) if one)
        chance = math.prod(rate if one else 1 - rate for one in taken)
        law[sample] = law.get(sample, 0.0) + chance
    return law


def without_replacement(data: Sample, size: int = 1) -> Law:
    drawn = [tuple(sorted(sample)) for sample in itertools.combinations(data, size)]
    return {sample: drawn.count(sample) / len(drawn) for sample in drawn}


def with_replacement(data: Sample, size: int = 2) -> Law:
    drawn = [tuple(sorted(sample)) for sample in itertools.product(data, repeat=size)]
    return {sample: drawn.count(sample) / len(drawn) for sample in drawn}


Sampler = tuple[Callable[["Sample"], "Law"], Callable[[Event], Event]]
SAMPLERS: dict[str, Sampler] = {
    "none": (lambda data: {data: 1.0}, lambda box: box),
    "poisson": (poisson, lambda box: PoissonSampled(0.3, box)),
    "without": (without_replacement, lambda box: SampledWithoutReplacement(3, 1, box)),
    "two of three": (
        lambda data: without_replacement(data, 2),
        lambda box: SampledWithoutReplacement(3, 2, box),
    ),
    "with": (with_replacement, lambda box: SampledWithReplacement(3, 2, box)),
}


@cache
def tables(own: Adjacency) -> Floats:
    """Laws of shape (mechanism, sample, output) whose largest loss under ``own`` is ``LOSS``."""
    draw = np.random.default_rng(5)
    shape = (60, len(SAMPLES), OUTPUTS)
    sizes = np.array([len(sample) for sample in SAMPLES])
    ones = np.array([sample.count(1) - sample.count(2) for sample in SAMPLES])
    signs = np.where(np.arange(OUTPUTS) % 2 == 0, 1.0, -1.0)
    holds_one = np.array([1.0 if 1 in sample else -1.0 for sample in SAMPLES])
    designed = [np.multiply.outer(score, signs) for score in (ones, sizes, holds_one)]
    logits = np.concatenate(
        [draw.normal(size=shape), draw.choice([-1.0, 1.0], size=shape), np.stack(designed)]
    )
    if own != "add-remove":  # then the size of the sample may be told, by which output it is
        told = np.arange(OUTPUTS) // 2 == sizes[:, None]
        logits = np.concatenate([logits, np.where(told, logits, -np.inf)])
    pairs = np.array(pairs_of(own))
    low, high = np.full(len(logits), 1e-9), np.full(len(logits), 50.0)
    for _ in range(50):
        middle = 0.5 * (low + high)
        logs = log_laws(logits, middle)
        with np.errstate(invalid="ignore"):
            losses = np.nan_to_num(np.abs(logs[:, pairs[:, 0]] - logs[:, pairs[:, 1]]))
        kept = losses.max(axis=(1, 2)) <= LOSS
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    found: Floats = np.exp(log_laws(logits, low))
    return found


def log_laws(logits: Floats, tempers: Floats) -> Floats:
    scaled = logits * tempers[:, None, None]
    logs: Floats = scaled - np.logaddexp.reduce(scaled, axis=-1, keepdims=True)
    return logs


def sampled_laws(laws: Floats, data: Sample, draw: Callable[[Sample], Law]) -> Floats:
    total: Floats = np.zeros((laws.shape[0], laws.shape[2]))
    for sample, chance in draw(data).items():
        total += chance * laws[:, PLACE[tuple(sorted(sample))]]
    return total


@cache
def worst(own: Adjacency, asked: Adjacency, sampler: str, eps: float) -> float:
    """The largest δ at ``eps`` of any table and any neighbours of up to three records."""
    laws, draw, most = tables(own), SAMPLERS[sampler][0], 0.0
    least = 1 if sampler in ("none", "poisson") else MOST  # else the sampler needs three records
    for data in (sample for sample in SAMPLES if len(sample) >= least):
        for other in neighbours(data, asked):
            p, q = sampled_laws(laws, data, draw), sampled_laws(laws, other, draw)
            for one, two in ((p, q), (q, p)):
                gaps = np.maximum(one - math.exp(eps) * two, 0.0).sum(axis=1)
                most = max(most, float(gaps.max()))
    return most


def bound(event: Event, eps: float, asked: Adjacency, accountant: str = "exact") -> float | None:
    try:
        return delta(event, eps, accountant, asked)
    except UnsupportedEvent:
        return None


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("asked", ADJACENCIES)
@pytest.mark.parametrize("own", ADJACENCIES)
def test_no_member_of_its_class_gives_more_away(
    own: Adjacency, asked: Adjacency, sampler: str
) -> None:
    for eps in (0.0, 0.6):
        truth = worst(own, asked, sampler, eps)
        boxes = (PureDp(LOSS, own), ApproxDp(LOSS, 1e-4, own))
        for box in boxes[: 1 if eps else 2]:
            event = SAMPLERS[sampler][1](box)
            found = bound(event, eps, asked)
            assert found is None or truth * (1 - 1e-9) <= found, (eps, truth, found)
            if own == asked:
                unnamed = bound(SAMPLERS[sampler][1](type(box)(*_promise(box))), eps, asked)
                assert unnamed == found


def _promise(box: PureDp | ApproxDp) -> tuple[float, ...]:
    return (box.epsilon,) if isinstance(box, PureDp) else (box.epsilon, box.delta)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("asked", ADJACENCIES)
@pytest.mark.parametrize("own", ADJACENCIES)
def test_what_no_theorem_covers_is_refused(own: Adjacency, asked: Adjacency, sampler: str) -> None:
    refused = sampler in ("none", "poisson") and (own, asked) in REFUSED
    for accountant in ("exact", "basic"):
        if sampler == "with" and accountant == "basic":
            continue
        event = SAMPLERS[sampler][1](PureDp(LOSS, own))
        if not refused:
            assert epsilon(event, 1e-6, accountant, asked) > 0.0
            continue
        with pytest.raises(UnsupportedEvent, match="PureDp"):
            epsilon(event, 1e-6, accountant, asked)


@pytest.mark.parametrize(
    ("own", "asked", "sampler", "eps"),
    [
        ("add-remove", "add-remove", "none", 0.4),
        ("add-remove", "add-remove", "poisson", 0.2),
        ("replace-one", "replace-one", "poisson", 0.95),
        ("zero-out", "zero-out", "poisson", 0.95),
        ("replace-one", "replace-one", "without", 0.2),
    ],
)
def test_some_member_comes_close(
    own: Adjacency, asked: Adjacency, sampler: str, eps: float
) -> None:
    """Else the enumeration would prove nothing."""
    found = bound(SAMPLERS[sampler][1](PureDp(LOSS, own)), eps, asked)
    assert found is not None
    assert worst(own, asked, sampler, eps) > 0.8 * found


def divergence(laws: Floats, pairs: list[tuple[int, int]], order: float) -> float:
    """The largest divergence of this order over the pairs."""
    first, second = np.array(pairs).T
    with np.errstate(divide="ignore"):
        logs = np.log(laws)
    possible = np.isfinite(logs[:, first])
    with np.errstate(invalid="ignore"):
        powers = order * logs[:, first] - (order - 1.0) * logs[:, second]
    moments = np.logaddexp.reduce(np.where(possible, powers, -np.inf), axis=-1)
    return float(moments.max()) / (order - 1.0)


@cache
def curves_of(own: Adjacency) -> tuple[Event, ...]:
    """Promises in other words, which the tables keep."""
    laws, pairs = tables(own), pairs_of(own)
    orders = (1.5, 2.0, 2.5, 4.0, 8.0, 16.0, 32.0)
    values = tuple(divergence(laws, pairs, order) for order in orders)
    # Beyond the last of these orders D/α is below 1/64.
    rho = max(divergence(laws, pairs, order) / order for order in 1 + np.geomspace(1e-3, 63, 25))
    return (
        RenyiCurve(orders, values, own),
        ZeroConcentrated(1.01 * rho, own),
        TruncatedConcentrated(1.01 * rho, 30.0, own),
        Exponential(2.0 * LOSS, own),
    )


@pytest.mark.parametrize("sampler", ["none", "poisson", "without"])
@pytest.mark.parametrize("asked", ADJACENCIES)
@pytest.mark.parametrize("own", ADJACENCIES)
def test_curves_of_a_class_bound_it_too(own: Adjacency, asked: Adjacency, sampler: str) -> None:
    for box in curves_of(own):
        for eps in (0.05, 0.4):
            found = bound(SAMPLERS[sampler][1](box), eps, asked, "rdp")
            assert found is None or worst(own, asked, sampler, eps) * (1 - 1e-9) <= found


def test_a_black_box_is_no_less_than_noise_that_keeps_its_promise() -> None:
    noise = SampledWithoutReplacement(10, 5, Laplace(1.0))
    box = SampledWithoutReplacement(10, 5, PureDp(1.0))
    truth = math.log1p(0.5 * math.expm1(2.0))
    assert truth <= epsilon(noise, 1e-12) * (1 + 1e-9)
    assert truth * (1 - 1e-9) <= epsilon(box, 1e-12) <= truth * (1 + 1e-9)


@pytest.mark.parametrize("accountant", ["exact", "rdp", "basic", "advanced"])
def test_who_was_drawn_may_be_told(accountant: str) -> None:
    event = PoissonSampled(0.01, PureDp(1.0))
    assert epsilon(event, 1e-9, accountant, "replace-one") == pytest.approx(1.0, rel=0.02)
    named = PoissonSampled(0.01, PureDp(1.0, "add-remove"))
    both = math.log((0.99 + 0.01 * math.e) / (0.99 + 0.01 / math.e))
    assert epsilon(named, 1e-9, accountant, "replace-one") == pytest.approx(both, rel=0.02)


def test_compositions_in_a_sample() -> None:
    inner = Composed(PureDp(0.5, "replace-one"), Repeated(ApproxDp(0.1, 1e-9, "replace-one"), 3))
    event = PoissonSampled(0.1, inner)
    assert epsilon(event, 1e-6, adjacency="replace-one") == pytest.approx(0.8, rel=0.02)
    with pytest.raises(UnsupportedEvent, match="PureDp"):
        epsilon(event, 1e-6)
    named = PoissonSampled(0.1, Composed(PureDp(0.5, "add-remove"), PureDp(0.3, "add-remove")))
    assert epsilon(named, 1e-6) <= math.log1p(0.1 * math.expm1(0.8)) * (1 + 1e-9)


def test_choices_know_both_adjacencies_in_a_sample() -> None:
    event = PoissonSampled(0.1, NoisyMax(2.0, noise="laplace"))
    both = math.log((0.9 + 0.1 * math.e) / (0.9 + 0.1 / math.e))
    assert epsilon(event, 1e-9, adjacency="replace-one") == pytest.approx(both, rel=1e-6)


def test_groups_keep_the_adjacency() -> None:
    assert group(PureDp(0.5, "replace-one"), 2) == PureDp(1.0, "replace-one")
    sampled = group(PoissonSampled(0.1, PureDp(0.5)), 2)
    assert sampled == PureDp(2 * math.log1p(0.1 * math.expm1(0.5)), "add-remove")
    with pytest.raises(UnsupportedEvent, match="says nothing of"):
        group(PoissonSampled(0.1, PureDp(0.5, "replace-one")), 2)


@pytest.mark.parametrize("accountant", ["exact", "rdp", "zcdp", "gdp"])
def test_a_mixture_is_refused_where_records_are_replaced(accountant: str) -> None:
    with pytest.raises(UnsupportedEvent, match="under add-remove only"):
        epsilon(GaussianMixture(1.0, (1.0,), (1.0,)), 1e-5, accountant, "replace-one")


def test_the_adjacency_is_written_and_an_old_record_has_none() -> None:
    box = Repeated(ApproxDp(0.5, 1e-6, "zero-out"), 2)
    assert from_json(to_json(box)) == box
    assert '"adjacency": "zero-out"' in to_json(box)
    old = '{"kind": "PureDp", "epsilon": 0.5}'
    assert from_json(old) == PureDp(0.5)
    assert to_json(PureDp(0.5)) == old
    with pytest.raises(ValueError, match="adjacency must be one of"):
        from_json('{"kind": "PureDp", "epsilon": 0.5, "adjacency": "none"}')


# ---- noisy max and sparse vector against the laws of their outcomes, integrated or listed


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
    vector = AboveThreshold(1.0, 1.0, cutoff=3, monotone=True)
    assert pure_loss(vector, "add-remove") == pytest.approx(4.0)
    assert pure_loss(vector, "replace-one") == pytest.approx(1.0 + 6.0)


def answers(queries: list[float], event: AboveThreshold) -> dict[tuple[bool, ...], float]:
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
    event = AboveThreshold(2.0, 3.0, cutoff, monotone=monotone)
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
        AboveThreshold(2.0, 3.0, 1, "gaussian", length=4),
        AboveThreshold(2.0, 3.0, 2, "gaussian", length=4),
        AboveThreshold(2.0, 3.0, 1, "gaussian", monotone=True, length=4),
        AboveThreshold(1.0, 3.0, 2, "laplace"),
        AboveThreshold(1.0, 3.0, 1, "laplace", monotone=True),
    ],
)
def test_the_renyi_curve_of_sparse_vector_bounds_the_truth(event: AboveThreshold) -> None:
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
    event = AboveThreshold(5.0, 10.0, noise="gaussian", length=1000)
    plain = 0.5 * (1 / 5.0) ** 2 + 0.5 * (2 / 10.0) ** 2
    curve = renyi_profile(event, "add-remove", "rdp").curve
    for order in (1.001, 2.0, 8.0, 40.0):
        ours = float(curve(np.array([order]))[0])
        published = plain * order + math.log(1001) / (order - 1.0)
        assert plain * order < ours < published
    assert float(curve(np.array([1.001]))[0]) < 1.0


def test_choices_compose_repeat_and_are_sampled() -> None:
    vector, best = AboveThreshold(20.0, 40.0), NoisyMax(10.0, "exponential", monotone=True)
    whole = Composed(Repeated(best, 5), vector, Gaussian(5.0))
    same = Composed(Repeated(PureDp(0.1), 5), PureDp(pure_loss(vector, "add-remove")), Gaussian(5))
    assert epsilon(whole, 1e-6) == pytest.approx(epsilon(same, 1e-6), rel=1e-9)
    sampled = PoissonSampled(0.1, best)
    same_sampled = epsilon(PoissonSampled(0.1, PureDp(0.1)), 1e-9)
    assert epsilon(sampled, 1e-9) == pytest.approx(same_sampled, rel=1e-11)
    fixed = SampledWithoutReplacement(100, 10, best)  # a sample without the record has another
    assert epsilon(fixed, 1e-9, "basic") == pytest.approx(math.log1p(0.1 * math.expm1(0.2)))
    gumbel = Repeated(NoisyMax(20.0), 100)
    assert epsilon(gumbel, 1e-6) == epsilon(Repeated(Exponential(0.1), 100), 1e-6)


def test_who_knows_what() -> None:
    refused = {row.accountant for row in compare(NoisyMax(2.0, "laplace"), 1e-6) if row.note}
    assert refused == {"gdp", "gdp-clt"}
    noisy = AboveThreshold(5.0, 10.0, noise="gaussian", length=10)
    rows = {row.accountant: row for row in compare(noisy, 1e-6)}
    assert {name for name, row in rows.items() if row.note} == {"gdp", "gdp-clt", "zcdp"}
    assert "no multiple of the order" in rows["zcdp"].note  # why, and not the event once more
    with pytest.raises(UnsupportedEvent, match="AboveThreshold"):
        epsilon(PoissonSampled(0.1, Composed(noisy, Gaussian(1.0))), 1e-6, "gdp")


def test_groups() -> None:
    assert group(NoisyMax(4.0), 2) == NoisyMax(2.0)
    laplace = AboveThreshold(4.0, 8.0, monotone=True)
    assert group(laplace, 2) == AboveThreshold(2.0, 4.0, monotone=True)
    gaussian = AboveThreshold(4.0, 8.0, noise="gaussian", monotone=True, length=3)
    assert group(gaussian, 2) == AboveThreshold(2.0, 4.0, noise="gaussian", length=3)
    assert group(gaussian, 1) == gaussian


@pytest.mark.parametrize(
    "event",
    [
        NoisyMax(0.1, "laplace", True, 1.0),
        AboveThreshold(1.0, 1 / 3, 4, "gaussian", True, 17, math.sqrt(2)),
        AboveThreshold(1.0, 1 / 3),
    ],
)
def test_json(event: NoisyMax | AboveThreshold) -> None:
    assert from_json(to_json(Repeated(event, 3))) == Repeated(event, 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NoisyMax(0.0), "scale must be a positive finite number, got 0.0"),
        (lambda: NoisyMax(1.0, "cauchy"), "noise must be one of .* got 'cauchy'"),
        (lambda: NoisyMax(1.0, monotone=1), "monotone must be True or False, got 1"),
        (lambda: AboveThreshold(1.0, 0.0), "query_scale must be a positive"),
        (lambda: AboveThreshold(1.0, 1.0, 0), "cutoff must be a whole number"),
        (lambda: AboveThreshold(1.0, 1.0, noise="gaussian"), "length must be given with Gaussian"),
        (lambda: AboveThreshold(1.0, 1.0, noise="gumbel"), "noise must be one of"),
        (lambda: AboveThreshold(1.0, 1.0, length=0), "length must be a whole number"),
    ],
)
def test_refusals(make: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()  # type: ignore[operator]
