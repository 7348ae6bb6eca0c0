"""``audit.json``: what an audit found, read as something that anybody may have written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from tacit._files import read_json
from tacit.auditing import LowerBound, Verdict
from tacit.errors import CheckpointError, TacitError
from tacit.recipes.auditing.audited import FILE, FORMAT, VERSION, Kind

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FILE", "AttackFile", "AuditFile", "read", "read_plain"]
LARGEST: Final = 4 << 20
LONGEST: Final = 1000  # letters of one text
MOST: Final = 64  # attacks, notes, settings
POINTS: Final = 2000  # of one curve
Point = tuple[float, float, float, float]


@dataclass(frozen=True)
class AttackFile:
    """One attack; ``found`` has false-positive rates with (observed, lower, upper)."""

    name: str
    model: str
    members: int
    others: int
    auc: tuple[float, float, float]
    advantage: tuple[float, float, float]
    found: tuple[tuple[float, tuple[float, float, float]], ...]
    roc: tuple[Point, ...]
    guaranteed: bool


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
    attacks: tuple[AttackFile, ...]
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
        verdict=None if plain["verdict"] is None else _verdict(plain["verdict"]),
        attacks=tuple(map(_attack, _list(plain["attacks"]))),
        settings={_text(name): _shown(value) for name, value in plain["settings"].items()},
        notes=tuple(map(_text, _list(plain["notes"]))),
        run={_text(name): _text(value) for name, value in (plain["run"] or {}).items()},
        event=None if claim is None else dict(claim["event"]),
        adjacency=None if claim is None else _text(claim["adjacency"]),
    )


def _verdict(plain: Mapping[str, Any]) -> Verdict:
    return Verdict(_at_least_0(plain["claimed"]), _bound(plain["shown"]), _bound(plain["decisive"]))


def _bound(plain: Mapping[str, Any]) -> LowerBound:
    return LowerBound(
        _at_least_0(plain["epsilon"]),
        _share(plain["delta"]),
        _share(plain["confidence"]),
        _text(plain["method"]),
        _text(plain["assumption"]),
    )


def _attack(plain: Mapping[str, Any]) -> AttackFile:
    rows = _list(plain["found"])
    return AttackFile(
        name=_text(plain["name"]),
        model=_text(plain["model"]),
        members=_count(plain["members"]),
        others=_count(plain["others"]),
        auc=_figure(plain["auc"]),
        advantage=_figure(plain["advantage"]),
        found=tuple((_share(one["fpr"]), _figure(one["tpr"])) for one in rows),
        roc=tuple(map(_point, _list(plain["roc"], POINTS))),
        guaranteed=bool(rows) and all(one["allowed"] is not None for one in rows),
    )


def _figure(plain: Mapping[str, Any]) -> tuple[float, float, float]:
    value, lower, upper = (_share(plain[name]) for name in ("value", "lower", "upper"))
    if not lower <= value <= upper:
        raise ValueError(f"an interval must hold its number, got {lower}, {value}, {upper}")
    return value, lower, upper


def _point(plain: Any) -> Point:
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
