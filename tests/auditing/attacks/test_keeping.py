"""The folder of shadow models: whole files, for one run, for its owner."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tacit.auditing.attacks.keeping import RECORD, WARNING, Folder
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

LOGITS = np.arange(6, dtype=np.float32).reshape(3, 1, 2)


def begun(path: Path) -> Folder:
    folder = Folder(path)
    with folder.opened():
        assert folder.settings() is None
        folder.begin({"seed": 1})
    return folder


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    folder = begun(tmp_path / "new" / "folder")
    folder.add(3, LOGITS)
    folder.add(0, 2 * LOGITS)
    again = Folder(tmp_path / "new" / "folder")
    with again.opened():
        assert again.settings() == {"seed": 1}
        found = again.models()
    assert list(found) == [0, 3]
    np.testing.assert_array_equal(found[3], LOGITS)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    place = tmp_path / "shadows"
    begun(place).add(0, LOGITS)
    assert place.stat().st_mode & 0o077 == 0
    for path in place.iterdir():
        assert path.stat().st_mode & 0o077 == 0
    assert "private" in (place / WARNING).read_text()


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(CheckpointError, match=r"holds 'thesis\.tex' and no shadow models"):
        begun(tmp_path)
    assert not (tmp_path / RECORD).exists()


def test_a_draft_does_not_count(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    (tmp_path / "model-000002.npy.new").write_bytes(b"cut off")
    assert folder.models() == {}


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-1] + b"\x07", lambda _: b""])
def test_damage_is_seen(tmp_path: Path, damage: object) -> None:
    folder = begun(tmp_path)
    folder.add(0, LOGITS)
    path = tmp_path / "model-000000.npy"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"damaged: model-000000\.npy is not as it was"):
        folder.models()


def test_a_file_of_another_run_or_name_does_not_pass(tmp_path: Path) -> None:
    one, other = begun(tmp_path / "one"), begun(tmp_path / "other")
    one.add(0, LOGITS)
    written = (tmp_path / "one" / "model-000000.npy").read_bytes()
    (tmp_path / "other" / "model-000000.npy").write_bytes(written)
    with pytest.raises(CheckpointError, match="not as it was written for this run"):
        other.models()
    (tmp_path / "one" / "model-000001.npy").write_bytes(written)
    with pytest.raises(CheckpointError, match="model-000001"):
        one.models()


@pytest.mark.parametrize("text", ["{", '{"format": 1}', "[]", '{"format": 1, "run": "zz"}'])
def test_a_damaged_record(tmp_path: Path, text: str) -> None:
    begun(tmp_path)
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(CheckpointError, match=r"is damaged: shadows\.json cannot be read"):
        Folder(tmp_path).settings()


def test_another_format(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / RECORD).write_text('{"format": 9, "run": "", "settings": {}}')
    with pytest.raises(CheckpointError, match="has the format 9, not 1"):
        Folder(tmp_path).settings()


@pytest.mark.skipif(os.name != "posix", reason="locks are POSIX")
def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        Folder(tmp_path).opened(),
        pytest.raises(CheckpointError, match="in use by another process"),
        Folder(tmp_path).opened(),
    ):
        pass


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(CheckpointError, match="cannot be written"),
        Folder(tmp_path / "file" / "folder").opened(),
    ):
        pass
