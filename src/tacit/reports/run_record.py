"""Whether a run's record holds what it should: texts where words go, numbers where numbers go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.recipes.running.record import Record


def check_record(record: Record, path: Path) -> None:
    """Refuses, with one line, a record with values of the wrong kind."""
    for name, fits, wanted in _demands(record):
        if not fits:
            raise CheckpointError(f"{path} is not the record of a run: {name} must be {wanted}")


def _demands(record: Record) -> list[tuple[str, bool, str]]:
    data = record.data if isinstance(record.data, Mapping) else {}
    accuracy = record.test_accuracy
    found = [
        (name, isinstance(getattr(record, name), str), "a text")
        for name in ("recipe", "summary", "device", "tuning")
    ]
    found += [(name, _number(getattr(record, name)), "a number") for name in ("epsilon", "delta")]
    return [
        *found,
        ("settings", _scalars(record.settings), "numbers and texts by name"),
        ("versions", _texts_by_name(record.versions), "texts by name"),
        ("command", _texts(record.command), "texts"),
        ("notes", _texts(record.notes), "texts"),
        ("anchors", all(map(_anchor, record.anchors)), "published results"),
        ("search", isinstance(record.search, Mapping | None), "a table or null"),
        ("winner", record.winner is None or _scalars(record.winner), "settings or null"),
        ("plan", isinstance(record.plan, Mapping | None), "a plan or null"),
        ("data", _data(data), "a name, files with checksums, and numbers of examples"),
        ("finished", isinstance(record.finished, bool), "true or false"),
        (
            "test_accuracy",
            (accuracy is None and not record.finished)
            or (_number(accuracy) and 0.0 <= float(accuracy or 0.0) <= 1.0),
            "a number between 0 and 1",
        ),
    ]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


def _texts(values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(one, str) for one in values)


def _texts_by_name(values: object) -> bool:
    return isinstance(values, Mapping) and all(
        isinstance(one, str) for pair in values.items() for one in pair
    )


def _scalars(values: object) -> bool:
    return isinstance(values, Mapping) and all(
        isinstance(name, str) and (isinstance(value, str | bool | None) or _number(value))
        for name, value in values.items()
    )


def _anchor(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and all(_number(value.get(name)) for name in ("epsilon", "accuracy"))
        and all(isinstance(value.get(name), str) for name in ("source", "shortcuts"))
    )


def _data(data: Mapping[str, object]) -> bool:
    return (
        isinstance(data.get("name"), str)
        and _texts_by_name(data.get("files"))
        and all(type(data.get(name)) is int for name in ("train", "test"))
    )
