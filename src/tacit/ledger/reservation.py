"""A reservation: a plan or release that is charged, and whose steps are granted bit by bit."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, final

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.ledger.entries import Draft
from tacit.ledger.replay import holder_of

if TYPE_CHECKING:
    from tacit.ledger.budget import Budget
    from tacit.ledger.ledger import Ledger
    from tacit.ledger.replay import Books, ReservationState


@final
class Reservation:
    """What one plan or release may still do, made by ``Budget.reserve``.

    The whole of it is charged; ``lease`` says how far it has gone. Take a lease before the steps
    it grants, and take no step without one.

    Guarantee:
        Over all processes and crashes at most ``steps`` steps are granted, less those that were
        given back. A step that was granted before a crash stays granted: only the object that took
        a lease holds the secret with which it is given back, and it does so once.
    """

    def __init__(self, ledger: Ledger, number: int, proof: str | None = None) -> None:
        """``proof`` is the secret of who leased before a crash, if it was kept."""
        self._ledger = ledger
        self._proof = proof or secrets.token_hex(16)
        self.number = number

    @property
    def state(self) -> ReservationState:
        """Where the reservation stood when the ledger was last read."""
        return self._ledger.books.reservations[self.number]

    @property
    def budget(self) -> Budget:
        """The budget that it is charged to."""
        return self._ledger.budget(self.state.budget)

    @property
    def epsilon(self) -> float:
        """The ε of the whole by itself, at ``delta``."""
        return self.state.charge.epsilon

    @property
    def delta(self) -> float:
        """The δ that goes with ``epsilon``: charged with it, or the budget's own."""
        return self.state.charge.delta

    @property
    def steps(self) -> int:
        """How many steps the whole has."""
        return self.state.steps

    @property
    def granted(self) -> int:
        """How many of them were granted so far."""
        return self.state.granted

    @property
    def left(self) -> int:
        """How many can still be granted; none after ``end``."""
        return self.state.left

    @property
    def leased(self) -> int:
        """How many of them this object's secret was granted and has not given back."""
        return self.state.leases.get(holder_of(self._proof), 0)

    def lease(self, steps: int, after: int | None = None) -> int:
        """Grants up to ``steps`` more steps, and returns how many; 0 when none is left.

        With ``after`` it grants nothing unless exactly that many were granted before: whoever
        believes to be alone with the reservation finds out if another uses it.

        Guarantee: what is returned is written and synced, and anchored, before it is returned.
        Threads and processes may call this at once; each step is granted once.
        """
        asked = whole("steps", steps)
        before = None if after is None else whole("after", after, at_least=0)

        def decide(books: Books) -> list[Draft]:
            known = books.reservations[self.number]
            if known.request is not None and not known.taken:
                raise InvalidArgument(
                    f"reservation {self.number} is held for request {known.request}; draw on it "
                    f"with: tacit train RECIPE --request {known.request}"
                )
            expected = before is None or known.granted == before
            granted = min(asked, known.left) if expected else 0
            if not granted:
                return []
            return [self._draft(known, "lease", steps=granted, holder=holder_of(self._proof))]

        entries = self._ledger.append(decide)
        return int(entries[0].data["steps"]) if entries else 0

    def give_back(self, steps: int, after: int | None = None) -> None:
        """Takes back ``steps`` steps that this object leased and did not use, at a clean exit.

        They can be leased again; the whole stays charged. After a crash nobody can tell what was
        used, and nothing can be given back. With ``after`` nothing is, unless exactly that many are
        granted: the steps of whoever came later would be counted again.
        """
        back = whole("steps", steps, at_least=0)
        before = None if after is None else whole("after", after, at_least=0)

        def decide(books: Books) -> list[Draft]:
            known = books.reservations[self.number]
            if before is not None and known.granted != before:
                return []
            held = 0 if known.ended else known.leases.get(holder_of(self._proof), 0)
            if back > held:
                raise InvalidArgument(
                    f"steps must be at most the {held} that this object leased and has not given "
                    f"back, got {steps!r}"
                )
            return [self._draft(known, "give-back", steps=back, proof=self._proof)] if back else []

        if self._ledger.append(decide):
            self._proof = secrets.token_hex(16)  # the old one is public now

    def end(self) -> None:
        """Grants nothing more. One that ends without a step granted is no longer charged.

        Plans that were declared together all stay charged once one of them has released something.
        """

        def decide(books: Books) -> list[Draft]:
            known = books.reservations[self.number]
            return [] if known.ended else [self._draft(known, "end")]

        self._ledger.append(decide)

    def _draft(self, known: ReservationState, kind: str, **body: int | str) -> Draft:
        return Draft(known.budget, kind, {"reservation": self.number, **body})

    def __repr__(self) -> str:
        known = self.state
        return (
            f"Reservation({self.number} of {known.budget!r}: {known.granted} of {known.steps} "
            "steps granted)"
        )
