"""The databases of the ledger's tests, and processes that may die, for training that is charged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..ledger.conftest import place, postgresql, server, sqlite
from .crash_run import arena

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .crash_run import Arena

__all__ = ["place", "postgresql", "ring", "server", "sqlite"]


@pytest.fixture(scope="session")
def ring() -> Iterator[Arena]:
    """A fork server and a referee; they are started once."""
    with arena() as made:
        yield made
