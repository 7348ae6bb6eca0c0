"""The labelling loop: what is told, what is charged and when, and how a run goes on."""

from __future__ import annotations

import itertools
import re
import shutil
import time

import numpy as np
import pytest

from tacit.accounting import Gaussian, PoissonSampled
from tacit.errors import (
    BudgetExceeded,
    CheckpointError,
    InvalidArgument,
    LedgerError,
    TamperedLedger,
)
from tacit.ledger import Ledger
from tacit.randomness import UnsafeSeededStream
from tacit.transfer import Charges, ConfidentGNMax, GNMax, LNMax, Votes, label

CALM = ConfidentGNMax(threshold=200.0, screening_sigma=1.0, sigma=1.0)  # noise that decides nothing


def clear_votes(queries=40):
    """Every third query is undecided, the others are clear and of class query % 4."""
    counts = np.zeros((queries, 4), dtype=np.int64)
    counts[np.arange(queries), np.arange(queries) % 4] = 250
    counts[::3] = [63, 63, 62, 62]
    return Votes(counts)


def expected(queries=40):
    at = np.arange(queries)
    return np.where(at % 3 == 0, -1, at % 4)


@pytest.fixture(name="ledger")
def an_empty_ledger(tmp_path):
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        yield ledger


def stopping_after(calls):
    asked = iter(range(10**6))
    return lambda: next(asked) >= calls


def test_agreed_queries_are_told_and_others_screened_out():
    told = label(clear_votes(), CALM)
    assert (told.labels == expected()).all()
    assert (told.answered == (expected() >= 0)).all()
    assert told.asked.all()
    assert not told.lost.any()
    assert told.complete
    assert told.event == CALM.declared(queries=40)
    assert (told.adjacency, told.unit, told.entry) == ("add-remove", "example", None)
    assert told.epsilon(1e-5) > 0.0


@pytest.mark.parametrize("aggregator", [LNMax(gamma=5.0), GNMax(sigma=0.3)])
def test_without_a_screening_every_query_is_told(aggregator):
    told = label(clear_votes(), aggregator, answers=25)
    clear = (np.arange(40) % 3 != 0) & (np.arange(40) < 25)
    assert (told.labels[clear] == expected()[clear]).all()
    assert told.answered.sum() == 25
    assert told.asked.sum() == 25
    assert told.event == aggregator.declared(queries=40, answers=25)


def test_the_run_ends_at_the_cap_on_answers():
    told = label(clear_votes(4000), CALM, answers=7)
    assert told.answered.sum() == 7
    assert (told.labels[:11] == expected()[:11]).all()
    assert (told.labels[11:] == -1).all()
    assert told.asked.sum() < 4000
    assert told.event == CALM.declared(queries=4000, answers=7)


def test_fewer_queries_than_were_voted_on():
    told = label(clear_votes(), CALM, queries=10)
    assert len(told.labels) == 10
    assert told.event == CALM.declared(queries=10)


def test_answers_do_not_depend_on_how_queries_are_put_into_blocks(monkeypatch):
    votes = Votes(np.random.default_rng(3).multinomial(250, [0.5, 0.3, 0.2], 700))
    setting = ConfidentGNMax(threshold=120.0, screening_sigma=20.0, sigma=30.0)
    alone = label(votes, setting, stream=UnsafeSeededStream(1, "votes"))
    monkeypatch.setattr("tacit.transfer.labels._MOST", 7)
    short = label(votes, setting, stream=UnsafeSeededStream(1, "votes"))
    assert (alone.labels == short.labels).all()
    assert 100 < alone.answered.sum() < 600


def test_which_queries_are_asked_does_not_depend_on_time(tmp_path, monkeypatch):
    """How long counts take may tell of the data, and where a block ends shows in ``asked``."""
    seen = {}
    for name, seconds in (("quick", 0.0), ("slow", 1.0)):
        clock = itertools.count(0.0, seconds)
        numbers = seen[name] = []
        with monkeypatch.context() as patched:
            patched.setattr(time, "perf_counter", clock.__next__)
            label(
                clear_votes(2000), CALM, answers=400, journal=tmp_path / name,
                progress=lambda asked, _, numbers=numbers: numbers.append(asked),
            )  # fmt: skip
    assert seen["quick"] == seen["slow"]
    sizes = np.diff([0, *seen["slow"]])
    assert sizes[:3].tolist() == [16, 2000 // 32, 2000 // 32]
    assert set(sizes[3:-1].tolist()) == {2000 // 32}


def test_noise_is_fresh_for_every_query_and_every_run():
    votes = Votes(np.full((600, 5), 50))
    one, other = (label(votes, GNMax(sigma=40.0)).labels for _ in range(2))
    assert (one != other).sum() > 300
    assert (np.bincount(one, minlength=5) > 60).all()


# ---- counts made on demand


def test_a_function_is_asked_once_for_each_query():
    votes, asked = clear_votes(), []

    def counts(query):
        asked.append(query)
        return votes.counts[query]

    told = label(counts, CALM, queries=40)
    assert (told.labels == expected()).all()
    assert asked == list(range(40))


def test_a_fresh_answer_asks_again_for_those_that_pass():
    votes, asked = clear_votes(9), []

    def counts(query):
        asked.append(query)
        return votes.counts[query]

    told = label(counts, CALM, queries=9, fresh=True)
    assert (told.labels == expected(9)).all()
    assert sorted(asked) == sorted([*range(9), *np.flatnonzero(expected(9) >= 0)])


def test_charges_of_a_sampled_crowd_take_the_place_of_the_aggregators():
    one = PoissonSampled(0.1, Gaussian(3.0))
    both = Charges(screening=one, answer=None)
    told = label(clear_votes(), CALM, charges=both, answers=20)
    assert told.event == both.declared(queries=40, answers=20)
    with pytest.raises(InvalidArgument, match="charges"):
        label(clear_votes(), CALM, charges=Charges(screening=None, answer=one))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1.0, 2.0], "whole numbers"),
        ([1], "two or more"),
        ([[1, 2]], "two or more"),
        ([-1, 2], "from 0"),
        ([2**40, 1], "from 0"),
    ],
)
def test_rows_are_checked(row, message):
    with pytest.raises(InvalidArgument, match=message):
        label(lambda _: np.asarray(row), GNMax(), queries=3)


def test_rows_keep_their_classes():
    with pytest.raises(InvalidArgument, match="query 1 must be of 2 classes, got 3"):
        label(lambda query: np.ones(2 + query, dtype=int), GNMax(), queries=3)
    with pytest.raises(InvalidArgument, match="must be of 2 classes, got 4"):
        label(clear_votes(), GNMax(binary=True))


def test_binary_votes_are_told():
    votes = Votes(np.array([[200, 50], [10, 240]]))
    assert label(votes, GNMax(sigma=1.0, binary=True)).labels.tolist() == [0, 1]
    assert label(votes, LNMax(gamma=3.0, binary=True)).labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"queries": 41}, "at most the 40"),
        ({"answers": 41}, "answers"),
        ({"queries": 0}, "queries"),
        ({"adjacency": "other"}, "adjacency"),
        ({"unit": "crowd"}, "unit"),
        ({"budget": 3.0}, "budget"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        label(clear_votes(), CALM, **arguments)


def test_sources_and_aggregators_are_checked():
    with pytest.raises(InvalidArgument, match="queries must be given"):
        label(lambda _: np.ones(2, dtype=int), CALM)
    with pytest.raises(InvalidArgument, match=r"counts must be Votes .* got list$"):
        label([[1, 2]], CALM)
    with pytest.raises(InvalidArgument, match="aggregator"):
        label(clear_votes(), 40.0)


# ---- stopping, and the journal


def test_a_run_that_was_stopped_goes_on(tmp_path):
    votes, path = clear_votes(500), tmp_path / "run"
    part = label(votes, CALM, journal=path, stop=stopping_after(2))
    assert not part.complete
    assert 0 < part.asked.sum() < 500
    seen = []
    rest = label(votes, CALM, journal=path, progress=lambda *numbers: seen.append(numbers))
    assert rest.complete
    assert (rest.labels == expected(500)).all()
    assert not rest.lost.any()
    assert seen[0][0] > part.asked.sum()
    assert seen[-1] == (500, int((expected(500) >= 0).sum()))


def test_a_run_that_ended_is_told_again_and_asks_nothing(tmp_path):
    def fails(query):
        raise AssertionError(f"it asked {query}")

    path = tmp_path / "run"
    setting = GNMax(sigma=40.0)
    first = label(lambda _: np.array([5, 6, 7]), setting, queries=30, journal=path)
    again = label(fails, setting, queries=30, journal=path)
    assert (first.labels == again.labels).all()
    assert again.complete


def test_a_source_that_fails_loses_what_was_in_flight_only(tmp_path):
    def counts(query):
        if query == 5 and failing:
            raise RuntimeError("no power")
        return np.array([50, 0])

    path, setting, failing = tmp_path / "run", GNMax(sigma=0.5), True
    with pytest.raises(RuntimeError, match="no power"):
        label(counts, setting, queries=60, journal=path)
    failing = False
    told = label(counts, setting, queries=60, journal=path)
    assert (told.labels[:5] == 0).all()
    assert told.lost.sum() == 11  # the rest of the first sixteen
    assert (told.labels[16:] == 0).all()
    assert (told.labels[told.lost] == -1).all()
    assert told.asked.all()


def test_lost_answers_count_towards_the_cap(tmp_path):
    def counts(query):
        if query == 5 and failing:
            raise RuntimeError("no power")
        return np.array([50, 0])

    path, setting, failing = tmp_path / "run", GNMax(sigma=0.5), True
    with pytest.raises(RuntimeError):
        label(counts, setting, queries=60, answers=20, journal=path)
    failing = False
    told = label(counts, setting, queries=60, answers=20, journal=path)
    assert (told.answered.sum(), told.lost.sum()) == (9, 11)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"aggregator": GNMax(sigma=41.0)}, "aggregator"),
        ({"queries": 30}, "queries"),
        ({"answers": 5}, "answers"),
        ({"votes": Votes(np.full((40, 4), 60))}, "votes"),
        ({"votes": Votes(np.full((40, 5), 50))}, "votes"),
        ({"adjacency": "replace-one"}, "adjacency"),
        ({"unit": "user"}, "unit"),
    ],
)
def test_a_journal_of_another_configuration_is_refused_in_one_line(tmp_path, change, named):
    path = tmp_path / "run"
    label(clear_votes(), GNMax(sigma=40.0), journal=path)
    asked = {"votes": clear_votes(), "aggregator": GNMax(sigma=40.0)} | change
    votes, aggregator = asked.pop("votes"), asked.pop("aggregator")
    with pytest.raises(CheckpointError, match=f"of a run with {named} = ") as error:
        label(votes, aggregator, journal=path, **asked)
    assert "\n" not in str(error.value)


def test_the_journal_does_not_hold_the_votes(tmp_path):
    votes = Votes(np.array([[187, 63]] * 5))
    label(votes, GNMax(sigma=40.0), journal=tmp_path / "run")
    numbers = re.findall(r"\b\d+\b", (tmp_path / "run").read_text())  # not parts of names
    assert "250" in numbers
    assert not {"187", "63"} & set(numbers)


# ---- the ledger


def test_everything_is_charged_before_anything_is_drawn(ledger):
    """At the time when counts are looked at, the ledger has granted their query."""
    budget = ledger.open("crowd", epsilon=500.0, delta=1e-5)
    votes, seen = clear_votes(200), []

    def counts(query):
        (held,) = ledger.books.of("crowd")
        seen.append((query, held.granted))
        return votes.counts[query]

    told = label(counts, CALM, queries=200, budget=budget)
    assert all(granted > query for query, granted in seen)
    (held,) = ledger.books.of("crowd")
    assert held.granted == 200 + told.answered.sum()
    assert held.steps == 400
    assert held.ended
    assert told.entry == held.number
    assert budget.spent().epsilon >= told.epsilon(1e-5) * 0.999


def test_a_budget_that_does_not_hold_the_run_refuses_it_whole(ledger):
    budget = ledger.open("crowd", epsilon=0.5, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        label(clear_votes(), CALM, budget=budget)
    assert budget.spent().epsilon == 0.0


@pytest.mark.parametrize("composition", ["basic", "renyi", "declared"])
def test_every_kind_of_budget_takes_a_run(ledger, composition):
    budget = ledger.open("crowd", epsilon=900.0, delta=1e-5, composition=composition)
    assert label(clear_votes(), CALM, budget=budget, answers=20).answered.sum() == 20


def test_a_stopped_run_goes_on_with_its_reservation(ledger, tmp_path):
    budget = ledger.open("crowd", epsilon=5000.0, delta=1e-5)
    votes, path = clear_votes(500), tmp_path / "run"
    part = label(votes, CALM, journal=path, budget=budget, stop=stopping_after(2))
    rest = label(votes, CALM, journal=path, budget=budget)
    assert part.entry == rest.entry
    assert len(ledger.books.of("crowd")) == 1
    assert (rest.labels == expected(500)).all()
    (held,) = ledger.books.of("crowd")
    assert held.granted == 500 + rest.answered.sum()


def test_a_run_is_not_resumed_without_its_budget_nor_with_another(ledger, tmp_path):
    budget, other = (ledger.open(name, epsilon=900.0, delta=1e-5) for name in ("one", "two"))
    path = tmp_path / "run"
    label(clear_votes(), CALM, journal=path, budget=budget, stop=stopping_after(1))
    for wrong in (None, other):
        with pytest.raises(CheckpointError, match="with budget = "):
            label(clear_votes(), CALM, journal=path, budget=wrong)
    free = tmp_path / "free"
    label(clear_votes(), CALM, journal=free, stop=stopping_after(1))
    with pytest.raises(CheckpointError, match="with budget = None"):
        label(clear_votes(), CALM, journal=free, budget=budget)


def test_a_seeded_stream_is_refused_with_a_budget(ledger):
    budget = ledger.open("crowd", epsilon=900.0, delta=1e-5)
    with pytest.raises(InvalidArgument, match="stream must be left out"):
        label(clear_votes(), CALM, budget=budget, stream=UnsafeSeededStream(0, "votes"))


def test_adjacency_and_unit_are_the_budgets(ledger):
    budget = ledger.open("crowd", epsilon=900.0, delta=1e-5, adjacency="replace-one", unit="user")
    told = label(clear_votes(), CALM, budget=budget)
    assert (told.adjacency, told.unit) == ("replace-one", "user")
    with pytest.raises(InvalidArgument, match="adjacency"):
        label(clear_votes(), CALM, budget=budget, adjacency="add-remove")


def test_a_reservation_that_another_ended_stops_the_run_before_anything_is_told(ledger, tmp_path):
    budget = ledger.open("crowd", epsilon=900.0, delta=1e-5)
    path = tmp_path / "run"
    part = label(clear_votes(), CALM, journal=path, budget=budget, stop=stopping_after(1))
    budget.reservation(part.entry).end()
    with pytest.raises(LedgerError, match="was ended"):
        label(clear_votes(), CALM, journal=path, budget=budget)


def test_two_runs_on_copies_of_one_journal_do_not_answer_twice_on_one_charge(ledger, tmp_path):
    """The second begins before the first is granted anything, so that both journals are right."""
    budget = ledger.open("crowd", epsilon=5000.0, delta=1e-5)
    votes, path, copy = clear_votes(60), tmp_path / "run", tmp_path / "copy"
    looked, first = [], []

    def counts(query):
        looked.append(query)
        return votes.counts[query]

    def go_on(journal, stop=None):
        given = {"queries": 60, "answers": 10, "budget": budget, "journal": journal}
        return label(counts, CALM, **given, stop=stop)

    def overtaken():
        if not first:
            first.append(go_on(copy, stopping_after(1)))
            looked.clear()
        return False

    go_on(path, stopping_after(0))
    shutil.copy(path, copy)
    with pytest.raises(LedgerError, match="used by another run"):
        go_on(path, overtaken)
    assert first[0].answered.sum() == 10
    assert not looked
    with pytest.raises(TamperedLedger, match="older copy"):
        go_on(path)
    (held,) = ledger.books.of("crowd")
    assert held.granted == 26  # 16 screened, 10 answered


def test_a_run_cut_off_after_its_last_line_ends_its_reservation(ledger, tmp_path, monkeypatch):
    budget = ledger.open("crowd", epsilon=900.0, delta=1e-5)
    with monkeypatch.context() as patched:
        patched.setattr("tacit.transfer.charges.LabellingAccount.end", lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            label(clear_votes(), CALM, journal=tmp_path / "run", budget=budget)
    (held,) = ledger.books.of("crowd")
    assert not held.ended
    told = label(clear_votes(), CALM, journal=tmp_path / "run", budget=budget)
    assert (told.labels == expected()).all()
    assert budget.reservation(told.entry).state.ended


def test_ten_thousand_queries_take_seconds_and_few_syncs(tmp_path, monkeypatch):
    votes = Votes(np.tile(clear_votes(20).counts, (500, 1)))
    synced = []
    monkeypatch.setattr("tacit.transfer.journal.os.fsync", synced.append)
    start = time.process_time()
    told = label(votes, ConfidentGNMax(), journal=tmp_path / "run")
    assert time.process_time() - start < 30.0  # 1 s on the machine this was written on
    assert told.asked.all()
    assert len(synced) < 200
