"""What an audit came to, and ``audit.json``: how it is written, and how it is read again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, final, get_args

from tacit._files import read_json
from tacit.auditing import LowerBound, Verdict
from tacit.errors import CheckpointError, TacitError
from tacit.runs import claims

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tacit.accounting import Adjacency


# ---- what is written

FILE: Final = "audit.json"
FORMAT: Final = "tacit-audit"
VERSION: Final = 1
SECRET: Final = (
    "These figures were computed from private records. They are no part of what was released with "
    "differential privacy, and the guarantee does not cover them: keep them with the data."
)
NO_PROOF: Final = (
    "No contradiction is no proof: a stronger attack may find what these did not. The proof is the "
    "accountant's upper bound."
)
Kind = Literal["run", "recipe", "one-run", "experiment", "engine", "mechanism"]
Point = tuple[float, float, float, float]
"""Of an attack's curve: false-positive rate, true-positive rate, and the ends of its band."""


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """A number with the ends of its interval, at 95 % confidence."""

    value: float
    lower: float
    upper: float


@final
@dataclass(frozen=True, slots=True)
class HitRate:
    """The share of members that an attack finds at a rate of false alarms.

    ``allowed`` is the most that the guarantee allows, if there is one.
    """

    fpr: float
    tpr: Figure
    allowed: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AttackFigures:
    """How one attack did on one model, or on several alike.

    Args:
        name: The attack.
        model: What it attacked, in words.
        members: How many scores of members there are.
        others: How many of others.
        auc: The area under its curve.
        advantage: Its largest true-positive less false-positive rate.
        found: What it finds at a few rates of false alarms.
        roc: Its curve.
    """

    name: str
    model: str
    members: int
    others: int
    auc: Figure
    advantage: Figure
    found: tuple[HitRate, ...]
    roc: tuple[Point, ...]


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
    attacks: tuple[AttackFigures, ...] = ()
    details: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()
    private: bool = True

    @property
    def exit_status(self) -> int:
        """1 if the claim is contradicted, else 0."""
        return int(self.contradicted)

    def as_dict(self, command: Sequence[str] = ()) -> dict[str, Any]:
        """The audit in JSON's types, as it is read again: lists where tuples were."""
        plain = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "subject": self.subject,
            "contradicted": self.contradicted,
            "words": self.words,
            "verdict": None if self.verdict is None else _plain_verdict(self.verdict),
            "curve_p_value": self.curve_p_value,
            "claim": None if self.claim is None else asdict(self.claim),
            "attacks": [asdict(one) for one in self.attacks],
            "details": [dict(one) for one in self.details],
            "settings": dict(self.settings),
            "run": None if self.run is None else dict(self.run),
            "notes": list(self.notes),
            "secret": SECRET if self.private else None,
            "command": list(command),
            "versions": claims.versions(),
        }
        found: dict[str, Any] = json.loads(json.dumps(plain, allow_nan=False))
        return found


def to_json(audited: Audited, command: Sequence[str] = ()) -> str:
    """The text of ``audit.json``."""
    return json.dumps(audited.as_dict(command), indent=2, ensure_ascii=False, allow_nan=False)


def _plain_verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "claimed": verdict.claimed,
        "shown": verdict.shown.as_dict(),
        "decisive": verdict.decisive.as_dict(),
    }


# ---- what is read: a file that anybody may have written

LARGEST: Final = 4 << 20
LONGEST: Final = 1000  # letters of one text
MOST: Final = 64  # attacks, notes, settings
POINTS: Final = 2000  # of one curve


@dataclass(frozen=True)
class AuditFile:
    """An audit; ``event`` is what the claim follows from, not yet looked at.

    Guarantee:
        Every text is one and not long, every number is finite and in its range, and whether the
        claim is contradicted follows from the numbers. That the numbers are those of the attack is
        nothing that the file can prove.
    """

    kind: Kind
    subject: str
    verdict: Verdict | None
    attacks: tuple[AttackFigures, ...]
    settings: Mapping[str, str]
    notes: tuple[str, ...]
    run: Mapping[str, str]
    event: Mapping[str, Any] | None
    adjacency: str | None


def read(path: Path) -> AuditFile:
    """Reads ``path``.

    Raises:
        CheckpointError: with one line that names the file.
    """
    try:
        return read_plain(read_json(path, most=LARGEST))
    except CheckpointError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError,
            RecursionError, TacitError) as error:  # fmt: skip
        line = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{path} is refused: {type(error).__name__}: {line}; remove it, or audit again"
        ) from None


def read_plain(plain: Any) -> AuditFile:
    """The same of what was read; raises ValueError, TypeError or KeyError for what is none."""
    if not isinstance(plain, Mapping) or plain["format"] != FORMAT or plain["version"] != VERSION:
        raise ValueError("it was not written by this tacit")
    kind = plain["kind"]
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}")
    claim = plain["claim"]
    return AuditFile(
        kind=kind,
        subject=_text(plain["subject"]),
        verdict=None if plain["verdict"] is None else _read_verdict(plain["verdict"]),
        attacks=tuple(map(_read_attack, _list(plain["attacks"]))),
        settings={_text(name): _shown(value) for name, value in plain["settings"].items()},
        notes=tuple(map(_text, _list(plain["notes"]))),
        run={_text(name): _text(value) for name, value in (plain["run"] or {}).items()},
        event=None if claim is None else dict(claim["event"]),
        adjacency=None if claim is None else _text(claim["adjacency"]),
    )


def _read_verdict(plain: Mapping[str, Any]) -> Verdict:
    return Verdict(
        _at_least_0(plain["claimed"]), _read_bound(plain["shown"]), _read_bound(plain["decisive"])
    )


def _read_bound(plain: Mapping[str, Any]) -> LowerBound:
    return LowerBound(
        _at_least_0(plain["epsilon"]),
        _share(plain["delta"]),
        _share(plain["confidence"]),
        _text(plain["method"]),
        _text(plain["assumption"]),
    )


def _read_attack(plain: Mapping[str, Any]) -> AttackFigures:
    return AttackFigures(
        name=_text(plain["name"]),
        model=_text(plain["model"]),
        members=_count(plain["members"]),
        others=_count(plain["others"]),
        auc=_read_figure(plain["auc"]),
        advantage=_read_figure(plain["advantage"]),
        found=tuple(map(_read_hit_rate, _list(plain["found"]))),
        roc=tuple(map(_read_point, _list(plain["roc"], POINTS))),
    )


def _read_hit_rate(plain: Mapping[str, Any]) -> HitRate:
    allowed = plain["allowed"]
    return HitRate(
        _share(plain["fpr"]),
        _read_figure(plain["tpr"]),
        None if allowed is None else _share(allowed),
    )


def _read_figure(plain: Mapping[str, Any]) -> Figure:
    value, lower, upper = (_share(plain[name]) for name in ("value", "lower", "upper"))
    if not lower <= value <= upper:
        raise ValueError(f"an interval must hold its number, got {lower}, {value}, {upper}")
    return Figure(value, lower, upper)


def _read_point(plain: Any) -> Point:
    fpr, tpr, lower, upper = map(_share, _list(plain, 4))
    if not lower <= tpr <= upper:
        raise ValueError(f"a band must hold its curve, got {lower}, {tpr}, {upper}")
    return fpr, tpr, lower, upper


def _list(value: Any, most: int = MOST) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"it must have lists of {most} entries at most")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        raise ValueError(f"it must have texts of {LONGEST} letters at most")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"it must have finite numbers, got {str(value)[:40]!r}")
    return float(value)


def _share(value: Any) -> float:
    if not 0.0 <= _number(value) <= 1.0:
        raise ValueError(f"rates and confidences must lie between 0 and 1, got {value!r}")
    return float(value)


def _at_least_0(value: Any) -> float:
    if _number(value) < 0.0:
        raise ValueError(f"epsilon must be 0 or more, got {value!r}")
    return float(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 < value < 10**12:
        raise ValueError(f"numbers of scores must be positive and whole, got {str(value)[:40]!r}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, _list(value)))
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(name)} = {_shown(one)}" for name, one in value.items())
    return "none" if value is None else _text(value if isinstance(value, str) else repr(value))
