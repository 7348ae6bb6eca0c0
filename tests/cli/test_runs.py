"""What a run's record keeps of its command line."""

from __future__ import annotations

import pytest

from tacit.cli.runs import without_password


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://me:pa/ss@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:pa/s@s@host/db", "postgresql://me:***@host/db"),
        ("--ledger=postgresql://me:p:a@host:5432/db", "--ledger=postgresql://me:***@host:5432/db"),
        ("postgresql://me:pa?ss@host/db", "postgresql://***"),
        ("postgresql://host:5432/db?password=a@b", "postgresql://***"),
        ("postgresql://me@host/db?password=a@b", "postgresql://me@host/db?***"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("sqlite:///runs/budget.db", "sqlite:///runs/budget.db"),
        ("what?", "what?"),
    ],
)
def test_no_part_of_a_password_is_kept(given: str, shown: str) -> None:
    assert without_password(given) == shown
