"""An audit's folder: what it keeps until the end, and what it leaves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.recipes.auditing.audit_file import SECRET, Audited
from tacit.recipes.auditing.audit_folder import audit_folder

if TYPE_CHECKING:
    from pathlib import Path

DONE = Audited(kind="recipe", subject="digits", words="nothing was found", contradicted=False)
OWN = {"recipe": "digits"}


def test_nothing_is_kept_without_a_folder() -> None:
    with audit_folder(None) as work:
        assert work.models(OWN) is None
        assert work.seed(None, OWN) != work.seed(None, OWN)
        assert work.seed(3, OWN) == 3
        work.conclude(DONE, ())


def test_a_fresh_seed_and_a_result_are_found_again(tmp_path: Path) -> None:
    calls = []

    def compute() -> np.ndarray:
        calls.append(1)
        return np.ones((2, 2), dtype=np.float32)

    found = []
    for _ in range(2):
        with audit_folder(tmp_path / "out") as work:
            found.append(work.seed(None, OWN))
            work.kept("target", OWN, compute)
            assert work.seed(None, {"recipe": "another"}) != found[0]
    assert found[0] == found[1]
    assert len(calls) == 1


def test_the_end_leaves_the_audit_alone(tmp_path: Path) -> None:
    with audit_folder(tmp_path / "out") as work:
        place = work.models(OWN)
        assert place is not None
        assert place.parent.stat().st_mode & 0o077 == 0
        work.conclude(DONE, ("tacit", "audit", "digits"))
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["audit.json"]
    plain = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert plain == DONE.as_dict(("tacit", "audit", "digits"))
    assert plain["secret"] == SECRET
    assert plain["versions"]["tacit"]


def test_a_refusal_leaves_no_new_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument), audit_folder(tmp_path / "a" / "b"):
        raise InvalidArgument("no")
    assert not (tmp_path / "a").exists()


def test_two_audits_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        audit_folder(tmp_path / "out"),
        pytest.raises(InvalidArgument, match="in use"),
        audit_folder(tmp_path / "out"),
    ):
        pass
