"""Processes that race for a budget; run as a script, each told what to do line by line.

A line ``charge NAME SIZE`` charges pure releases of ε = SIZE until one is refused; ``lease NAME
NUMBER BLOCK`` leases blocks until nothing is left; ``make NAME`` opens a budget and charges once.
The answer is one line: what was granted.
"""

from __future__ import annotations

import os
import socket
import sys

import alembic.script

import tacit.accounting.accountants.composition
from tacit.accounting.events import PureDp
from tacit.errors import BudgetExceeded
from tacit.ledger import Ledger

PRELOADED = (alembic.script, tacit.accounting.accountants.composition)  # once, before the fork


def charge(ledger: Ledger, name: str, size: str) -> float:
    budget = ledger.budget(name)
    granted = 0.0
    while True:
        try:
            granted += budget.charge(PureDp(float(size))).epsilon
        except BudgetExceeded:
            return granted


def lease(ledger: Ledger, name: str, number: str, block: str) -> int:
    reservation = ledger.budget(name).reservation(int(number))
    granted = 0
    while more := reservation.lease(int(block)):
        granted += more
    return granted


def make(ledger: Ledger, name: str) -> float:
    return ledger.open(name, epsilon=1.0, delta=0.0).charge(PureDp(1 / 64)).epsilon


def serve(url: str, anchor: str, wire: socket.socket) -> None:
    ledger = None
    with wire.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            # Opened at the first command, so that racers can race to make the ledger too.
            ledger = ledger or Ledger(url, anchor=anchor, timeout=60.0)
            kind, *arguments = line.split()
            said = {"charge": charge, "lease": lease, "make": make}[kind](ledger, *arguments)
            lines.write(f"{said}\n")
            lines.flush()
    if ledger is not None:
        ledger.close()


def main(url: str, anchor: str, *wires: str) -> int:
    """Forks one racer for each wire, so that all is imported once; 0 if all of them ended well."""
    children = []
    for wire in map(int, wires):
        child = os.fork()
        if child == 0:
            for other in map(int, wires):
                if other != wire:
                    os.close(other)
            serve(url, anchor, socket.socket(fileno=wire))
            os._exit(0)
        children.append(child)
    for wire in map(int, wires):
        os.close(wire)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
