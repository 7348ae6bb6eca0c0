"""Training that is killed with kill -9 at any moment: never under-counted, and it always goes on.

A separate process, the referee, is asked before every release; it counts them, compares them with
the rows of the ledger, and remembers all noise and all samples.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

import pytest

from .crash_run import Setting, campaign

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..ledger.postgres import Server
    from .crash_run import Arena

SETTINGS = [
    Setting(lease=4, noise="fast"),
    Setting(lease="auto", noise="secure"),
    Setting(lease=1, noise="secure", every=5),
    Setting(lease=16, noise="fast", every=1),
    Setting(lease=5, noise="exact", steps=40),
]


def files(folder: Path) -> Iterator[tuple[str, Path]]:
    for number in itertools.count():
        yield f"sqlite:///{folder}/budget-{number}.db", folder / f"budget-{number}.db.anchor"


def databases(server: Server, folder: Path) -> Iterator[tuple[str, Path]]:
    while True:
        name = server.new_database()
        yield server.url(name), folder / f"{name}.anchor"


def test_killed_at_any_moment_nothing_is_uncounted(ring: Arena, tmp_path: Path) -> None:
    """Ten times; 400 times in ``make test-slow``, below."""
    figures = campaign(ring, files(tmp_path), tmp_path, SETTINGS[:4], kills=10, seed=1)
    assert figures.kills >= 10, figures
    assert figures.most_share <= 1.0, figures
    assert len(figures.places) >= 6, figures
    assert 0 < figures.lost < figures.granted, figures


def test_killed_while_charging_a_server_nothing_is_uncounted(
    ring: Arena, server: Server, tmp_path: Path
) -> None:
    places = databases(server, tmp_path)
    figures = campaign(ring, places, tmp_path, SETTINGS[:2], kills=4, seed=2)
    assert figures.kills >= 4, figures


@pytest.mark.slow
def test_killed_again_and_again_nothing_is_uncounted(
    ring: Arena, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        "SQLite": campaign(ring, files(tmp_path), tmp_path, SETTINGS, kills=300, seed=3),
        "PostgreSQL": campaign(
            ring, databases(server, tmp_path), tmp_path, SETTINGS[:4], kills=100, seed=4
        ),
    }
    with capsys.disabled():
        for name, figures in found.items():
            sys.stdout.write(f"\n{name}: {figures}\n")
    assert sum(figures.kills for figures in found.values()) >= 400
    assert all(len(figures.places) >= 25 for figures in found.values()), found
