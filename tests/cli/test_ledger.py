"""``tacit ledger``: what it prints, what it finds out, and what it refuses or leaves alone."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from tacit.accounting import Gaussian, PoissonSampled, PureDp, Repeated
from tacit.cli import main
from tacit.errors import BudgetExceeded
from tacit.ledger import Ledger, Release
from tacit.ledger.entries import Entry, hashed

from ..forked import Forked

RUN = Release(Repeated(PoissonSampled(0.01, Gaussian(2.0)), 100))


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A page of a width that does not depend on who runs the tests: cells are not wrapped."""
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The folder of a ledger with two budgets."""
    folder = tmp_path_factory.mktemp("made")
    with Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        budget = ledger.open("patients", 4.0, 1e-5)
        run = budget.reserve(RUN, steps=100, label="training")
        run.lease(30)
        budget.charge(PureDp(0.5), label="mean age")
        ledger.open("survey", 1.0, 1e-6, unit="user", composition="renyi")
    return folder


@pytest.fixture
def path(made, tmp_path, monkeypatch) -> Path:
    """That ledger, copied into the current folder and with no other one in reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_LEDGER", raising=False)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "budget.db"


def told(capsys, *arguments: str) -> str:
    """What a command that succeeds prints."""
    assert main(["ledger", *arguments]) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def told_json(capsys, *arguments: str) -> dict:
    return json.loads(told(capsys, *arguments, "--json"))


def refused(capsys, *arguments: str) -> str:
    """The one line of a command that is refused."""
    assert main(["ledger", *arguments]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith("tacit: ")
    return shown.err


def entries_of(path: Path) -> list[Entry]:
    with closing(sqlite3.connect(path)) as connection:
        return [Entry(*row) for row in connection.execute("SELECT * FROM entries ORDER BY 1")]


def rewrite(path: Path, entries: list[Entry]) -> None:
    """Puts ``entries`` in the place of all rows, past the triggers."""
    with closing(sqlite3.connect(path)) as connection:
        kept = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = connection.execute(kept).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM entries")
        rows = [astuple(entry) for entry in entries]
        connection.executemany("INSERT INTO entries VALUES (?,?,?,?,?,?,?)", rows)
        for _, text in triggers:
            connection.execute(text)
        connection.commit()


def forged(path: Path, number: int, **changed: object) -> None:
    """Changes the data of an entry, and chains and anchors everything anew."""
    done: list[Entry] = []
    for entry in entries_of(path):
        body = entry.data | changed if entry.number == number else entry.data
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        previous = done[-1].hash if done else ""
        done.append(hashed(replace(entry, body=text, previous=previous)))
    rewrite(path, done)
    anchor = {"ledger": done[0].data["id"], "number": done[-1].number, "hash": done[-1].hash}
    Path(f"{path}.anchor").write_text(json.dumps(anchor))


# ---- open, close

BOTH = ("--epsilon", "2", "--delta", "1e-5")


def test_open_makes_a_budget_and_its_ledger(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = told(capsys, "open", "census", *BOTH, "--ledger", "new.db")
    assert "the budget census was made" in page
    found = told_json(capsys, "open", "census", *BOTH, "--ledger", "new.db")
    assert (found["made"], found["budget"]["epsilon"], found["budget"]["state"]) == (
        False, 2.0, "fresh",
    )  # fmt: skip
    terms = ("--unit", "user", "--adjacency", "replace-one", "--composition", "renyi")
    found = told_json(capsys, "open", "weekly", *BOTH, *terms, "--ledger", "new.db")
    with Ledger("new.db") as ledger:
        state = ledger.budget("weekly").state
    assert found["made"]
    assert (state.unit, state.adjacency, state.composition) == ("user", "replace-one", "renyi")
    assert (state.epsilon, state.delta) == (2.0, 1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("census", "--delta", "1e-5"), "--epsilon is missing"),
        (("census", "--epsilon", "2"), "--delta is missing"),
        (("census", "--epsilon", "much", "--delta", "0"), "--epsilon must be a number, got much"),
        (("census", "--epsilon", "-2", "--delta", "0"), "--epsilon must be a positive"),
        (("census", *BOTH, "--unit", "household"), "unit must be one of example, user, got"),
        (("census", *BOTH, "--composition", "free"), "must be one of basic, renyi, declared, got"),
        (("census", *BOTH, "--adjacency", "near"), "adjacency must be one of"),
        (("patients", *BOTH), "epsilon of the budget 'patients' is 4.0, got 2.0"),
        (("p\u0430tients", *BOTH), "name must be in one script"),
        (("Patients", *BOTH), "must not look like that of another budget"),
        (("\x1b[2J", *BOTH), "name must be one line"),
    ],
)
def test_open_of_what_is_no_budget_is_refused(capsys, path, arguments, words):
    line = refused(capsys, "open", *arguments, "--ledger", str(path))
    assert words in line
    assert "\x1b" not in line


def test_close_does_not_free_what_was_declared_with_a_plan_that_has_begun(capsys, tmp_path):
    path = tmp_path / "budget.db"
    with Ledger(f"sqlite:///{path}") as ledger:
        budget = ledger.open("data", 4.0, 1e-5, composition="declared")
        begun, other = budget.declare([Release(Gaussian(4.0)), Release(Gaussian(5.0))])
        begun.lease(1)
        before = budget.spent()
        out = told(capsys, "close", "data", str(other.number), "--ledger", str(path))
        assert "It stays charged" in out
        assert "no longer charged" not in out
        assert (budget.spent(), other.state.void) == (before, False)
    assert "no longer charged" not in told(capsys, "show", "data", "--ledger", str(path))


def test_close_ends_what_is_unfinished(capsys, path):
    found = told_json(capsys, "list", "--ledger", str(path))["unfinished"]
    assert [(one["budget"], one["number"], one["granted"]) for one in found] == [
        ("patients", 3, 30)
    ]
    page = told(capsys, "list", "--ledger", str(path))
    assert "Unfinished: reservation 3 of patients, training: unfinished, 30 of 100 steps" in page
    with Ledger(path) as ledger:
        spent = ledger.budget("patients").spent().epsilon
        fresh = ledger.budget("patients").reserve(RUN, steps=100, label="never begun").number
    assert "It stays charged" in told(capsys, "close", "patients", "3", "--ledger", str(path))
    found = told_json(capsys, "close", "patients", str(fresh), "--ledger", str(path))
    assert (found["void"], found["budget"]["spent"]["epsilon"]) == (True, spent)
    assert told_json(capsys, "list", "--ledger", str(path))["unfinished"] == []
    assert "Unfinished" not in told(capsys, "list", "--ledger", str(path))
    for number, words in (("3", "has ended already"), ("4", "number must be"), ("x", "NUMBER")):
        assert words in refused(capsys, "close", "patients", number, "--ledger", str(path))


def test_the_line_that_an_exceeded_budget_names_ends_the_reservation(capsys, path):
    with Ledger(path) as ledger:
        budget = ledger.open("small", 1.0, 0.0)
        budget.reserve(Release(PureDp(0.75)), steps=9)
        with pytest.raises(BudgetExceeded) as refusal:
            budget.charge(PureDp(0.75))
        line = str(refusal.value).partition("or: tacit ")[2].partition(" (no step")[0]
    assert "no longer charged" in told(capsys, *shlex.split(line)[1:])
    with Ledger(path) as ledger:
        ledger.budget("small").charge(PureDp(0.75))


def test_a_name_of_other_letters_is_also_spelt_out(capsys, path):
    with Ledger(path) as ledger:
        ledger.open("\u0434\u0430\u043d\u043d\u044b\u0435", 1.0, 0.0)
    page = told(capsys, "history", "--ledger", str(path))
    assert "\\u0434\\u0430" in "".join(page.split())


def test_a_key_is_named_by_option_or_environment(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text("ab" * 32)
    told(capsys, "open", "census", *BOTH, "--ledger", "new.db", "--key", "key")
    assert "sealed with a key" in refused(capsys, "list", "--ledger", "new.db")
    monkeypatch.setenv("TACIT_LEDGER_KEY", "key")
    assert "Sound" in told(capsys, "verify", "--ledger", "new.db")
    assert "census" in told(capsys, "list", "--ledger", "new.db")


# ---- list, show, history


def test_list_holds_what_the_budgets_say(capsys, path):
    found = told_json(capsys, "list", "--ledger", "budget.db")
    with Ledger(f"sqlite:///{path}") as ledger:
        assert found["head"] == str(ledger.head)
        patients, survey = found["budgets"]
        spent, left = ledger.budget("patients").spent(), ledger.budget("patients").remaining()
    assert patients["spent"]["epsilon"] == spent.epsilon
    assert patients["spent"]["meaning"] == spent.meaning
    assert patients["remaining"]["delta"] == left.delta
    assert (patients["state"], survey["state"]) == ("open", "fresh")
    assert (survey["unit"], survey["composition"]) == ("user", "renyi")


def test_list_is_a_table_with_a_bar_and_the_meaning_of_its_figures(capsys, path):
    page = told(capsys, "list", "--ledger", str(path))
    line = next(line for line in page.splitlines() if line.startswith(" patients"))
    assert "█" in line
    assert "─" in line
    assert "%" in line
    assert "basic. spent: the sums of ε and δ over all that was reserved" in page
    assert "renyi. spent: " in page
    assert max(map(len, page.splitlines())) <= 100
    assert "\x1b" not in page


def test_the_environment_names_the_ledger(capsys, path, monkeypatch):
    monkeypatch.setenv("TACIT_LEDGER", f"sqlite:///{path}")
    assert "patients" in told(capsys, "list")


def test_show_holds_the_reservations_and_what_the_figures_mean(capsys, path):
    budget = told_json(capsys, "show", "patients", "--ledger", str(path))["budget"]
    run, mean = budget["reservations"]
    assert (run["number"], run["label"], run["granted"], run["steps"]) == (3, "training", 30, 100)
    assert (run["state"], mean["state"]) == ("unfinished", "granted")
    assert mean["epsilon"] == 0.5
    assert [one["kind"] for one in budget["burn_down"]] == ["open", "reserve", "reserve"]
    page = told(capsys, "show", "patients", "--ledger", str(path))
    assert "30 of 100" in page
    assert budget["spent"]["meaning"] in page
    assert budget["remaining"]["meaning"] in page
    assert "unfinished: " in page
    assert max(map(len, page.splitlines())) <= 100


def test_shown_figures_are_on_the_safe_side(capsys, path):
    budget = told_json(capsys, "show", "patients", "--ledger", str(path))["budget"]
    page = told(capsys, "show", "patients", "--ledger", str(path))
    spent = next(line for line in page.splitlines() if line.startswith("Spent: "))
    left = next(line for line in page.splitlines() if line.startswith("Left: "))
    assert float(spent.split()[3]) >= budget["spent"]["epsilon"]
    assert float(left.split()[3]) <= budget["remaining"]["epsilon"]


def test_history_shows_every_entry_or_a_budgets_or_the_last(capsys, path):
    everything = told_json(capsys, "history", "--ledger", str(path))["entries"]
    assert [one["kind"] for one in everything] == [
        "ledger",
        "open",
        "reserve",
        "lease",
        "reserve",
        "open",
    ]
    own = told_json(capsys, "history", "patients", "--ledger", str(path))["entries"]
    assert own == [one for one in everything if one["budget"] == "patients"]
    last = told_json(capsys, "history", "--last", "2", "--ledger", str(path))["entries"]
    assert last == everything[-2:]
    page = told(capsys, "history", "--ledger", str(path))
    assert "30 steps of reservation 3" in page
    assert "mean age: ε = 0.5, δ = 0, 1 step, granted" in page


def test_every_kind_of_entry_can_be_told(capsys, tmp_path):
    with Ledger(f"sqlite:///{tmp_path}/all.db") as ledger:
        budget = ledger.open("data", 4.0, 1e-5)
        run = budget.reserve(RUN, steps=100)
        run.lease(30)
        run.give_back(10)
        run.end()
        budget.amend(epsilon=5.0, reason="the board agreed")
        fixed = ledger.open("fixed", 4.0, 1e-5, composition="declared")
        fixed.declare([Release(Gaussian(3.0)), RUN], label="both")
        fixed.reserve(RUN, steps=100, label="the second").lease(1)
    os.unlink(tmp_path / "all.db.anchor")
    Ledger.adopt(f"sqlite:///{tmp_path}/all.db", reason="a test").close()
    address = str(tmp_path / "all.db")
    page = told(capsys, "history", "--ledger", address)
    for words in (
        "10 steps of reservation 3",
        "because: the board agreed",
        "of declaration 10: the second: 100 steps",
        "adopted, because: a test",
    ):
        assert words in " ".join(page.split())
    assert "fixed" in told(capsys, "list", "--ledger", address)
    assert "not yet begun" in told(capsys, "show", "fixed", "--ledger", address)


def test_an_empty_ledger_has_no_budgets(capsys, tmp_path):
    Ledger(f"sqlite:///{tmp_path}/empty.db").close()
    shown = told(capsys, "list", "--ledger", str(tmp_path / "empty.db"))
    assert " ".join(shown.split()).endswith("0 budgets")
    assert told_json(capsys, "list", "--ledger", str(tmp_path / "empty.db"))["budgets"] == []


def test_names_and_labels_are_text_whatever_they_look_like(capsys, tmp_path):
    with Ledger(f"sqlite:///{tmp_path}/odd.db") as ledger:
        budget = ledger.open("[bold]x[/] $y_", 4.0, 1e-5)
        budget.charge(PureDp(0.5), label=r"[/nonsense] $\frac{$ 数据")
    address = str(tmp_path / "odd.db")
    assert "[bold]x[/] $y_" in told(capsys, "list", "--ledger", address)
    picture = tmp_path / "odd.png"
    arguments = ("show", "[bold]x[/] $y_", "--ledger", address, "--plot", str(picture))
    assert r"[/nonsense] $\frac{$ 数据" in told(capsys, *arguments)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_ledger_cannot_steer_the_terminal(capsys, path):
    forged(path, 5, label="\x1b]0;owned\x07mean")
    for command in ("list", "show patients", "history"):
        line = refused(capsys, *shlex.split(command), "--ledger", str(path))
        assert "entry 5 cannot be read" in line
        assert "\x1b" not in line
    assert main(["ledger", "verify", "--ledger", str(path)]) == 1
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_show_draws_the_burn_down(capsys, path, tmp_path, suffix):
    picture = tmp_path / "deep" / f"burn.{suffix}"
    page = told(capsys, "show", "patients", "--ledger", str(path), "--plot", str(picture))
    assert page.rstrip().endswith(f"The picture is at {picture}")
    begins = b"\x89PNG" if suffix == "png" else b"<?xml"
    assert picture.read_bytes().startswith(begins)
    assert [file.name for file in picture.parent.iterdir()] == [picture.name]


def test_plot_and_json_leave_only_json_on_stdout(capsys, path, tmp_path):
    picture = str(tmp_path / "burn.png")
    found = told_json(capsys, "show", "patients", "--ledger", str(path), "--plot", picture)
    assert found["plot"] == picture
    assert Path(picture).exists()


# ---- verify


def test_a_sound_ledger_is_told_so(capsys, path):
    assert told(capsys, "verify", "--ledger", str(path)).startswith("Sound: 6 entries; ")
    found = told_json(capsys, "verify", "--ledger", str(path))
    assert (found["sound"], found["problems"], found["head"]) == (True, [], found["anchored"])


def unsound(capsys, *arguments: str) -> list[str]:
    """The problems of a ledger that is not sound; both forms of output tell the same."""
    assert main(["ledger", "verify", *arguments, "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert main(["ledger", "verify", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("Not sound: ")
    page = "".join(shown.out.split())
    assert all("".join(problem.split()) in page for problem in problems)
    return problems


@pytest.mark.parametrize("column", ["budget", "kind", "at", "body", "previous", "hash"])
def test_a_flipped_bit_in_any_row_is_named(capsys, path, column):
    entries = entries_of(path)
    for index, entry in enumerate(entries):
        text = getattr(entry, column)
        flipped = text[:-1] + chr(ord(text[-1:] or "a") ^ 1)
        changed = [*entries[:index], replace(entry, **{column: flipped}), *entries[index + 1 :]]
        rewrite(path, changed)
        assert any(
            f"entry {entry.number} " in one for one in unsound(capsys, "--ledger", str(path))
        )
        for command in (["list"], ["show", "patients"], ["history"], ["export", "x.jsonl"]):
            assert "entr" in refused(capsys, *command, "--ledger", str(path))
    assert not Path("x.jsonl").exists()


def test_all_problems_are_named_not_the_first_only(capsys, path):
    entries = entries_of(path)
    entries[1] = replace(entries[1], at="yesterday")
    entries[4] = replace(entries[4], at="tomorrow")
    rewrite(path, entries)
    found = unsound(capsys, "--ledger", str(path))
    assert [one.partition(" was")[0] for one in found] == ["entry 2", "entry 5"]


def test_a_removed_end_and_an_old_copy_are_named(capsys, path):
    rewrite(path, entries_of(path)[:-1])
    (problem,) = unsound(capsys, "--ledger", str(path))
    assert "entry 6" in problem
    assert "an older copy was put back" in problem


def test_a_ledger_that_is_gone_is_a_problem_if_its_anchor_knows_of_it(capsys, path):
    path.unlink()
    (problem,) = unsound(capsys, "--ledger", str(path))
    assert "entry 6" in problem
    refused(capsys, "list", "--ledger", str(path))
    assert not path.exists()


def test_damaged_pages_are_a_problem(capsys, path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[: len(data) // 2] = b"\xff" * (len(data) // 2)
    path.write_bytes(data)
    assert unsound(capsys, "--ledger", str(path))


def test_missing_anchor_is_accepted_with_a_reason_that_stays(capsys, path):
    anchor = Path(f"{path}.anchor")
    anchor.unlink()
    (problem,) = unsound(capsys, "--ledger", str(path))
    assert "is missing: is entry 6 the newest?" in problem
    assert "--accept" in refused(capsys, "list", "--ledger", str(path))
    page = told(capsys, "verify", "--ledger", str(path), "--accept", "--reason", "a new disk")
    assert "The ledger was adopted as it is" in page
    assert "because: a new disk" in page
    assert entries_of(path)[-1].data["reason"] == "a new disk"
    assert anchor.exists()
    told(capsys, "list", "--ledger", str(path))


def test_a_restored_backup_is_accepted(capsys, path):
    rewrite(path, entries_of(path)[:4])
    found = told_json(
        capsys, "verify", "--ledger", str(path), "--accept", "--reason", "the backup of Monday"
    )
    assert (found["accepted"], found["sound"], found["entries"]) == (True, True, 5)
    assert "Monday" in found["notes"][0]


def test_accepting_a_sound_ledger_records_nothing(capsys, path):
    before = entries_of(path)
    page = told(capsys, "verify", "--ledger", str(path), "--accept", "--reason", "why not")
    assert "nothing to accept" in page
    assert entries_of(path) == before


def test_changed_entries_cannot_be_accepted(capsys, path):
    entries = entries_of(path)
    rewrite(path, [*entries[:3], replace(entries[3], at="yesterday"), *entries[4:]])
    Path(f"{path}.anchor").unlink()
    told = refused(capsys, "verify", "--ledger", str(path), "--accept", "--reason", "please")
    assert "entry 4 was changed" in told
    assert not Path(f"{path}.anchor").exists()


def test_a_charge_below_its_price_is_found_in_a_forged_chain(capsys, path):
    forged(path, 5, charge={"epsilon": 0.0001, "delta": 0.0})
    problems = unsound(capsys, "--ledger", str(path))
    assert problems == ["entry 5 charges less than its event costs"]


NONSENSE = {
    "limit is a word": (2, {"epsilon": "much"}),
    "limit of zero": (2, {"epsilon": 0.0}),
    "label is a number": (3, {"label": 5}),
    "steps are missing": (3, {"steps": None}),
    "charge is a list": (3, {"charge": [1, 2]}),
    "event is unknown": (3, {"event": {"kind": "Magic"}}),
    "unit is a list": (2, {"unit": []}),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_in_a_forged_chain_is_no_traceback(capsys, path, case):
    number, changed = NONSENSE[case]
    forged(path, number, **changed)
    for command in (["list"], ["show", "patients"], ["history"], ["verify"]):
        status = main(["ledger", *command, "--ledger", str(path)])
        shown = capsys.readouterr()
        assert status in (0, 1, 2)
        assert (shown.err.count("\n") == 1) == (status == 2)
        assert status == (1 if command == ["verify"] else 2)


def test_a_time_that_is_none_is_refused(capsys, path, tmp_path):
    entries, done = entries_of(path), []
    for entry in entries:
        at = "once" if entry.number == 3 else entry.at
        done.append(hashed(replace(entry, at=at, previous=done[-1].hash if done else "")))
    rewrite(path, done)
    anchor = {"ledger": done[0].data["id"], "number": 6, "hash": done[-1].hash}
    Path(f"{path}.anchor").write_text(json.dumps(anchor))
    assert "its time is not valid" in refused(capsys, "history", "--ledger", str(path))
    picture = tmp_path / "burn.png"
    refused(capsys, "show", "patients", "--ledger", str(path), "--plot", str(picture))
    assert not picture.exists()


# ---- export


CHECK = """
import hashlib, json, sys
last, number = "", 0
for line in open(sys.argv[1]):
    row = json.loads(line)
    number += 1
    digest = hashlib.sha256()
    for name in ("number", "budget", "kind", "at", "body", "previous"):
        if name == "number":
            digest.update(b"20:tacit ledger entry 1")
        raw = str(row[name]).encode()
        digest.update(b"%d:" % len(raw) + raw)
    sound = (row["number"], row["previous"], row["hash"]) == (number, last, digest.hexdigest())
    assert sound, f"entry {number}"
    last = row["hash"]
print(f"{number}:{last}")
"""


def checked(file: Path) -> subprocess.CompletedProcess[str]:
    """Checks an export in a Python of its own that has no tacit: -I and -S hide every package."""
    command = [sys.executable, "-I", "-S", "-c", CHECK, str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)  # noqa: PLW1510


def test_an_export_can_be_checked_without_tacit(capsys, path, tmp_path):
    file = tmp_path / "out" / "ledger.jsonl"
    found = told_json(capsys, "export", str(file), "--ledger", str(path))
    assert found["entries"] == 6
    assert checked(file).stdout.strip() == found["head"]
    assert [Entry(**json.loads(line)) for line in file.read_text().splitlines()] == entries_of(path)
    assert [one.name for one in file.parent.iterdir()] == ["ledger.jsonl"]
    lines = file.read_text().splitlines(keepends=True)
    for index, line in enumerate(lines):
        changed = line.replace('"at": "2', '"at": "3')
        for forgery in (changed, ""):
            file.write_text("".join([*lines[:index], forgery, *lines[index + 1 :]]))
            done = checked(file)
            cut_off = forgery == "" and index == len(lines) - 1
            assert cut_off or f"entry {index + 1}" in done.stderr
            assert done.stdout.strip() != found["head"]


def test_exact_times_of_an_earlier_tacit_are_exported_only_when_told_to(capsys, path, tmp_path):
    done: list[Entry] = []
    for entry in entries_of(path)[:2]:
        at, previous = f"{entry.at}T10:11:12.131415+00:00", done[-1].hash if done else ""
        done.append(hashed(replace(entry, at=at, previous=previous)))
    rewrite(path, done)
    anchor = {"ledger": done[0].data["id"], "number": 2, "hash": done[-1].hash}
    Path(f"{path}.anchor").write_text(json.dumps(anchor))
    arguments = ("export", str(tmp_path / "out.jsonl"), "--ledger", str(path))
    assert "entries 1 to 2 were written by an earlier tacit" in refused(capsys, *arguments)
    assert not (tmp_path / "out.jsonl").exists()
    told(capsys, *arguments, "--exact-times")
    assert (tmp_path / "out.jsonl").exists()


def test_export_overwrites_only_when_told_to(capsys, path, tmp_path):
    file = tmp_path / "ledger.jsonl"
    file.write_text("mine")
    assert "--force" in refused(capsys, "export", str(file), "--ledger", str(path))
    assert file.read_text() == "mine"
    assert "6 entries are at" in told(capsys, "export", str(file), "--force", "--ledger", str(path))
    assert file.read_text().count("\n") == 6


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal", ".anchor", ".anchor.lock"])
def test_export_spares_the_ledgers_own_files(capsys, path, tmp_path, end):
    before = entries_of(path)
    own = f"{path}{end}"
    link = tmp_path / "link"
    link.symlink_to(own)
    for name in (own, str(link), f"./{Path(own).name}"):
        told = refused(capsys, "export", name, "--force", "--ledger", "budget.db")
        assert "belongs to the ledger" in told
    assert entries_of(path) == before


def test_export_to_what_is_no_file_is_refused(capsys, path, tmp_path):
    for name in (str(tmp_path), "/dev/null", str(path / "below")):
        refused(capsys, "export", name, "--force", "--ledger", str(path))
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_leaves_the_old_export(capsys, path, tmp_path, monkeypatch):
    file = tmp_path / "ledger.jsonl"
    file.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tacit._files.os.fsync", full)
    before = sorted(tmp_path.iterdir())
    told = refused(capsys, "export", str(file), "--force", "--ledger", str(path))
    assert "No space left on device" in told
    assert (file.read_text(), sorted(tmp_path.iterdir())) == ("old", before)


# ---- what is refused, and what is left alone


REFUSED = {
    "no ledger named": ("list", "--ledger"),
    "no such ledger": ("list --ledger nowhere.db", "nowhere.db"),
    "no such folder": ("list --ledger no/where.db", "no/where.db"),
    "no ledger to verify": ("verify --ledger nowhere.db", "nowhere.db"),
    "no ledger to accept": ("verify --ledger nowhere.db --accept --reason x", "nowhere.db"),
    "no ledger to export": ("export out.jsonl --ledger nowhere.db", "nowhere.db"),
    "another file": ("list --ledger text.txt", "text.txt"),
    "another file to verify": ("verify --ledger text.txt", "text.txt"),
    "a folder": ("list --ledger .", "sqlite:///."),
    "a question mark": ("list --ledger bud?get.db", "bud?get.db"),
    "another database": ("list --ledger mysql://me:secret@host/db", "mysql"),
    "port is a word": ("list --ledger postgresql://me:secret@host:port/db", "postgresql://"),
    "no server": ("list --ledger postgresql://me:secret@127.0.0.1:1/db", "127.0.0.1"),
    "no server to verify": ("verify --ledger postgresql://me:secret@127.0.0.1:1/db", "127.0.0.1"),
    "budget missing": ("show --ledger budget.db", "NAME"),
    "budget unknown": ("show doctors --ledger budget.db", "'doctors'"),
    "history of a budget unknown": ("history doctors --ledger budget.db", "'doctors'"),
    "last zero": ("history --last 0 --ledger budget.db", "--last"),
    "last is a word": ("history --last few --ledger budget.db", "few"),
    "accept without a reason": ("verify --accept --ledger budget.db", "--reason"),
    "accept for nothing": ("verify --accept --reason ' ' --ledger budget.db", "--reason"),
    "reason alone": ("verify --reason moved --ledger budget.db", "--accept"),
    "unknown picture": ("show patients --plot x.gif --ledger budget.db", "x.gif"),
    "file missing": ("export --ledger budget.db", "FILE"),
    "unknown command": ("burn --ledger budget.db", "burn"),
    "unknown option": ("list --colour --ledger budget.db", "--colour"),
    "damaged anchor": ("list --ledger budget.db --anchor text.txt", "text.txt"),
}


@pytest.mark.parametrize("as_json", [False, True], ids=["page", "json"])
@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_line_and_makes_no_file(capsys, path, case, as_json):
    Path("text.txt").write_text(
        "no database, but as long as the header of one would have to be. " * 9
    )
    before = sorted(path.parent.iterdir())
    command, word = REFUSED[case]
    line = refused(capsys, *shlex.split(command), *(["--json"] if as_json else []))
    assert word in line
    assert "secret" not in line
    assert sorted(path.parent.iterdir()) == before


def test_reading_changes_nothing(capsys, path):
    files = (path, f"{path}.anchor")
    before = [Path(name).read_bytes() for name in files]
    for command in ("list", "show patients", "history", "verify"):
        told(capsys, *shlex.split(command), "--ledger", "budget.db")
    assert [Path(name).read_bytes() for name in files] == before


def test_the_anchor_may_lie_elsewhere(capsys, path, tmp_path):
    shutil.move(f"{path}.anchor", tmp_path / "safe.anchor")
    refused(capsys, "list", "--ledger", str(path))
    for command in ("list", "verify"):
        told(capsys, command, "--ledger", str(path), "--anchor", str(tmp_path / "safe.anchor"))


def test_a_ledger_that_cannot_be_read_is_not_called_unsound(capsys, path, monkeypatch):
    from tacit.errors import LedgerError  # noqa: PLC0415
    from tacit.ledger.store import Store  # noqa: PLC0415

    def locked(*_: object) -> None:
        raise LedgerError("the ledger cannot be read: database is locked; nothing was granted")

    monkeypatch.setattr(Store, "read", locked)
    assert "locked" in refused(capsys, "verify", "--ledger", str(path))


@pytest.mark.parametrize(
    "command",
    ["", "open", "close", "list", "show", "history", "verify", "export"],
    ids=lambda name: name or "group",
)
def test_help(capsys, command):
    page = told(capsys, *filter(None, [command, "--help"]))
    assert page.startswith("Usage: tacit ledger")
    assert "TACIT_LEDGER" in page or not command
    assert told(capsys) == told(capsys, "--help")


def test_real_processes_tell_the_status_and_leave_no_traceback(path):
    def status(command: str, **environment: str) -> int:
        process = Forked(lambda: main(["ledger", *shlex.split(command)]), environment)
        _, said = process.communicate(timeout=600)
        assert "Traceback" not in said
        return process.returncode

    run = "import sys; from tacit.cli import main; sys.exit(main())"
    fresh = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", run, "ledger", "list"],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"TACIT_LEDGER": "budget.db", "PYTHONIOENCODING": "ascii"},
    )
    assert (fresh.returncode, fresh.stderr) == (0, "")
    assert "epsilon" in fresh.stdout
    assert "?" not in fresh.stdout
    assert status("verify", TACIT_LEDGER="budget.db") == 0
    rewrite(path, entries_of(path)[:-1])
    assert status("verify --ledger budget.db") == 1
    assert status("list --ledger budget.db") == 2


def test_list_names_requests(capsys, path):
    from tacit.ledger import Person, Release, ask  # noqa: PLC0415

    with Ledger(f"sqlite:///{path}") as ledger:
        name = ledger.budgets()[0].name
        made = ask(
            ledger, name, Release(Gaussian(50.0)), by=Person("Ada", "engineer", "a" * 32),
            reason="a count", label="a [bold]count",
        )  # fmt: skip
    (found,) = told_json(capsys, "list", "--ledger", str(path))["requests"]
    assert (found["number"], found["standing"], found["by"]) == (made.number, "pending", "Ada")
    assert f"Request {made.number} to {name}, a [bold]count: pending" in told(
        capsys, "list", "--ledger", str(path)
    ).replace("\n", " ")
