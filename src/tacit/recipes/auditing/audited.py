"""What an audit came to: numbers, a verdict in words, and the file ``audit.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, final

from tacit.runs import claims

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tacit.accounting import Adjacency
    from tacit.auditing import Verdict

FILE: Final = "audit.json"
FORMAT: Final = "tacit-audit"
VERSION: Final = 1
PRIVATE: Final = (
    "These figures were computed from private records. They are no part of what was released with "
    "differential privacy, and the guarantee does not cover them: keep them with the data."
)
NO_PROOF: Final = (
    "No contradiction is no proof: a stronger attack may find what these did not. The proof is the "
    "accountant's upper bound."
)
Kind = Literal["run", "recipe", "one-run", "experiment", "engine", "mechanism"]


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """A number with the ends of its interval, at 95 % confidence."""

    value: float
    lower: float
    upper: float


@final
@dataclass(frozen=True, slots=True)
class Found:
    """The share of members that an attack finds at a rate of false alarms.

    ``allowed`` is the most that the guarantee allows, if there is one.
    """

    fpr: float
    tpr: Figure
    allowed: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """How one attack did on one model, or on several alike.

    Args:
        name: The attack.
        model: What it attacked, in words.
        members: How many scores of members there are.
        others: How many of others.
        auc: The area under its curve.
        advantage: Its largest true-positive less false-positive rate.
        found: What it finds at a few rates of false alarms.
        roc: Its curve, as (false-positive rate, true-positive rate, lower end, upper end).
    """

    name: str
    model: str
    members: int
    others: int
    auc: Figure
    advantage: Figure
    found: tuple[Found, ...]
    roc: tuple[tuple[float, float, float, float], ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is claimed of the audited model, with the event that it follows from."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    event: Mapping[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audited:
    """An audit that has come to its end.

    Args:
        kind: What was audited.
        subject: Its name.
        words: The verdict in words.
        contradicted: Whether the evidence contradicts the claim, or a self-test failed.
        verdict: The verdict in numbers, where a claim was held against a bound.
        curve_p_value: How likely the guesses are, at most, under the claim's whole trade-off
            curve, where that was tested.
        claim: The claim.
        attacks: How the attacks did.
        details: Further findings as rows of one table.
        settings: How the audit was made: seeds, numbers of models and records.
        run: Of which run it is: its configuration and its model's checksum.
        notes: What a reader should know.
        private: Whether it was computed from private records.
    """

    kind: Kind
    subject: str
    words: str
    contradicted: bool
    verdict: Verdict | None = None
    curve_p_value: float | None = None
    claim: Claim | None = None
    attacks: tuple[Attack, ...] = ()
    details: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()
    private: bool = True

    @property
    def exit_status(self) -> int:
        """1 if the claim is contradicted, else 0."""
        return int(self.contradicted)

    def to_plain(self, command: Sequence[str] = ()) -> dict[str, Any]:
        """The audit in JSON's types, as it is read again: lists where tuples were."""
        plain = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "subject": self.subject,
            "contradicted": self.contradicted,
            "words": self.words,
            "verdict": None if self.verdict is None else _verdict(self.verdict),
            "curve_p_value": self.curve_p_value,
            "claim": None if self.claim is None else asdict(self.claim),
            "attacks": [asdict(one) for one in self.attacks],
            "details": [dict(one) for one in self.details],
            "settings": dict(self.settings),
            "run": None if self.run is None else dict(self.run),
            "notes": list(self.notes),
            "private": PRIVATE if self.private else None,
            "command": list(command),
            "versions": claims.versions(),
        }
        found: dict[str, Any] = json.loads(json.dumps(plain, allow_nan=False))
        return found


def to_json(audited: Audited, command: Sequence[str] = ()) -> str:
    """The text of ``audit.json``."""
    return json.dumps(audited.to_plain(command), indent=2, ensure_ascii=False, allow_nan=False)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "claimed": verdict.claimed,
        "shown": verdict.shown.to_plain(),
        "decisive": verdict.decisive.to_plain(),
    }
