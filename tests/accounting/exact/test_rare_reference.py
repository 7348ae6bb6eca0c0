"""Rare sampling, few steps, discrete noise and samples of fixed size, against 30-digit truths.

No upper end lies below, and no lower end above. The truths are those of
`benchmarks/accounting_rare_truth.py`, which shares no code with tacit.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tacit.accounting import (
    DiscreteGaussian,
    Event,
    Gaussian,
    PoissonSampled,
    Repeated,
    SampledWithoutReplacement,
    bounds,
)

_SETTINGS = json.loads((Path(__file__).parents[1] / "reference" / "rare.json").read_text())[
    "settings"
]


def _event(setting: dict[str, Any]) -> Event:
    sigma = setting["sigma"]
    match setting["kind"]:
        case "poisson-gaussian":
            step: Event = PoissonSampled(setting["q"], Gaussian(sigma))
        case "poisson-discrete-gaussian":
            step = PoissonSampled(setting["q"], DiscreteGaussian(sigma))
        case "discrete-gaussian":
            step = DiscreteGaussian(sigma, setting["sensitivity"])
        case _:
            step = SampledWithoutReplacement(
                setting["population"], setting["size"], Gaussian(sigma)
            )
    return Repeated(step, setting["steps"])


def _check(setting: dict[str, Any]) -> None:
    found = bounds(_event(setting), delta=setting["delta"])
    truth = Decimal(setting["epsilon"])
    assert Decimal(found.lower) <= truth <= Decimal(found.upper), setting
    if setting["kind"] == "fixed-size-gaussian":  # attained also by a record that is replaced
        replaced = bounds(_event(setting), delta=setting["delta"], adjacency="replace-one")
        assert Decimal(replaced.upper) >= truth, setting
        assert setting["steps"] > 1 or Decimal(replaced.lower) <= truth, setting


def test_enough_settings_are_recorded_with_enough_digits() -> None:
    assert len(_SETTINGS) >= 150
    for setting in _SETTINGS:
        directions = [Decimal(setting[name]) for name in setting if name.startswith("epsilon_")]
        assert Decimal(setting["epsilon"]) == max(directions, default=Decimal(setting["epsilon"]))
        assert len(Decimal(setting["epsilon"]).as_tuple().digits) >= 25 or not any(directions)


def _is_quick(setting: dict[str, Any]) -> bool:
    """Answered in milliseconds, and a few of each of the other kinds."""
    one = setting["steps"] == 1
    match setting["kind"]:
        case "poisson-gaussian":
            return one
        case "discrete-gaussian":
            return bool(setting["sigma"] >= 1.0)
        case "poisson-discrete-gaussian":
            return bool(setting["q"] == 0.01 and setting["sigma"] == 0.5 and setting["steps"] < 5)
        case _:
            return bool(setting["size"] == 5 and one)


def _name(setting: dict[str, Any]) -> str:
    return ",".join(f"{one}" for name, one in setting.items() if not name.startswith("epsilon"))


def test_settings_that_are_answered_at_once() -> None:
    quick = [setting for setting in _SETTINGS if _is_quick(setting)]
    assert len(quick) >= 70
    for setting in quick:
        _check(setting)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [one for one in _SETTINGS if not _is_quick(one)], ids=_name)
def test_all_settings(setting: dict[str, Any]) -> None:
    _check(setting)
