"""Noise ahead of the queries: each number once, and the same ones however a run takes them."""

from __future__ import annotations

import numpy as np

from tacit.randomness import UnsafeSeededStream
from tacit.transfer import ConfidentGNMax, Votes
from tacit.transfer.labels import NoiseAhead
from tacit.transfer.votes import VoteSource

SETTING = ConfidentGNMax()


def drawn(order):
    """Screening and answer noise of queries, asked for in this order."""
    ahead = NoiseAhead(SETTING, UnsafeSeededStream(4, "votes"))
    found = {}
    for kind, query in order:
        take = ahead.screening if kind == "screening" else ahead.answer
        found[kind, query] = np.array(take(query, 3))
    return found


def test_noise_of_a_query_does_not_depend_on_how_a_run_takes_them():
    one_by_one = [(kind, query) for query in range(600) for kind in ("screening", "answer")]
    all_at_once = sorted(one_by_one, key=lambda one: (one[0] == "answer", one[1]))
    first, second = drawn(one_by_one), drawn(all_at_once)
    assert all((first[one] == second[one]).all() for one in one_by_one)


def test_no_noise_is_used_twice():
    ahead = NoiseAhead(SETTING, UnsafeSeededStream(4, "votes"))
    same = [int(ahead.screening(7, 3)) for _ in range(20)]
    assert len(set(same)) == 20
    rows = [tuple(ahead.answer(query, 3)) for query in (*range(600), *range(600))]
    assert len(set(rows)) == 1200


def test_rows_are_copies_of_the_votes():
    votes = Votes(np.array([[3, 4], [5, 2]]))
    rows = VoteSource(votes, SETTING)
    assert rows.shape == [2, 7]
    assert rows.queries(None) == 2
    rows.row(0)[0] = 99
    assert votes.counts.tolist() == [[3, 4], [5, 2]]
    assert VoteSource(lambda query: votes.counts[query], SETTING).shape is None
