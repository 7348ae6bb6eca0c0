"""``kill -9`` at any moment of a labelling run: no query twice, and nothing told uncharged."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import time

import numpy as np
import pytest

from tacit.errors import CheckpointError, TamperedLedger
from tacit.ledger import Ledger
from tacit.transfer import ConfidentGNMax, GNMax, label
from tacit.transfer.journal import LabelJournal

QUERIES = 900
SCREENED = ConfidentGNMax(threshold=30.0, screening_sigma=4.0, sigma=2.0)

# Newer Pythons warn of threads that a forked child does not have; ours uses none.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def run_until_killed(folder, aggregator, ledger_url, seconds, queries=QUERIES, fresh=False):
    """The queries that a child looked at before it was killed; None at the end if it finished.

    It says each look at the votes on a pipe that outlives it, before the noise is added.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)

            def counts(query):
                os.write(writer, query.to_bytes(4, "little"))
                time.sleep(2e-5)
                return np.array([32, 8, 10])

            with contextlib.ExitStack() as stack:
                budget = None
                if ledger_url is not None:
                    budget = stack.enter_context(Ledger(ledger_url)).budget("crowd")
                label(
                    counts,
                    aggregator,
                    queries=queries,
                    journal=folder / "run",
                    budget=budget,
                    fresh=fresh,
                )
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    said = b""
    if seconds is not None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    while more := os.read(reader, 65536):
        said += more
    os.close(reader)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL)
    return np.frombuffer(said, dtype="<u4").tolist(), ended == 0


def told_so_far(path):
    """What the journal's whole lines tell, read without opening it as a run would."""
    if not path.exists():
        return {}
    lines = path.read_bytes().split(b"\n")[:-1]
    found = [one.split(b" ")[0].strip(b"[]").split(b",") for one in lines]
    return {int(one[1]): int(one[2]) for one in found if one[0] == b'"tell"'}


def granted(ledger_url):
    with Ledger(ledger_url) as ledger:
        held = ledger.books.of("crowd")
        return sum(one.granted for one in held), len(held)


@pytest.fixture(name="ledger_url")
def an_open_budget(tmp_path):
    url = f"sqlite:///{tmp_path}/budget.db"
    with Ledger(url) as ledger:
        ledger.open("crowd", epsilon=5e5, delta=1e-5)
    return url


@pytest.mark.parametrize("aggregator", [SCREENED, GNMax(sigma=2.0)])
@pytest.mark.parametrize("charged", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("kills", [8, pytest.param(150, marks=pytest.mark.slow)])
def test_killed_runs_go_on_and_ask_no_query_twice(tmp_path, ledger_url, aggregator, charged, kills):
    rng = random.Random(7)
    url = ledger_url if charged else None
    asked, told, killed = [], {}, 0
    while True:
        seconds = rng.uniform(0.01, 0.08) if killed < kills else None
        more, finished = run_until_killed(tmp_path, aggregator, url, seconds, 110 * kills)
        asked += more
        now = told_so_far(tmp_path / "run")
        assert all(now[query] == one for query, one in told.items())  # what was told stays
        told = now
        assert set(told) <= set(asked)
        if charged:
            steps, reservations = granted(ledger_url)
            assert reservations <= 1  # a run is reserved once, however often it is killed
            assert steps >= len(asked)
            assert steps >= len(told) * (2 if aggregator is SCREENED else 1)
        if finished:
            break
        killed += 1
    assert len(asked) == len(set(asked))
    with LabelJournal(tmp_path / "run", {}, 110 * kills) as journal:
        assert journal.record.ended
        assert (journal.record.labels >= 0).sum() == len(told)
    assert len(asked) > 50


def test_with_fresh_counts_a_query_is_looked_at_once_for_each_of_its_two_charges(
    tmp_path, ledger_url
):
    rng, asked = random.Random(8), []
    for turn in range(9):
        seconds = rng.uniform(0.02, 0.15) if turn < 8 else None
        more, _ = run_until_killed(tmp_path, SCREENED, ledger_url, seconds, fresh=True)
        asked += more
        assert granted(ledger_url)[0] >= len(asked)
    assert np.bincount(asked).max() == 2


@pytest.fixture(name="halfway")
def a_charged_run_that_was_stopped(tmp_path, ledger_url):
    """A run, and copies of its files from before its last announcements."""
    old = tmp_path / "old"
    old.mkdir()
    blocks = iter(range(3))

    def stop():
        turn = next(blocks)
        if turn == 1:
            for name in ("run", "budget.db.anchor"):
                shutil.copy(tmp_path / name, old / name)
            with (
                contextlib.closing(sqlite3.connect(tmp_path / "budget.db")) as source,
                contextlib.closing(sqlite3.connect(old / "budget.db")) as copy,
            ):
                source.backup(copy)
        return turn == 2

    def go_on(stop=None):
        with Ledger(ledger_url) as ledger:
            return label(
                lambda _: np.array([32, 8, 10]),
                SCREENED,
                queries=QUERIES,
                journal=tmp_path / "run",
                budget=ledger.budget("crowd"),
                stop=stop,
            )

    go_on(stop)
    return tmp_path, old, go_on


def test_an_older_copy_of_the_journal_is_refused(halfway):
    folder, old, go_on = halfway
    shutil.copy(old / "run", folder / "run")
    with pytest.raises(TamperedLedger, match=r"journal announces .* older copy"):
        go_on()


def test_an_older_copy_of_the_ledger_is_refused(halfway):
    folder, old, go_on = halfway
    for name in ("budget.db", "budget.db.anchor"):
        shutil.copy(old / name, folder / name)
    with pytest.raises(TamperedLedger, match=r"ledger granted .* older copy"):
        go_on()


def test_a_journal_whose_reservation_is_gone_is_refused(halfway):
    folder, _, go_on = halfway
    for name in ("budget.db", "budget.db.anchor"):
        (folder / name).unlink()
    with Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        ledger.open("crowd", epsilon=5e5, delta=1e-5)
        text = (folder / "run").read_bytes()
        assert ledger.identity.encode() not in text
    with pytest.raises(CheckpointError, match="with budget = "):
        go_on()


def test_a_run_that_was_cut_off_between_journal_and_ledger_goes_on(halfway, monkeypatch):
    """The announcement is in the journal, and the ledger was never asked: lost, and charged."""
    _, _, go_on = halfway
    with monkeypatch.context() as patched:
        patched.setattr("tacit.ledger.reservation.Reservation.lease", lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            go_on()
    told = go_on()
    assert told.complete
    assert told.lost.sum() == 16
