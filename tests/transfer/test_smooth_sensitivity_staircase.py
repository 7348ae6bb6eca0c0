"""Costs at one order: the coarse staircase covers each vote, and is close."""

from __future__ import annotations

import pytest

from tacit.errors import InvalidArgument
from tacit.transfer import (
    ConfidentGNMax,
    GNMax,
    LNMax,
    confident_votes,
    gaussian_votes,
    simulated_votes,
)
from tacit.transfer.rdp_cost import likely_outcome_rdp
from tacit.transfer.smooth_sensitivity import data_dependent_costs, screening_cost, tight_staircase

VOTES = simulated_votes(0.85, queries=400)


@pytest.mark.parametrize("aggregator", [GNMax(), GNMax(sigma=25.0), ConfidentGNMax()])
def test_each_vote_is_covered_within_a_few_per_cent(aggregator):
    found = data_dependent_costs(VOTES, tight_staircase(VOTES, aggregator, 14.0))
    log_q = gaussian_votes.log_q(VOTES, aggregator.sigma)
    exact = likely_outcome_rdp(log_q, aggregator.sigma, [14.0])[:, 0]
    assert (found >= exact * (1 - 1e-12)).all()
    assert found.sum() <= 1.01 * exact.sum()


def test_a_binary_answer_costs_what_a_wider_one_does():
    votes = simulated_votes(0.85, queries=50, classes=2)
    binary = tight_staircase(votes, GNMax(sigma=20.0, binary=True), 6.0)
    wider = tight_staircase(votes, GNMax(sigma=20.0 * 2**0.5), 6.0)
    assert (binary.costs == wider.costs).all()


def test_screenings_cost_the_most_that_one_can():
    setting = ConfidentGNMax()
    expected = confident_votes.worst_rdp(setting, [14.0], 250)[0]
    assert screening_cost(setting, 14.0, 250) == expected
    assert screening_cost(GNMax(), 14.0, 250) == 0.0


def test_lnmax_is_refused():
    with pytest.raises(InvalidArgument, match="aggregator must be GNMax or ConfidentGNMax"):
        tight_staircase(VOTES, LNMax(), 14.0)
