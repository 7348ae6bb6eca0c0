"""A run that takes one query at a time: announced, then granted, then asked."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.accounting import Gaussian, Repeated
from tacit.errors import CheckpointError, InvalidArgument, TamperedLedger
from tacit.ledger import Ledger
from tacit.mechanisms.release import agreed
from tacit.randomness import UnsafeSeededStream
from tacit.transfer import Votes
from tacit.transfer.sequential_labels import Turns

VOTES = Votes(np.tile([3, 1], (4, 1)))


def turns(*, budget=None, journal=None, stream=None, adjacency=None, two_steps=True):
    terms = agreed("label", adjacency, None, budget, "test", stream)
    event = Repeated(Gaussian(9.0), 8)
    return Turns(
        VOTES, "setting", event, terms=terms, two_steps=two_steps, labels=2, journal=journal
    )


@pytest.fixture
def budget(tmp_path):
    return Ledger(f"sqlite:///{tmp_path / 'a.db'}").open("b", epsilon=9.0, delta=1e-5)


def granted(budget, run):
    return budget.reservation(run.answers(run.record.labels).entry).granted


@pytest.mark.parametrize("two_steps", [True, False])
def test_a_query_is_granted_when_asked_and_an_answer_by_itself_if_it_is_charged(budget, two_steps):
    with turns(budget=budget, two_steps=two_steps) as run:
        assert granted(budget, run) == 0
        query = run.ask()
        assert (query, granted(budget, run)) == (0, 1)
        run.answer(query)
        assert granted(budget, run) == 1 + two_steps
        run.tell(query, 1)
        run.ask()
        run.pass_over()
        assert not run.over
        run.end()
        assert run.over
    told = run.answers(run.record.labels)
    assert told.labels.tolist() == [1, -1, -1, -1]
    assert told.asked.tolist() == [True, True, False, False]
    assert told.complete
    assert budget.reservation(told.entry).left == 0


def test_what_was_announced_and_not_granted_is_granted_on_resuming(budget, tmp_path, monkeypatch):
    path = tmp_path / "journal"

    class CutOff(Exception):
        pass

    def failing(*_, **__):
        raise CutOff

    with turns(budget=budget, journal=path) as run:
        with monkeypatch.context() as patched:
            patched.setattr("tacit.ledger.Reservation.lease", failing)
            with pytest.raises(CutOff):
                run.ask()
        assert granted(budget, run) == 0
    with turns(budget=budget, journal=path) as run:
        assert run.resumed
        assert granted(budget, run) == 1
        assert run.ask() == 1  # the first is lost, not asked again
        run.pass_over()
    assert run.answers(run.record.labels).lost.tolist() == [True, False, False, False]


def test_an_older_journal_is_found_out_and_let_go_of(budget, tmp_path):
    path = tmp_path / "journal"
    with turns(budget=budget, journal=path) as run:
        run.ask()
        run.pass_over()
        older = path.read_bytes()
        run.ask()
        run.pass_over()
    path.write_bytes(older)
    with pytest.raises(TamperedLedger, match="older copy"), turns(budget=budget, journal=path):
        pass
    with pytest.raises(TamperedLedger), turns(budget=budget, journal=path):  # not "in use"
        pass


def test_other_settings_and_seeded_noise_with_a_budget_are_refused(budget, tmp_path):
    with turns(journal=tmp_path / "journal"):
        pass
    with (
        pytest.raises(CheckpointError, match="adjacency"),
        turns(journal=tmp_path / "journal", adjacency="replace-one"),
    ):
        pass
    with pytest.raises(InvalidArgument, match="stream must be left out"):
        turns(budget=budget, stream=UnsafeSeededStream(0, "test"))
