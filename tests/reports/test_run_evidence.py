"""What is called checked was compared; what is not what the statement says is refused."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import tacit
from tacit.accounting import Gaussian
from tacit.errors import CheckpointError, LedgerError
from tacit.ledger import Release
from tacit.reports import run_evidence
from tacit.reports.run_content import markdown, page
from tacit.reports.run_folder import read
from tacit.reports.run_sections import report
from tacit.statement import Charge

from .conftest import PLAN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tacit.statement import Assessed


def found(folder: Path, **arguments: Any) -> dict[str, Assessed]:
    return {one.subject: one for one in read(folder, **arguments).evidence.findings}


# ---- files


def test_other_released_files_are_compared_too(make: Callable[..., Path]) -> None:
    files = {
        "answers.csv": hashlib.sha256(b"query,label\n1,2\n").hexdigest(),
        "model.safetensors": "0" * 64,
    }
    folder = make({}, {"files": files})
    assert {found(folder)[name].standing for name in files} == {"claimed"}
    (folder / "answers.csv").write_bytes(b"query,label\n1,2\n")
    assert found(folder)["answers.csv"].standing == "checked"
    (folder / "answers.csv").write_bytes(b"query,label\n1,3\n")
    with pytest.raises(CheckpointError, match=r"answers\.csv is not the file this statement is"):
        read(folder)


# ---- the ledger


@pytest.fixture
def charged(make: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Makes a run that a ledger in this folder charged, with other fields in its charge."""
    url = f"sqlite:///{tmp_path}/budget.db"
    with tacit.Ledger(url) as ledger:
        budget = ledger.open("data", epsilon=10.0, delta=1e-4).at(1e-5)
        detail = {"plan": json.loads(PLAN.to_json()), "last_step": PLAN.steps}
        release = Release(PLAN.event, PLAN.adjacency, PLAN.unit)
        held = budget.reserve(release, steps=PLAN.steps, detail=detail)
        held.lease(PLAN.steps)
        true = Charge(
            ledger=ledger.identity, location=url, budget="data", reservation=held.number,
            head=str(ledger.head),
        )  # fmt: skip
        ledger.open("empty", epsilon=10.0, delta=1e-4)

    def made(**changes: Any) -> Path:
        return make({}, {"charge": replace(true, **changes), "ledger": "the budget 'data'"})

    return made


def test_a_charge_is_looked_up_where_the_ledger_is(charged: Callable[..., Path]) -> None:
    one = found(charged())["ledger"]
    assert one.standing == "checked"
    assert "charges no less for the training; the charge of preprocessing was not" in one.how


def test_a_charge_that_names_no_reservation_stays_claimed(charged: Callable[..., Path]) -> None:
    one = found(charged(reservation=None))["ledger"]
    assert (one.standing, "no reservation is named" in one.how) == ("claimed", True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head": "3:" + "ab" * 32}, "does not hold entry 3:abab"),
        ({"head": "999:" + "ab" * 32}, "does not hold entry 999:"),
        ({"reservation": 1}, "has no reservation 1"),
        ({"budget": "other"}, "it has no budget 'other'"),
        ({"budget": "empty"}, "budget 'empty' has no reservation 3"),
    ],
)
def test_an_invented_charge_is_refused(
    charged: Callable[..., Path], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(CheckpointError, match=words):
        read(charged(**changes))


def test_a_charge_of_fewer_steps_or_of_another_plan_is_refused(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/budget.db"
    other = replace(PLAN, noise_multiplier=40.0)
    with tacit.Ledger(url) as ledger:
        budget = ledger.open("data", epsilon=10.0, delta=1e-4).at(1e-5)
        numbers = []
        for plan, steps in ((PLAN, 39), (other, 40)):
            detail = {"plan": json.loads(plan.to_json()), "last_step": 40}
            release = Release(plan.event, plan.adjacency, plan.unit)
            held = budget.reserve(release, steps=40, detail=detail)
            held.lease(steps)
            numbers.append(held.number)
        charges = [
            Charge(ledger=ledger.identity, location=url, budget="data", reservation=number,
                   head=str(ledger.head))
            for number in numbers
        ]  # fmt: skip
    for charge, words in zip(charges, ("granted 39 steps, not 40", "of another plan"), strict=True):
        with pytest.raises(CheckpointError, match=words):
            read(make({}, {"charge": charge, "ledger": "entry"}))


BIG, SMALL = Release(PLAN.event, PLAN.adjacency, PLAN.unit), Release(Gaussian(1000.0))


@pytest.mark.parametrize(
    ("what", "detail", "terms", "words"),
    [
        (SMALL, {"plan": json.loads(PLAN.to_json())}, {}, "is of another event"),
        (SMALL, None, {}, "is of another event"),
        (BIG, None, {"unit": "user"}, "unit of its budget 'data' is 'user'"),
        (BIG, None, {"adjacency": "zero-out"}, "adjacency of its budget 'data' is 'zero-out'"),
    ],
)
def test_a_charge_of_something_else_is_refused(
    make: Callable[..., Path], tmp_path: Path, what: Release, detail: Any, terms: Any, words: str
) -> None:
    url = f"sqlite:///{tmp_path}/budget.db"
    with tacit.Ledger(url) as ledger:
        budget = ledger.open("data", epsilon=10.0, delta=1e-4, **terms).at(1e-5)
        held = budget.reserve(replace(what, **terms), steps=40, detail=detail)
        held.lease(40)
        charge = Charge(ledger=ledger.identity, location=url, budget="data",
                        reservation=held.number, head=str(ledger.head))  # fmt: skip
    with pytest.raises(CheckpointError, match=words):
        read(make({}, {"charge": charge, "ledger": "entry"}))


def test_a_charge_of_less_than_its_event_costs_is_found(tmp_path: Path, whole: Any) -> None:
    _, statement, _ = whole
    with tacit.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("data", epsilon=10.0, delta=1e-4).at(1e-5)
        held = budget.reserve(BIG, steps=40)
        held.lease(40)
        assert run_evidence._shortfall(statement, budget.state, held.state) is None
        forged = replace(held.state, charge=replace(held.state.charge, epsilon=0.1))
        found = run_evidence._shortfall(statement, budget.state, forged)
    assert found == f"reservation {held.number} charges less than its event costs"


def test_a_reservation_that_was_given_up_bears_nothing_out(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/budget.db"
    with tacit.Ledger(url) as ledger:
        held = ledger.open("data", epsilon=10.0, delta=1e-4).at(1e-5).reserve(BIG, steps=40)
        held.end()
        charge = Charge(ledger=ledger.identity, location=url, budget="data",
                        reservation=held.number, head=str(ledger.head))  # fmt: skip
    of_no_plan = {"plan": None, "steps_planned": None, "steps_taken": None}
    with pytest.raises(CheckpointError, match="ended before its first step, and is not charged"):
        read(make({"plan": None}, {"charge": charge, "ledger": "entry", **of_no_plan}))


def test_a_ledger_that_is_not_there_is_claimed(
    charged: Callable[..., Path], tmp_path: Path
) -> None:
    folder = charged()
    (tmp_path / "budget.db").rename(tmp_path / "elsewhere.db")
    (tmp_path / "budget.db.anchor").rename(tmp_path / "elsewhere.db.anchor")
    assert found(folder)["ledger"].standing == "claimed"
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    assert found(folder, ledger=url)["ledger"].standing == "checked"
    (tmp_path / "budget.db").write_text("no database")
    assert found(folder)["ledger"].standing == "claimed"
    with pytest.raises(LedgerError):
        read(folder, ledger=f"sqlite:///{tmp_path}/budget.db")


def test_a_report_does_not_tell_what_a_file_of_the_readers_holds(
    charged: Callable[..., Path], tmp_path: Path
) -> None:
    """The stranger who wrote the folder names the place; the names of tables were in the report."""
    folder = charged()
    for end in ("", ".anchor"):
        (tmp_path / f"budget.db{end}").unlink()
    with closing(sqlite3.connect(tmp_path / "budget.db")) as other:
        other.execute("CREATE TABLE patients_with_hiv (name TEXT)")
    one = found(folder)["ledger"]
    assert one.standing == "claimed"
    assert "cannot be read as a ledger" in one.how
    assert "hiv" not in one.how
    with pytest.raises(LedgerError, match="patients_with_hiv"):  # who asks is told
        read(folder, ledger=f"sqlite:///{tmp_path}/budget.db")


def test_another_ledger_in_its_place_bears_nothing_out(
    charged: Callable[..., Path], tmp_path: Path
) -> None:
    folder = charged(ledger="ab" * 16)
    one = found(folder)["ledger"]
    assert (one.standing, one.how) == ("claimed", "the ledger there is another one")
    with pytest.raises(CheckpointError, match="the ledger there is another one"):
        read(folder, ledger=f"sqlite:///{tmp_path}/budget.db")


@pytest.mark.parametrize(
    "location",
    [
        "postgresql://user@evil.example/db",
        "sqlite:///file:x?mode=rwc&uri=true",
        "sqlite:///",
        "sqlite:////dev/zero",
        "sqlite:///\u0394/" + "x" * 5000,
        "http://evil.example",
    ],
)
def test_no_server_is_asked_and_no_file_is_made_for_a_stranger(
    charged: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("a ledger was opened")

    monkeypatch.setattr(run_evidence, "_difference", opened)
    assert found(charged(location=location))["ledger"].standing == "claimed"


def test_a_statement_without_an_entry_has_nothing_to_look_up(run: Path) -> None:
    assert found(run)["ledger"].standing == "claimed"
    with pytest.raises(CheckpointError, match="names no entry of a ledger"):
        read(run, ledger="sqlite:///budget.db")


# ---- what readers see


def test_every_form_of_the_report_tells_them_apart(summary: Any) -> None:
    content = report(summary, drawn=False)
    plain = summary.report_as_dict()
    standings = {one["subject"]: one["standing"] for one in plain["evidence"]}
    assert standings["ε"] == standings["event"] == "proved"
    for subject in ("plan", "ledger", "accuracy", "whom it protects", "data, settings, software"):
        assert standings[subject] == "claimed"
    for text in (markdown(content), page(content, {})):
        assert "What is proved, and what is only claimed" in text
        places = [text.index(f"{word}: ") for word in ("Proved", "Claimed")]
        proved, claimed = text[places[0] : places[1]], text[places[1] :]
        assert "the event is that of 40 steps of the plan" in proved
        assert "the run sampled, clipped and added noise as the plan says" in claimed
        assert "entry 7" not in proved
