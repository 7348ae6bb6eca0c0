"""The durable privacy budget: what was given away about the data, over all runs and crashes.

A budget belongs to the data, not to a training run. It is charged before a release, in a database
that only grows: an entry is never changed or removed, each one carries the hash of the one before,
and a side file (the anchor) knows the newest. So a crash can only leave too much charged, never too
little, and a ledger that was edited or put back to an older state is found out.

>>> import tempfile
>>> from tacit.accounting import Gaussian
>>> from tacit.ledger import Ledger
>>> folder = tempfile.TemporaryDirectory()
>>> with Ledger(f"sqlite:///{folder.name}/budget.db") as ledger:
...     budget = ledger.open("patients-2026", epsilon=8, delta=1e-5)
...     charged = budget.charge(Gaussian(4.0), label="mean age")
...     round(budget.spent().epsilon, 4), ledger.verify().ok
(0.9684, True)
>>> folder.cleanup()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy

if TYPE_CHECKING:
    from tacit.ledger.approval import approve, ask, draw, refuse, revoke, undraw, withdraw
    from tacit.ledger.budget import Budget, Chargeable, Release
    from tacit.ledger.composition import Spending
    from tacit.ledger.entries import Entry, Head
    from tacit.ledger.ledger import Ledger
    from tacit.ledger.replay import BudgetState, ReservationState
    from tacit.ledger.requests import Closing, Decision, Person, RequestState, lapse
    from tacit.ledger.reservation import Reservation
    from tacit.ledger.verification import Verification, verify

__all__ = [
    "Budget",
    "BudgetState",
    "Chargeable",
    "Closing",
    "Decision",
    "Entry",
    "Head",
    "Ledger",
    "Person",
    "Release",
    "RequestState",
    "Reservation",
    "ReservationState",
    "Spending",
    "Verification",
    "approve",
    "ask",
    "draw",
    "lapse",
    "refuse",
    "revoke",
    "undraw",
    "verify",
    "withdraw",
]

# Imported when first used: SQLAlchemy is needed by those who keep a ledger only.
__getattr__, __dir__ = lazy(__name__)
