"""Budgets, requests and runs as pages show them; what is secret on none of them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import re
import threading
from math import log10
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tacit.accounting import Gaussian, PureDp
from tacit.errors import InvalidArgument, TamperedLedger
from tacit.ledger import approve, draw, refuse
from tacit.ledger import composition as rules
from tacit.serve.budgets import alerts, figures, granted
from tacit.serve.pages import Pages
from tacit.serve.server import _lapse

from .conftest import PEOPLE, PLAN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Site


def test_spent_reserved_and_free_add_up(site: Site) -> None:
    budget = site.ledger.budget("small")
    budget.charge(PureDp(1.0), label="a count")
    asked = site.asked(epsilon="2")
    approve(site.ledger, asked.number, by=PEOPLE["officer"], reason="ok")
    state = site.ledger.refresh().budgets["small"]
    found = figures(state, site.ledger.books.of("small"))
    assert (found.allowed, found.spent) == ("8", "1")
    total = rules.spent(state).epsilon
    assert float(found.reserved) == pytest.approx(total - 1.0, rel=1e-3)
    assert float(found.free) == pytest.approx(8.0 - total, rel=1e-3)
    draw(site.ledger, asked.number, run="run").lease(1)
    state = site.ledger.refresh().budgets["small"]
    assert figures(state, site.ledger.books.of("small")).reserved == "0"


@pytest.mark.parametrize("composition", ["basic", "renyi", "declared"])
def test_what_if_is_what_then_happens(site: Site, composition: str) -> None:
    site.ledger.open("other", 3.0, 1e-5, composition=composition)
    events = [Gaussian(9.0), Gaussian(8.0), Gaussian(7.0)]
    state = site.ledger.refresh().budgets["other"]
    room = granted(state, events)
    budget = site.ledger.budget("other")
    if composition == "declared":
        from tacit.ledger import Release  # noqa: PLC0415

        budget.declare([Release(one) for one in events])
    else:
        for one in events:
            budget.charge(one)
    after = rules.spent(site.ledger.refresh().budgets["other"]).share
    assert room.fits
    assert room.after == pytest.approx(after, rel=1e-9)
    assert not granted(state, [Gaussian(0.2)]).fits


def test_alerts_at_80_and_95_per_cent(site: Site) -> None:
    budget = site.ledger.budget("small")
    levels = []
    for size in (6.0, 0.5, 1.2):
        budget.charge(PureDp(size))
        levels.append([one.level for one in alerts(site.ledger.refresh())])
    assert levels == [[], ["warning"], ["alarm"]]
    assert "96 % of the budget" in site.browser("viewer").get("/plan").text


def test_every_release_has_its_place_in_the_chain(site: Site) -> None:
    budget = site.ledger.budget("small")
    for at in range(60):
        budget.charge(PureDp(0.01), label=f"count {at}")
    browser = site.browser("viewer")
    first, second = browser.get("/budgets/small"), browser.get("/budgets/small?page=2")
    assert "count 59" in first.text
    assert "count 59" not in second.text
    assert "count 0" in second.text
    newest = site.ledger.history("small")[-1]
    assert newest.hash[:12] in first.text


def test_an_event_is_said_in_words(site: Site) -> None:
    from tacit.accounting import PoissonSampled, Repeated  # noqa: PLC0415

    site.ledger.budget("small").charge(Repeated(PoissonSampled(0.02, Gaussian(2.5)), 1600))
    site.ledger.budget("small").charge(PureDp(0.25))
    page = site.browser("viewer").get("/budgets/small").text
    assert ">1,600 × Poisson 0.02, Gaussian σ = 2.5</td>" in page
    assert 'title="1,600 times (on a Poisson sample of rate 0.02: Gaussian noise' in page
    assert ">PureDp with epsilon = 0.25</td>" in page


def test_requests_that_wait_for_somebody_come_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.serve.budgets.ROWS", 2)
    waiting = site.asked(label="it waits").number
    for at in range(3):
        one = site.asked(label=f"decided {at}")
        refuse(site.ledger, one.number, by=PEOPLE["officer"], reason="no")
    browser = site.browser("viewer")
    first, second = browser.get("/budgets").text, browser.get("/budgets?page=2").text
    assert first.index("it waits") < first.index("decided 2")
    assert "decided 0" not in first
    assert "page 1 of 2, 4 requests" in first
    assert ("decided 0" in second, f"/requests/{waiting}" in second) == (True, False)


def test_an_unfinished_reservation_says_how_to_end_it(site: Site) -> None:
    asked = site.asked()
    approve(site.ledger, asked.number, by=PEOPLE["officer"], reason="ok")
    held = draw(site.ledger, asked.number, run="run 1")
    held.lease(3)
    page = site.browser("viewer").get("/budgets/small").text
    assert f"tacit ledger close small {held.number} --ledger budget.db" in page
    assert "3 of 10" in page


def test_a_request_is_filed_approved_and_shown_with_its_line(site: Site) -> None:
    asked = site.asked(recipe="digits")
    officer = site.browser("officer")
    assert "would be left" in officer.get(f"/requests/{asked.number}").text
    assert officer.post(f"/requests/{asked.number}/approve", {"reason": "fine"}).status == 303
    page = officer.get(f"/requests/{asked.number}").text
    assert f"tacit train digits --ledger budget.db --request {asked.number}" in page
    assert "fine" in page
    other = site.asked()
    assert officer.post(f"/requests/{other.number}/refuse", {"reason": "enough"}).status == 303
    assert "Refused" in officer.get(f"/requests/{other.number}").text
    assert asked.by == PEOPLE["engineer"]


def test_an_approval_says_how_long_it_lasts_and_lapses(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.ledger.entries.today", lambda: "2026-12-01")
    site.console.approval_days = 14
    one, officer = site.asked(), site.browser("officer")
    page = f"/requests/{one.number}"
    assert 'name="days" class="short" inputmode="numeric" pattern="[0-9]+" value="14"' in (
        officer.get(page).text
    )
    for days in ("0", "367", "-1", "x", "9" * 40, ""):
        found = officer.post(f"{page}/approve", {"reason": "ok", "days": days})
        assert (found.status, "days must be" in found.text) == (400, True), days
    assert officer.post(f"{page}/approve", {"reason": "ok", "days": "7"}).status == 303
    shown = officer.get(page).text
    assert "to be used by 2026-12-08" in shown
    assert "Run it by 2026-12-08 (UTC)" in shown
    monkeypatch.setattr("tacit.ledger.entries.today", lambda: "2026-12-09")
    before = site.ledger.refresh().head
    late = officer.get(page).text
    assert "No run used it by 2026-12-08, so none can now" in late
    assert "tacit train" not in late
    assert site.ledger.refresh().head == before  # looking writes nothing
    _lapse(site.console)  # as the server does every ten minutes
    known = site.ledger.refresh().requests[one.number]
    assert known.standing == "lapsed"
    assert f"No run used it by 2026-12-08: entry {known.closing.number}" in (  # type: ignore[union-attr]
        officer.get(page).text
    )
    found = figures(site.ledger.books.budgets["small"], site.ledger.books.of("small"))
    assert (found.reserved, found.free) == ("0", "8")
    assert ">lapsed<" in officer.get("/budgets").text


def test_an_approval_is_revoked_and_a_request_withdrawn(site: Site) -> None:
    officer, engineer = site.browser("officer"), site.browser("engineer")
    for who, verb, title in ((officer, "revoke", "Revoke"), (engineer, "withdraw", "Withdraw")):
        one = site.asked()
        page = f"/requests/{one.number}"
        officer.post(f"{page}/approve", {"reason": "ok"})
        assert f'action="{page}/{verb}"' in who.get(page).text
        assert who.post(f"{page}/{verb}", {"reason": "not now"}).status == 303
        shown = who.get(page).text
        assert (f"{title}" in shown, "not now" in shown, "<form" in shown.split("<main")[1]) == (
            True, True, False,
        )  # fmt: skip
    assert rules.spent(site.ledger.refresh().budgets["small"]).epsilon == 0.0
    pending = site.asked()
    page = f"/requests/{pending.number}"
    assert "Withdraw the request" in engineer.get(page).text
    assert "Withdraw the request" not in officer.get(page).text
    assert engineer.post(f"{page}/withdraw", {"reason": "a mistake"}).status == 303
    assert officer.post(f"{page}/approve", {"reason": "ok"}).status == 400


def test_what_was_declared_with_a_plan_that_has_begun_does_not_go_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.ledger.entries.today", lambda: "2026-12-01")
    site.ledger.open("fixed", 8.0, 1e-4, composition="declared")
    officer = site.browser("officer")
    one, other = (site.asked(budget="fixed", epsilon=epsilon) for epsilon in ("2", "3"))
    for asked in (one, other):
        assert officer.post(f"/requests/{asked.number}/approve", {"reason": "ok"}).status == 303
    assert "What it reserved goes back" in officer.get(f"/requests/{other.number}").text
    draw(site.ledger, one.number, run="first").lease(1)
    before = rules.spent(site.ledger.refresh().budgets["fixed"])
    kept = "stays charged with the plans that were declared with it"
    assert f"What it reserved {kept}" in officer.get(f"/requests/{other.number}").text
    monkeypatch.setattr("tacit.ledger.entries.today", lambda: "2027-02-01")
    _lapse(site.console)
    assert f"What it had reserved {kept}" in officer.get(f"/requests/{other.number}").text
    assert rules.spent(site.ledger.refresh().budgets["fixed"]) == before


def test_a_run_without_a_plan_of_steps_shows_no_count(
    site: Site, kept: Callable[..., Path]
) -> None:
    (kept(plan=None, finished=False) / "statement.json").unlink()
    browser = site.browser("engineer")
    assert "0 of 0" not in browser.get("/runs").text
    shown = browser.get("/runs/run").text
    assert "it trains by no plan of steps" in shown
    assert "0 of 0" not in re.sub(r"<[^>]+>", "", shown)


def test_a_live_run_is_known_by_its_lock(site: Site, kept: Callable[..., Path]) -> None:
    place = kept(finished=False, test_accuracy=None)
    (place / "statement.json").unlink()
    browser = site.browser("engineer")
    (place / ".lock").touch()
    assert "was stopped or has crashed" in browser.get("/runs").text
    with (place / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        site.console._alerts = (-1e9, ())
        found = browser.get("/runs")
        assert 'class="state live"' in found.text
        assert "was stopped or has crashed" not in found.text
        event = browser.get("/runs/run/events").text
        shown = json.loads(re.findall(r"data: (.*)", event)[0])
        assert shown["state"] == "live"
        assert shown["epochs"][-1]["steps"] == 10
        assert set(shown["epochs"][0]) == {
            "epoch", "steps", "accuracy", "epsilon", "shown", "metrics",
        }  # fmt: skip


class Watched:
    """A console with a run that goes on, whose progress is counted."""

    def __init__(self) -> None:
        self.looks, self.ended, self.shelf = 0, set[int](), self

    def session(self, request: int) -> Any:
        return None if request in self.ended else SimpleNamespace(may=lambda _: request % 2 == 0)

    def progress(self, name: str) -> dict[str, Any]:
        assert name == "run"
        self.looks += 1
        return {"state": "live", "steps": self.looks, "minutes_left": 3}


def test_one_look_serves_all_who_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty viewers, one of whom leaves, and one whose session ends: nobody takes from others."""
    monkeypatch.setattr("tacit.serve.pages._BEAT", 0.05)
    monkeypatch.setattr("tacit.serve.pages._EVENTS", 1e3)
    console, viewers = Watched(), 20
    pages = Pages(console)  # type: ignore[arg-type]
    seen: dict[int, list[Any]] = {at: [] for at in range(viewers)}

    async def watch(at: int) -> None:
        async for event in pages._watched(at, "run", PEOPLE["viewer"]):  # type: ignore[arg-type]
            seen[at].append(json.loads(event.decode().partition("data: ")[2]))
            if at == 5 and len(seen[at]) == 2:
                console.ended.add(5)

    async def watched() -> None:
        tasks = [asyncio.create_task(watch(at)) for at in range(viewers)]
        await asyncio.sleep(0.12)
        tasks[0].cancel()
        while len(seen[1]) < 6:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(watched())
    steps = [one["steps"] for one in seen[1]]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert console.looks <= 8
    assert all(
        [one["steps"] for one in seen[at]][:6] == steps for at in range(2, viewers) if at != 5
    )
    assert len(seen[5]) == 2
    assert {one["minutes_left"] for one in seen[1]} == {None}  # no engineer
    assert {one["minutes_left"] for one in seen[2]} == {3}
    assert not pages._coming
    assert pages._watchers.total() == 0


def test_the_more_watch_the_longer_is_a_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all of them together cost a training run what few of them do."""
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr("tacit.serve.pages.pause", pause)
    pages = Pages(Watched())  # type: ignore[arg-type]
    for count, wait in ((1, 1.0), (16, 1.0), (48, 3.0), (480, 30.0)):
        pages._watchers[PEOPLE["viewer"]] = count
        asyncio.run(pages._looked("run"))
        assert waits.pop() == wait


def test_a_finished_run_is_verified_and_compared(site: Site, kept: Callable[..., Path]) -> None:
    kept("a/one")
    kept("two")
    browser = site.browser("viewer")
    page = browser.get("/runs/a/one").text
    assert "verified just now" in page
    assert page.count('class="state proved"') >= 2
    both = browser.get("/compare?run=a/one&run=two").text
    assert "side by side" in both
    assert browser.get("/compare?run=two").status == 400
    assert "To be filled in" in browser.get("/runs/two/registry.yaml").text


def test_a_run_without_accuracy_shows_its_metrics(site: Site, kept: Callable[..., Path]) -> None:
    """A regression, a language model: what ``metrics=`` measured on held-out data."""
    place = kept("mine", kind="own", test_accuracy=None, finished=False)
    (place / "statement.json").unlink()
    lines = [json.loads(line) for line in (place / "history.jsonl").read_text().splitlines()]
    for at, line in enumerate(lines):
        line |= {"held_out_accuracy": None, "metrics": {"auc": 0.5 + at / 8, "loss": None}}
    (place / "history.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    kept("other")
    browser, last = site.browser("viewer"), f"{lines[-1]['metrics']['auc']:.4g}"
    page = browser.get("/runs/mine").text
    assert f'data-metric="auc">{last}<' in page
    assert "held-out accuracy" not in page
    data = json.loads(re.findall(r'id="accuracy-data">(.*?)</script>', page)[0])
    assert (data["metric"], data["lines"][0]["values"][-1]) == ("auc", float(last))
    assert f"auc {last}" in browser.get("/runs").text
    both = browser.get("/compare?run=other&run=mine").text
    (row,) = re.findall(r"held-out auc</th>(.*?)</tr>", both)
    assert row == f"<td>–</td><td>{last}</td>"  # each in its own column


def test_no_page_has_a_loss_or_a_time(site: Site, kept: Callable[..., Path]) -> None:
    place = kept()
    (place / "private").mkdir()
    (place / "private" / "losses").write_text("loss 0.12345")
    (place / "checkpoint.safetensors").write_bytes(b"loss 0.12345")
    browser = site.browser("officer")
    for target in ("/runs", "/runs/run", "/runs/run/report", "/runs/run/events"):
        found = browser.get(target).text
        assert "0.12345" not in found
        assert not re.search(r"\d ?(ms|s|seconds|minutes)\b", found)


def test_an_auditors_link_only_looks(site: Site) -> None:
    found = site.browser("officer").post("/links", {})
    token = re.search(r"token=([\w-]+)", found.text)
    assert token is not None
    auditor = site.stranger().enter(token[1])
    assert auditor.get("/budgets").status == 200
    assert auditor.post("/requests", PLAN).status == 403


def test_empty_places_say_what_to_do_first(site: Site) -> None:
    site.ledger.open("pure", 1.0, 0.0)
    browser = site.browser("viewer")
    assert "tacit train digits --epsilon 1 --budget small --ledger budget.db" in (
        browser.get("/budgets/small").text
    )
    assert "no training fits" in browser.get("/budgets/pure").text
    site.console.ledger = site.console.shelf = None
    browser = site.browser("viewer")
    assert "tacit ledger open" in browser.get("/budgets").text
    assert "tacit train digits" in browser.get("/runs").text
    assert browser.get("/budgets/small").status == 400


def test_keys_sign_in(site: Site, tmp_path: Path) -> None:
    from tacit.serve.access import add_key, read_keys  # noqa: PLC0415

    secret = add_key(tmp_path / "keys.json", "Ada", "engineer")
    assert secret not in (tmp_path / "keys.json").read_text()
    assert (tmp_path / "keys.json").stat().st_mode & 0o077 == 0
    site.console.access.keys = read_keys(tmp_path / "keys.json")
    site.console.with_keys = True
    browser = site.stranger()
    assert browser.post("/sign-in", {"key": "guess"}).status == 403
    assert browser.post("/sign-in", {"key": secret}).status == 303
    assert "Ada" in browser.get("/plan?by=sigma").text


def test_nobody_has_two_keys_by_names_that_look_alike(tmp_path: Path) -> None:
    """Ada would approve what ada asked for, and the entry would name two people."""
    from tacit.serve.access import add_key, read_keys  # noqa: PLC0415

    path = tmp_path / "keys.json"
    add_key(path, "Ada", "engineer")
    for name in ("Ada", "ada", "\u0410d\u0430"):  # the last with Cyrillic letters
        with pytest.raises(InvalidArgument, match=r"'Ada' has a key in .* already"):
            add_key(path, name, "officer")
    add_key(path, "Bo", "officer")
    text = path.read_text().replace("Bo", "ada")
    path.write_text(text)
    with pytest.raises(InvalidArgument, match="has a name twice; each person has one key"):
        read_keys(path)


def test_what_an_audit_found_stays_on_the_machine(
    site: Site, kept: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace  # noqa: PLC0415

    from tacit.recipes.auditing.audit_file import (  # noqa: PLC0415
        AttackFigures,
        Figure,
        HitRate,
    )
    from tacit.reports import run_folder  # noqa: PLC0415

    kept()
    half, rates = Figure(0.5, 0.4, 0.6), HitRate(0.01, Figure(0.0312, 0.01, 0.2), 0.9)
    roc = ((0.0, 0.0, 0.0, 0.0), (0.02, 0.1, 0.0, 0.3), (1.0, 1.0, 1.0, 1.0))
    attack = AttackFigures(
        name="loss", model="its model", members=50, others=50, auc=half, advantage=half,
        found=(rates,), roc=roc,
    )  # fmt: skip
    verdict = SimpleNamespace(contradicted=False, describe=lambda: "ε is at least 0.777")
    audit = SimpleNamespace(verdict=verdict, attacks=(attack,))
    monkeypatch.setattr(run_folder, "_audit", lambda *_: audit)
    engineer, viewer = site.browser("engineer"), site.browser("viewer")
    page = engineer.get("/runs/run").text
    assert "ε is at least 0.777." in page
    assert "3.12 %" in page
    # Three powers of ten are 194 points high: 10 % found is a third of them below the top.
    (line,) = re.findall(r'class="found found-0" points="([^"]*)"', page)
    assert line.split()[0] == f"{48 + 348 * (3 + log10(0.02)) / 3:.1f},{26 + 194 / 3:.1f}"
    assert line.split()[-1] == "396.0,26.0"
    assert not re.search(r"0\.777|3\.12 %|found-0", viewer.get("/runs/run").text)
    for end in ("report", "model-card.md", "registry.yaml", "statement.json"):
        assert "0.777" not in viewer.get(f"/runs/run/{end}").text
    assert "not published" in engineer.get("/runs/run/registry.yaml").text
    site.console.here = False  # behind a name, or on another address
    assert "0.777" not in engineer.get("/runs/run").text


def test_nobody_waits_for_the_first_check_of_a_ledger(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While charges are computed again no page shows one, and no form is carried out."""
    view, held = site.console.ledger, threading.Event()
    assert view is not None
    view.patience = 0.01
    whole = site.ledger.budgets
    monkeypatch.setattr(site.ledger, "budgets", lambda: (held.wait(10.0), whole())[1])
    engineer = site.browser("engineer")
    for target in ("/budgets", "/budgets/small", "/requests/3"):
        found = engineer.get(target)
        assert (found.status, found.header("refresh")) == (503, "1")
        assert "being computed again" in found.text
    assert 'value="small"' in engineer.get("/plan?by=sigma").text  # a name is no figure
    found = engineer.post("/requests", PLAN)
    assert (found.status, found.header("refresh")) == (503, None)
    assert "Nothing was done" in found.text
    held.set()
    assert view._reader is not None
    view._reader.join()
    assert engineer.get("/budgets/small").status == 200
    assert engineer.post("/requests", PLAN).status == 303


def test_a_list_of_runs_comes_with_what_was_read(
    site: Site, kept: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept("one")
    kept("two")
    monkeypatch.setattr("tacit.serve.pages._PATIENCE", -1.0)
    site.console.warm = False
    browser = site.browser("viewer")
    found = browser.get("/runs")
    assert (found.text.count("state unread"), found.header("refresh")) == (2, "1")
    assert site.console.shelf is not None
    site.console.shelf.rows()
    found = browser.get("/runs")
    assert (found.text.count("state finished"), found.header("refresh")) == (2, None)


def test_what_if_adds_up_the_requests_that_were_chosen(site: Site) -> None:
    one, two, three = (site.asked(epsilon="3.3", label=f"run {at}").number for at in range(3))
    site.ledger.open("other", 8.0, 1e-4)
    foreign = site.asked(budget="other", epsilon="0.1").number
    browser = site.browser("viewer")

    def said(*numbers: int) -> str:
        page = browser.get("/budgets/small?" + "&".join(f"grant={at}" for at in numbers)).text
        found = re.search(r'role="status">(.*?)</p>', page)
        return "" if found is None else found[1]

    left = [float(re.findall(r"ε = ([\d.]+) of 8 would", said(*some))[0])
            for some in ((one,), (one, two), (one, two, foreign))]  # fmt: skip
    assert 8.0 > left[0] > left[1] + 2.0 > 2.0
    assert left[2] == left[1]  # another budget's request is none of this one's
    assert "does not fit" in said(one, two, three)
    assert said() == ""


def test_alerts_stand_on_every_page(site: Site, kept: Callable[..., Path]) -> None:
    """A broken chain, a run that nobody carries on, a statement that does not prove itself."""
    kept("left", finished=False)
    forged = kept("forged") / "statement.json"
    forged.write_text(json.dumps({**json.loads(forged.read_text()), "epsilon": 0.5}))
    site.console.unsound = ("entry 3 was changed",)
    site.ledger.budget("small").charge(PureDp(7.7))
    browser = site.browser("viewer")
    for target in ("/plan?by=sigma", "/budgets", "/budgets/small", "/runs", "/runs/left", "/none"):
        page = browser.get(target).text
        shown = page[page.index('<aside class="alerts"') : page.index("</aside>")]
        for alert in ("The ledger is not sound: entry 3 was changed", "96 % of the budget",
                      "The run left was stopped or has crashed",
                      "run forged does not prove"):  # fmt: skip
            assert alert in shown, (target, alert)
        assert 'href="/runs/forged"' in shown


def test_a_statement_that_was_signed_leaves_with_its_signature(
    site: Site, kept: Callable[..., Path]
) -> None:
    """The console has no key that signs: ``tacit report --sign`` does, where the key is."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PrivateKey,
    )

    from tacit.statement import Statement  # noqa: PLC0415

    place, key = kept() / "statement.json", Ed25519PrivateKey.generate()
    signed = Statement.from_json(place.read_text()).signed(key, by="Clinic of Example")
    place.write_text(signed.to_json())
    browser = site.browser("viewer")
    assert "Clinic of Example" in browser.get("/runs/run").text
    exported = Statement.from_json(browser.get("/runs/run/statement.json").text)
    assert exported.verify_signature(key.public_key())
    place.write_text(signed.to_json().replace("Clinic of Example", "Somebody else"))
    assert "the signature does not fit" in browser.get("/runs/run").text


def test_a_ledger_that_cannot_be_trusted_is_not_computed_again_for_every_page(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, looked = site.browser("viewer"), []

    def tampered() -> None:
        looked.append(1)
        raise TamperedLedger("entry 900 charges less than its event costs")

    monkeypatch.setattr(site.ledger, "budgets", tampered)
    for target in ("/budgets", "/budgets/small", "/budgets"):
        found = browser.get(target)
        assert found.status == 400
        assert "entry 900 charges less" in found.text
    assert len(looked) == 1
    monkeypatch.setattr("tacit.serve.budgets._AGAIN", 0.0)
    browser.get("/budgets")
    assert len(looked) > 1
