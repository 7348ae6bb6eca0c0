from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tacit.ledger import Ledger

from . import postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass
class Place:
    """Where a test keeps its ledger; every ledger that is opened is closed in the end."""

    url: str
    anchor: Path
    execute: Callable[[str], object]
    opened: list[Ledger] = field(default_factory=list)

    def ledger(self, *, timeout: float = 30.0, create: bool = True) -> Ledger:
        made = Ledger(self.url, anchor=self.anchor, timeout=timeout, create=create)
        self.opened.append(made)
        return made


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    try:
        with postgres.running() as found:
            yield found
    except postgres.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Place]:
    path = tmp_path / "budget.db"
    place = Place(f"sqlite:///{path}", tmp_path / "budget.db.anchor", lambda _: None)
    yield place
    for one in place.opened:
        one.close()


@pytest.fixture
def postgresql(server: postgres.Server, tmp_path: Path) -> Iterator[Place]:
    name = server.new_database()
    place = Place(
        server.url(name), tmp_path / "ledger.anchor", lambda text: server.execute(text, name)
    )
    yield place
    for one in place.opened:
        one.close()
    server.give_back(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind of database in turn: what uses this is the contract of both."""
    found: Place = request.getfixturevalue(request.param)
    return found
