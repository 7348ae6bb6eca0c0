"""Sparse-vector PATE as a run: what it tells, what it charges, and how it goes on after a crash."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.accounting import epsilon
from tacit.errors import BudgetExceeded, CheckpointError, InvalidArgument
from tacit.ledger import Ledger
from tacit.randomness import UnsafeSeededStream
from tacit.transfer import Votes, sequential_labels
from tacit.transfer.sequential_labels import label_stable
from tacit.transfer.stable_max import StableMax

SURE = StableMax(threshold=20.0, epsilon=50.0, cutoff=3)  # as good as no noise


def some_votes(queries=12, unstable=(4, 7, 9)):
    """100 teachers on 3 classes, who agree on query k's class k % 3, or are torn."""
    counts = np.zeros((queries, 3), dtype=np.int64)
    for query in range(queries):
        torn = query in unstable
        counts[query, query % 3] = 51 if torn else 95
        counts[query, (query + 1) % 3] = 49 if torn else 5
    return Votes(counts)


def noisy():
    return UnsafeSeededStream(0, "test")


@pytest.fixture
def sure(monkeypatch):
    """Lets a setting of hardly any noise be used: what it promises is of no interest here."""
    event = StableMax(threshold=90.0, epsilon=1.0, cutoff=3).declared(queries=12)
    monkeypatch.setattr(StableMax, "declared", lambda _, **__: event)
    return SURE


def test_winners_are_told_until_enough_was_unstable(sure):
    told = label_stable(some_votes(), sure, stream=noisy())
    assert told.labels.tolist() == [0, 1, 2, 0, -1, 2, 0, -1, 2, -1, -1, -1]
    assert told.asked.tolist() == [True] * 10 + [False] * 2
    assert told.complete
    assert not told.lost.any()


def test_more_noise_finds_stable_queries_unstable_with_the_right_chance():
    """Many runs of one query at distance 30, against the law of two Laplace noises."""
    setting = StableMax(threshold=30.0, epsilon=0.5, cutoff=1)
    one, far = setting.round, 40
    votes = Votes(np.array([[50 + far + 1, 50 - far - 1]]))  # a lead of 2·far + 2
    stream, runs = noisy(), 3000
    found = sum(
        sequential_labels.opened(setting, stream).above(
            -float(sequential_labels.distances(votes)[0])
        )
        for _ in range(runs)
    )
    a, b, gap = one.threshold_scale, one.query_scale, far - setting.threshold
    tail = (b**2 * np.exp(-gap / b) - a**2 * np.exp(-gap / a)) / (2 * (b**2 - a**2))
    error = np.sqrt(tail * (1 - tail) / runs)
    assert abs(found / runs - tail) < 5 * error
    assert abs(tail - 0.5) > 15 * error  # a threshold at 40 would be found out


def test_the_whole_is_charged_before_anything_is_drawn(tmp_path, monkeypatch):
    votes, setting = some_votes(), StableMax.for_budget(1.0, 1e-5, queries=12, cutoff=3)
    ledger = Ledger(f"sqlite:///{tmp_path / 'a.db'}")
    budget = ledger.open("patients", epsilon=1.5, delta=1e-5)
    told = label_stable(votes, setting, budget=budget)
    assert epsilon(told.event, 1e-5) <= 1.0
    assert told.entry is not None
    assert budget.reservation(told.entry).granted == int(told.asked.sum())
    monkeypatch.setattr(sequential_labels, "opened", None)  # would raise TypeError
    with pytest.raises(BudgetExceeded):
        label_stable(votes, setting, budget=budget)


class CutOff(Exception):
    pass


def cut_off(at):
    def progress(asked, _):
        if asked == at:
            raise CutOff

    return progress


def rounds_opened(monkeypatch):
    opened, made = sequential_labels.opened, []

    def counting(*given):
        made.append(opened(*given))
        return made[-1]

    monkeypatch.setattr(sequential_labels, "opened", counting)
    return made


@pytest.mark.parametrize("at", range(1, 10))
def test_a_run_that_was_cut_off_goes_on_with_a_new_round(at, sure, tmp_path, monkeypatch):
    made = rounds_opened(monkeypatch)
    votes, path = some_votes(), tmp_path / "journal"
    with pytest.raises(CutOff):
        label_stable(votes, sure, journal=path, stream=noisy(), progress=cut_off(at))
    told = label_stable(votes, sure, journal=path, stream=noisy())
    assert told.complete
    assert len(made) <= sure.cutoff
    plain = label_stable(votes, sure, stream=noisy())
    given_up = told.asked & ~told.answered & plain.answered
    # A round was open but at 5 and 8; at 4, 7 and 9 the query given up was unstable anyhow.
    assert np.flatnonzero(given_up).tolist() == ([at] if at in (1, 2, 3, 6) else [])
    both = told.answered & plain.answered
    assert (told.labels[both] == plain.labels[both]).all()
    again = label_stable(votes, sure, journal=path, stream=noisy())
    assert again.labels.tolist() == told.labels.tolist()


def test_a_query_in_flight_is_lost_and_ends_its_round(sure, tmp_path, monkeypatch):
    votes, path = some_votes(), tmp_path / "journal"

    def failing(*_):
        raise CutOff

    with monkeypatch.context() as patched:
        patched.setattr(sequential_labels, "opened", failing)
        with pytest.raises(CutOff):
            label_stable(votes, sure, journal=path)
    made = rounds_opened(monkeypatch)
    told = label_stable(votes, sure, journal=path, stream=noisy())
    assert told.lost.tolist() == [True] + [False] * 11
    assert told.labels.tolist() == [-1, 1, 2, 0, -1, 2, 0, -1, -1, -1, -1, -1]
    assert len(made) == 2


def test_stopping_can_be_resumed(sure, tmp_path):
    votes, path = some_votes(unstable=()), tmp_path / "journal"
    asked = []
    part = label_stable(
        votes,
        sure,
        journal=path,
        stream=noisy(),
        progress=lambda done, _: asked.append(done),
        stop=lambda: len(asked) == 3,
    )
    assert not part.complete
    told = label_stable(votes, sure, journal=path, stream=noisy())
    assert told.complete
    assert told.labels.tolist() == [0, 1, 2, -1, 1, 2, 0, 1, 2, 0, 1, 2]


def test_refusals(sure, tmp_path):
    path = tmp_path / "journal"
    label_stable(some_votes(), sure, journal=path, stream=noisy())
    other = StableMax(threshold=21.0, epsilon=50.0, cutoff=3)
    with pytest.raises(CheckpointError, match="aggregator"):
        label_stable(some_votes(), other, journal=path, stream=noisy())
    budget = Ledger(f"sqlite:///{tmp_path / 'b.db'}").open("b", epsilon=100, delta=1e-5)
    with pytest.raises(InvalidArgument, match="stream must be left out"):
        label_stable(some_votes(), sure, budget=budget, stream=noisy())
