"""Names that are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tacit.training
from tacit._lazy import lazily

LOOK = """
import sys, tacit.auditing.canaries as canaries, tacit.auditing.secrets
assert "torch" not in sys.modules
canaries.white_box
assert "torch" in sys.modules and "white_box" in vars(canaries)
"""


def test_a_module_is_imported_with_the_first_use_of_its_name_and_kept() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_names_are_refused_as_python_does_it() -> None:
    with pytest.raises(AttributeError, match="module 'here' has no attribute 'name'"):
        lazily("here", {})("name")
    assert not hasattr(tacit.training, "no_such_name")
