"""What makes a statement well formed; whether it is true is for its proof."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.statement.claim import Statement

_TEXTS = ("sampling", "noise", "tacit_version")
_OPTIONAL_TEXTS = (
    "torch_version",
    "ledger",
    "stopped_early",
    "threat_model",
    "tuning",
    "randomness",
)


def own(name: str, value: object) -> dict[str, Any]:
    """A copy in JSON's types, so that nobody else can change it."""
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        copy = None
    if not isinstance(copy, dict):
        raise InvalidArgument(f"{name} must be a dictionary in JSON's types, got {value!r}")
    return copy


def texts(name: str, values: object) -> tuple[str, ...]:
    """``values`` as a tuple, if all of them are texts."""
    given = tuple(values) if isinstance(values, list | tuple) else (None,)
    if not all(isinstance(one, str) for one in given):
        raise InvalidArgument(f"{name} must be a tuple of texts, got {values!r}")
    return given


def versions_of(value: object) -> dict[str, str]:
    """A copy of a dictionary of texts."""
    if not isinstance(value, dict) or not all(
        isinstance(one, str) for pair in value.items() for one in pair
    ):
        raise InvalidArgument(f"versions must map names to versions, got {value!r}")
    return dict(value)


def check_texts(statement: Statement) -> None:
    """Refuses fields that should be words and are not."""
    for name in _TEXTS:
        if not isinstance(getattr(statement, name), str):
            raise InvalidArgument(f"{name} must be a text, got {getattr(statement, name)!r}")
    for name in _OPTIONAL_TEXTS:
        value = getattr(statement, name)
        if not isinstance(value, str | None):
            raise InvalidArgument(f"{name} must be a text or None, got {value!r}")
    digest = statement.configuration
    if digest is not None and not (
        isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest)
    ):
        raise InvalidArgument(
            f"configuration must be a SHA-256 in 64 small hexadecimal digits, got {digest!r}"
        )


def check_steps(planned: int | None, taken: int | None, stopped_early: str | None) -> None:
    """Refuses numbers of steps that cannot be, and a run cut short without its rule."""
    if (planned is None) != (taken is None):
        raise InvalidArgument(
            f"steps_planned and steps_taken go together, got {planned!r} and {taken!r}"
        )
    early = False
    if planned is not None and taken is not None:
        whole("steps_planned", planned)
        if whole("steps_taken", taken, at_least=0) > planned:
            raise InvalidArgument(f"steps_taken must be at most {planned}, got {taken!r}")
        early = taken < planned
    if early != bool(stopped_early):
        raise InvalidArgument(
            "stopped_early must say which rule applies if fewer steps were taken than planned, and "
            f"only then, got {stopped_early!r} after {taken!r} of {planned!r} steps"
        )


def check_plan(statement: Statement) -> None:
    """Whatever plan and statement both tell must be the same."""
    told: Mapping[str, object] = {
        "adjacency": statement.adjacency,
        "unit": statement.unit,
        "steps": statement.steps_planned,
    }
    plan = statement.plan or {}
    for name, value in told.items():
        if name in plan and plan[name] != value:
            raise InvalidArgument(f"{name} must be as in the plan, {plan[name]!r}, got {value!r}")
