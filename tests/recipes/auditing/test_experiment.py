"""Experiments by name; listing them costs no import of PyTorch."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from tacit import data
from tacit.errors import InvalidArgument
from tacit.recipes.auditing.experiment import Picture, find, names


@pytest.mark.parametrize("name", names())
def test_every_experiment_is_whole(name: str) -> None:
    found = find(name)
    assert found.name == name
    assert found.data in data.names()
    assert found.picture in get_args(Picture)


def test_an_unknown_one() -> None:
    with pytest.raises(InvalidArgument, match="there is no experiment 'mnist'; there are mnist-me"):
        find("mnist")


def test_listing_does_not_import_pytorch() -> None:
    code = (
        "import sys; from tacit.recipes.auditing import names; names();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=600, check=False).returncode == 0
