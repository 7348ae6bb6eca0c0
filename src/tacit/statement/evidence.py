"""What a reader may rely on: what is proved from the statement itself, and what is only claimed.

A proof says what follows from the event. That the event is what happened, nobody can compute from
a file: it is the word of whoever wrote it, with or without a signature.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, final

from tacit._numbers import compact, rounded_up
from tacit.statement.proof import steps_covered
from tacit.statement.words import VOID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.statement.claim import Statement

Standing = Literal["proved", "checked", "claimed"]
MEANINGS: dict[Standing, str] = {
    "proved": "computed again here, from the event in the statement",
    "checked": "compared with the file or the ledger itself",
    "claimed": "the word of whoever wrote the statement: nothing here can check it",
}


@final
@dataclass(frozen=True, slots=True)
class Assessed:
    """One thing that a statement says, and why a reader may or may not rely on it.

    Attributes:
        subject: What it is about, in a word or two.
        standing: ``"proved"``, ``"checked"`` or ``"claimed"``.
        what: What is said.
        how: How it was proved or checked, or why it could not be.
    """

    subject: str
    standing: Standing
    what: str
    how: str

    def as_dict(self) -> dict[str, str]:
        """The finding in JSON's types."""
        return asdict(self)


def findings(statement: Statement) -> Iterator[Assessed]:
    """All that follows from the statement alone; nothing of it is ``"checked"``."""
    yield from _proofs(statement)
    yield from _of_run(statement)
    yield Assessed(
        "whom it protects",
        "claimed",
        f"one {statement.unit} of the data is what a reader takes for one",
        "the data are not here",
    )
    for one in statement.preprocessing:
        if not one.charged:
            yield Assessed("preprocessing", "claimed", f"it depends on no data: {one.what}",
                          "no event is charged for it")  # fmt: skip
    if statement.tuning is not None:
        yield Assessed("tuning", "claimed", statement.tuning, "it is stated in words only")
    for name in statement.files:
        yield Assessed(name, "claimed", f"{name} is what was released", "the file was not compared")
    if statement.charge is not None or statement.ledger is not None:
        yield Assessed("ledger", "claimed", f"it is charged as {statement.ledger}",
                      "the ledger was not looked at")  # fmt: skip
    yield Assessed("signature", "claimed", *_signature(statement))


def _proofs(statement: Statement) -> Iterator[Assessed]:
    at = f"at δ = {compact(statement.delta, 10)} under {statement.adjacency}"
    if statement.void:
        yield Assessed("ε", "claimed", f"nothing is promised {at}", f"it says itself: {VOID}")
        return
    if math.isinf(statement.epsilon):
        yield Assessed("ε", "claimed", f"nothing is promised {at}", "it says that ε is infinite")
        return
    yield Assessed(
        "ε",
        "proved",
        f"the event's ε is at most {rounded_up(statement.epsilon)} {at}",
        f"by the accountant {statement.accountant!r}, computed again here",
    )
    yield Assessed(
        "other figures",
        "proved",
        "ε at other δ, μ and the limits of attacks are those of the event",
        "computed again here",
    )
    if statement.data_dependent is not None:
        yield Assessed(
            "data-dependent ε",
            "claimed",
            "its divergence was released with noise, as it says",
            "only its conversion to ε was computed again",
        )


def _of_run(statement: Statement) -> Iterator[Assessed]:
    if statement.plan is None:
        yield Assessed(
            "event",
            "claimed",
            "the event is all that was released of the data",
            "no plan is stated from which it could be derived",
        )
        return
    taken, lost, covered = statement.steps_taken, statement.steps_lost, steps_covered(statement)
    gone = f" and {lost:,} lost" if lost else ""
    yield Assessed(
        "event",
        "proved",
        f"the event is that of {covered:,} steps of the plan, and covers the {taken:,} taken{gone}",
        "derived again from the plan",
    )
    if covered < (statement.steps_planned or 0):
        yield Assessed(
            "early end",
            "claimed",
            f"the end after {covered:,} of {statement.steps_planned:,} steps was fixed in advance",
            "otherwise the whole plan would have to be charged",
        )
    yield Assessed(
        "plan",
        "claimed",
        f"the run sampled, clipped and added noise as the plan says, {taken:,} times{gone}, and "
        "released nothing else of the data",
        "only whoever ran it can know; audits look for the opposite",
    )


def _signature(statement: Statement) -> tuple[str, str]:
    signature = statement.signature
    if signature is None:
        return "not signed", "anybody may have written it"
    if not statement.signature_fits():
        return "SIGNATURE DOES NOT FIT", "the statement was changed, or signed by somebody else"
    return (
        f"signed by {signature.signer}",
        "the signature fits this key; whose key it is, and that they say the truth, is not proved",
    )
