"""A journal holds one state or the one before, is for one search, and ends without secrets."""

from __future__ import annotations

import json
import math
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from tacit._pickles import PickledModels, PlainModels
from tacit.errors import CheckpointError
from tacit.selection import journal as journals
from tacit.selection.journal import Best, Progress

if TYPE_CHECKING:
    from pathlib import Path

PRINT = {"event": "Gaussian", "candidates": [1, 2]}


PLAIN = PlainModels()


def Journal(  # noqa: N802 - the class, for two candidates
    folder: Path, fingerprint: dict[str, Any], models: Any = PLAIN
) -> journals.SearchJournal:
    return journals.SearchJournal(folder, fingerprint, candidates=2, models=models)


def test_a_folder_keeps_what_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "search", PRINT)
    with journal.opened() as before:
        assert before is None
        progress = Progress((1, 0, 1), entry=7)
        progress.record(2, -math.inf, "worst", math.inf)
        journal.write(progress, new_model=True)
        assert progress.record(0, 0.1, {"weights": [1.0]}, math.inf)
        journal.write(progress, new_model=True)
    with Journal(tmp_path / "new" / "search", dict(PRINT)).opened() as found:
        assert found is not None
        assert (found.choices, found.entry, found.done) == ((1, 0, 1), 7, {0, 2})
        assert (found.best, found.model) == (Best(0, 0.1), {"weights": [1.0]})
        assert not found.finished
    assert (tmp_path / "new" / "search").stat().st_mode & 0o077 == 0


def test_what_ended_tells_neither_runs_nor_scores(tmp_path: Path) -> None:
    journal = Journal(tmp_path, PRINT)
    with journal.opened():
        progress = Progress((1, 0, 1, 1, 0))
        for run, score in enumerate((0.3, 0.9, 0.2, 0.9)):
            journal.write(progress, new_model=progress.record(run, score, f"m{run}", math.inf))
        progress.finish()
        journal.write(progress, new_model=True)
    text = (tmp_path / "search.json").read_text()
    assert json.loads(text)["choices"] == []
    assert json.loads(text)["done"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".lock",
        "model-winner.safetensors",
        "search.json",
    ]
    with Journal(tmp_path, PRINT).opened() as found:
        assert found is not None
        assert (found.finished, found.winner, found.model) == (True, 0, "m1")
        assert found.best is not None
        assert found.best.score == 0.9


def test_equal_scores_go_to_the_earlier_run_whenever_it_ends() -> None:
    late = Progress((0, 0, 0))
    for run in (2, 0, 1):
        late.record(run, 1.0, run, math.inf)
    assert late.best == Best(0, 1.0)
    reached = Progress((0, 0, 0, 0))
    reached.record(2, 5.0, "2", 0.9)
    assert not reached.is_needed(3, 0.9)  # later runs cannot win
    assert reached.is_needed(1, 0.9)
    reached.record(1, 0.95, "1", 0.9)
    assert reached.model == "1"
    assert not reached.is_needed(1, 0.9)


def test_another_search_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, PRINT)
    with journal.opened():
        journal.write(Progress((1,)))
    with (
        pytest.raises(CheckpointError, match="belongs to a search with other candidates"),
        Journal(tmp_path, PRINT | {"event": "Laplace"}).opened(),
    ):
        pass


def test_two_searches_cannot_share_a_folder(tmp_path: Path) -> None:
    with (
        Journal(tmp_path, PRINT).opened(),
        pytest.raises(CheckpointError, match="in use by another search"),
        Journal(tmp_path, PRINT).opened(),
    ):
        pass


@pytest.mark.parametrize("cut", [0, 1, 30, 200])
def test_a_damaged_state_is_an_error_and_no_new_search(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path, PRINT)
    with journal.opened():
        progress = Progress((1, 1))
        progress.record(0, 0.5, "m", math.inf)
        journal.write(progress, new_model=True)
    content = (tmp_path / "search.json").read_bytes()
    (tmp_path / "search.json").write_bytes(content[:cut])
    with pytest.raises(CheckpointError, match="is damaged"), Journal(tmp_path, PRINT).opened():
        pass
    (tmp_path / "search.json").write_bytes(content)
    (tmp_path / "model-0.safetensors").write_bytes(b"\x80\x04")
    with pytest.raises(CheckpointError, match="is damaged"), Journal(tmp_path, PRINT).opened():
        pass


class Hostile:
    """Runs code when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, (str(self.mark),)


def kept(folder: Path, model: Any, models: Any) -> None:
    journal = Journal(folder, PRINT, models)
    with journal.opened():
        progress = Progress((1,))
        progress.record(0, 0.5, model, math.inf)
        journal.write(progress, new_model=True)


def test_a_pickle_is_read_only_by_whoever_names_pickles(tmp_path: Path) -> None:
    folder, mark = tmp_path / "search", tmp_path / "mark"
    kept(folder, Hostile(mark), PickledModels())
    with (
        pytest.raises(CheckpointError, match="models='PickledModels', not with PlainModels"),
        Journal(folder, PRINT).opened(),
    ):
        pass
    assert not mark.exists()
    with Journal(folder, PRINT, PickledModels()).opened():
        assert mark.exists()


def test_pickles_of_an_older_tacit_are_refused(tmp_path: Path) -> None:
    folder, mark = tmp_path / "search", tmp_path / "mark"
    kept(folder, "m", PlainModels())
    (folder / "model-0.safetensors").unlink()
    (folder / "model-0.pickle").write_bytes(pickle.dumps(Hostile(mark)))
    for models in (PlainModels(), PickledModels()):
        with (
            pytest.raises(CheckpointError, match="as a pickle, which can run any program"),
            Journal(folder, PRINT, models).opened(),
        ):
            pass
    assert not mark.exists()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
@pytest.mark.parametrize("what", [".", "model-0.safetensors"])
def test_pickles_that_others_could_have_written_are_not_read(tmp_path: Path, what: str) -> None:
    folder, mark = tmp_path / "search", tmp_path / "mark"
    kept(folder, Hostile(mark), PickledModels())
    (folder / what).chmod(0o777)
    with (
        pytest.raises(CheckpointError, match="could have been written by others"),
        Journal(folder, PRINT, PickledModels()).opened(),
    ):
        pass
    assert not mark.exists()


def test_a_model_that_is_no_state_is_refused_with_the_way_on(tmp_path: Path) -> None:
    for models, words in ((PlainModels(), "is a function"), (PickledModels(), "be pickled")):
        with pytest.raises(CheckpointError, match=rf"{words}.*say how with models="):
            kept(tmp_path, lambda: None, models)


@pytest.mark.parametrize(
    "change",
    [
        {"choices": [2]},
        {"choices": [-1]},
        {"choices": [True]},
        {"choices": "11"},
        {"choices": [1.0]},
        {"done": [1]},
        {"done": []},
        {"done": None},
        {"entry": "7"},
        {"entry": -3},
        {"run": 1},
        {"run": None},
        {"score": "nan"},
        {"score": "0x1p99999"},
        {"score": 0.5},
        {"winner": 0},
        {"finished": 1},
        {"finished": True},
    ],
    ids=str,
)
def test_a_state_with_an_impossible_field_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    kept(tmp_path, "m", PlainModels())
    plain = json.loads((tmp_path / "search.json").read_text())
    (tmp_path / "search.json").write_text(json.dumps(plain | change))
    with pytest.raises(CheckpointError, match="is damaged"), Journal(tmp_path, PRINT).opened():
        pass
