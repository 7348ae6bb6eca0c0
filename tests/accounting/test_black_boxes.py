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
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest

from tacit.accounting import (
    Adjacency,
    ApproxDp,
    Composed,
    Event,
    Exponential,
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
    delta,
    epsilon,
    from_json,
    group,
    to_json,
)

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
    sizes_differ = sampler in ("none", "poisson") and (own, asked) in REFUSED
    refused = sizes_differ or (sampler == "with" and asked == "add-remove")
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
