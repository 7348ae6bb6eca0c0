"""Asking in rounds: what they see, what they charge, and what they resume with."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.accounting import epsilon
from tacit.errors import BudgetExceeded, CheckpointError, InvalidArgument
from tacit.ledger import Ledger
from tacit.randomness import UnsafeSeededStream
from tacit.transfer import ConfidentGNMax, GNMax, Votes
from tacit.transfer.active import label_in_rounds


def some_votes(points=30):
    counts = np.zeros((points, 3), dtype=np.int64)
    counts[np.arange(points), np.arange(points) % 3] = 100
    return Votes(counts)


def noisy():
    return UnsafeSeededStream(0, "test")


def test_rounds_see_what_was_told_and_nothing_else():
    seen = []

    def choose(labels, asked):
        seen.append((labels.tolist(), np.flatnonzero(asked).tolist()))
        return np.flatnonzero(~asked)[::-1][:4]

    told = label_in_rounds(
        some_votes(), GNMax(sigma=1.0), choose, rounds=3, queries=4, stream=noisy()
    )
    assert [one[1] for one in seen] == [[], [26, 27, 28, 29], list(range(22, 30))]
    assert seen[2][0] == [-1] * 22 + [k % 3 for k in range(22, 30)]
    assert told.labels.tolist() == [-1] * 18 + [k % 3 for k in range(18, 30)]
    assert told.event == GNMax(sigma=1.0).declared(queries=12)


def test_each_round_is_charged_before_it_is_asked(tmp_path):
    aggregator = ConfidentGNMax(threshold=20.0, screening_sigma=15.0, sigma=10.0)
    whole = aggregator.declared(queries=8, answers=6)
    ledger = Ledger(f"sqlite:///{tmp_path / 'a.db'}")
    enough = epsilon(whole, 1e-5, "rdp")
    budget = ledger.open("b", 1.2 * enough, 1e-5, composition="renyi")
    spent = []

    def choose(_, asked):
        spent.append(budget.spent().epsilon)
        return np.flatnonzero(~asked)[:4]

    given = {"queries": 4, "answers": 3, "budget": budget}
    told = label_in_rounds(some_votes(), aggregator, choose, rounds=2, **given)
    assert told.event == whole
    assert (told.labels >= 0).sum() <= 6
    assert 0.0 == spent[0] < spent[1] < budget.spent().epsilon
    with pytest.raises(BudgetExceeded):
        label_in_rounds(some_votes(), aggregator, choose, rounds=1, **given)


class Interruption(Exception):
    pass


def test_a_run_that_was_interrupted_goes_on_with_the_same_choice(tmp_path):
    rng = np.random.default_rng(3)

    def choose(_, asked):
        return rng.permutation(np.flatnonzero(~asked))[:5]  # another one each time

    def progress(asked, _):
        if asked == 10:
            raise Interruption

    given = {"rounds": 4, "queries": 5, "folder": tmp_path / "run", "stream": noisy()}
    with pytest.raises(Interruption):
        label_in_rounds(some_votes(), GNMax(sigma=1.0), choose, progress=progress, **given)
    kept = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert kept == [f"round-000{k}.{end}" for k in (0, 1) for end in ("journal", "json")]
    told = label_in_rounds(some_votes(), GNMax(sigma=1.0), choose, **given)
    again = label_in_rounds(some_votes(), GNMax(sigma=1.0), choose, **given)
    assert told.labels.tolist() == again.labels.tolist()
    assert told.asked.sum() == 20


@pytest.mark.parametrize(
    ("chosen", "message"),
    [([0, 0], "different"), ([0], "different"), ([0, 30], "different"), ([-1, 0], "different")],
)
def test_what_cannot_be_asked_is_refused(chosen, message):
    with pytest.raises(InvalidArgument, match=message):
        label_in_rounds(
            some_votes(), GNMax(sigma=1.0), lambda *_: np.array(chosen), rounds=1, queries=2
        )


def test_no_point_is_asked_about_twice():
    with pytest.raises(InvalidArgument, match="not asked about before"):
        label_in_rounds(
            some_votes(), GNMax(sigma=1.0), lambda *_: np.array([0, 1]), rounds=2, queries=2
        )


def test_more_rounds_than_points_are_refused():
    with pytest.raises(InvalidArgument, match="rounds times queries"):
        label_in_rounds(some_votes(), GNMax(), lambda *_: np.arange(9), rounds=4, queries=9)


def test_a_damaged_choice_is_refused(tmp_path):
    (tmp_path / "round-0000.json").write_text("[1, 2")
    with pytest.raises(CheckpointError, match="start in another folder"):
        label_in_rounds(some_votes(), GNMax(), lambda *_: [], rounds=1, queries=2, folder=tmp_path)


def test_a_run_that_was_stopped_says_so_and_goes_on(tmp_path):
    given = {"rounds": 3, "queries": 5, "folder": tmp_path / "run", "stream": noisy()}

    def choose(_, asked):
        return np.flatnonzero(~asked)[:5]

    calls = iter([False, False, True])
    stopped = label_in_rounds(
        some_votes(), GNMax(sigma=1.0), choose, stop=lambda: next(calls), **given
    )
    assert not stopped.complete
    done = label_in_rounds(some_votes(), GNMax(sigma=1.0), choose, **given)
    assert done.complete
    assert done.asked.sum() == 15
    before = stopped.labels >= 0
    assert (done.labels[before] == stopped.labels[before]).all()
