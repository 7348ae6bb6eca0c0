"""Whoever can write the database can also write hashes and an anchor that fit: what is refused.

A forger here changes rows, chains all of them again, and writes the anchor. Every way in must
refuse what the rules do not allow, in one line; and what is let pass must be within its limits by
an account that is made without the ledger's own code.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import Gaussian, PoissonSampled, PureDp, Repeated, epsilon, noise_multiplier
from tacit.accounting.serialization import from_dict
from tacit.cli import main
from tacit.errors import LedgerError, TacitError, TamperedLedger
from tacit.ledger import Ledger, Release, verify
from tacit.ledger.entries import Entry, canonical, hashed
from tacit.ledger.replay import holder_of

from .conftest import Place
from .tampering import anchor_to, chained_anew, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable

RUN = Release(Repeated(PoissonSampled(0.01, Gaussian(2.0)), 100))
HANG = 10.0  # seconds


def fill(ledger: Ledger) -> None:
    """A bit of everything, under each rule."""
    basic = ledger.open("basic", 2.0, 1e-5)  # entry 2
    run = basic.reserve(RUN, steps=100, label="run", detail={"a": 1})  # entry 3
    run.lease(30)  # entry 4
    run.give_back(10)  # entry 5
    run.lease(5)  # entry 6
    basic.charge(PureDp(0.5), label="mean")  # entry 7
    basic.amend(epsilon=3.0, reason="board")  # entry 8
    renyi = ledger.open("renyi", 1.0, 1e-6, composition="renyi")  # entry 9
    renyi.charge(Gaussian(30.0))  # entry 10
    renyi.charge(Gaussian(30.0))  # entry 11
    fixed = ledger.open("fixed", 4.0, 1e-5, composition="declared")  # entry 12
    fixed.declare([RUN, Release(Gaussian(5.0))])  # entries 13 and 14
    fixed.reserve(RUN, steps=100).lease(100)  # entries 15 and 16


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Entry]]:
    folder = tmp_path_factory.mktemp("template")
    with Ledger(folder / "budget.db") as ledger:
        fill(ledger)
        return folder, list(ledger.history())


@pytest.fixture
def copied(template: tuple[Path, list[Entry]], tmp_path: Path) -> tuple[Place, list[Entry]]:
    shutil.copytree(template[0], tmp_path / "copy")
    path = tmp_path / "copy" / "budget.db"
    return Place(f"sqlite:///{path}", path.with_name("budget.db.anchor"), lambda _: None), template[
        1
    ]


def forge(place: Place, entries: list[Entry]) -> None:
    forged = chained_anew(entries)
    rewrite(place, forged)
    anchor_to(place, forged)


def with_body(entry: Entry, change: Callable[[dict[str, Any]], None]) -> Entry:
    body = entry.data
    change(body)
    return replace(entry, body=json.dumps(body, sort_keys=True, separators=(",", ":")))


def put(*path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        at = body
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = value

    return change


def refused_everywhere(place: Place, budget: str) -> str:
    """Verify finds it, and nobody can open the budget or charge it; each in one line."""
    began = time.monotonic()
    found = verify(place.url, anchor=place.anchor)
    assert not found.ok
    assert all(problem.isprintable() for problem in (*found.problems, *found.notes))
    with pytest.raises(LedgerError) as refusal, Ledger(place.url, anchor=place.anchor) as ledger:
        ledger.budget(budget).charge(PureDp(1e-3))
    assert str(refusal.value).isprintable()
    with pytest.raises(LedgerError), Ledger(place.url, anchor=place.anchor) as ledger:
        ledger.budgets()
    assert time.monotonic() - began < HANG
    return " ".join(found.problems)


FORGERIES: dict[str, tuple[int, str, object]] = {
    "ε of a charge is infinite": (7, "charge.epsilon", math.inf),
    "ε of a charge is nothing": (7, "charge.epsilon", None),
    "ε of a charge is a text": (7, "charge.epsilon", "0.5"),
    "ε of a charge is too small": (7, "charge.epsilon", 0.4),
    "ε of a charge is negative": (7, "charge.epsilon", -0.5),
    "ε of a charge has 400 digits": (7, "charge.epsilon", 10**400),
    "ε of a charge is truth": (7, "charge.epsilon", True),
    "δ of a charge is smaller": (3, "charge.delta", 1e-9),
    "a divergence is nothing": (10, "charge.divergences", []),
    "a divergence is too small": (10, "charge.failures", -1.0),
    "a limit of 1e9": (2, "epsilon", 1e9),
    "a limit raised to 1e9": (8, "epsilon", 1e9),
    "a limit lowered below what is charged": (8, "epsilon", 0.5),
    "a limit of δ that is 1": (2, "delta", 1.0),
    "an infinite limit": (2, "epsilon", math.inf),
    "basic turned into declared": (2, "composition", "declared"),
    "basic turned into renyi": (2, "composition", "renyi"),
    "basic turned into a rule that does not exist": (2, "composition", "free"),
    "renyi turned into basic": (9, "composition", "basic"),
    "declared turned into basic": (12, "composition", "basic"),
    "another unit": (2, "unit", "user"),
    "a unit that does not exist": (2, "unit", "household"),
    "another adjacency": (2, "adjacency", "replace-one"),
    "-4 steps granted": (4, "steps", -4),
    "no step granted": (4, "steps", 0),
    "half a step granted": (4, "steps", 0.5),
    "more steps granted than there are": (4, "steps", 101),
    "more steps than the event pays for": (3, "steps", 1000),
    "2**53 + 1 steps": (7, "steps", 2**53 + 1),
    "more steps granted at once than there are": (7, "granted", 2),
    "a lease without a holder": (4, "holder", ""),
    "another holder": (4, "holder", "0" * 32),
    "more given back than was leased": (5, "steps", 31),
    "given back by another": (5, "proof", "guess"),
    "an escape code in a label": (3, "label", "\x1b[2Jrun"),
    "a label that turns text around": (3, "label", "\u202erun"),
    "a label of 10,000 letters": (3, "label", "a" * 10_000),
    "an escape code in a reason": (8, "reason", "\x1b]0;owned\x07"),
    "a reason that is a list": (8, "reason", ["because"]),
    "an event that does not exist": (7, "event", {"kind": "Free"}),
    "an event that costs nothing": (3, "event", {"kind": "PureDp", "epsilon": "nothing"}),
    "a cheaper event's name": (3, "event.kind", "Composed"),
    "more repetitions": (3, "event.times", 10_000),
    "less noise": (3, "event.event.event.sigma", 0.1),
    "noise that is no number": (3, "event.event.event.sigma", None),
    "an event of 100,000 others": (
        3, "event", {"kind": "Composed", "events": [{"kind": "PureDp", "epsilon": 1e-9}] * 10**5}
    ),
    "a reservation of another budget": (6, "reservation", 7),
    "a reservation that is to come": (6, "reservation", 10**30),
    "a detail that is no object": (3, "detail", "x"),
    "the id of the ledger": (1, "id", "../../etc"),
    "a format to come": (1, "format", 2),
    "a field too many": (4, "more", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGERIES)
def test_forged_field_is_refused_everywhere(copied, case):
    place, entries = copied
    number, path, value = FORGERIES[case]
    entry = with_body(entries[number - 1], put(*path.split("."), value=value))
    forge(place, [*entries[: number - 1], entry, *entries[number:]])
    budget = entry.budget or "basic"
    assert f"entry {1 if number == 1 else ''}" in refused_everywhere(place, budget)


def _column(name: str, value: str) -> Callable[[list[Entry]], list[Entry]]:
    def change(entries: list[Entry]) -> list[Entry]:
        return [*entries[:-1], replace(entries[-1], **{name: value})]

    return change


def _appended(kind: str, **body: object) -> Callable[[list[Entry]], list[Entry]]:
    def change(entries: list[Entry]) -> list[Entry]:
        more = replace(entries[3], kind=kind, body=canonical(body), number=17)
        return [*entries, more]

    return change


CHAINS: dict[str, Callable[[list[Entry]], list[Entry]]] = {
    "an escape code in the name of a budget": lambda entries: [
        replace(one, budget="\x1b[31mbasic") if one.budget == "basic" else one for one in entries
    ],
    "a name of 10,000 letters": lambda entries: [
        replace(one, budget="b" * 10_000) if one.budget == "basic" else one for one in entries
    ],
    "a budget opened twice": lambda entries: [*entries, entries[1]],
    "released steps given back": _appended("give-back", reservation=3, steps=5, proof="x"),
    "released steps given back without a proof": _appended("give-back", reservation=3, steps=5),
    "a proof shown a second time": lambda entries: [*entries, entries[4]],
    "a lease of one that has given back": lambda entries: [*entries, entries[3]],
    "a charge after the end": lambda entries: [
        *entries,
        replace(entries[3], kind="end", body=canonical({"reservation": 3})),
        entries[5],
    ],
    "a plan declared after the first release": lambda entries: [*entries, entries[13]],
    "a plan claimed twice": lambda entries: [*entries, entries[14]],
    "charges over the limit": lambda entries: entries + [entries[6]] * 5,
    "declarations over the limit": lambda entries: entries[:14] + [entries[13]] * 40,
    "no beginning": lambda entries: entries[1:],
    "a kind to come": _column("kind", "merge"),
    "a time that is none": _column("at", "yesterday"),
    "a time before the one before": _column("at", "2001-01-01"),
    "an escape code in a time": _column("at", "2026-01-01\x1b[2J"),
    "a body that is a list": _column("body", "[1]"),
    "a body that never ends": _column("body", "[" * 100_000),
    "a body with a key twice": _column("body", '{"steps":1,"steps":2}'),
    "a body of 5 MB": _column("body", '{"a":"' + "x" * 5_000_000 + '"}'),
}


@pytest.mark.parametrize("case", CHAINS)
def test_forged_chain_is_refused_everywhere(copied, case):
    place, entries = copied
    forged = chained_anew(CHAINS[case](entries))
    rewrite(place, forged)
    last = forged[-1]
    plain = {"ledger": entries[0].data["id"], "number": last.number, "hash": last.hash}
    place.anchor.write_text(json.dumps(plain))
    budget = "fixed" if "plan" in case or "declar" in case else "basic"
    refused_everywhere(place, budget)


def test_ledger_without_any_entry_is_refused_everywhere(copied):
    place, entries = copied
    rewrite(place, [])
    for ledger_id in (entries[0].data["id"], "x"):
        place.anchor.write_text(json.dumps({"ledger": ledger_id, "number": 0, "hash": ""}))
        refused_everywhere(place, "basic")
        with pytest.raises(TamperedLedger, match="entry 1 is missing"):
            Ledger.adopt(place.url, reason="please")


def test_steps_that_were_granted_stay_charged_whoever_gives_them_back(copied):
    """Even with a proof of the forger's own, in a lease that he rewrote."""
    place, entries = copied
    with Ledger(place.url) as ledger:
        before = ledger.budget("basic").spent().epsilon
    lease = with_body(entries[3], put("holder", value=holder_of("own")))
    back = with_body(entries[4], put("proof", value="own"))
    back = with_body(back, put("steps", value=30))
    end = replace(entries[5], kind="end", body=canonical({"reservation": 3}))
    forge(place, [*entries[:3], lease, back, *entries[6:], end])
    assert verify(place.url).ok
    with Ledger(place.url) as ledger:
        assert ledger.budget("basic").spent().epsilon == before


def test_sole_occupant_of_a_renyi_budget_needs_an_epsilon(sqlite):
    with sqlite.ledger() as ledger:
        budget = ledger.open("renyi", 2.0, 1e-5, composition="renyi")
        budget.charge(Gaussian(noise_multiplier(2.0, 1e-5, sample_rate=1.0, steps=1)))
        entries = list(ledger.history())
    forge(sqlite, [*entries[:2], with_body(entries[2], put("charge", "epsilon", value=None))])
    assert "entry 3 takes the budget 'renyi' over its limits" in refused_everywhere(sqlite, "renyi")


@pytest.mark.parametrize("command", [["list"], ["show", "basic"], ["history"], ["verify"]])
def test_forged_ledger_is_one_line_in_the_shell(capsys, copied, command):
    place, entries = copied
    entry = with_body(entries[6], put("charge", "epsilon", value=math.inf))
    forge(place, [*entries[:6], entry, *entries[7:]])
    status = main(["ledger", *command, "--ledger", place.url])
    shown = capsys.readouterr()
    assert status == (1 if command == ["verify"] else 2)
    assert shown.err.count("\n") == (0 if status == 1 else 1)
    assert "entry 7 cannot be read" in shown.out + shown.err


# ---- a forger who tries anything

values: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        (
            math.inf,
            -math.inf,
            math.nan,
            None,
            True,
            False,
            -4,
            -1,
            0,
            1,
            2,
            1e9,
            1e308,
            -1e-300,
            10**400,
            2**53 + 1,
            2**63,
            "",
            "0.5",
            "\x1b[2J",
            "declared",
            "free",
            "user",
            [],
            {},
            [1.0],
            {"kind": "PureDp", "epsilon": 0.0},
            {"kind": "Composed", "events": []},
        )
    ),
    st.floats(0.0, 10.0),
    st.integers(0, 200),
)


def paths_in(value: object, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [before] if before else []
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        items = list(enumerate(value))[:3]
    for name, inner in items:
        found += paths_in(inner, (*before, name))
    return found


def mutated(entries: list[Entry], data: st.DataObject) -> list[Entry]:
    at = data.draw(st.integers(1, len(entries) - 1), "entry")
    way = data.draw(st.sampled_from(["field"] * 6 + ["drop", "repeat", "swap", "column"]), "way")
    if way == "drop":
        return entries[:at] + entries[at + 1 :]
    if way == "repeat":
        return [*entries, entries[at]]
    if way == "swap":
        other = data.draw(st.integers(1, len(entries) - 1), "other")
        done = list(entries)
        done[at], done[other] = done[other], done[at]
        return done
    if way == "column":
        name = data.draw(st.sampled_from(["budget", "kind", "at"]), "column")
        value = data.draw(st.sampled_from(["", "\x1b[2J", "end", "fixed", "9999-12-31", "2026"]))
        return [*entries[:at], replace(entries[at], **{name: value}), *entries[at + 1 :]]
    body = entries[at].data
    path = data.draw(st.sampled_from(paths_in(body)), "field")
    inner: Any = body
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = data.draw(values, "value")
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return [*entries[:at], replace(entries[at], body=text), *entries[at + 1 :]]


def costs_are_covered(entries: list[Entry]) -> None:
    """Of every basic budget: each charge is its event's guarantee, and their sum is within."""
    opened = {one.budget: one.data for one in entries if one.kind == "open"}
    for name, terms in opened.items():
        if terms["composition"] != "basic":
            continue
        mine = [one for one in entries if one.budget == name]
        limit = max(one.data["epsilon"] for one in mine if one.kind in ("open", "amend"))
        granted = {one.data.get("reservation") for one in mine if one.kind in ("lease", "claim")}
        total = Fraction(0)
        for one in mine:
            if one.kind == "reserve" and (one.data["granted"] or one.number in granted):
                charge, event = one.data["charge"], from_dict(one.data["event"])
                total += Fraction(charge["epsilon"])
                if charge["delta"] > 0.0:
                    due = epsilon(event, charge["delta"], adjacency=terms["adjacency"])
                    assert due <= charge["epsilon"] * (1 + 1e-8)
        assert total <= Fraction(limit)


@pytest.mark.parametrize("forgeries", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_mutated_ledger_is_refused_or_still_true(template, tmp_path_factory, forgeries):
    @given(data=st.data())
    @settings(max_examples=forgeries, deadline=None)
    def holds(data):
        is_refused_or_still_true(template, tmp_path_factory.mktemp("fuzz"), data)

    holds()


def is_refused_or_still_true(template, folder, data):
    shutil.copytree(template[0], folder, dirs_exist_ok=True)
    place = Place(f"sqlite:///{folder}/budget.db", folder / "budget.db.anchor", lambda _: None)
    forged = chained_anew(mutated(template[1], data))
    rewrite(place, forged)
    anchor_to(place, forged)
    began = time.monotonic()
    found, said = verify(place.url), ""
    try:
        with Ledger(place.url) as ledger:
            names = [state.name for state in ledger.budgets()]
            for name in names:
                ledger.budget(name).remaining()
            opened = True
            if "basic" in names:
                with_room = ledger.budget("basic")
                if with_room.affordable(Release(PureDp(1e-3), with_room.adjacency, with_room.unit)):
                    with_room.charge(PureDp(1e-3))
    except TacitError as error:
        opened, said = False, str(error)
    assert said.isprintable()
    assert opened == found.ok
    assert time.monotonic() - began < HANG
    if found.ok:
        costs_are_covered(forged)
    shutil.rmtree(folder)


def outcome(path: Path) -> list[str] | str:
    """The hashes of a ledger that opens and can be used, or that it is refused in one line."""
    try:
        with Ledger(path) as ledger:
            ledger.budgets()
            return ledger.books.hashes
    except LedgerError as error:
        return "refused" if str(error).isprintable() else str(error)


@pytest.mark.parametrize("name", ["budget.db", "budget.db.anchor"])
def test_damaged_file_is_refused_or_as_it_was(template, tmp_path, name):
    rng = random.Random(7)
    hashes = [one.hash for one in template[1]]
    shutil.copytree(template[0], tmp_path / "copy")
    path = tmp_path / "copy" / name
    whole = path.read_bytes()
    for number in range(60):
        raw = bytearray(whole)
        match number % 3:
            case 0:
                del raw[rng.randrange(len(raw)) :]
            case 1:
                raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            case 2:
                start = rng.randrange(len(raw))
                raw[start : start + 64] = rng.randbytes(len(raw[start : start + 64]))
        path.write_bytes(raw)
        began = time.monotonic()
        found = verify(tmp_path / "copy" / "budget.db")
        opened = outcome(tmp_path / "copy" / "budget.db")
        assert opened in ("refused", hashes)
        assert opened == "refused" or found.head == template[1][-1].head
        assert time.monotonic() - began < HANG
        path.write_bytes(whole)


def test_pipes_and_folders_in_the_place_of_files_are_not_waited_for(template, tmp_path):
    shutil.copytree(template[0], tmp_path / "copy")
    for name in ("budget.db.anchor", "budget.db"):
        path = tmp_path / "copy" / name
        path.unlink()
        os.mkfifo(path)
        assert not verify(tmp_path / "copy" / "budget.db").ok
        with pytest.raises(LedgerError):
            Ledger(tmp_path / "copy" / "budget.db")


# ---- ledgers of before


def test_ledger_of_an_earlier_tacit_is_read_and_gone_on_with(sqlite):
    """Rows of before entries were dated to the day and leases had holders."""
    lines = Path(__file__).with_name("early.jsonl").read_text().splitlines()
    entries = [Entry(**json.loads(line)) for line in lines]
    assert [hashed(one) for one in entries] == entries
    sqlite.ledger().close()
    rewrite(sqlite, entries)
    anchor_to(sqlite, entries)
    assert verify(sqlite.url).ok
    with sqlite.ledger() as ledger:
        spent = {one.name: ledger.budget(one.name).spent().epsilon for one in ledger.budgets()}
        assert spent == pytest.approx(
            {"patients": 0.7016847369, "survey ": 0.2239781573, "Fixed": 0.7546896980}, rel=1e-8
        )
        made = ledger.budget("patients").reservation(3)
        assert (made.granted, made.lease(5), made.granted) == (23, 5, 28)
        made.give_back(2)
        ledger.budget("patients").charge(PureDp(0.1))
        assert ledger.verify().ok


def test_forged_give_back_cannot_follow_a_lease_of_today(copied):
    """Dated as before 2026-12, an entry needs no proof, but then it takes from such leases only."""
    place, entries = copied
    early = replace(
        entries[5],
        kind="give-back",
        at="2026-11-01T00:00:00.000000+00:00",
        body=canonical({"reservation": 3, "steps": 5}),
    )
    forge(place, [*entries, early])
    with pytest.raises(TamperedLedger, match="entry 17 cannot be read"):
        Ledger(place.url)
