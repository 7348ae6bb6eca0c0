"""The data-dependent claim: its bound is smooth, its noise is right, and what is claimed holds."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2, norm

from tacit.accounting import Gaussian, PoissonSampled, epsilon
from tacit.errors import InvalidArgument
from tacit.ledger import Ledger
from tacit.randomness import UnsafeSeededStream
from tacit.transfer import (
    Answers,
    Charges,
    ConfidentGNMax,
    GNMax,
    LNMax,
    Sanitised,
    StableMax,
    Votes,
    cost_release_event,
    label,
    label_in_rounds,
    label_stable,
    sanitised_cost,
    simulated_votes,
)
from tacit.transfer.smooth_sensitivity import (
    data_dependent_costs,
    largest_costs,
    screening_cost,
    smooth_sensitivity,
    tight_staircase,
)

TEACHERS = 14


def crowd(classes):
    rows = [one for one in product(range(TEACHERS + 1), repeat=classes) if sum(one) == TEACHERS]
    counts = np.array(rows)
    apart = np.abs(counts[:, None, :] - counts[None, :, :]).sum(axis=2) // 2
    return Votes(counts), apart


@pytest.mark.parametrize("beta", [0.02, 0.1, 0.5])
@pytest.mark.parametrize(
    ("classes", "aggregator", "order"),
    [(2, GNMax(sigma=2.0), 3.0), (3, GNMax(sigma=1.5), 3.0), (2, GNMax(sigma=1.5, binary=True), 4)],
)
def test_its_logarithm_moves_by_no_more_than_its_smoothness(classes, aggregator, order, beta):
    votes, apart = crowd(classes)
    stairs = tight_staircase(votes, aggregator, order)
    costs = data_dependent_costs(votes, stairs)
    bounds = np.array(
        [
            smooth_sensitivity(largest_costs(Votes(row[np.newaxis]), stairs), beta)
            for row in votes.counts
        ]
    )
    assert (bounds >= costs).all()
    assert costs.min() < 0.3 * costs.max()
    one, other = np.nonzero(apart == 1)
    assert (np.abs(np.log(bounds[one] / bounds[other])) <= beta + 1e-12).all()
    # At each distance it is the largest cost of all votes within it.
    for at, row in enumerate(votes.counts):
        within = largest_costs(Votes(row[np.newaxis]), stairs)
        for far in range(TEACHERS + 1):
            assert within[far] >= costs[apart[at] <= far].max()


def settled(told, **numbers):
    standard = {
        "order": 12.0,
        "smoothness": 0.05,
        "noise_multiplier": 5.0,
        "screening": 0.1,
        "most": 2.0,
        "event": Gaussian(5.0),
        "adjacency": "add-remove",
        "unit": "example",
    }
    return Sanitised(noisy_log=told, **(standard | numbers))


def test_the_bound_is_some_deviations_above_what_was_told():
    found = settled(-2.0)
    assert found.estimate == pytest.approx(math.exp(-2.0))
    assert found.standard_error == pytest.approx(0.25)
    for failure in (0.05, 1e-6):
        z = norm.isf(failure)
        assert found.upper(failure) == pytest.approx(math.exp(-2.0 + 0.25 * z), rel=3e-3)
        assert found.upper(failure) > math.exp(-2.0 + 0.25 * z)
    assert settled(3.0).upper(0.05) == 2.0  # no more than it can be


def test_the_claim_holds_the_answers_the_screenings_and_the_telling():
    found = settled(-2.0)
    total = found.upper(1e-6) + 0.1 + 12.0 / 50.0
    assert found.claim(1e-6).values == pytest.approx((total,))
    overhead = math.log1p(-1 / 12) - (math.log(9e-6) + math.log(12)) / 11
    assert found.epsilon(1e-5) == pytest.approx(total + overhead, rel=1e-12)


# ---- the whole claim, integrated


def answer_laws(counts, sigma):
    """The law of the answers of GNMax to some queries on two classes."""
    first = norm.cdf((counts[:, 0] - counts[:, 1]) / (math.sqrt(2) * sigma))
    return np.array(
        [
            math.prod(f if y == 0 else 1 - f for f, y in zip(first, labels, strict=True))
            for labels in product([0, 1], repeat=len(counts))
        ]
    )


def neighbours(counts):
    """All votes in which one teacher changed its mind, on some of three queries."""
    for moved in product([-1, 0, 1], repeat=3):
        other = counts + np.outer(moved, [1, -1])
        if other.min() >= 0:
            yield other


def test_no_loss_has_a_larger_moment_than_is_counted_for_answers_and_telling():
    """E e^{(α-1)(L-R')} ≤ 1 on every neighbour; without the part for telling it would not hold."""
    aggregator, order, beta, tau = GNMax(sigma=1.5), 4.0, 0.4, 2.0
    stairs = tight_staircase(Votes(np.array([[14, 0]])), aggregator, order)

    def log_bound(counts):
        return math.log(smooth_sensitivity(largest_costs(Votes(counts), stairs), beta))

    excess = []
    for rows in ([[14, 0]] * 3, [[14, 0], [12, 2], [13, 1]], [[9, 5], [7, 7], [14, 0]]):
        counts = np.array(rows)
        cost = data_dependent_costs(Votes(counts), stairs).sum()
        p = answer_laws(counts, 1.5)
        for other in neighbours(counts):
            moment = math.log((p**order * answer_laws(other, 1.5) ** (1 - order)).sum())
            moved = (log_bound(counts) - log_bound(other)) / (beta * tau)
            excess.append(moment / (order - 1) + order * moved**2 / 2 - cost)
    telling = order / (2 * tau**2)
    assert max(excess) <= telling + 1e-12
    assert max(excess) > 0.8 * telling


def test_the_bound_fails_as_rarely_as_is_said_where_it_fails_most():
    """Where all votes cost the most, the smooth bound is the cost itself."""
    aggregator, order, beta, tau = GNMax(sigma=3.0), 6.0, 0.1, 4.0
    counts = np.array([[7, 7], [8, 6]])
    stairs = tight_staircase(Votes(counts), aggregator, order)
    cost = data_dependent_costs(Votes(counts), stairs).sum()
    bound = smooth_sensitivity(largest_costs(Votes(counts), stairs), beta)
    assert bound == pytest.approx(cost, rel=0.02)
    for failure in (0.05, 1e-6):
        reach = settled(0.0, smoothness=beta, noise_multiplier=tau, most=1e9).upper(failure)
        least = math.log(cost / reach)  # what must be told for the bound to hold
        fails = norm.cdf((least - math.log(bound)) / (beta * tau))
        assert 0.5 * failure < fails <= failure


@pytest.mark.parametrize(
    ("smoothness", "delta"), [pytest.param(0.1, 0.2, marks=pytest.mark.slow), (0.4, 0.02)]
)
def test_the_claim_holds_for_every_pair_of_neighbours(smoothness, delta):
    """P(S) ≤ ∫_S e^ε dQ + δ, with ε read off the outcome: the worst S, over answers and told."""
    aggregator, order, tau = GNMax(sigma=1.5), 4.0, 2.0
    stairs = tight_staircase(Votes(np.array([[14, 0]])), aggregator, order)

    def told(counts):
        bound = smooth_sensitivity(largest_costs(Votes(counts), stairs), smoothness)
        return math.log(max(bound, 1e-9))

    x = np.linspace(-12.0, 4.0, 801)
    spread = smoothness * tau
    claims = np.array(
        [
            settled(
                float(at),
                order=order,
                smoothness=smoothness,
                noise_multiplier=tau,
                screening=0.0,
                most=3 * order / 1.5**2,
                event=Gaussian(tau),
            ).epsilon(delta)
            for at in x
        ]
    )
    worst = 0.0
    for rows in ([[14, 0], [12, 2], [13, 1]], [[9, 5], [7, 7], [14, 0]], [[8, 6]] * 3):
        counts = np.array(rows)
        p, mine = answer_laws(counts, 1.5), told(counts)
        for other in neighbours(counts):
            q, theirs = answer_laws(other, 1.5), told(other)
            for one, two, here, there in ((p, q, mine, theirs), (q, p, theirs, mine)):
                density = norm.pdf(x, here, spread)
                log_ratio = norm.logpdf(x, there, spread) - norm.logpdf(x, here, spread)
                gaps = one[:, None] - two[:, None] * np.exp(claims + log_ratio)
                worst = max(worst, float((density * np.maximum(gaps, 0.0)).sum() * (x[1] - x[0])))
    assert 0.0 < worst <= delta


# ---- telling


def test_what_is_told_has_gaussian_noise_of_smoothness_times_multiplier():
    votes = Votes(np.array([[13, 1], [10, 4], [14, 0]]))
    aggregator = GNMax(sigma=2.0)
    told = np.ones(3, dtype=bool)
    stairs = tight_staircase(votes, aggregator, 4.0)
    centre = math.log(smooth_sensitivity(largest_costs(votes, stairs, told), 0.2))
    stream = UnsafeSeededStream(9, "told")
    drawn = [
        sanitised_cost(
            votes,
            aggregator,
            told,
            order=4.0,
            smoothness=0.2,
            noise_multiplier=3.0,
            stream=stream,
        ).noisy_log
        for _ in range(120)
    ]
    squares = float(np.sum((np.array(drawn) - centre) ** 2))
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 120)
    assert low < squares / 0.6**2 < high
    assert not low < squares / 0.35**2 < high
    assert not low < squares / 1.0**2 < high


def test_a_run_is_claimed_with_its_screenings_and_lost_queries():
    votes = simulated_votes(0.9, queries=60)
    setting = ConfidentGNMax()
    lost = np.zeros(60, dtype=bool)
    lost[7] = True
    asked = np.arange(60) < 50
    labels = np.where(np.arange(60) < 20, 1, -1)
    declared = setting.declared(queries=60)
    run = Answers(labels, asked, lost, declared, "add-remove", "example", aggregator=setting)
    numbers = {"order": 12.0, "smoothness": 0.04, "noise_multiplier": 5.0}
    found = sanitised_cost(votes, setting, run, **numbers, stream=UnsafeSeededStream(1, "told"))
    assert found.screening == pytest.approx(50 * screening_cost(setting, 12.0, 250))
    assert found.most == pytest.approx(20 * 12.0 / 1600.0)  # query 7 was told and counts once
    marked = sanitised_cost(
        votes, setting, run.answered, **numbers, stream=UnsafeSeededStream(1, "told")
    )
    assert marked.screening == pytest.approx(60 * screening_cost(setting, 12.0, 250))
    assert found.event == cost_release_event(5.0)


def test_telling_is_charged(tmp_path):
    votes = simulated_votes(0.9, queries=30)
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("crowd", epsilon=3.0, delta=1e-5, adjacency="replace-one")
        found = sanitised_cost(
            votes,
            GNMax(),
            np.ones(30, dtype=bool),
            order=12.0,
            smoothness=0.04,
            noise_multiplier=5.0,
            budget=budget,
        )
        assert found.event == cost_release_event(5.0, "replace-one")
        charged = budget.reservation(found.entry)
        assert charged.granted == 1
        assert charged.epsilon >= epsilon(Gaussian(5.0, 1.0), 1e-5, adjacency="replace-one")


def test_nothing_answered_costs_next_to_nothing():
    votes = simulated_votes(0.9, queries=10)
    found = sanitised_cost(
        votes,
        GNMax(),
        np.zeros(10, dtype=bool),
        order=12.0,
        smoothness=0.04,
        noise_multiplier=5.0,
        stream=UnsafeSeededStream(1, "told"),
    )
    assert found.upper(1e-6) == 0.0


@pytest.mark.parametrize(
    ("agreement", "concentration", "most"), [(0.84, 6.0, 1.97), (0.94, 8.0, 1.5)]
)
def test_published_run_with_everything_in_its_delta(agreement, concentration, most):
    """250 teachers, T = 200, σ = 150/40, 640 queries, δ = 1e-5; numbers fixed before the votes."""
    votes = simulated_votes(agreement, queries=640, concentration=concentration, seed=11)
    run = label(votes, ConfidentGNMax(), stream=UnsafeSeededStream(2, "votes"))
    assert run.answered.sum() > 286
    found = sanitised_cost(
        votes,
        ConfidentGNMax(),
        run,
        order=13.0,
        smoothness=0.04,
        noise_multiplier=5.5,
        stream=UnsafeSeededStream(3, "told"),
    )
    assert found.epsilon(1e-5) <= most
    assert found.epsilon(1e-5) > found.estimate + found.screening
    assert run.epsilon(1e-5) > 2.5  # what was declared


# ---- refusals


NUMBERS = {"order": 12.0, "smoothness": 0.04, "noise_multiplier": 5.0}


@pytest.mark.parametrize(
    "other",
    [
        GNMax(sigma=40.0),
        ConfidentGNMax(sigma=1.0),
        ConfidentGNMax(screening_sigma=20.0),
        ConfidentGNMax(threshold=100.0),  # which its event does not tell
        ConfidentGNMax(binary=True),
        LNMax(gamma=2.0),
    ],
)
def test_answers_of_another_aggregator_are_not_told_as_those_of_this(other):
    votes = Votes(np.array([[240, 10]] * 5))
    run = label(votes, other)
    with pytest.raises(InvalidArgument, match="aggregator must be that of the answers") as error:
        sanitised_cost(votes, ConfidentGNMax(), run, **NUMBERS)
    assert repr(other) in str(error.value)
    assert "\n" not in str(error.value)


def test_answers_at_other_charges_or_of_another_algorithm_are_not_told():
    votes, setting = Votes(np.array([[240, 10]] * 5)), GNMax(sigma=40.0)
    sampled = Charges(screening=None, answer=PoissonSampled(0.1, setting.answer))
    stable = label_stable(votes, StableMax.for_budget(2.0, 1e-5, queries=5, cutoff=2))
    for run in (label(votes, setting, charges=sampled), stable):
        with pytest.raises(InvalidArgument, match="that of the answers, None"):
            sanitised_cost(votes, setting, run, **NUMBERS)


def test_answers_in_rounds_are_told():
    votes, setting = simulated_votes(0.9, queries=6), ConfidentGNMax()
    run = label_in_rounds(
        votes, setting, lambda _, asked: np.flatnonzero(~asked)[:2], rounds=2, queries=2
    )
    found = sanitised_cost(votes, setting, run, **NUMBERS)
    assert found.screening == pytest.approx(4 * screening_cost(setting, 12.0, 250))


def test_adjacency_and_unit_are_those_of_the_answers(tmp_path):
    votes, setting = simulated_votes(0.9, queries=5), GNMax()
    run = label(votes, setting, adjacency="replace-one", unit="user")
    found = sanitised_cost(votes, setting, run, **NUMBERS)
    assert (found.adjacency, found.unit) == ("replace-one", "user")
    assert found.event == cost_release_event(5.0, "replace-one")
    for wrong in ({"adjacency": "add-remove"}, {"unit": "example"}):
        (name,) = wrong
        with pytest.raises(InvalidArgument, match=f"{name} must be that of the answers"):
            sanitised_cost(votes, setting, run, **NUMBERS, **wrong)
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("crowd", epsilon=3.0, delta=1e-5)
        with pytest.raises(InvalidArgument, match="adjacency"):
            sanitised_cost(votes, setting, run, **NUMBERS, budget=budget)
        assert budget.spent().epsilon == 0.0


def test_refusals():
    votes = simulated_votes(0.9, queries=5)
    numbers = NUMBERS
    marked = np.ones(5, dtype=bool)
    with pytest.raises(InvalidArgument, match="aggregator must be GNMax or ConfidentGNMax"):
        sanitised_cost(votes, LNMax(), marked, **numbers)
    with pytest.raises(InvalidArgument, match="answered must be"):
        sanitised_cost(votes, GNMax(), np.ones(4, dtype=bool), **numbers)
    with pytest.raises(InvalidArgument, match="answered must be"):
        sanitised_cost(votes, GNMax(), np.ones(5), **numbers)
    for name in numbers:
        with pytest.raises(InvalidArgument, match=name):
            sanitised_cost(votes, GNMax(), marked, **(numbers | {name: -1.0}))
    for wrong in (0.0, 1.0):
        with pytest.raises(InvalidArgument, match="failure"):
            settled(-2.0).upper(wrong)
        with pytest.raises(InvalidArgument, match="delta"):
            settled(-2.0).epsilon(wrong)
