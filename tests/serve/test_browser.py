"""The console in Chromium: planned, filed, approved, run, watched, verified and handed on.

Debian's Chromium, driven by its own driver; without them these tests are skipped, and say so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tacit.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from selenium.webdriver import Chrome

AXE = Path(__file__).parent / "axe.min.js"
PROGRAMS = {"chromium": "Debian's package chromium", "chromedriver": "chromium-driver"}
LIGHT, DARK = (1600, "light"), (400, "dark")
LARGEST_PAGE = 150_000  # bytes, all that a page loads
ROOT = Path(__file__).parents[2]


@dataclass
class Console:
    process: subprocess.Popen[str]
    links: dict[str, str]
    folder: Path
    first_page: float

    @property
    def origin(self) -> str:
        return self.links["viewer"].partition("/enter")[0]


def child(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "tacit", *map(str, arguments)], cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    (tmp_path / "runs").mkdir()
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ledger.open("digits", 8.0, 1e-4)
    process = child("serve", "--ledger", "budget.db", "--runs", "runs", "--port", 0,
                    folder=tmp_path)  # fmt: skip
    started = time.monotonic()
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    links = {role.strip(): link.strip() for role, _, link in (one.partition(": ") for one in lines)}
    yield Console(process, links, tmp_path, time.monotonic() - started)
    process.kill()
    process.wait()
    process.stdout.close()


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
    """Nothing is wider than the window; in these looks, or both, no serious fault of access."""
    for width, theme in (LIGHT, DARK):
        look(browser, width, theme)
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, f"{browser.current_url} is {wide} wide at {width}"
        if looks and (width, theme) not in looks:
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


def wait(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(0.1)
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
    verified_and_handed_on(browser, console, number)
    with Ledger(f"sqlite:///{console.folder}/budget.db", create=False) as ledger:
        assert ledger.verify().ok
        assert [one.standing for one in ledger.books.requests.values()] == ["drawn"]


def planned_and_filed(browser: Chrome, console: Console) -> str:
    browser.get(console.links["engineer"])
    check(browser)
    fill(browser, recipe="digits", epsilon="3", delta="1e-5", budget="digits")
    press(browser, "#preset")
    assert browser.execute_script("return document.getElementById('examples').value") == "1437"
    fill(browser, epochs="120")
    wait(lambda: "epochs=120" in browser.current_url)  # the link holds the state
    wait(lambda: "fits" in text(browser, ".fits"))
    assert text(browser, "#epsilon-found") == "3"
    wait(lambda: "--epochs 120" in text(browser, "#shell"))
    weight = browser.execute_script(
        "return performance.getEntriesByType('resource').concat("
        "performance.getEntriesByType('navigation')).filter((e) => !e.name.includes('answer'))"
        ".reduce((n, e) => n + e.decodedBodySize, 0)"
    )
    assert 50_000 < weight <= LARGEST_PAGE
    fill(browser, label="Digits by browser", reason="to try the console")
    press(browser, "#file button")
    assert "An officer decides" in text(browser, "main")
    check(browser, LIGHT)
    check_traffic(browser, console.origin)
    return str(browser.current_url.rpartition("/")[2])


def approved_by_another(browser: Chrome, console: Console, number: str) -> None:
    browser.delete_all_cookies()
    browser.get(console.links["officer"])
    browser.get(f"{console.origin}/budgets/digits?grant={number}")
    assert "would be left" in text(browser, "form p[role=status]")
    check(browser, DARK)
    browser.get(f"{console.origin}/requests/{number}")
    fill(browser, reason="within the plan for this year")
    browser.execute_script("document.querySelector('form.card button').click()")
    wait(lambda: "Approved" in text(browser, "main"))


def started_and_watched(browser: Chrome, console: Console, number: str) -> None:
    """It is started by the line that the page shows."""
    line = text(browser, "#command").split()
    assert line == f"tacit train digits --ledger budget.db --request {number}".split()
    run = child(*line[1:], "--out", "runs/mine", folder=console.folder)
    browser.get(f"{console.origin}/runs")
    wait(lambda: (browser.refresh(), "live" in text(browser, ".state.live"))[1])
    browser.get(f"{console.origin}/runs/mine")
    wait(lambda: re.fullmatch(r"\d\d\.\d\d %", text(browser, "[data-live=accuracy]")))
    assert 0 < int(text(browser, "[data-live=steps]")) < 120
    wait(lambda: text(browser, "[data-live=state]") == "finished")
    assert run.wait(60) == 0
    assert run.stdout is not None
    run.stdout.close()


def verified_and_handed_on(browser: Chrome, console: Console, number: str) -> None:
    wait(lambda: "verified just now" in text(browser, "main"))
    assert "the ledger holds this entry" in text(browser, "main")
    assert "loss" not in text(browser, "main")
    check(browser, DARK)
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
    assert "was drawn on by recipe digits" in text(browser, "main")
