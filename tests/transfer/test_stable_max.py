"""Sparse-vector PATE: the law of every outcome of tiny crowds, for all neighbours."""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np
import pytest

from tacit.accounting import Repeated, delta, epsilon
from tacit.errors import InvalidArgument
from tacit.transfer import Votes
from tacit.transfer.stable_max import (
    StableMax,
    covering_event,
    distances,
    event_of,
    round_epsilon,
)

UNSTABLE, UNASKED = "unstable", "unasked"


def laplace_tail(x):
    """P(noise > x) for Laplace noise of scale 1."""
    return np.where(x > 0, 0.5 * np.exp(-np.abs(x)), 1 - 0.5 * np.exp(-np.abs(x)))


def true_distance(gap):
    return max(0, math.ceil(gap / 2) - 1)


@cache
def scales(setting):
    return setting.round.threshold_scale, setting.round.query_scale


def law(rows, setting, far):
    """The probability of each outcome of a run: rounds by quadrature over the threshold's noise."""
    scale, query_scale = scales(setting)
    rho = np.linspace(-35.0, 35.0, 14_001)
    weight = 0.5 * np.exp(-np.abs(rho))
    weight /= weight.sum()
    ranked = [sorted(row, reverse=True) for row in rows]
    winners = [row.index(max(row)) for row in rows]
    stable = [
        laplace_tail((setting.threshold + scale * rho - far(row[0] - row[1])) / query_scale)
        for row in ranked
    ]
    found: dict[tuple[object, ...], float] = {}

    def go_on(path, chance, rounds, here):
        """``here`` is the law of this round's noise and of its answers so far."""
        j = len(path)
        if j == len(rows) or rounds == 0:
            left = (UNASKED,) * (len(rows) - j)
            found[(*path, *left)] = chance * float(here.sum())
            return
        go_on((*path, winners[j]), chance, rounds, here * stable[j])
        ended = float((here * (1 - stable[j])).sum())
        go_on((*path, UNSTABLE), chance * ended, rounds - 1, weight)

    go_on((), 1.0, setting.cutoff, weight)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    return found


def hockey_stick(one, other, at):
    return sum(max(0.0, p - math.exp(at) * other.get(outcome, 0.0)) for outcome, p in one.items())


def tables(teachers, classes, queries):
    rows = [one for one in product(range(teachers + 1), repeat=classes) if sum(one) == teachers]
    return list(product(rows, repeat=queries))


def are_neighbours(one, other):
    """One teacher changes its votes: no row is more than one vote apart."""
    rows = zip(one, other, strict=True)
    return one != other and all(
        sum(abs(a - b) for a, b in zip(*row, strict=True)) <= 2 for row in rows
    )


def told_of_stability(outcomes):
    """The law of which queries are stable, without their labels."""
    found: dict[tuple[object, ...], float] = {}
    for outcome, chance in outcomes.items():
        key = tuple("stable" if isinstance(one, int) else one for one in outcome)
        found[key] = found.get(key, 0.0) + chance
    return found


def neighbours(every, law_of):
    """The laws of all pairs of neighbours."""
    every = [(table, law_of(table)) for table in every]
    for one, p in every:
        for other, q in every:
            if are_neighbours(one, other):
                yield p, q


def worst(setting, crowd, at, far=true_distance):
    """The largest divergence over all pairs of neighbours, at each ε of ``at``."""
    pairs = list(neighbours(tables(*crowd), lambda table: law(table, setting, far)))
    return [max(hockey_stick(p, q, each) for p, q in pairs) for each in at]


CROWDS = [
    (StableMax(threshold=6.0, epsilon=2.0, cutoff=1), (5, 2, 2)),
    (StableMax(threshold=4.0, epsilon=2.0, cutoff=1), (6, 2, 3)),
    (StableMax(threshold=7.0, epsilon=1.5, cutoff=2), (4, 3, 2)),
]


@pytest.mark.parametrize(("setting", "crowd"), CROWDS)
def test_no_neighbours_are_further_apart_than_claimed(setting, crowd):
    queries = crowd[-1]
    whole_loss = setting.cutoff * setting.epsilon
    at = [0.0, 0.25 * whole_loss, 0.5 * whole_loss, whole_loss]
    found = worst(setting, crowd, at)
    claimed = [delta(setting.declared(queries=queries), each) for each in at]
    assert all(a <= b for a, b in zip(found, claimed, strict=True))
    # The plain theorem: (T·ε, δ_s), which the exchange of δ_s for δ' only weakens.
    assert found[-1] <= setting.failure(queries)
    assert found[-1] > 0.4 * setting.failure(queries)  # labels do tell something


@pytest.mark.parametrize("far", [lambda gap: math.ceil(gap / 2), lambda gap: (gap + 1) / 2])
def test_a_distance_that_is_off_by_one_has_no_such_guarantee(far):
    setting, crowd = CROWDS[-1]
    loss = setting.cutoff * setting.epsilon
    assert worst(setting, crowd, [loss], far)[0] > setting.failure(crowd[-1])


def test_which_queries_are_stable_costs_a_round_and_more_if_distances_moved_by_two():
    setting, crowd = StableMax(threshold=2.0, epsilon=1.5, cutoff=1), (9, 2, 3)
    # Which class leads does not matter here.
    led = [table for table in tables(*crowd) if all(a > b for a, b in table)]

    def loss(far):
        pairs = neighbours(led, lambda table: told_of_stability(law(table, setting, far)))
        return max(math.log(p[one] / q[one]) for p, q in pairs for one in p)

    assert 0.7 * setting.epsilon < loss(true_distance) <= setting.epsilon
    assert loss(lambda gap: max(0, gap - 2)) > setting.epsilon


def test_winners_of_neighbours_differ_at_distance_zero_only():
    for one, other in ((a, b) for a in tables(7, 3, 1) for b in tables(7, 3, 1)):
        if not are_neighbours(one, other):
            continue
        far = distances(Votes(np.array([one[0], other[0]])))
        assert abs(int(far[0]) - int(far[1])) <= 1
        if np.argmax(one[0]) != np.argmax(other[0]):
            assert far.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("asked", "delta_", "queries", "cutoff"),
    [(1.0, 1e-5, 500, 20), (2.0, 1e-5, 300, 2), (4.0, 1e-6, 5000, 300), (0.1, 1e-9, 10, 1)],
)
def test_a_budget_is_met_and_used_up(asked, delta_, queries, cutoff):
    setting = StableMax.for_budget(asked, delta_, queries=queries, cutoff=cutoff)
    for adjacency in ("add-remove", "replace-one", "zero-out"):
        found = epsilon(setting.declared(queries=queries), delta_, adjacency=adjacency)
        assert found <= asked
        assert found == pytest.approx(asked, rel=1e-5)
    lower = StableMax(
        threshold=0.97 * setting.threshold, epsilon=setting.epsilon, cutoff=setting.cutoff
    )
    assert lower.failure(queries) > 1.15 * setting.failure(queries)


@pytest.mark.parametrize(("cutoff", "slack"), [(1, 1.0), (3, 4.0)])
def test_the_chance_of_a_label_that_neighbours_need_not_share(cutoff, slack):
    """All queries at distance 0, by drawing; with one round the bound is the very chance."""
    setting, runs = StableMax(threshold=5.0, epsilon=2.0, cutoff=cutoff), 400_000
    rng, one = np.random.default_rng(5), setting.round
    bars = 5.0 + rng.laplace(scale=one.threshold_scale, size=(runs, cutoff))
    # An unstable query ends its round, so that each round has but one.
    found = (rng.laplace(scale=one.query_scale, size=bars.shape) > bars).any(axis=1).mean()
    bound = setting.failure(cutoff)
    error = math.sqrt(bound / runs)
    assert bound / slack - 5 * error < found < bound + 5 * error


@pytest.mark.parametrize("threshold", [5.0, 20.0, 60.0, 150.0])
def test_the_chance_of_one_query_in_one_round_by_its_formula(threshold):
    """P(b₂·ν - b₁·ρ > w) of two Laplace noises, by parts; down to 1e-20."""
    setting = StableMax(threshold=threshold, epsilon=1.0, cutoff=1)
    a, b = setting.round.threshold_scale, setting.round.query_scale
    exact = b**2 * math.exp(-threshold / b) - a**2 * math.exp(-threshold / a)
    exact /= 2 * (b**2 - a**2)
    assert exact <= setting.failure(1) <= 1.003 * exact
    # Two rounds or two queries: at most twice that, and more than once.
    twice = StableMax(threshold=threshold, epsilon=1.0, cutoff=2)
    for more in (twice.failure(1), setting.failure(2)):
        assert 1.1 * exact < more <= 2.006 * exact


def test_total_variation_is_taken_into_account():
    setting = StableMax(threshold=40.0, epsilon=0.5, cutoff=3)
    alone, labels = setting.declared(queries=50).events
    assert alone == Repeated(setting.round, 3)
    expected = setting.failure(50) / (1.0 - delta(alone, 0.0))
    assert labels.delta == pytest.approx(expected, rel=1e-12)
    assert labels.delta > 1.1 * setting.failure(50)


@pytest.mark.parametrize("name", ["threshold", "epsilon", "cutoff"])
def test_refusals(name):
    good = {"threshold": 5.0, "epsilon": 1.0, "cutoff": 1}
    with pytest.raises(InvalidArgument, match=name):
        StableMax(**(good | {name: 0}))


def test_a_threshold_that_promises_nothing_is_refused():
    with pytest.raises(InvalidArgument, match="threshold must be higher"):
        StableMax(threshold=1.0, epsilon=1.0, cutoff=3).declared(queries=100)


@pytest.mark.parametrize("cutoff", [1, 2, 5])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_simpler_event_covers_what_is_charged_and_hardly_more(cutoff, adjacency):
    charged, simpler = (make(0.7, cutoff, 1e-6) for make in (event_of, covering_event))
    for failing in (2e-6, 1e-5, 1e-2):
        less, more = (epsilon(one, failing, adjacency=adjacency) for one in (charged, simpler))
        assert less <= more * (1 + 1e-6)
    assert more <= 0.7 * cutoff
    sure = covering_event(0.7, cutoff, 1e-6).event.delta
    assert 1 - (1 - sure) ** cutoff == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize("cutoff", [1, 3])
def test_the_lowest_threshold_for_a_failure(cutoff):
    setting = StableMax.for_failure(1e-6, epsilon=0.8, queries=200, cutoff=cutoff)
    assert setting.declared(queries=200).events[1].delta <= 1e-6
    lower = StableMax(threshold=0.999 * setting.threshold, epsilon=0.8, cutoff=cutoff)
    assert lower.declared(queries=200).events[1].delta > 1e-6


def test_rounds_that_promise_nothing_are_refused():
    with pytest.raises(InvalidArgument, match="rounds alone promise nothing"):
        StableMax.for_failure(1e-6, epsilon=50.0, queries=10, cutoff=1)
    with pytest.raises(InvalidArgument, match="failure must be larger"):
        StableMax.for_failure(1e-90, epsilon=1.0, queries=10, cutoff=1)
    with pytest.raises(InvalidArgument, match="nothing is promised"):
        StableMax(threshold=9.0, epsilon=50.0, cutoff=1).declared(queries=10)


def test_the_noise_of_a_round_is_its_scale():
    setting = StableMax(threshold=9.0, epsilon=round_epsilon(2.5), cutoff=1)
    assert setting.round.query_scale == pytest.approx(2.5)
