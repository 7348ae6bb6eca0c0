"""The recipes by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tacit.data import names as data_names
from tacit.errors import InvalidArgument
from tacit.recipes import find, names
from tacit.recipes.catalogue import MODULES
from tacit.runs.settings import changed
from tacit.runs.settings import names as setting_names


@pytest.mark.parametrize("name", names())
def test_every_recipe_is_complete(name: str) -> None:
    recipe = find(name)
    assert recipe.name == name
    assert recipe.data in data_names()
    assert recipe.summary
    assert recipe.tuning
    for epsilon in (0.5, 1.0, 2.0, 3.0, 8.0):
        settings = recipe.settings(epsilon)
        assert {"epochs", "lot", "clip", "lr"} & {*setting_names(settings)} or "logistic" in name
        assert changed(settings, {}) == settings
    module = sys.modules[f"tacit.recipes.{MODULES[name]}"]
    first = (module.__doc__ or "").splitlines()[0]
    assert f"tacit train {name} --epsilon" in first
    for anchor in recipe.anchors:
        assert 0 < anchor.epsilon < 10
        assert 50 < anchor.accuracy < 100
        assert anchor.source
        assert anchor.shortcuts


def test_unknown_names_are_refused_with_a_close_one() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'mnist-abadi'"):
        find("mnist-abady")
    with pytest.raises(InvalidArgument, match="there are digits, "):
        find("../os")


def test_names_cost_no_pytorch() -> None:
    code = "import sys, tacit.recipes as r; r.names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=600, check=False).returncode == 0
