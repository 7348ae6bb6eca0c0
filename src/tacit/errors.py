"""The errors that tacit raises on purpose: each is one line with the remedy in it."""

from __future__ import annotations


class TacitError(Exception):
    """Whatever tacit refuses, it refuses with a subclass of this."""


class InvalidArgument(TacitError, ValueError):
    """An argument lies outside what the function accepts."""


class UnsupportedEvent(TacitError, ValueError):
    """An accountant was asked about an event (or an adjacency) for which it has no theorem."""

    def __init__(self, event: object, accountant: str, reason: str) -> None:
        super().__init__(f"accountant {accountant!r} does not support {event!r}: {reason}")
        self.event = event
        self.accountant = accountant
        self.reason = reason


class Uncalibratable(TacitError, ValueError):
    """No member of the family meets the requested guarantee."""


class BudgetExceeded(TacitError, ValueError):
    """A charge does not fit into what is left of a privacy budget."""


class LedgerError(TacitError, RuntimeError):
    """The ledger cannot be reached, read or written; nothing was granted."""


class DamagedLedger(LedgerError):
    """The ledger's file cannot be read as one: it is damaged, or was never one."""


class TamperedLedger(LedgerError):
    """An entry was changed, removed or reordered, or an older copy of the ledger was put back."""


class CheckpointError(TacitError, ValueError):
    """A checkpoint cannot be written, is not one, is damaged, or belongs to something else."""


class UnsupportedModel(TacitError, ValueError):
    """A model, loss or data source would void the guarantee, or cannot be clipped exactly."""


class ProtocolError(TacitError, RuntimeError):
    """The steps of private training were taken in an order that would void the guarantee."""


class BrokenRandomness(TacitError, RuntimeError):
    """The source of randomness repeats itself: nothing drawn from it would hide anybody."""


class Diverged(TacitError, ArithmeticError):
    """Training left a weight that is no finite number; nothing more is charged."""


class LostRank(TacitError, RuntimeError):
    """Another process of the same training ended, hangs, or went another way."""


class WorkerDied(TacitError, RuntimeError):
    """A process that did part of the work was killed, or could not start."""


class DataError(TacitError, RuntimeError):
    """A set cannot be found, downloaded or read, or is not what its publisher put out."""
