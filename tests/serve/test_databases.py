"""The console on SQLite and on PostgreSQL: the same pages, and many who write at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import pytest

from tacit.accounting import PureDp
from tacit.ledger import composition as rules
from tacit.ledger import draw
from tacit.serve.server import Setting, prepared

from ..ledger.conftest import place, postgresql, server, sqlite
from .calling import Browser
from .conftest import PLAN, Site, site_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..ledger.conftest import Place

__all__ = ["place", "postgresql", "server", "sqlite"]

WRITERS = 8


@pytest.fixture
def consoles(place: Place, tmp_path: Path) -> Iterator[Callable[[], Site]]:
    """Makes consoles on one ledger, each with connections of its own."""
    made: list[Site] = []

    def another() -> Site:
        (tmp_path / "runs").mkdir(exist_ok=True)
        made.append(site_at(place.url, place.anchor, tmp_path / "runs"))
        return made[-1]

    yield another
    for one in made:
        one.ledger.close()


def test_a_request_goes_its_way_through_two_consoles(consoles: Callable[[], Site]) -> None:
    """What one console writes, the other shows, in every page and in the same words."""
    one, other = consoles(), consoles()
    asked = one.asked(label="by the first")
    officer = other.browser("officer")
    what_if = officer.get(f"/budgets/small?grant={asked.number}").text
    assert "would be left" in what_if
    assert officer.post(f"/requests/{asked.number}/approve", {"reason": "fine"}).status == 303
    held = draw(other.ledger, asked.number, run="a run")
    assert held.lease(3) == 3
    viewer = one.browser("viewer")
    assert "3 of 10 steps granted" in viewer.get(f"/requests/{asked.number}").text
    page = viewer.get("/budgets/small").text
    for shown in ("by the first", one.ledger.refresh().hashes[held.number - 1][:12], "3 of 10"):
        assert shown in page
    assert "by the first" in viewer.get("/budgets").text
    assert "the budget small" in viewer.get(f"/plan?{urlencode(PLAN)}").text
    refused = one.asked(label="another")
    assert officer.post(f"/requests/{refused.number}/refuse", {"reason": "no"}).status == 303
    assert "Refused" in viewer.get(f"/requests/{refused.number}").text
    assert one.ledger.verify().ok


def test_eight_write_at_once_and_nothing_is_lost_or_granted_twice(
    consoles: Callable[[], Site],
) -> None:
    """Six who file and approve by two consoles, and two who charge beside them."""
    sites = [consoles() for _ in range(4)]
    sites[0].ledger.open("tight", 1.0, 1e-5)  # holds some of what is asked, not all
    start = threading.Barrier(WRITERS)
    found: list[int] = []
    charged: list[float] = []

    def by_page(at: int) -> None:
        engineer = sites[at % 2].browser("engineer")
        officer = sites[(at + 1) % 2].browser(("officer", "second")[at % 2])
        wanted = {**PLAN, "budget": "tight", "epsilon": "0.3", "label": f"run {at}"}
        start.wait()
        filed = engineer.post("/requests", wanted)
        page = filed.header("location") or ""
        found.append(filed.status)
        found.append(officer.post(f"{page}/approve", {"reason": "ok"}).status)

    def beside(at: int) -> None:
        budget = sites[2 + at].ledger.budget("tight")
        start.wait()
        charged.append(budget.charge(PureDp(0.05)).epsilon)

    threads = [threading.Thread(target=by_page, args=(at,)) for at in range(WRITERS - 2)]
    threads += [threading.Thread(target=beside, args=(at,)) for at in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    books = sites[0].ledger.refresh()
    approved = [one for one in books.requests.values() if one.standing == "approved"]
    assert [one.label for one in sorted(books.requests.values(), key=lambda one: one.label)] == [
        f"run {at}" for at in range(WRITERS - 2)
    ]
    assert charged == [0.05, 0.05]
    # The others did not fit, and were refused in one line.
    assert 1 <= len(approved) < WRITERS - 2
    assert sorted(found) == [303] * (WRITERS - 2 + len(approved)) + [400] * (
        WRITERS - 2 - len(approved)
    )
    assert rules.spent(books.budgets["tight"]).epsilon <= 1.0
    assert sites[1].ledger.verify().ok


def test_no_page_has_the_password_of_a_server(postgresql: Place) -> None:
    postgresql.ledger().open("small", 8.0, 1e-4)
    url = f"{postgresql.url}?password=hunter2"
    served = prepared(Setting(ledger=url, address=url, anchor=str(postgresql.anchor), port=0))
    try:
        link = dict(served.links)["engineer"]
        host = urlsplit(link).netloc
        browser = Browser(served.app, headers={"host": host})
        browser.enter(link.rpartition("token=")[2])
        filed = browser.post("/requests", PLAN, origin=f"http://{host}")
        for page in ("/budgets", "/budgets/small", filed.header("location") or "", "/plan"):
            found = browser.get(page)
            assert found.status == 200
            assert "hunter2" not in found.text
        assert "tacit@127.0.0.1" in browser.get("/budgets").text
    finally:
        served.socket.close()
        assert served.console.ledger is not None
        served.console.ledger.ledger.close()
