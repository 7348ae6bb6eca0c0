"""No upper end below, no lower end above, a 40-digit reference (tests/accounting/reference)."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tacit.accounting import Composed, Gaussian, PoissonSampled, Repeated, bounds

_REFERENCE = Path(__file__).parents[1] / "reference"


def _load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((_REFERENCE / name).read_text())
    return loaded


_SETTINGS = _load("poisson_gaussian.json")["settings"]
_PEERS = [setting for setting in _SETTINGS if setting["group"] == "peers"]
_OTHERS = [setting for setting in _SETTINGS if setting["group"] != "peers"]


def _run(setting: dict[str, Any]) -> Repeated:
    step = PoissonSampled(setting["q"], Gaussian(setting["sigma"]))
    return Repeated(step, setting["steps"])


def _name(setting: dict[str, Any]) -> str:
    rate, sigma, delta = setting["q"], setting["sigma"], setting["delta"]
    return f"q={rate:.3g},s={sigma:.3g},T={setting['steps']},d={delta:.1e}"


def _check(setting: dict[str, Any]) -> None:
    found = bounds(_run(setting), delta=setting["delta"])
    truth = Decimal(setting["epsilon"])
    assert Decimal(found.lower) <= truth <= Decimal(found.upper)


def test_enough_settings_are_recorded() -> None:
    assert len(_SETTINGS) >= 300


@pytest.mark.parametrize("setting", _PEERS, ids=_name)
def test_rows_of_the_peers_table(setting: dict[str, Any]) -> None:
    _check(setting)
    found = bounds(_run(setting), delta=setting["delta"])
    assert found.two_sided
    assert found.width <= 1e-8 * max(1.0, found.upper)


@pytest.mark.parametrize("setting", _OTHERS[:50], ids=_name)
def test_fifty_settings(setting: dict[str, Any]) -> None:
    _check(setting)


@pytest.mark.slow
@pytest.mark.parametrize("setting", _OTHERS[50:], ids=_name)
def test_all_settings(setting: dict[str, Any]) -> None:
    _check(setting)


def test_hundred_different_phases() -> None:
    (row,) = _load("poisson_gaussian.json")["heterogeneous"]
    run = Composed(*(_run(phase) for phase in row["phases"]))
    found = bounds(run, delta=row["delta"])
    assert Decimal(found.lower) <= Decimal(row["epsilon"]) <= Decimal(found.upper)
    assert found.width <= 1e-8 * found.upper


@pytest.mark.parametrize("setting", _load("replace_one.json")["settings"], ids=_name)
def test_replace_one(setting: dict[str, Any]) -> None:
    found = bounds(_run(setting), delta=setting["delta"], adjacency="replace-one")
    assert Decimal(found.lower) <= Decimal(setting["epsilon"]) <= Decimal(found.upper)
