"""Names that are imported when they are first used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import tacit.training
from tacit._lazy import lazily, lazy

LOOK = """
import sys, tacit.auditing.canaries, tacit.auditing.secrets, tacit.ledger as ledger
assert not {"torch", "sqlalchemy"} & {*sys.modules}
ledger.Ledger
assert "sqlalchemy" in sys.modules and "Ledger" in vars(ledger)
assert "torch" not in sys.modules
"""


def test_a_module_is_imported_with_the_first_use_of_its_name_and_kept() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_names_are_refused_as_python_does_it() -> None:
    with pytest.raises(AttributeError, match="module 'here' has no attribute 'name'"):
        lazily("here", {})("name")
    assert not hasattr(tacit.training, "no_such_name")


@pytest.mark.parametrize("name", ["tacit.convex", "tacit.ledger"])
def test_every_name_that_is_promised_is_found(name: str) -> None:
    package = importlib.import_module(name)
    find, names = lazy(name)
    assert set(package.__all__) <= set(names())
    assert all(find(one) is getattr(package, one) for one in package.__all__)


def test_the_list_of_names_is_read_only_when_one_is_looked_for() -> None:
    code = "import sys, tacit.ledger; sys.exit('ast' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
