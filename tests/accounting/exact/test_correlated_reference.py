"""Runs with correlated noise against values of 25 digits that share no code with tacit."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.accounting import Gaussian, bounds
from tacit.training import Cyclic

_PATH = Path(__file__).parents[1] / "reference" / "correlated.json"
_DATA: dict[str, Any] = json.loads(_PATH.read_text())
_WHOLE, _COINS = _DATA["whole groups"], _DATA["coins"]


def _correlation(kind: str, name: str) -> Any:
    given = _DATA["coefficients"][kind][name]
    if kind == "Buffered":
        scales, decays = (tuple(map(float, part)) for part in given)
        return tacit.Buffered(len(scales), scales=scales, decays=decays)
    numbers = tuple(map(float, given))
    make = tacit.Banded if kind == "Banded" else tacit.InverseBanded
    return make(len(numbers), coefficients=numbers)


def _check(plan: tacit.Plan, row: dict[str, Any]) -> None:
    found, truth = bounds(plan.event, row["delta"]), Fraction(row["epsilon"])
    # The event of whole groups is the run with its sensitivity rounded up, and so is its lower end.
    slack = Fraction(1, 10**9) if isinstance(plan.event, Gaussian) else 0
    assert Fraction(found.lower) <= truth * (1 + slack)
    assert truth <= Fraction(found.upper)
    assert found.upper <= float(truth) * (1.0 + 1e-6) + 1e-9
    assert plan.epsilon(row["delta"]) >= float(truth) * (1.0 - 1e-15)


def _name(row: dict[str, Any]) -> str:
    return " ".join(str(row[key]) for key in ("name", "steps", "delta"))


@pytest.mark.parametrize("row", _WHOLE, ids=_name)
def test_whole_groups(row: dict[str, Any]) -> None:
    plan = tacit.Plan(
        examples=10 * row["groups"], lot_size=10, steps=row["steps"], clip=1.0,
        noise_multiplier=row["sigma"], correlation=_correlation(row["kind"], row["name"]),
        sampling=None if row["groups"] == 1 else Cyclic(),  # type: ignore[arg-type]
    )  # fmt: skip
    assert plan.groups == row["groups"]
    _check(plan, row)


@pytest.mark.parametrize("row", _COINS, ids=_name)
def test_groups_that_are_sampled(row: dict[str, Any]) -> None:
    correlation = _correlation("Banded", row["name"])
    steps = max(row["steps"], correlation.bands)
    plan = tacit.Plan(
        examples=1_000, lot_size=1_000 * row["rate"], steps=steps, clip=1.0,
        noise_multiplier=row["sigma"], correlation=correlation,
    )  # fmt: skip
    assert plan.group_rate == pytest.approx(row["rate"] * correlation.bands, rel=1e-15)
    _check(plan, row)


def test_there_are_enough() -> None:
    assert len(_WHOLE) + len(_COINS) >= 36
