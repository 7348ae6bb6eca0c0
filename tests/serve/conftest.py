from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette", reason="tacit serve needs Starlette: pip install 'tacit[ui]'")
pytest.importorskip("uvicorn", reason="tacit serve needs uvicorn: pip install 'tacit[ui]'")

from tacit.ledger import Ledger, Person
from tacit.runs.run import Place, carried_out
from tacit.serve.access import Access
from tacit.serve.app import Console
from tacit.serve.budgets import LedgerView
from tacit.serve.pages import Pages
from tacit.serve.runs import RunShelf

from ..runs import small
from .calling import ORIGIN, Browser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.types import ASGIApp

    from tacit.ledger import RequestState

PEOPLE = {
    "viewer": Person("Vi", "viewer", "1" * 32),
    "engineer": Person("Ada", "engineer", "2" * 32),
    "officer": Person("Bo", "officer", "3" * 32),
    "second": Person("Cy", "officer", "4" * 32),
}
PLAN = {
    "examples": "300", "lot": "60", "epochs": "2", "clip": "1", "by": "epsilon", "epsilon": "3",
    "delta": "1e-5", "sampling": "poisson", "unit": "example", "adjacency": "add-remove",
    "budget": "small", "recipe": "", "label": "a run", "reason": "to see",
}  # fmt: skip


@dataclass
class Site:
    """A console with a ledger and a folder of runs, and people who look at it."""

    console: Console
    app: ASGIApp
    ledger: Ledger
    runs: Path

    def browser(self, who: str) -> Browser:
        return Browser(self.app).enter(self.console.access.link(PEOPLE[who]))

    def stranger(self) -> Browser:
        return Browser(self.app)

    def asked(self, **changes: str) -> RequestState:
        """A request that the engineer filed by the page."""
        before = set(self.ledger.refresh().requests)
        found = self.browser("engineer").post("/requests", {**PLAN, **changes})
        assert found.status == 303, found.text
        (number,) = set(self.ledger.refresh().requests) - before
        return self.ledger.books.requests[number]


def site_at(url: str, anchor: Path, runs: Path) -> Site:
    ledger = Ledger(url, anchor=anchor)
    ledger.open("small", 8.0, 1e-4)
    console = Console(
        Access(()), frozenset({ORIGIN, "http://localhost:8765"}), LedgerView(ledger),
        RunShelf(runs), address="budget.db", cookie="tacit-8765", warm=True,
    )  # fmt: skip
    return Site(console, console.app(Pages(console).routes()), ledger, runs)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    runs = tmp_path / "runs"
    runs.mkdir()
    made = site_at(f"sqlite:///{tmp_path}/budget.db", tmp_path / "anchor", runs)
    yield made
    made.ledger.close()


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without drawings, which take longest: they are tested where they are drawn."""
    monkeypatch.setattr("tacit.serve.pages._drawings", lambda _: {})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site for tests after which it is as it was."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "runs").mkdir()
    made = site_at(f"sqlite:///{folder}/budget.db", folder / "anchor", folder / "runs")
    yield made
    made.ledger.close()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; copy it before you change it."""
    from tacit.runs import Interruption  # noqa: PLC0415
    from tacit.runs.recipe import Task  # noqa: PLC0415

    import torch  # noqa: PLC0415 isort: skip

    folder = tmp_path_factory.mktemp("finished") / "run"
    settings = replace(small.Settings(), steps=10)
    task = Task(settings=settings, data=small.split(), epsilon=3.0, delta=1e-5,
                device=torch.device("cpu"), seed=0)  # fmt: skip
    carried_out(small.recipe(also=False), task, Place(folder=folder, stop=Interruption()))
    return folder


@pytest.fixture
def kept(site: Site, finished: Path) -> Callable[..., Path]:
    """Puts a copy of the finished run among the site's, with files changed."""
    import shutil  # noqa: PLC0415

    def put(name: str = "run", **changes: object) -> Path:
        place = site.runs / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(finished, place)
        for field, value in changes.items():
            record = json.loads((place / "run.json").read_text())
            record[field] = value
            (place / "run.json").write_text(json.dumps(record))
        return place

    return put
