from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta

import pytest

from tacit.accounting import Composed, Gaussian, PureDp
from tacit.errors import BudgetExceeded, InvalidArgument, LedgerError
from tacit.ledger import Head, Ledger, Release, entries, verify
from tacit.ledger.budget import opening


def test_budget_outlives_the_ledger_that_opened_it(place):
    with place.ledger() as ledger:
        budget = ledger.open("data", 1.0, 1e-5)
        made = budget.reserve(Release(PureDp(0.75)), steps=10, label="survey", detail={"a": [1.5]})
        assert made.lease(4) == 4
        head = ledger.head
    again = place.ledger()
    assert again.head == head
    found = again.budget("data").reservation(made.number)
    assert (found.epsilon, found.delta, found.granted, found.left) == (0.75, 0.0, 4, 6)
    assert found.state.detail == {"a": [1.5]}
    with pytest.raises(BudgetExceeded):
        again.budget("data").charge(PureDp(0.5))
    assert again.head == head  # a refusal writes nothing


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"steps": -4}, "steps"),
        ({"event": {"kind": "Mystery"}}, "no event that tacit knows"),
        ({"charge": {"epsilon": 0.01, "delta": 0.0}}, "charges less than its event costs"),
        ({"charge": {"epsilon": 4.0, "delta": 0.0}}, "over its limits"),
    ],
)
def test_what_nobody_could_read_again_is_not_written(place, prepared, changes, why):
    """It was committed first, and then nobody could open the ledger any more."""
    ledger = place.ledger()
    budget = ledger.open("data", 1.0, 1e-5)
    made = budget.charge(PureDp(0.5))
    (kept,) = (one for one in ledger.history() if one.number == made.number)
    head = ledger.head
    draft = entries.Draft("data", "reserve", kept.data | changes)
    with pytest.raises(LedgerError, match="nothing was written.*" + why) as refused:
        ledger.append(lambda _: [draft], prepared=prepared)
    assert type(refused.value) is LedgerError  # the ledger itself is as it was
    assert ledger.head == head
    assert place.ledger().verify().ok
    budget.charge(PureDp(0.25))
    assert place.ledger().budget("data").spent().epsilon == 0.75


def test_what_two_drafts_do_together_is_read_before_it_is_written(place):
    ledger = place.ledger()
    budget = ledger.open("data", 1.0, 1e-5)
    made = budget.charge(PureDp(0.5))
    (kept,) = (one for one in ledger.history() if one.number == made.number)
    head = ledger.head
    draft = entries.Draft("data", "reserve", kept.data)
    with pytest.raises(LedgerError, match=r"nothing was written.*over its limits"):
        ledger.append(lambda _: [draft, draft])
    assert ledger.head == head
    assert len(ledger.append(lambda _: [draft])) == 1


def test_an_event_by_itself_says_nobody_whom_it_protects(place):
    budget = place.ledger().open("data", epsilon=1.0, delta=1e-5)
    for charge in (budget.reserve, budget.affordable, lambda one: budget.check_room([one])):
        with pytest.raises(InvalidArgument, match=r"what must be a plan.* budget\.charge\(event\)"):
            charge(Gaussian(4.0))


def test_noise_next_to_none_costs_more_than_any_budget_has(place):
    ledger = place.ledger()
    for rule in ("renyi", "basic"):
        budget = ledger.open(rule, epsilon=1.0, delta=1e-5, composition=rule)
        for event in (
            Gaussian(1e-300), Composed(PureDp(1e-300), PureDp(5e-324), PureDp(1e300))
        ):  # fmt: skip
            assert not budget.affordable(Release(event))


def test_two_ledgers_see_each_others_charges(place):
    one, other = (place.ledger().open("data", 1.0, 0.0) for _ in range(2))
    one.charge(PureDp(0.5))
    assert other.spent().epsilon == 0.5
    other.charge(PureDp(0.5))
    assert not one.affordable(Release(PureDp(0.1)))
    other.amend(epsilon=2.0, reason="more")
    one.charge(PureDp(1.0))
    assert (one.epsilon, one.remaining().epsilon) == (2.0, 0.0)


def test_second_opening_with_other_limits_is_refused_naming_amend(place):
    ledger = place.ledger()
    ledger.open("data", 1.0, 1e-5)
    head = ledger.head
    assert ledger.open("data", 1, 1e-5).epsilon == 1.0
    for epsilon, delta in ((2.0, 1e-5), (1.0, 1e-6)):
        with pytest.raises(InvalidArgument, match="amend"):
            ledger.open("data", epsilon, delta)
    for more in ({"unit": "user"}, {"adjacency": "zero-out"}, {"composition": "renyi"}):
        with pytest.raises(InvalidArgument, match=f"{next(iter(more))} of the budget 'data' is"):
            ledger.open("data", 1.0, 1e-5, **more)
    assert ledger.head == head


def test_budgets_and_history_tell_what_happened(place):
    ledger = place.ledger()
    first = ledger.open("first", 1.0, 1e-5)
    ledger.open("second", 2.0, 1e-6, unit="user", adjacency="replace-one", composition="renyi")
    first.charge(Gaussian(40.0), label="mean")
    first.amend(epsilon=1.5, reason="board")
    assert [state.name for state in ledger.budgets()] == ["first", "second"]
    assert ledger.budgets()[1].unit == "user"
    assert [one.kind for one in ledger.history()] == ["ledger", "open", "open", "reserve", "amend"]
    mine = ledger.history("first")
    assert [one.number for one in mine] == [2, 4, 5]
    assert mine[1].data["label"] == "mean"
    assert len(mine[1].at) == len("2026-11-16")
    with pytest.raises(InvalidArgument, match="it has: 'first', 'second'"):
        ledger.budget("third")
    with pytest.raises(InvalidArgument, match="'third'"):
        ledger.history("third")


def test_head_names_an_entry_that_the_ledger_contains(place, tmp_path):
    ledger = place.ledger()
    heads = [ledger.head]
    budget = ledger.open("data", 1.0, 0.0)
    for _ in range(3):
        budget.charge(PureDp(0.1))
        heads.append(ledger.head)
    assert all(ledger.contains(head) and ledger.contains(str(head)) for head in heads)
    assert not ledger.contains(Head(heads[0].number, heads[1].hash))
    assert not ledger.contains(Head(99, heads[1].hash))
    with Ledger(f"sqlite:///{tmp_path}/other.db") as other:
        assert not other.contains(heads[0])
    with pytest.raises(InvalidArgument, match="head must look like"):
        ledger.contains("newest")


def test_every_kind_of_entry_survives_reading_back(place):
    ledger = place.ledger()
    budget = ledger.open("Zürich ✓", 8.0, 1e-5, composition="declared")
    one, other = budget.declare([Release(Gaussian(5.0)), Release(Gaussian(6.0))])
    budget.reserve(Release(Gaussian(5.0)), label="für alle", detail={"ε": 1e-300})
    one.lease(1)
    one.give_back(1)
    other.end()
    again = place.ledger()
    assert again.budgets() == ledger.budgets()
    assert again.books.reservations == ledger.books.reservations
    assert again.verify().ok


@pytest.mark.parametrize(
    "url",
    ["", ":memory:", "me:secret@host/db", "sqlite://", "sqlite:///:memory:", "mysql://host/db", 5,
     "sqlite:///file:x?mode=memory&uri=true"],
)  # fmt: skip
def test_address_that_is_no_ledger_is_refused_with_the_remedy(url):
    with pytest.raises(InvalidArgument, match="sqlite:///"):
        Ledger(url)


def test_ledger_is_not_made_where_it_is_only_read(place, tmp_path):
    with pytest.raises(LedgerError, match="there is no ledger at"):
        place.ledger(create=False)
    assert not verify(place.url, anchor=place.anchor).ok
    assert list(tmp_path.iterdir()) == []


def test_ledger_is_not_made_in_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger(f"sqlite:///{tmp_path}/typo/budget.db")
    assert list(tmp_path.iterdir()) == []


def test_file_of_somebody_else_is_refused_and_left_alone(sqlite, tmp_path):
    path = tmp_path / "budget.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE songs (name TEXT)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"something else than a ledger \(tables songs\)"):
        sqlite.ledger()
    assert path.read_bytes() == before
    path.write_text("a shopping list, and no database at all " * 50)
    with pytest.raises(LedgerError, match="is not a database"):
        sqlite.ledger()
    assert [one.name for one in tmp_path.iterdir()] == ["budget.db"]


def test_tables_of_somebody_else_on_a_server_are_refused(postgresql):
    postgresql.execute("CREATE TABLE entries (song text)")
    with pytest.raises(LedgerError, match="something else than a ledger"):
        postgresql.ledger()
    postgresql.execute("DROP TABLE entries")
    postgresql.execute("CREATE TABLE songs (name text)")
    assert postgresql.ledger().verify().ok


def test_tables_of_a_newer_tacit_are_refused(place):
    place.ledger().close()
    change(place, "UPDATE tacit_ledger_version SET version_num = '0002'")
    with pytest.raises(LedgerError, match=r"version '0002', newer than .* upgrade tacit"):
        place.ledger()
    assert "upgrade tacit" in verify(place.url, anchor=place.anchor).problems[0]


def test_database_refuses_to_change_or_remove_an_entry(place):
    place.ledger().close()
    for statement in ("UPDATE entries SET body = ''", "DELETE FROM entries"):
        with pytest.raises(Exception, match="entries are never"):
            change(place, statement)
    if place.url.startswith("postgresql"):
        with pytest.raises(Exception, match="entries are never"):
            change(place, "TRUNCATE entries")


# Newer Pythons warn of threads that a child does not have; it uses none.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_charges_through_the_same_object(place):
    ledger = place.ledger()
    made = ledger.open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=100)
    made.lease(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if sum(made.lease(2) for _ in range(10)) == 20 else 2
        finally:
            os._exit(code)
    assert sum(made.lease(2) for _ in range(10)) == 20
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.refresh()
    assert made.granted == 41
    assert ledger.verify().ok


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_forked_while_another_thread_writes_count_like_the_parent(place):
    ledger = place.ledger()
    made = ledger.open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=10**6)
    done = threading.Event()
    leased = []

    def work() -> None:
        while not done.is_set():
            leased.append(made.lease(1))

    thread = threading.Thread(target=work)
    thread.start()
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if [made.lease(2) for _ in range(3)] == [2, 2, 2] else 2
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    done.set()
    thread.join()
    ledger.close()  # the children are gone: what they wrote must have been in the same log
    ledger.refresh()
    assert codes == [0] * 6
    assert made.granted == sum(leased) + 36
    assert ledger.verify().ok


def test_forked_child_may_outlive_its_parents_connection(sqlite):
    ledger = sqlite.ledger()
    made = ledger.open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=100)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            made.lease(1)
            os.read(reader, 1)  # now the parent has closed, and thinks that it was the last
            code = 0 if made.lease(1) == 1 else 2
        finally:
            os._exit(code)
    while ledger.refresh() and made.granted < 1:
        pass
    ledger.close()
    os.write(writer, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.refresh()
    assert made.granted == 2
    os.close(reader)
    os.close(writer)


def test_password_is_shown_nowhere(server, tmp_path):
    url = f"postgresql://tacit:pa55word@127.0.0.1:{server.port}/nowhere"
    with pytest.raises(LedgerError) as refusal:
        Ledger(url, anchor=tmp_path / "anchor", timeout=2.0)
    assert "pa55word" not in str(refusal.value)
    assert "nowhere" in str(refusal.value)
    with pytest.raises(InvalidArgument) as refusal:
        Ledger("postgresql//tacit:pa55word@127.0.0.1/x")
    assert "pa55word" not in str(refusal.value)
    with Ledger(url.replace("nowhere", server.new_database()), anchor=tmp_path / "a") as ledger:
        assert "pa55word" not in repr(ledger) + ledger.location + ledger.verify().location


def test_ledger_costs_no_import_until_it_is_used():
    code = "import sys, tacit.ledger; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not {"sqlalchemy", "alembic", "psycopg", "torch", "scipy"} & loaded


def change(place, statement):
    if place.url.startswith("postgresql"):
        place.execute(statement)
        return
    connection = sqlite3.connect(place.url.removeprefix("sqlite:///"))
    try:
        connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


# ---- names, days and addresses


@pytest.mark.parametrize(
    "name",
    [
        "p\u0430tients",  # a Cyrillic letter among Latin ones
        "\u03bfpen",  # a Greek one
        "\uff50atients",  # full width
        "patients ",
        " patients",
        "patients  2026",
        "patients\u200b",
        "patients\u00a0x",
        "patients\u3164",
        "patients\u2800",  # an empty braille cell
        "patients\ufe0f",
        "patients\U000e0100",
        "cafe\u0301",  # not composed
        "pa\u00adtients",
        "\x1b[31mpatients",
        "two\nlines",
        "\u202epatients",
        "x" * 201,
        "",
        5,
    ],
)
def test_name_that_is_not_what_it_looks_like_is_refused(name):
    with pytest.raises(InvalidArgument, match="name must") as refusal:
        opening(name, 1.0, 0.0, "example", "add-remove", "basic")
    said = str(refusal.value).replace("…", "")
    assert said.isascii()
    assert said.isprintable()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("patients", "Patients"),
        ("\u0441\u043e\u0440\u0443", "copy"),  # all Cyrillic
        ("run-1", "run-l"),
        ("data", "d\u0251t\u0251"),  # all Latin
        ("run-0", "run-O"),
        ("a b", "ab"),
        ("stra\u00dfe", "strasse"),
        ("patients-2026", "patients\u20132026"),  # as a word processor writes it
        ("patients-2026", "patients\u22122026"),
        ("ada's records", "ada\u2019s records"),
        ("patients-2", "patients-\u0662"),
        ("patients-2026", "patients\u0335-2026"),
    ],
)
def test_name_that_looks_like_another_is_refused(sqlite, one, other):
    ledger = sqlite.ledger()
    ledger.open(one, 1.0, 0.0)
    with pytest.raises(InvalidArgument, match="must not look like that of another budget"):
        ledger.open(other, 1.0, 0.0)
    ledger.open("another", 1.0, 0.0)
    assert [state.name for state in ledger.budgets()] == [one, "another"]


def test_names_that_are_told_apart_are_taken(sqlite):
    names = ["cafe", "caf\u00e9", "run-1", "run-2", "run/1", "\u0926\u093f\u0928",
             "\u0926\u0940\u0928"]  # fmt: skip
    ledger = sqlite.ledger()
    for name in names:
        ledger.open(name, 1.0, 0.0)
    assert [state.name for state in ledger.budgets()] == names


@pytest.mark.parametrize(
    "name", ["Z\u00fcrich", "\u60a3\u8005 2026", "\u0434\u0430\u043d\u043d\u044b\u0435"]
)
def test_names_of_all_scripts_are_possible(sqlite, name):
    assert sqlite.ledger().open(name, 1.0, 0.0).name == name


def test_entries_know_the_day_and_no_more(sqlite, monkeypatch):
    """Leases of one step each, of lots that take longer the more examples they have."""
    ledger = sqlite.ledger()
    made = ledger.open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=20)
    for size in (1, 5, 2, 9):
        time.sleep(size / 1000)
        made.lease(1)
    days = {one.at for one in ledger.history()}
    assert len(days) <= 2  # a test may run past midnight
    assert all(datetime.fromisoformat(day).strftime("%Y-%m-%d") == day for day in days)

    class Yesterday(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(days=1)

    monkeypatch.setattr(entries, "datetime", Yesterday)  # a clock that was set back
    made.lease(1)
    assert ledger.history()[-1].at == ledger.history()[-2].at
    assert ledger.verify().ok


@pytest.mark.parametrize(
    "query",
    ["password=hunter22", "sslpassword=hunter22", "passfile=hunter22", "options=-c%20x=hunter22"],
)
def test_secrets_of_an_address_are_shown_nowhere(query, tmp_path):
    url = f"postgresql://me@127.0.0.1:1/data?{query}&sslmode=disable"
    for address in (url, url.replace("me@", "me:hunter22@")):
        with pytest.raises(LedgerError) as refusal:
            Ledger(address, anchor=tmp_path / "anchor", timeout=1.0)
        found = verify(address, anchor=tmp_path / "anchor", timeout=1.0)
        said = f"{refusal.value} {found}"
        assert "hunter22" not in said
        assert "127.0.0.1:1/data" in said
        assert "sslmode=disable" in said


@pytest.mark.parametrize(
    "address", ["postgresql//me:hunter22@host/db", "me@host?password=hunter22"]
)
def test_misspelt_address_is_not_repeated(address):
    with pytest.raises(InvalidArgument, match="url must look like") as refusal:
        Ledger(address)
    assert "hunter22" not in str(refusal.value)


def test_what_a_server_says_cannot_steer_the_terminal(postgresql):
    ledger = postgresql.ledger()
    postgresql.execute(
        "CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS "
        r"$$ BEGIN RAISE EXCEPTION E'\x1b]0;owned\x07 hello'; END $$"
    )
    postgresql.execute(
        "CREATE TRIGGER loud BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION loud()"
    )
    with pytest.raises(LedgerError, match="hello") as refusal:
        ledger.open("data", 1.0, 0.0)
    assert str(refusal.value).isprintable()


def test_path_and_address_name_the_same_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Ledger("budget.db") as ledger:
        ledger.open("data", 1.0, 0.0)
        assert ledger.location == "sqlite:///budget.db"
    for url in ("sqlite:///budget.db", tmp_path / "budget.db", str(tmp_path / "budget.db")):
        with Ledger(url, create=False) as ledger:
            assert [state.name for state in ledger.budgets()] == ["data"]
        assert verify(url).ok


def test_exceeded_budget_names_what_is_unfinished_and_how_to_go_on(sqlite):
    ledger = sqlite.ledger()
    budget = ledger.open("my data", 1.0, 0.0)
    dead = budget.reserve(Release(PureDp(0.75)), steps=40, label="training")
    with pytest.raises(BudgetExceeded) as refusal:
        budget.reserve(Release(PureDp(0.75)), steps=40)
    said = str(refusal.value)
    assert "reservation 3 'training' of 20" in said
    assert "0 of 40 steps granted" in said
    assert "budget=ledger.budget('my data').reservation(3)" in said
    assert f"tacit ledger close 'my data' 3 --ledger {ledger.location}" in said
    assert "this frees epsilon=0.75" in said
    dead.lease(1)
    with pytest.raises(BudgetExceeded, match="it stays charged, since steps were granted"):
        budget.charge(PureDp(0.75))
    dead.end()
    with pytest.raises(BudgetExceeded) as refusal:
        budget.charge(PureDp(0.75))
    assert "Unfinished" not in str(refusal.value)
