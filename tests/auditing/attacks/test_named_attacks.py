"""Attacks by name do what the functions do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tacit.auditing.attacks import (
    ATTACKS,
    Roc,
    calibrated,
    find,
    lira,
    loss_threshold,
    rmia,
    shadow_classifier,
    split,
)
from tacit.errors import InvalidArgument

from .gaussians import toy


@pytest.fixture(autouse=True)
def a_short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tacit.auditing.attacks.classifier"], "_STEPS", 60)


def test_by_name() -> None:
    shadows = toy(1, models=10, examples=50, shift=2.0)
    target = shadows.model(0)
    expected = {
        "lira": lira(target, shadows, fixed_variance=True),
        "lira-offline": lira(target, shadows, online=False, fixed_variance=True),
        "rmia": rmia(target, shadows),
        "rmia-offline": rmia(target, shadows, online=False),
        "calibrated": calibrated(target, shadows),
        "shadow-classifier": shadow_classifier(target, shadows),
        "loss": loss_threshold(target),
    }
    for name, scores in expected.items():
        np.testing.assert_array_equal(ATTACKS[name](target, shadows), scores)
        assert find(name).name == name


def test_with_many_models_each_example_has_its_variance() -> None:
    shadows = toy(1, models=64, examples=20, shift=2.0)
    target = shadows.model(0)
    np.testing.assert_array_equal(ATTACKS["lira"](target, shadows), lira(target, shadows))


@pytest.mark.parametrize("name", list(ATTACKS))
def test_each_tells_members_by_all_models(name: str) -> None:
    shadows = toy(2, models=10, examples=60, shift=3.0, spread=1.0)
    scores = ATTACKS[name].each(shadows)
    assert scores.shape == (10, 60)
    if name != "confidence":  # a model may be sure of the wrong class
        assert Roc(split(scores, shadows.members)).auc().value > 0.8
    assert ATTACKS[name].says


def test_who_needs_shadow_models() -> None:
    target = toy(1, models=4, examples=5, shift=1.0).model(0)
    for name, attack in ATTACKS.items():
        if attack.needs_shadows:
            with pytest.raises(InvalidArgument, match=f"attack '{name}' needs shadow models"):
                attack(target)
        else:
            assert attack(target).shape == (5,)


def test_no_such_attack() -> None:
    with pytest.raises(InvalidArgument, match=r"attack must be one of lira, .*got 'guess'"):
        find("guess")


def test_pytorch_is_not_imported_by_the_room() -> None:
    code = "import sys, tacit.auditing.attacks; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
