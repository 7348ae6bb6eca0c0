"""The console in Chromium: planned, filed, approved, run, watched, audited, verified, handed on.

Debian's Chromium, driven by its own driver; without them these tests are skipped, and say so.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tacit.accounting import PureDp
from tacit.cli import main
from tacit.ledger import Ledger, Person, Release, approve, ask, refuse, revoke

from ..forked import Forked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from selenium.webdriver import Chrome

AXE = Path(__file__).parent / "axe.min.js"
PROGRAMS = {"chromium": "Debian's package chromium", "chromedriver": "chromium-driver"}
LIGHT, DARK = (1600, "light"), (400, "dark")
LOOKS = (LIGHT, (400, "light"), (1600, "dark"), DARK)
LARGEST_PAGE = 150_000  # bytes, all that a page loads
WEIGHT = (
    "return performance.getEntriesByType('resource').concat("
    "performance.getEntriesByType('navigation')).filter((e) => !e.name.includes('answer'))"
    ".reduce((n, e) => n + e.decodedBodySize, 0)"
)
# How far what is shown has moved by itself: the part of the window, times the part of its height.
JUMPS = (
    "const done = arguments[0]; let sum = 0; new PerformanceObserver((l) => { for (const e of "
    "l.getEntries()) sum += e.value; }).observe({type: 'layout-shift', buffered: true});"
    "setTimeout(() => done(sum), 300)"
)


@dataclass
class Console:
    """A server, and the links that it printed."""

    process: Forked
    links: dict[str, str]
    folder: Path

    @property
    def origin(self) -> str:
        return self.links["viewer"].partition("/enter")[0]


def command(folder: Path, *arguments: str) -> Forked:
    """The command in a process of its own, which has PyTorch already."""

    def work() -> int:
        os.chdir(folder)
        return main([*arguments])

    return Forked(work, {"OMP_NUM_THREADS": "1"})


@contextlib.contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Console]:
    process = command(folder, "serve", "--port", "0", *arguments)
    lines = [process.stdout.readline() for _ in range(3)]
    links = {role.strip(): link.strip() for role, _, link in (one.partition(": ") for one in lines)}
    yield Console(process, links, folder)
    process.kill()
    process.wait(10.0)
    process.stdout.close()
    process.stderr.close()


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    (tmp_path / "runs").mkdir()
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ledger.open("digits", 8.0, 1e-4)
    with served(tmp_path, "--ledger", "budget.db", "--runs", "runs") as found:
        yield found


@pytest.fixture
def chrome() -> Iterator[Callable[[], Chrome]]:
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing: install {package}")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is missing: tacit[dev]")
    opened: list[Chrome] = []

    def start() -> Chrome:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for one in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                    "--no-first-run", "--disable-background-networking"):  # fmt: skip
            options.add_argument(one)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        opened.append(webdriver.Chrome(options=options, service=service))
        return opened[-1]

    yield start
    for one in opened:
        one.quit()


def look(browser: Chrome, width: int, theme: str) -> None:
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def check(browser: Chrome, *looks: tuple[int, str]) -> None:
    """Nothing is wider than the window, and in these looks there is no serious fault of access."""
    for width, theme in (LIGHT, DARK, *(one for one in looks if one not in (LIGHT, DARK))):
        look(browser, width, theme)
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, f"{browser.current_url} is {wide} wide at {width}"
        if (width, theme) not in looks:
            continue
        if not browser.execute_script("return !!window.axe"):
            # A page's own policy forbids scripts that are not its own; the driver's are not.
            browser.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text()})
        found: list[dict[str, Any]] = browser.execute_async_script(
            "const done = arguments[0]; axe.run().then((r) => done(r.violations.map((v) => "
            "({id: v.id, impact: v.impact, nodes: v.nodes.map((n) => n.html)}))));"
        )
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, f"{browser.current_url} ({theme}): {json.dumps(serious)[:2000]}"


def check_traffic(browser: Chrome, origin: str) -> None:
    """Nothing was asked of another machine, nothing complained, and no page is heavy."""
    assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []
    asked = set()
    for line in browser.get_log("performance"):
        message = json.loads(line["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    foreign = {one for one in asked if not one.startswith((origin, "data:", "about:", "blob:"))}
    assert not {one for one in foreign if not one.startswith("chrome")}, foreign


def wait(what: Callable[[], Any], seconds: float = 60.0, pause: float = 0.05) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(pause)
    raise AssertionError("it did not happen")


def text(browser: Chrome, selector: str) -> str:
    return str(browser.execute_script(
        "const e = document.querySelector(arguments[0]); return e ? e.textContent : ''", selector
    ))  # fmt: skip


def press(browser: Chrome, selector: str) -> None:
    before = browser.current_url
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)
    wait(lambda: browser.current_url != before)


def fill(browser: Chrome, **fields: str) -> None:
    for name, value in fields.items():
        browser.execute_script(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true}));"
            "e.dispatchEvent(new Event('change', {bubbles: true}));", name, value,
        )  # fmt: skip


def test_a_run_from_its_plan_to_its_record(console: Console, chrome: Callable[[], Chrome]) -> None:
    browser = chrome()
    number = planned_and_filed(browser, console)
    approved_by_another(browser, console, number)
    started_and_watched(browser, console, number)
    audited(browser, console)
    verified_and_handed_on(browser, console, number)
    with Ledger(f"sqlite:///{console.folder}/budget.db", create=False) as ledger:
        assert ledger.verify().ok
        assert [one.standing for one in ledger.books.requests.values()] == ["drawn"]


def planned_and_filed(browser: Chrome, console: Console) -> str:
    browser.get(console.links["engineer"])
    fill(browser, recipe="digits", epsilon="3", delta="1e-5", budget="digits")
    press(browser, "#preset")
    assert browser.execute_script("return document.getElementById('examples').value") == "1437"
    fill(browser, epochs="50")
    wait(lambda: "epochs=50" in browser.current_url)  # the link holds the state
    wait(lambda: "fits" in text(browser, ".fits"))
    assert text(browser, "#epsilon-found") == "3"
    wait(lambda: "--epochs 50" in text(browser, "#shell"))
    assert 50_000 < browser.execute_script(WEIGHT) <= LARGEST_PAGE
    assert "ε = 3, σ = " in text(browser, "#brief")  # where the form hides the answer
    check(browser, LIGHT, DARK)
    fill(browser, label="Digits by browser", reason="to try the console")
    press(browser, "#file button")
    assert "An officer decides" in text(browser, "main")
    check_traffic(browser, console.origin)
    return str(browser.current_url.rpartition("/")[2])


def approved_by_another(browser: Chrome, console: Console, number: str) -> None:
    browser.delete_all_cookies()
    browser.get(console.links["officer"])
    browser.get(f"{console.origin}/budgets/digits?grant={number}")
    assert "would be left" in text(browser, "form p[role=status]")
    check(browser, DARK)
    browser.get(f"{console.origin}/requests/{number}")
    fill(browser, reason="within the plan for this year", days="7")
    browser.execute_script("document.querySelector('form.card button').click()")
    wait(lambda: "Approved" in text(browser, "main"))
    assert re.search(r"Run it by \d{4}-\d\d-\d\d \(UTC\), or the approval", text(browser, "main"))
    check(browser, LIGHT)


def started_and_watched(browser: Chrome, console: Console, number: str) -> None:
    """It is started by the line that the page shows."""
    line = text(browser, "#command").split()
    assert line == f"tacit train digits --ledger budget.db --request {number}".split()
    run = command(console.folder, *line[1:], "--out", "runs/mine")
    history = console.folder / "runs" / "mine" / "history.jsonl"
    wait(lambda: history.exists() and history.read_text().count("\n") >= 3, pause=0.002)
    run.send_signal(signal.SIGSTOP)  # it is as live as before, and waits to be looked at
    browser.get(f"{console.origin}/runs")
    assert "live" in text(browser, ".state.live")
    browser.get(f"{console.origin}/runs/mine")
    assert re.fullmatch(r"\d\d\.\d\d %", text(browser, "[data-live=accuracy]"))
    assert 3 <= int(text(browser, "[data-live=steps]")) < 50
    run.send_signal(signal.SIGCONT)
    wait(lambda: text(browser, "[data-live=state]") == "finished")
    run.communicate(60.0)
    assert run.returncode == 0


def audited(browser: Chrome, console: Console) -> None:
    """Where the data are, as the page says; the page then has it with its picture."""
    wait(lambda: "It was not audited" in text(browser, "main"))
    assert "tacit audit mine" in text(browser, "main")
    line = ("audit", "runs/mine", "--attack", "loss", "--shadows", "0", "--json")
    run = command(console.folder, *line)
    run.communicate(60.0)
    assert run.returncode == 0
    browser.get(f"{console.origin}/runs/mine")
    assert "Secret, do not pass on: no evidence against the claim" in text(browser, "main")
    drawn = "return document.querySelectorAll('svg .found-0, svg .main').length"
    assert browser.execute_script(drawn) == 2
    check(browser, LIGHT, DARK)
    browser.get(f"{console.origin}/runs/mine/report")
    assert "What attacks did reach: the audit" in text(browser, "body")
    check(browser, DARK)
    browser.get(f"{console.origin}/runs/mine")


def verified_and_handed_on(browser: Chrome, console: Console, number: str) -> None:
    assert "verified just now" in text(browser, "main")
    assert "the ledger holds this entry" in text(browser, "main")
    assert not re.search(r"(training|test) loss \d", text(browser, "main"))
    check_traffic(browser, console.origin)
    exports = {"report": "attack", "statement.json": '"epsilon"', "registry.yaml": "tier: 3",
               "model-card.md": "differential_privacy"}  # fmt: skip
    for end, holds in exports.items():
        got = browser.execute_async_script(
            "fetch(arguments[0]).then((r) => r.text()).then(arguments[1])",
            f"{console.origin}/runs/mine/{end}",
        )
        assert holds in got, end
    browser.get(f"{console.origin}/requests/{number}")
    wait(lambda: "It is used by recipe digits" in text(browser, "main"), 10)


@pytest.fixture
def full(tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """A console with a page of every kind: requests and runs in each of their states."""
    monkeypatch.undo()  # reports have their drawings here
    ada, bo = Person("Ada", "engineer", "a" * 32), Person("Bo", "officer", "b" * 32)
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("digits", 8.0, 1e-4)
        budget.charge(PureDp(6.5), label="a model that took most of it")
        asked = [
            ask(ledger, "digits", Release(PureDp(0.1)), steps=1, by=ada, reason="to see")
            for _ in range(4)
        ]
        approve(ledger, asked[0].number, by=bo, reason="fine")
        refuse(ledger, asked[1].number, by=bo, reason="too much")
        approve(ledger, asked[3].number, by=bo, reason="fine", days=7)
        revoke(ledger, asked[3].number, by=bo, reason="not now")
    for name in ("one", "two", "stopped", "forged"):
        shutil.copytree(finished, tmp_path / "runs" / name)
    _edited(tmp_path / "runs" / "stopped" / "run.json", finished=False)
    _edited(tmp_path / "runs" / "forged" / "statement.json", epsilon=0.5)
    with served(tmp_path, "--ledger", "budget.db", "--runs", "runs") as found:
        yield found


def _edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.slow
def test_every_page_in_every_look(full: Console, chrome: Callable[[], Chrome]) -> None:
    """Two widths, two themes: nothing serious for axe-core, nothing foreign, nothing heavy."""
    browser = chrome()
    browser.get(f"{full.origin}/sign-in")
    check(browser, *LOOKS)
    browser.get(full.links["officer"])
    wait(lambda: text(browser, "#epsilon-found"))
    pages = ("/plan?budget=digits&examples=5000&delta=1e-5", "/budgets", "/budgets/digits?grant=6",
             "/requests/4", "/requests/5", "/requests/6", "/requests/7", "/runs", "/runs/one",
             "/runs/stopped", "/runs/forged", "/compare?run=one&run=two")  # fmt: skip
    for page in pages:
        browser.get(full.origin + page)
        assert "Not done" not in text(browser, "h1"), page
        assert browser.execute_async_script(JUMPS) < 0.02, page
        check(browser, *LOOKS)
        assert browser.execute_script(WEIGHT) <= LARGEST_PAGE, page
    check_traffic(browser, full.origin)
    for page in ("/nowhere", "/runs/one/report"):
        browser.get(full.origin + page)
        check(browser, *LOOKS)
    browser.get(f"{full.origin}/budgets")
    browser.execute_script("document.querySelector('.who').open = true")
    check(browser, *LOOKS)
    press(browser, 'form[action="/links"] button')
    check(browser, *LOOKS)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {})
    assert len(printed["data"]) > 10_000
    with served(full.folder / "runs" / "one") as empty:
        browser.get(empty.links["viewer"])
        for page in ("/budgets", "/runs"):
            browser.get(empty.origin + page)
            check(browser, *LOOKS)
