"""What is declared before a run, and that it covers every outcome of one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from tacit.accounting import Gaussian, PureDp, delta
from tacit.errors import InvalidArgument
from tacit.transfer import Charges, ConfidentGNMax, GNMax

BOTH = Charges(screening=Gaussian(3.0, 1.0), answer=Gaussian(2.0, 1.0))


def test_every_query_is_screened_and_answers_are_capped():
    declared = BOTH.declared(queries=9, answers=4)
    assert [(one.event, one.times) for one in declared.events] == [
        (Gaussian(3.0, 1.0), 9),
        (Gaussian(2.0, 1.0), 4),
    ]
    assert BOTH.steps(queries=9, answers=4) == 13
    assert BOTH.steps(queries=9) == 18


def test_without_a_screening_only_answers_are_charged():
    one = Charges(screening=None, answer=PureDp(0.1))
    assert one.declared(queries=9, answers=4).times == 4
    assert one.steps(queries=9, answers=4) == 4
    both = Charges(screening=PureDp(0.1), answer=None)
    assert both.declared(queries=9, answers=4).times == 9
    assert both.steps(queries=9, answers=4) == 9


def test_nonsense_is_refused():
    with pytest.raises(InvalidArgument, match="None for both"):
        Charges(screening=None, answer=None)
    with pytest.raises(InvalidArgument, match="event"):
        Charges(screening=3, answer=None)
    for numbers in ({"queries": 0}, {"queries": 3, "answers": 4}, {"queries": 3, "answers": 0}):
        with pytest.raises(InvalidArgument, match=r"queries|answers"):
            BOTH.declared(**numbers)


def transcripts(counts, aggregator, answers):
    """All outcomes of a run on two classes with their probabilities, by walking through it."""
    found = {(): 1.0}
    for first, second in counts:
        passes = norm.sf((aggregator.threshold - max(first, second)) / aggregator.screening_sigma)
        wins = norm.cdf((first - second) / (np.sqrt(2) * aggregator.sigma))
        longer = {}
        for so_far, chance in found.items():
            if sum(one >= 0 for one in so_far) == answers:
                longer[so_far] = longer.get(so_far, 0.0) + chance
                continue
            outcomes = ((-1, 1 - passes), (0, passes * wins), (1, passes * (1 - wins)))
            for label, part in outcomes:
                longer[(*so_far, label)] = chance * part
        found = longer
    return found


@pytest.mark.parametrize("answers", [1, 2, 4])
def test_the_declared_event_covers_all_outcomes_of_an_adaptive_run(answers):
    """Which screenings and answers happen, and when the run ends, is part of the outcome."""
    aggregator = ConfidentGNMax(threshold=6.0, screening_sigma=1.5, sigma=1.2)
    before = [(7, 3), (6, 4), (5, 5), (9, 1)]
    declared = aggregator.declared(queries=4, answers=answers)
    seen = 0.0
    for moved in product([-1, 1], repeat=4):  # one teacher changes its vote on every query
        after = [(a + step, b - step) for (a, b), step in zip(before, moved, strict=True)]
        p, q = (transcripts(one, aggregator, answers) for one in (before, after))
        for epsilon in (0.0, 0.2, 0.5, 1.0, 2.0):
            for one, other in ((p, q), (q, p)):
                apart = sum(max(0.0, one[t] - np.exp(epsilon) * other[t]) for t in one)
                bound = delta(declared, epsilon, adjacency="replace-one")
                assert apart <= bound + 1e-12
                seen = max(seen, apart / bound)
    assert seen > 0.3  # the bound is not empty


def test_counting_only_the_answers_given_would_not_do():
    """The cost of what turned out to be asked is no bound: it depends on the data."""
    aggregator = ConfidentGNMax(threshold=6.0, screening_sigma=1.5, sigma=1.2)
    p = transcripts([(7, 3)], aggregator, 1)
    q = transcripts([(6, 4)], aggregator, 1)
    apart = sum(max(0.0, p[t] - q[t]) for t in p)
    assert apart > delta(GNMax(sigma=1.2).declared(queries=1), 0.0, adjacency="replace-one") * 0.5
    assert apart <= delta(aggregator.declared(queries=1), 0.0, adjacency="replace-one")
