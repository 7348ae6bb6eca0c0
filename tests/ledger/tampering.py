"""Hands on a ledger's rows that tacit itself would never lay on them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from tacit.accounting import Gaussian, PureDp
from tacit.ledger import Release
from tacit.ledger.entries import Entry, hashed

if TYPE_CHECKING:
    from .conftest import Place


def filled(place: Place) -> list[Entry]:
    """A ledger with a bit of everything; its entries."""
    with place.ledger() as ledger:
        budget = ledger.open("data", 4.0, 1e-5)
        made = budget.reserve(Release(Gaussian(2.5)), steps=9, label="plan", detail={"a": 1})
        made.lease(5)
        made.give_back(1)
        budget.charge(PureDp(0.1))
        budget.amend(epsilon=5.0, reason="board")
        made.end()
        return list(ledger.history())


def rewrite(place: Place, entries: list[Entry]) -> None:
    """Puts ``entries`` in the place of all rows, past the triggers."""
    rows = [tuple(astuple(entry)) for entry in entries]
    if place.url.startswith("sqlite"):
        with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as connection:
            triggers = connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute("DELETE FROM entries")
            connection.executemany("INSERT INTO entries VALUES (?,?,?,?,?,?,?)", rows)
            for _, text in triggers:
                connection.execute(text)
            connection.commit()
        return
    import psycopg  # noqa: PLC0415

    with psycopg.connect(place.url) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE entries DISABLE TRIGGER ALL")
        cursor.execute("DELETE FROM entries")
        cursor.executemany("INSERT INTO entries VALUES (%s,%s,%s,%s,%s,%s,%s)", rows)
        cursor.execute("ALTER TABLE entries ENABLE TRIGGER ALL")


def anchor_to(place: Place, entries: list[Entry]) -> None:
    """Writes the anchor that fits ``entries``, as one can who may write the folder."""
    last = entries[-1]
    plain = {"ledger": entries[0].data["id"], "number": last.number, "hash": last.hash}
    place.anchor.write_text(json.dumps(plain))


def chained_anew(entries: list[Entry]) -> list[Entry]:
    """The same entries with numbers and hashes that fit: a forgery by one who knows the format."""
    done: list[Entry] = []
    for number, entry in enumerate(entries, 1):
        previous = done[-1].hash if done else ""
        done.append(hashed(replace(entry, number=number, previous=previous)))
    return done
