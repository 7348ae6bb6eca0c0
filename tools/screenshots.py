"""Takes the screenshots of docs/console.md, and of every page for whoever wants to look at them.

python tools/screenshots.py [FOLDER]    # all pages, two widths, two themes; docs/figures without

A console with something to show is made in a temporary folder: two budgets with releases over some
months, a request in each state, runs that are finished, audited, live, left and forged. Needs
chromium and chromedriver, and takes a minute.
"""

import contextlib
import fcntl
import io
import json
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from PIL import Image
from selenium import webdriver

from tacit.accounting import Gaussian, PoissonSampled, Repeated
from tacit.ledger import (
    Ledger,
    Person,
    Release,
    approve,
    ask,
    draw,
    lapse,
    refuse,
    revoke,
    withdraw,
)
from tacit.training.plan import Plan

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
ADA, BO = Person("Ada", "engineer", "a" * 32), Person("Bo", "officer", "b" * 32)
LOOKS = [(width, theme) for width in (400, 1600) for theme in ("light", "dark")]
PLANNED = "/plan?examples=12000&lot=300&epochs=20&epsilon=1&delta=1e-6&budget=patients-2026"
PAGES = {
    "plan": PLANNED,
    "plan-sigma": "/plan?by=sigma&sigma=0.6&unit=user&delta=1e-5",
    "plan-refused": "/plan?examples=0",
    "budgets": "/budgets",
    "budget": "/budgets/patients-2026?grant={pending}&grant={second}&grant={third}",
    "budget-empty": "/budgets/census",
    "request-pending": "/requests/{pending}",
    "request-approved": "/requests/{approved}",
    "request-drawn": "/requests/{drawn}",
    "request-refused": "/requests/{refused}",
    "request-lapsed": "/requests/{lapsed}",
    "request-revoked": "/requests/{revoked}",
    "request-withdrawn": "/requests/{withdrawn}",
    "runs": "/runs",
    "run-audited": "/runs/triage",
    "run-finished": "/runs/trial",
    "run-live": "/runs/live",
    "run-stopped": "/runs/left",
    "run-forged": "/runs/forged",
    "compare": "/compare?run=triage&run=trial",
    "report": "/runs/triage/report",
    "nowhere": "/nowhere",
}
# Of the documentation: page, width, theme and height.
FIGURES_OF = {
    "console-plan": ("plan", 1280, "light", 1500),
    "console-budget": ("budget", 1280, "light", 1900),
    "console-request-narrow": ("request-pending", 400, "dark", 1590),
    "console-run": ("run-audited", 1280, "light", 2420),
}


@dataclass(frozen=True)
class Site:
    """A server and a browser that is signed in."""

    browser: webdriver.Chrome
    origin: str
    numbers: dict[str, int]

    def shot(self, page: str, width: int, theme: str, height: int | None = None) -> Image.Image:
        """A page from top to bottom, or its first ``height`` pixels."""
        self.browser.get(self.origin + PAGES[page].format(**self.numbers))
        return self.shown(width, theme, height)

    def shown(self, width: int, theme: str, height: int | None = None) -> Image.Image:
        """What the browser shows."""
        self._look(width, 900, theme)
        self.browser.execute_async_script("setTimeout(arguments[0], 400)")
        whole = self.browser.execute_script("return document.documentElement.scrollHeight")
        self._look(width, height or whole, theme)
        self.browser.execute_async_script("setTimeout(arguments[0], 200)")
        taken = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        return Image.open(io.BytesIO(b64decode(taken["data"])))

    def _look(self, width: int, height: int, theme: str) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": theme}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def main() -> None:
    """Makes the console, and takes what was asked for."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with site() as found:
        if folder is None:
            for name, (page, *look) in FIGURES_OF.items():
                whole = found.shot(page, *look).convert("RGB")
                # The few pixels of an unusual colour are what somebody should see.
                picture = whole.quantize(256, Image.Quantize.MAXCOVERAGE)
                picture.save(FIGURES / f"{name}.png", optimize=True)
            return
        folder.mkdir(parents=True, exist_ok=True)
        for page in PAGES:
            for width, theme in LOOKS:
                found.shot(page, width, theme).save(folder / f"{page}-{width}-{theme}.png")
        found.browser.execute_script("window.location = arguments[0]", f"{found.origin}/budgets")
        for width, theme in LOOKS:
            found.browser.execute_script("document.querySelector('.who').open = true")
            found.shown(width, theme).save(folder / f"who-{width}-{theme}.png")


@contextlib.contextmanager
def site() -> Iterator[Site]:
    """A console that has all of it, in a folder that goes away."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        numbers = filled_ledger(folder)
        stack.enter_context(filled_runs(folder / "runs"))
        process = stack.enter_context(
            subprocess.Popen(
                _tacit("serve", "--ledger", "budget.db", "--port", "0"), cwd=folder, text=True,
                stdout=subprocess.PIPE,
            )
        )  # fmt: skip
        stack.callback(process.kill)
        assert process.stdout is not None
        link = [process.stdout.readline() for _ in range(3)][-1].partition(": ")[2].strip()
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for one in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(one)
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        browser = webdriver.Chrome(options=options, service=service)
        stack.callback(browser.quit)
        browser.set_script_timeout(60)
        browser.get(link)
        origin = link.partition("/enter")[0]
        while "Alarm" not in browser.page_source:  # until it has read ahead
            browser.execute_async_script("setTimeout(arguments[0], 1000)")
            browser.get(f"{origin}/budgets")
        yield Site(browser, origin, numbers)


def _tacit(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tacit", *arguments]


def filled_ledger(folder: Path) -> dict[str, int]:
    """Budgets, releases over some months, and requests; the numbers of those by their state."""
    with (
        mock.patch("tacit.ledger.entries.today", return_value="2026-05-04") as today,
        Ledger(f"sqlite:///{folder}/budget.db") as ledger,
    ):
        budget = ledger.open("patients-2026", 8.0, 1e-5, composition="renyi")
        for at, day in enumerate(("2026-05-11", "2026-06-02", "2026-06-30", "2026-08-18")):
            today.return_value = day
            event = Repeated(PoissonSampled(0.02, Gaussian(2.5 + at)), 600)
            budget.charge(event, label=f"triage model {at + 1}")
        plan = Plan.for_budget(
            epsilon=1.5, delta=1e-6, examples=12_000, lot_size=300, epochs=20, clip=1.0
        )

        def asked(label: str, reason: str, plan: Plan = plan) -> int:
            what = Release(plan.event)
            detail = {"plan": plan.as_dict(), "last_step": plan.steps}
            return ask(ledger, "patients-2026", what, steps=plan.steps, by=ADA, reason=reason,
                       label=label, detail=detail, asked={"delta": 1e-6}).number  # fmt: skip

        found = {}
        today.return_value = "2026-09-07"
        found["lapsed"] = asked("Readmission, first try", "to predict readmission within 30 days")
        approve(ledger, found["lapsed"], by=BO, reason="within this year's plan", days=14)
        today.return_value = "2026-09-22"
        lapse(ledger)
        for name, label in (("revoked", "Length of stay"), ("withdrawn", "Ward forecast"),
                            ("drawn", "Triage, autumn"), ("refused", "Notes, verbatim"),
                            ("approved", "Readmission"), ("pending", "Sepsis alarm"),
                            ("second", "Sepsis alarm, wider"), ("third", "Fall risk")):  # fmt: skip
            small = Plan.for_budget(
                epsilon=0.4, delta=1e-6, examples=12_000, lot_size=300, epochs=20, clip=1.0
            )
            found[name] = asked(label, f"a model for the ward: {label.lower()}", small)
        for name in ("revoked", "drawn", "approved"):
            approve(ledger, found[name], by=BO, reason="within this year's plan", days=90)
        refuse(ledger, found["refused"], by=BO, reason="notes name people; not in this year's plan")
        revoke(ledger, found["revoked"], by=BO, reason="the ward was closed")
        withdraw(ledger, found["withdrawn"], by=ADA, reason="planned with too few epochs")
        held = draw(ledger, found["drawn"], run="recipe digits, run 7f3a")
        held.lease(300)
        ledger.open("census", 1.0, 0.0)
    return found


@contextlib.contextmanager
def filled_runs(runs: Path) -> Iterator[None]:
    """Runs that are finished, audited, live, left and forged; the live one while this lasts."""
    for name, epsilon in (("triage", "3"), ("trial", "1")):
        line = _tacit("train", "digits", "--epsilon", epsilon, "--out", str(runs / name))
        subprocess.run(line, check=True, capture_output=True)
    for name in ("live", "left", "forged"):
        shutil.copytree(runs / "triage", runs / name)
    line = _tacit("audit", str(runs / "triage"), "--attack", "loss", "--shadows", "0")
    subprocess.run(line, check=True, capture_output=True)
    for name in ("live", "left"):
        history = runs / name / "history.jsonl"
        lines = history.read_text().splitlines(keepends=True)
        history.write_text("".join(lines[: len(lines) // 2]))
        _edited(runs / name / "run.json", finished=False, test_accuracy=None)
        (runs / name / "statement.json").unlink()
    _edited(runs / "forged" / "statement.json", epsilon=0.5)
    with (runs / "live" / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


if __name__ == "__main__":
    main()
