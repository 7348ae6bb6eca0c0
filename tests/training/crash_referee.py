"""The referee of the crash tests: a process that sees every release before it happens.

Run as a script with the path of a socket. Training processes connect to it and say, packet by
packet, where they are and what they draw. Before noise is drawn they ask to release, and wait: the
referee counts, and looks up in the database, without tacit, how many steps were granted. It also
kills, from outside, whoever asks for that. When a connection ends it prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sqlite3
import struct
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from typing import Any

WINDOW = 3  # noise values in a row: one float32 may come twice by chance, three may not


class Books:
    """What was released and drawn in the whole life of the referee."""

    def __init__(self) -> None:
        self.released: Counter[tuple[str, int]] = Counter()
        self.noise: set[bytes] = set()
        self.samples: set[bytes] = set()


class Child:
    """One training process, from its first packet to the end of its connection."""

    def __init__(self, wire: socket.socket, books: Books) -> None:
        self.wire = wire
        self.books = books
        size = struct.calcsize("3i")
        peer = wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        self.process = os.pidfd_open(struct.unpack("3i", peer)[0])
        self.hello: dict[str, Any] = {}
        self.report: dict[str, Any] = {
            "released": 0, "undercounts": 0, "repeated": 0, "last": "start", "paused": False,
            "largest": 0, "begun": None, "ended": None, "draws": 0, "samples": 0,
        }  # fmt: skip

    def hear(self, packet: bytes) -> None:
        kind, body = chr(packet[0]), packet[1:]
        if kind == "M":
            self.report["last"] = body.decode()
        elif kind in "HBE":
            self._told(kind, json.loads(body))
        elif kind == "R":
            self._release(int(body))
        elif kind == "Z":
            self.report["largest"] = max(self.report["largest"], int(body))
        elif kind == "N":
            self._noise(body)
        elif kind == "S":
            self.report["samples"] += 1
            self._once(self.books.samples, body)
        elif kind == "K":
            time.sleep(float(body))
            with suppress(ProcessLookupError):  # it has come to its end before
                signal.pidfd_send_signal(self.process, signal.SIGKILL)
        elif kind == "P":
            say({"paused": True})

    def _told(self, kind: str, said: dict[str, Any]) -> None:
        if kind == "H":
            self.hello = said
            self.answer()
        elif kind == "B":
            self.report["begun"] = said
        else:
            self.report["ended"] = said

    def _release(self, reservation: int) -> None:
        """One more release is about to be: is it in the ledger, by the ledger's own rows?"""
        key = (self.hello["url"], reservation)
        self.books.released[key] += 1
        self.report["released"] += 1
        self.report["last"] = "releasing"
        if self.hello["watched"]:
            granted = granted_in(self.hello["url"], reservation)
            self.report["undercounts"] += self.books.released[key] > granted
        self.answer()

    def answer(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have died meanwhile
            self.wire.send(b"go")

    def _noise(self, body: bytes) -> None:
        width, raw = body[0], body[1:]
        self.report["draws"] += 1
        last = len(raw) - WINDOW * width
        for start in range(0, last + 1, width):
            self._once(self.books.noise, raw[start : start + WINDOW * width])

    def _once(self, seen: set[bytes], what: bytes) -> None:
        self.report["repeated"] += what in seen
        seen.add(what)

    def close(self) -> dict[str, Any]:
        self.wire.close()
        os.close(self.process)
        return self.report


def granted_in(url: str, reservation: int) -> int:
    """Steps that were granted, from the table itself."""
    text = "SELECT kind, body FROM entries ORDER BY number"
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as connection:
            rows = connection.execute(text).fetchall()
    else:
        import psycopg  # noqa: PLC0415

        with psycopg.connect(url) as connection:
            rows = connection.execute(text).fetchall()
    granted = 0
    for kind, body in rows:
        if kind in ("lease", "give-back"):
            found = json.loads(body)
            if found["reservation"] == reservation:
                granted += found["steps"] if kind == "lease" else -found["steps"]
    return granted


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(path: str) -> None:
    books = Books()
    child: Child | None = None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        os.chmod(path, 0o777)
        listener.listen()
        say({"listening": True})
        while True:
            # One training process at a time; the line from the test ends a pause, or all.
            waiting = [sys.stdin, listener if child is None else child.wire]
            ready, _, _ = select.select(waiting, [], [])
            if sys.stdin in ready:
                if not sys.stdin.readline():
                    return
                if child is not None:
                    child.answer()
            elif child is None:
                child = Child(listener.accept()[0], books)
            else:
                try:
                    packet = child.wire.recv(1 << 16)
                except ConnectionResetError:  # it died before it had read its answer
                    continue
                if packet:
                    child.hear(packet)
                else:
                    say(child.close())
                    child = None


if __name__ == "__main__":
    main(sys.argv[1])
